# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selection of the experts of a row by keys, and the alternatives that near ties allow.

Keys are the integer orders of numerics.key_order. All orders are total: by descending key, then by lowest index. If two
keys that decide the outcome differ by at most 4 f32 ulps, an implementation in f32 may see either order, or equal keys,
so all of these are accepted."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from .numerics import (
    NEAR_TIE_ULPS,
    ORDER_EXCLUDED,
    PARTS_OF_ULP,
    is_near,
    key_order,
)
from .spec import Routing

#: Limits on the results of alternatives() and on the group sets it considers.
_MAX_ALTERNATIVES = 64
_MAX_GROUP_SETS = 4096


def ranked(order: np.ndarray) -> np.ndarray:
    """Indices along the last axis, best first."""
    return np.argsort(-order, axis=-1, kind="stable")


def _may_precede(order: np.ndarray, a, b):
    """Whether candidate a may come before candidate b (arrays broadcast)."""
    exact = (order[a] > order[b]) | ((order[a] == order[b]) & (a < b))
    return exact | is_near(order[a], order[b])


def _near_in_ranking(order: np.ndarray, best: np.ndarray, count: int) -> np.ndarray:
    """Rows in which two neighbours among the first `count` are near, or any other to the last of these: equal keys
    may stand between them."""
    top = np.take_along_axis(order, best[..., :count], axis=-1)
    return is_near(top[..., 1:], top[..., :-1]).any(axis=-1) | is_near(order, top[..., -1:]).any(axis=-1)


@dataclass(frozen=True)
class Stage:
    """`count` experts in descending order out of `candidates`."""

    candidates: np.ndarray
    count: int

    def accepts(self, order: np.ndarray, ids: np.ndarray) -> bool:
        if not np.isin(ids, self.candidates).all():
            return False
        # A repeated id fails too, since it does not precede itself.
        later = np.triu(np.ones((len(ids), len(ids)), bool), 1)
        among = _may_precede(order, ids[:, None], ids[None, :])
        rest = np.setdiff1d(self.candidates, ids)
        against = _may_precede(order, ids[:, None], rest[None, :])
        return bool(among[later].all() and against.all())

    def alternatives(self, order: np.ndarray):
        """Yields all acceptable sequences, the reference's own first."""
        best = self.candidates[ranked(order[self.candidates])]

        def extend(prefix: list[int], rest: list[int]):
            if len(prefix) == self.count:
                yield prefix
                return
            for i, expert in enumerate(rest):
                if order[rest[0]] - order[expert] > NEAR_TIE_ULPS * PARTS_OF_ULP:
                    return
                others = rest[:i] + rest[i + 1 :]
                after = np.array(others, np.int64)
                if _may_precede(order, np.int64(expert), after).all():
                    yield from extend(prefix + [expert], others)

        yield from extend([], best.tolist())


class Selection:
    """The selection of every row of a call."""

    def __init__(self, routing: Routing, top_k: int, keys: np.ndarray):
        self.routing = routing
        self.top_k = top_k
        self.order = key_order(keys)
        self.num_routes = keys.shape[1]
        self._grouped = routing.num_groups > 1
        self._group_size = self.num_routes // routing.num_groups
        self._group_order = None
        if self._grouped and routing.select == "top_k":
            self._group_order = key_order(self._group_keys(keys))

    def _group_keys(self, keys: np.ndarray) -> np.ndarray:
        tokens = keys.shape[0]
        grouped = keys.reshape(tokens, self.routing.num_groups, self._group_size)
        if self.routing.group_score == "max":
            return grouped.max(axis=2)
        with np.errstate(invalid="ignore"):
            top2 = np.partition(grouped, self._group_size - 2, axis=2)[:, :, -2:]
            return top2.astype(np.float64).sum(axis=2).astype(np.float32)

    def choose(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids of every row (T x k), and the rows with a near tie."""
        tokens, k, order = self.order.shape[0], self.top_k, self.order
        if self._grouped and self.routing.select == "per_group":
            groups, share = self.routing.num_groups, k // self.routing.num_groups
            grouped = order.reshape(tokens, groups, self._group_size)
            best = ranked(grouped)
            near = _near_in_ranking(grouped, best, share).any(axis=1)
            first = np.arange(groups)[None, :, None] * self._group_size
            return (best[:, :, :share] + first).reshape(tokens, k), near
        near = np.zeros(tokens, bool)
        if self._group_order is not None:
            kept = self.routing.topk_groups
            best = ranked(self._group_order)
            inside = np.take_along_axis(self._group_order, best[:, :kept], axis=1)
            outside = np.take_along_axis(self._group_order, best[:, kept:], axis=1)
            near |= is_near(inside[:, :, None], outside[:, None, :]).any(axis=(1, 2))
            stays = np.zeros(self._group_order.shape, bool)
            np.put_along_axis(stays, best[:, :kept], True, axis=1)
            stays = np.repeat(stays, self._group_size, axis=1)
            order = np.where(stays, order, ORDER_EXCLUDED)
        best = ranked(order)
        return best[:, :k], near | _near_in_ranking(order, best, k)

    def _group_sets(self, row: int):
        """Yields the acceptable sets of kept groups of a row."""
        order, kept = self._group_order[row], self.routing.topk_groups
        best = ranked(order)
        inside, outside = best[:kept], best[kept:]
        open_in = [g for g in inside if is_near(order[g], order[outside]).any()]
        open_out = [g for g in outside if is_near(order[g], order[inside]).any()]
        fixed = [g for g in inside if g not in open_in]
        sets = itertools.combinations(open_in + open_out, len(open_in))
        for chosen in itertools.islice(sets, _MAX_GROUP_SETS):
            members = np.array(fixed + list(chosen), np.int64)
            others = np.setdiff1d(best, members)
            if _may_precede(order, members[:, None], others[None, :]).all():
                yield members

    def _plans(self, row: int):
        """Yields the possible selections in a row, each as a list of stages."""
        k, size = self.top_k, self._group_size
        everything = np.arange(self.num_routes)
        if self._grouped and self.routing.select == "per_group":
            groups = self.routing.num_groups
            split = everything.reshape(groups, size)
            yield [Stage(members, k // groups) for members in split]
        elif self._group_order is not None:
            for members in self._group_sets(row):
                yield [Stage(everything[np.isin(everything // size, members)], k)]
        else:
            yield [Stage(everything, k)]

    def accepts(self, row: int, ids: np.ndarray) -> bool:
        """Whether these ids, in this order, are valid for the row."""
        order = self.order[row]
        for stages in self._plans(row):
            begins = np.cumsum([0] + [stage.count for stage in stages])
            if all(
                stage.accepts(order, ids[begin : begin + stage.count])
                for stage, begin in zip(stages, begins)
            ):
                return True
        return False

    def alternatives(self, row: int) -> list[np.ndarray]:
        """Returns acceptable ids of a row with a near tie, up to a limit."""

        def listed():
            for stages in self._plans(row):
                choices = [
                    list(
                        itertools.islice(
                            stage.alternatives(self.order[row]), _MAX_ALTERNATIVES
                        )
                    )
                    for stage in stages
                ]
                for parts in itertools.product(*choices):
                    yield np.concatenate([np.array(p, np.int64) for p in parts])

        return list(itertools.islice(listed(), _MAX_ALTERNATIVES))
