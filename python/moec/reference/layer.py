# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layer itself, in float64 (formulas 7 to 11 of docs/layers.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import numpy as np

from .activations import apply, sigmoid, split_gate_up
from .numerics import SCALE_BLOCK, quantize, round_to
from .routing import Routing
from .signature import scale_row
from .spec import LayerSpec

# Weights become float64 in pieces of this many elements, so that the memory
# needed does not grow with the layer and a piece stays in the cache.
_PIECE = 1 << 20


@dataclass
class Decision:
    """Ids and weights of every row, and which slots count (T x k each)."""

    ids: np.ndarray
    weights: np.ndarray
    valid: np.ndarray
    #: None for the entry `ids`, where nothing is decided here.
    routing: Routing | None = None

    def replace_ids(self, row: int, ids: np.ndarray) -> None:
        """Takes other accepted ids for a row."""
        self.ids[row] = ids
        self.weights[row] = self.routing.weights(np.array([row]), ids[None, :])[0]

    def rows(self, rows: np.ndarray) -> "Decision":
        return Decision(self.ids[rows], self.weights[rows], self.valid[rows])


def product(x: np.ndarray, weight, expert: int | None = None) -> np.ndarray:
    """x @ weight.T for a matrix, or for one matrix of a stack."""
    rows, columns = weight.shape[-2:]
    out = np.empty((x.shape[0], rows))
    step = max(1, _PIECE // columns)
    with np.errstate(all="ignore"):
        for begin in range(0, rows, step):
            piece = slice(begin, min(begin + step, rows))
            part = weight[piece] if expert is None else weight[expert, piece]
            out[:, piece] = x @ np.asarray(part).astype(np.float64).T
    return out


def _scaled_product(
    spec: LayerSpec, tensors: Mapping, name: str, x: np.ndarray, expert: int | None
) -> np.ndarray:
    """Q(x) @ weight.T of block fp8, block by block of the contracted dimension."""
    codes, input_scale = quantize(x)
    weight, scales = tensors[name], np.asarray(tensors[f"{name}_scale"][...])
    if expert is not None:
        scales = scales[expert]
    rows, columns = weight.shape[-2:]
    scales = scales.astype(np.float64)[scale_row(spec, rows, name.endswith("w13"))]
    out = np.empty((x.shape[0], rows))
    step = max(1, _PIECE // columns)
    with np.errstate(all="ignore"):
        for begin in range(0, rows, step):
            piece = slice(begin, min(begin + step, rows))
            part = weight[piece] if expert is None else weight[expert, piece]
            part = np.asarray(part).astype(np.float64)
            total = np.zeros((x.shape[0], part.shape[0]))
            for block in range(input_scale.shape[1]):
                inside = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
                factor = np.outer(input_scale[:, block], scales[piece, block])
                total += (codes[:, inside] @ part[:, inside].T) * factor
            out[:, piece] = total
    return out


def _expert_product(
    spec: LayerSpec, tensors: Mapping, name: str, x: np.ndarray, expert: int | None = None
) -> np.ndarray:
    """A product of formula 8 or 10."""
    if spec.quantization is None:
        return product(x, tensors[name], expert)
    return _scaled_product(spec, tensors, name, x, expert)


def _float64(tensor) -> np.ndarray:
    return np.asarray(tensor[...]).astype(np.float64)


def num_valid(spec: LayerSpec, tensors: Mapping, tokens: int) -> int:
    if not spec.num_valid_tokens:
        return tokens
    return int(np.clip(int(np.asarray(tensors["num_valid_tokens"][...])[0]), 0, tokens))


def decide(spec: LayerSpec, tensors: Mapping) -> Decision:
    """Routes every row as the reference does."""
    tokens = tensors["hidden_states"].shape[0]
    if spec.entry == "ids":
        routing = None
        ids = np.asarray(tensors["topk_ids"][...]).astype(np.int64)
        weights = _float64(tensors["topk_weights"])
    else:
        if spec.entry == "logits":
            logits = _float64(tensors["router_logits"])
        else:
            hidden = _float64(tensors["hidden_states"])
            logits = product(hidden, tensors["gate.weight"])
            if spec.routing.gate_bias:
                logits = logits + _float64(tensors["gate.bias"])
        names = ("gate.selection_bias", "gate.expert_scale", "gate.hash_table")
        small = {name: tensors[name][...] for name in names if name in tensors}
        input_ids = None
        if spec.routing.select == "hash":
            input_ids = np.asarray(tensors["input_ids"][...]).astype(np.int64)
        routing = Routing(spec, logits, small, input_ids)
        ids = routing.ids.copy()
        weights = routing.weights(np.arange(tokens), ids)
    valid = (ids >= 0) & (ids < spec.num_routes)
    valid &= (np.arange(tokens) < num_valid(spec, tensors, tokens))[:, None]
    return Decision(ids, weights, valid, routing)


def local_index(spec: LayerSpec) -> np.ndarray:
    """For every id the position of its weights, -1 for those without."""
    index = np.full(spec.num_routes, -1)
    local = spec.local_experts
    held = np.arange(spec.num_experts) if local is None else np.array(local)
    index[held] = np.arange(len(held))
    return index


def expert_counts(spec: LayerSpec, decision: Decision) -> np.ndarray:
    """Slots that each expert with weights here receives."""
    index = local_index(spec)[decision.ids[decision.valid]]
    return np.bincount(index[index >= 0], minlength=spec.num_local_experts)


def expert_offsets(counts: np.ndarray) -> np.ndarray:
    """First row of each expert in expert order, and the total at the end."""
    return np.concatenate([[0], np.cumsum(counts)])


def _expert(spec: LayerSpec, tensors: Mapping, expert: int, x: np.ndarray):
    """w2 @ D(activation(w13 @ x)), with biases, not rounded."""
    up = _expert_product(spec, tensors, "experts.w13", x, expert)
    if spec.expert_bias:
        up += np.asarray(tensors["experts.w13_bias"][expert]).astype(np.float64)
    gate, up = split_gate_up(up, spec.gate_up_order, spec.activation.gated)
    a = round_to(apply(spec.activation, gate, up), spec.dtype)
    y = _expert_product(spec, tensors, "experts.w2", a, expert)
    if spec.expert_bias:
        y += np.asarray(tensors["experts.w2_bias"][expert]).astype(np.float64)
    return y


def _shared(spec: LayerSpec, tensors: Mapping, hidden: np.ndarray) -> np.ndarray:
    up = _expert_product(spec, tensors, "shared_experts.w13", hidden)
    activation = spec.shared_experts.activation or spec.activation
    gate, up = split_gate_up(up, spec.gate_up_order, activation.gated)
    a = round_to(apply(activation, gate, up), spec.dtype)
    s = _expert_product(spec, tensors, "shared_experts.w2", a)
    if spec.shared_experts.gate == "sigmoid":
        s = s * sigmoid(product(hidden, tensors["shared_experts.gate"]))
    return round_to(s * spec.shared_experts.scale, spec.dtype)


def _routed(
    spec: LayerSpec, tensors: Mapping, x: np.ndarray, decision: Decision
) -> np.ndarray:
    """Formulas 7 to 9 without the latent projections."""
    on_input = spec.routing.weight_on_input
    r = np.zeros((x.shape[0], spec.width))
    rows, slots = np.nonzero(decision.valid)
    ids = decision.ids[rows, slots]
    weights = decision.weights[rows, slots][:, None]
    index = local_index(spec)[ids]
    for expert in np.unique(index[index >= 0]):
        chosen = np.flatnonzero(index == expert)
        inputs = x[rows[chosen]]
        if on_input:
            inputs = round_to(inputs * weights[chosen], spec.dtype)
        y = _expert(spec, tensors, int(expert), inputs)
        if not on_input:
            y = y * weights[chosen]
        np.add.at(r, rows[chosen], round_to(y, spec.dtype))
    zero = np.flatnonzero(ids >= spec.num_experts)
    np.add.at(r, rows[zero], x[rows[zero]] * weights[zero])
    return r


def evaluate(
    spec: LayerSpec,
    tensors: Mapping,
    decision: Decision,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """The output of the layer (or of some of its rows), float64 rounded to D.

    `decision` speaks of the rows that are asked for.
    """
    hidden = _float64(tensors["hidden_states"])
    tokens = hidden.shape[0]
    present = np.arange(tokens) < num_valid(spec, tensors, tokens)
    if rows is not None:
        hidden, present = hidden[rows], present[rows]
    out = np.zeros(hidden.shape)
    # Rows beyond num_valid_tokens are left out, not multiplied by zero.
    hidden = hidden[present]
    decision = decision.rows(np.flatnonzero(present))
    with np.errstate(all="ignore"):
        x = hidden
        if spec.latent_size is not None:
            x = round_to(product(hidden, tensors["latent.down"]), spec.dtype)
        total = _routed(spec, tensors, x, decision)
        if spec.latent_size is not None:
            total = product(round_to(total, spec.dtype), tensors["latent.up"])
        if spec.shared_experts is not None:
            total = total + _shared(spec, tensors, hidden)
    out[present] = round_to(total, spec.dtype)
    return out
