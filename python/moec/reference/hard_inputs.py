# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named rules that make the inputs of a layer hard."""

from __future__ import annotations

import math
from typing import Callable

import numpy as np

from .fields import SpecError
from .hard_weights import HARD_WEIGHTS, Tensors
from .spec import LayerSpec

#: Elements that share a scale in block fp8.
_BLOCK = 128


def _favoured(spec: LayerSpec, rng) -> np.ndarray:
    """Returns top_k experts that every token can select, with or without groups."""
    routes, k, groups = spec.num_routes, spec.top_k, spec.routing.num_groups
    if spec.routing.select == "per_group":
        share = np.arange(k // groups)
        return (np.arange(groups)[:, None] * (routes // groups) + share).ravel()
    size = routes // groups
    first = int(rng.integers(0, max(1, (routes - k) // size + 1))) * size
    return np.arange(first, first + k)


def _push_logits(spec: LayerSpec, tensors: Tensors, push: np.ndarray) -> None:
    """Adds a row of R values to the logits of every token."""
    if spec.entry == "logits":
        tensors["router_logits"] += push.astype(np.float32)
        return
    # With entry `gate`, through one input element that is 1 for every token.
    tensors["hidden_states"][:, 0] = 1.0
    weight = tensors["gate.weight"]
    weight[:, 0] = 0.0
    weight[: spec.num_routes, 0] = push.astype(weight.dtype)


def _one_expert(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Every token selects the same experts; all others are empty."""
    chosen = _favoured(spec, rng)
    if spec.entry == "ids":
        tensors["topk_ids"][:] = chosen
    elif spec.routing.select == "hash":
        tensors["input_ids"][:] = rng.integers(0, spec.routing.hash_vocab_size)
    else:
        push = np.zeros(spec.num_routes)
        push[chosen] = 12.0 + 0.5 * np.arange(len(chosen))[::-1]
        _push_logits(spec, tensors, push)


def _empty_experts(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Experts with an odd index receive no tokens, as far as top_k allows."""
    even = np.arange(0, spec.num_routes, 2)
    if spec.entry == "ids" or spec.routing.select == "hash":
        if len(even) < spec.top_k:
            raise SpecError(f"field 'top_k' is {spec.top_k}: no expert can be empty")
        name = "topk_ids" if spec.entry == "ids" else "gate.hash_table"
        order = rng.random((tensors[name].shape[0], len(even))).argsort(axis=1)
        tensors[name][:] = even[order[:, : spec.top_k]]
    else:
        push = np.full(spec.num_routes, -12.0)
        push[even] = 0.0
        _push_logits(spec, tensors, push)


def _ties(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Experts have a few exactly equal logits, for any summation order."""
    _needs_logits(spec, "ties")
    routes = spec.num_routes
    if spec.entry == "logits":
        shape = tensors["router_logits"].shape
        tensors["router_logits"][:] = rng.choice([0.25, 1.0, 1.5], shape)
    else:
        if "gate.hidden" in tensors:
            raise SpecError("hard inputs 'ties' need logits that are one gemm, without 'routing.gate_hidden_size'")
        # Small integers over a power of two: every sum is exact in f32.
        hidden = tensors["hidden_states"]
        hidden[:] = rng.integers(-2, 3, hidden.shape).astype(hidden.dtype)
        weight = tensors["gate.weight"]
        step = 2.0 ** -round(math.log2(2.0 * math.sqrt(spec.hidden_size)))
        kinds = rng.integers(-2, 3, (3, spec.hidden_size)) * step
        weight[:] = 0.0
        weight[:routes] = kinds[np.arange(routes) % 3].astype(weight.dtype)
    for name in ("gate.bias", "gate.selection_bias"):
        if name in tensors:
            tensors[name][:] = 0.0


def _needs_logits(spec: LayerSpec, name: str) -> None:
    if spec.entry == "ids" or spec.routing.select == "hash":
        raise SpecError(f"hard inputs '{name}' need keys: entry gate or logits")


def _needs_scores(spec: LayerSpec, name: str) -> None:
    if spec.entry == "ids":
        raise SpecError(f"hard inputs '{name}' need entry gate or logits")


def _spoil_logits(spec: LayerSpec, tensors: Tensors, rng, name: str, values) -> None:
    _needs_scores(spec, name)
    if spec.entry == "gate":
        # One router row each, which affects all tokens.
        weight = tensors["gate.weight"]
        rows = rng.permutation(spec.num_routes)[: len(values)]
        for row, value in zip(rows, values):
            weight[row, 0] = value
        return
    logits = tensors["router_logits"]
    spoiled = rng.random(logits.shape) < 0.2
    # Every third row stays clean; the last row has no finite logit.
    spoiled[::3] = False
    spoiled[-1:] = True
    logits[spoiled] = rng.choice(values, int(spoiled.sum()))


def _nan_logits(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """NaN in some logits."""
    _spoil_logits(spec, tensors, rng, "nan_logits", [np.nan])


def _inf_logits(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Infinities of both signs in some logits."""
    _spoil_logits(spec, tensors, rng, "inf_logits", [np.inf, -np.inf])


def _wide_logits(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Logits of standard deviation 8."""
    _needs_scores(spec, "wide_logits")
    name = "router_logits" if spec.entry == "logits" else "gate.weight"
    tensors[name] *= tensors[name].dtype.type(8.0)


def _wide_hidden(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Hidden states of a token up to 256 times as large, so that exp of a gate value overflows."""
    hidden = tensors["hidden_states"]
    for token in range(hidden.shape[0]):
        hidden[token] *= hidden.dtype.type(2.0 ** (token % 9))


def _needs_ids(spec: LayerSpec, name: str) -> None:
    if spec.entry != "ids":
        raise SpecError(f"hard inputs '{name}' need entry ids")


def _replace_ids(ids: np.ndarray, rng, values) -> np.ndarray:
    """Writes values into some slots and one whole row; returns the positions."""
    where = rng.random(ids.shape) < 0.3
    where[ids.shape[0] // 2 : ids.shape[0] // 2 + 1] = True
    ids[where] = rng.choice(np.array(values, np.int64), int(where.sum()))
    return where


def _duplicate_ids(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Tokens with repeated experts: even tokens in all slots, odd tokens in pairs."""
    _needs_ids(spec, "duplicate_ids")
    token, slot = np.indices(tensors["topk_ids"].shape)
    ids = np.where(token % 2 == 0, token, token + slot // 2)
    tensors["topk_ids"][:] = ids % spec.num_routes


def _minus_one_ids(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Slots with the id -1, and a row with no other id."""
    _needs_ids(spec, "minus_one_ids")
    _replace_ids(tensors["topk_ids"], rng, [-1])


def _wild_ids(spec: LayerSpec) -> list[int]:
    routes = spec.num_routes
    return [routes, routes + 5, 2**31 - 1, -2, -7, -(2**31)]


def _out_of_range_ids(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Ids outside the router's range on both sides (in the table, for hash routing)."""
    if spec.entry != "ids" and spec.routing.select == "hash":
        _replace_ids(tensors["gate.hash_table"], rng, _wild_ids(spec))
        vocabulary = spec.routing.hash_vocab_size
        values = [vocabulary, -1, 2**31 - 1, -(2**31)]
        tensors["input_ids"][1::4] = rng.choice(values, tensors["input_ids"][1::4].shape)
        return
    _needs_ids(spec, "out_of_range_ids")
    _replace_ids(tensors["topk_ids"], rng, _wild_ids(spec))


def _nan_weights(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """NaN and infinite weights on slots that do not count."""
    _needs_ids(spec, "nan_weights")
    where = _replace_ids(tensors["topk_ids"], rng, [-1, *_wild_ids(spec)])
    weights = rng.choice([np.nan, np.inf, -np.inf], int(where.sum()))
    tensors["topk_weights"][where] = weights


def _nan_hidden(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """NaN in some rows of the hidden states, which must not affect other rows."""
    hidden = tensors["hidden_states"]
    for token in range(2, hidden.shape[0], 5):
        hidden[token, token % 3 :: 3] = np.nan


def _zero_groups(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Groups that share a scale, and whole rows, hold zeros or values below every scale."""
    hidden = tensors["hidden_states"]
    for token in range(1, hidden.shape[0], 3):
        hidden[token, :_BLOCK] = 0.0
    hidden[2::4] = 0.0
    hidden[3::8, _BLOCK:] = 1e-12


def _padding(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Half of the rows are padding with arbitrary contents."""
    if not spec.num_valid_tokens and not spec.padding_mask:
        raise SpecError("hard inputs 'padding' need field 'num_valid_tokens' or 'padding_mask'")
    tokens = tensors["hidden_states"].shape[0]
    padding = np.zeros(tokens, bool)
    if spec.num_valid_tokens:
        tensors["num_valid_tokens"][0] = (tokens + 1) // 2
        padding[(tokens + 1) // 2 :] = True
    if spec.padding_mask:
        tensors["is_padding"][:] = 0
        tensors["is_padding"][::2] = np.arange(0, tokens, 2) % 255 - 127
        padding |= tensors["is_padding"] != 0
    tensors["hidden_states"][padding] = np.nan
    if spec.entry == "logits":
        tensors["router_logits"][padding] = np.nan
    if spec.entry == "ids":
        tensors["topk_ids"][padding, ::2] = spec.num_routes + 3
        tensors["topk_weights"][padding] = np.nan
    if "input_ids" in tensors:
        tensors["input_ids"][padding] = -5


HARD_INPUTS: dict[str, Callable[..., None]] = {
    "one_expert": _one_expert,
    "empty_experts": _empty_experts,
    "ties": _ties,
    "nan_logits": _nan_logits,
    "inf_logits": _inf_logits,
    "wide_logits": _wide_logits,
    "wide_hidden": _wide_hidden,
    "duplicate_ids": _duplicate_ids,
    "minus_one_ids": _minus_one_ids,
    "out_of_range_ids": _out_of_range_ids,
    "nan_weights": _nan_weights,
    "nan_hidden": _nan_hidden,
    "zero_groups": _zero_groups,
    **HARD_WEIGHTS,
    "padding": _padding,
}
