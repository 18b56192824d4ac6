# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Routing from logits to ids and weights, in float64 (formulas 1 to 6 of docs/use/layers.md)."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from .activations import sigmoid
from .numerics import PARTS_OF_ULP
from .selection import Selection
from .spec import LayerSpec

_SPARSEMIXER_EPS = 0.01
_LOWEST = -1e30


def _round_subnormal(x: np.ndarray) -> np.ndarray:
    """Rounds scores below the normal f32 range to f32; there the rounding shows in shares of scores."""
    return np.where(np.abs(x) < 2.0**-126, x.astype(np.float32).astype(np.float64), x)


def softplus(x: np.ndarray) -> np.ndarray:
    return _round_subnormal(np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0)))))


def score_sigmoid(x: np.ndarray) -> np.ndarray:
    return _round_subnormal(sigmoid(x))


def scores(kind: str, logits: np.ndarray) -> np.ndarray:
    """Formula 2, with NaN and infinities as in IEEE arithmetic."""
    with np.errstate(all="ignore"):
        if kind == "identity":
            return logits
        if kind == "sigmoid":
            return score_sigmoid(logits)
        if kind == "sqrtsoftplus":
            return np.sqrt(softplus(logits))
        assert kind == "softmax"
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        return exponentials / exponentials.sum(axis=1, keepdims=True)


def _has_unrounded_keys(routing) -> bool:
    """Softmax keys without a bias have the order of the logits, which may be compared instead; all other keys are f32.
    """
    grouped = routing.num_groups > 1 and routing.group_score != "max"
    return routing.score == "softmax" and not routing.selection_bias and not grouped


def _is_finite(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.isfinite(x.astype(np.float32))


class Routing:
    """Routing of the rows of a call for the entries `gate` and `logits`. Ids that are replayed are `given`.

    Attributes: `ids` (T x k) as selected by the reference, `near` (T) the rows whose selection depends on a near tie.
    """

    def __init__(
        self,
        spec: LayerSpec,
        logits: np.ndarray,
        tensors: Mapping[str, np.ndarray],
        input_ids: np.ndarray | None = None,
        given: np.ndarray | None = None,
    ):
        self._spec = spec
        routing = spec.routing
        logits = logits * routing.logit_scale
        if routing.logit_softcap is not None:
            logits = routing.logit_softcap * np.tanh(logits / routing.logit_softcap)
        value = scores(routing.score, logits)
        bad = ~_is_finite(value)
        bias = np.zeros(spec.num_routes)
        if routing.selection_bias:
            bias = np.asarray(tensors["gate.selection_bias"], np.float64)
        with np.errstate(all="ignore"):
            if routing.nonfinite == "zero":
                keys = np.where(bad, 0.0, value) + bias
            else:
                keys = value + bias
                bad |= ~_is_finite(keys)
                floor = -np.inf if routing.nonfinite == "neg_inf" else _LOWEST
                keys = np.where(bad, floor, keys)
            if not _has_unrounded_keys(routing):
                keys = keys.astype(np.float32)
            # Scores are f32; a score that underflows has weight 0.
            value = np.where(value.astype(np.float32) == 0.0, 0.0, value)
        self.value = np.where(bad, 0.0, value)
        self._bad = bad
        self._scale = None
        if routing.expert_scale:
            self._scale = np.asarray(tensors["gate.expert_scale"], np.float64)
        tokens = logits.shape[0]
        self._dead = np.zeros(tokens, bool)
        self._selection = None
        if routing.select == "hash":
            self.ids = self._look_up(np.asarray(tensors["gate.hash_table"]), input_ids)
            self.near = np.zeros(tokens, bool)
            return
        if routing.nonfinite == "neg_inf":
            self._dead = np.isneginf(keys).all(axis=1)
        if given is not None:
            self.ids = np.where((given >= 0) & (given < spec.num_routes), given, -1)
            self.near = np.zeros(tokens, bool)
            return
        self._selection = Selection(routing, spec.top_k, keys)
        self.ids, self.near = self._selection.choose()
        self.ids[self._dead] = np.arange(spec.top_k)
        self.near &= ~self._dead

    def _look_up(self, table: np.ndarray, input_ids: np.ndarray) -> np.ndarray:
        inside = (input_ids >= 0) & (input_ids < table.shape[0])
        ids = table[np.where(inside, input_ids, 0)].astype(np.int64)
        return np.where(inside[:, None], ids, -1)

    def accepts(self, row: int, ids: np.ndarray) -> bool:
        """Whether these ids are valid for the row, with near ties considered."""
        if (self.ids[row] == ids).all():
            return True
        if self._dead[row] or self._selection is None:
            return False
        if (ids < 0).any() or (ids >= self._spec.num_routes).any():
            return False
        return self._selection.accepts(row, ids)

    def alternatives(self, row: int) -> list[np.ndarray]:
        """The valid ids for a row with a near tie."""
        return self._selection.alternatives(row)

    @property
    def has_keys(self) -> bool:
        return self._selection is not None

    def key_distance(self, row: int, a: int, b: int) -> int:
        """Distance of two experts' keys in whole f32 ulps, rounded up."""
        order = self._selection.order[row]
        return -(-int(abs(order[a] - order[b])) // PARTS_OF_ULP)

    def weights(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Formula 5 for the given ids of the given rows, rounded to f32."""
        routing = self._spec.routing
        inside = (ids >= 0) & (ids < self._spec.num_routes)
        safe = np.where(inside, ids, 0)
        value = self.value[rows[:, None], safe]
        counts = inside & ~self._bad[rows[:, None], safe]
        with np.errstate(all="ignore"):
            if routing.select == "sparsemixer":
                weights = self._sparsemixer(rows, safe)
            elif routing.weight == "sigmoid":
                weights = score_sigmoid(value)
            elif routing.weight == "softmax":
                masked = np.where(counts, value, -np.inf)
                top = masked.max(axis=1, keepdims=True)
                weights = np.exp(masked - np.where(np.isneginf(top), 0.0, top))
                total = weights.sum(axis=1, keepdims=True)
                weights = weights / np.where(total == 0.0, 1.0, total)
            else:
                weights = value
            weights = np.where(counts, weights, 0.0)
            if routing.renormalize:
                total = weights.sum(axis=1, keepdims=True)
                total = total + routing.renormalize_epsilon
                usable = _is_finite(total) & (total != 0.0)
                weights = weights / np.where(usable, total, 1.0)
            if self._scale is not None:
                weights = weights * self._scale[safe]
            weights = weights * routing.scale
            weights = np.where(
                self._dead[rows][:, None], 1.0 / self._spec.top_k, weights
            )
            return weights.astype(np.float32).astype(np.float64)

    def _sparsemixer(self, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Both weights: each a softmax over the logits near the largest remaining one."""
        left = np.where(self._bad[rows], -np.inf, self.value[rows])
        logits = left.copy()
        line = np.arange(len(rows))
        weights = np.zeros(ids.shape)
        for slot in range(2):
            top = left.max(axis=1, keepdims=True)
            far = (top - logits) / np.maximum(np.abs(logits), top)
            masked = np.where(far > 2.0 * _SPARSEMIXER_EPS, -np.inf, left)
            exponentials = np.exp(masked - np.where(np.isneginf(top), 0.0, top))
            total = exponentials.sum(axis=1)
            chosen = exponentials[line, ids[:, slot]]
            weights[:, slot] = chosen / np.where(total == 0.0, 1.0, total)
            left[line, ids[:, slot]] = -np.inf
        return weights
