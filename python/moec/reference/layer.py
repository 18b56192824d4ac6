# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layer in float64 (formulas 7 to 11 of docs/use/layers.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import numpy as np

from .activations import apply, sigmoid, split_gate_up
from .numerics import quantize, quantize_by, round_to, tensor_scale
from .routing import Routing
from .signature import read_ids
from .spec import LayerSpec
from .weights import num_columns, scaled_rows

# Weights are converted to float64 in chunks of this many elements, so that memory use does not grow with the layer and
# a chunk stays in cache.
_PIECE = 1 << 20


@dataclass(frozen=True)
class Replicas:
    """Choice of the physical expert for a logical one and a token (formula 6)."""

    physical_ids: np.ndarray
    counts: np.ndarray
    num_physical: int

    def place(self, tokens: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Returns physical ids, -1 for none, such as zero experts. tokens: indices of the tokens in the call."""
        is_expert = ids < len(self.counts)
        ids = np.where(is_expert, ids, 0)
        count = np.where(is_expert, self.counts[ids], 0)
        usable = (count >= 1) & (count <= self.physical_ids.shape[1])
        replica = tokens.astype(np.uint32) * np.uint32(2654435769) % np.where(usable, count, 1)
        physical = self.physical_ids[ids, replica.astype(np.int64)]
        usable &= (physical >= 0) & (physical < self.num_physical)
        return np.where(usable, physical, -1)


@dataclass
class Decision:
    """Ids and weights of every row, and which slots count (T x k each)."""

    ids: np.ndarray
    weights: np.ndarray
    valid: np.ndarray
    #: None for the entry `ids`, without a selection.
    routing: Routing | None = None
    #: Token indices of the rows in the call; None for all tokens.
    tokens: np.ndarray | None = None
    replicas: Replicas | None = None

    def replace_ids(self, row: int, ids: np.ndarray) -> None:
        """Replaces the ids of a row by other accepted ones."""
        self.ids[row] = ids
        self.weights[row] = self.routing.weights(np.array([row]), ids[None, :])[0]

    def rows(self, rows: np.ndarray) -> "Decision":
        tokens = np.arange(len(self.ids)) if self.tokens is None else self.tokens
        return Decision(
            self.ids[rows], self.weights[rows], self.valid[rows], None, tokens[rows], self.replicas
        )


def product(x: np.ndarray, weight, expert: int | None = None) -> np.ndarray:
    """x @ weight.T for a matrix, or for one matrix of a stack."""
    rows, columns = weight.shape[-2:]
    out = np.empty((x.shape[0], rows))
    step = max(1, _PIECE // columns)
    with np.errstate(all="ignore"):
        for begin in range(0, rows, step):
            chunk = slice(begin, min(begin + step, rows))
            part = weight[chunk] if expert is None else weight[expert, chunk]
            out[:, chunk] = x @ np.asarray(part).astype(np.float64).T
    return out


def _decoded(
    spec: LayerSpec, tensors: Mapping, name: str, x: np.ndarray, found: np.float32 | None
) -> np.ndarray:
    """Returns the dequantized values of a gemm's quantized input rows, in float64.

    `found` is the scale shared by all rows of the call, if it is dynamic."""
    activation = spec.quantization_of(name).activation
    if activation is None:
        return x
    if activation.granularity == "tensor":
        scale = found
        if activation.static:
            scale = np.float32(np.asarray(tensors[f"{name}_input_scale"][...])[0])
        with np.errstate(all="ignore"):
            return quantize_by(x, scale, activation.dtype) * np.float64(scale)
    values, scales = quantize(x, activation.columns, activation.dtype, activation.scale_dtype)
    columns = np.arange(x.shape[1]) // (activation.columns or x.shape[1])
    with np.errstate(all="ignore"):
        return values * scales[:, columns]


def _expert_product(
    spec: LayerSpec,
    tensors: Mapping,
    name: str,
    x: np.ndarray,
    expert: int | None = None,
    found: np.float32 | None = None,
) -> np.ndarray:
    """A gemm of formula 8 or 10."""
    if spec.quantization_of(name) is None:
        return product(x, tensors[name], expert)
    if not (spec.quantized_input and name == "experts.w13"):
        x = _decoded(spec, tensors, name, x, found)
    rows, columns = tensors[name].shape[-2], num_columns(spec, tensors, name)
    out = np.empty((x.shape[0], rows))
    step = max(1, _PIECE // columns)
    with np.errstate(all="ignore"):
        for begin in range(0, rows, step):
            chunk = slice(begin, min(begin + step, rows))
            out[:, chunk] = x @ scaled_rows(spec, tensors, name, expert, chunk).T
    return out


def _find_scale(spec: LayerSpec, name: str, x: np.ndarray) -> np.float32 | None:
    """The input scale of a gemm if all rows of a call share one, else None."""
    quantization = spec.quantization_of(name)
    if quantization is None or not quantization.shares_scale:
        return None
    return tensor_scale(x, quantization.activation.dtype)


def _hidden_states(spec: LayerSpec, tensors: Mapping) -> np.ndarray:
    """The hidden states, dequantized if the caller has quantized them."""
    hidden = _float64(tensors["hidden_states"])
    if not spec.quantized_input:
        return hidden
    rows = spec.quantization.w13.activation
    name = "experts.w13_input_scale" if rows.static else "hidden_states_scale"
    scales = _float64(tensors[name])
    if rows.granularity == "tensor":
        scales = scales.reshape(1, 1)
    columns = np.arange(hidden.shape[1]) // (rows.columns or hidden.shape[1])
    with np.errstate(all="ignore"):
        return hidden * scales[:, columns]


def _float64(tensor) -> np.ndarray:
    return np.asarray(tensor[...]).astype(np.float64)


def num_valid(spec: LayerSpec, tensors: Mapping, tokens: int) -> int:
    if not spec.num_valid_tokens:
        return tokens
    return int(np.clip(int(np.asarray(tensors["num_valid_tokens"][...])[0]), 0, tokens))


def present_rows(spec: LayerSpec, tensors: Mapping, tokens: int) -> np.ndarray:
    """Mask of the rows that count, by num_valid_tokens and by the padding mask."""
    present = np.arange(tokens) < num_valid(spec, tensors, tokens)
    if spec.padding_mask:
        present &= np.asarray(tensors["is_padding"][...]) == 0
    return present


def decide(spec: LayerSpec, tensors: Mapping, first_token: int = 0) -> Decision:
    """Routes every row. The rows may be a part of a call, starting at `first_token`."""
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
            if spec.routing.gate_hidden_size is not None:
                hidden = round_to(np.tanh(product(hidden, tensors["gate.hidden"])), spec.dtype)
            logits = product(hidden, tensors["gate.weight"])
            if spec.routing.split_gate:
                logits = logits[:, : spec.num_routes] + logits[:, spec.num_routes :]
            if spec.routing.gate_bias:
                logits = logits + _float64(tensors["gate.bias"])
        names = ("gate.selection_bias", "gate.expert_scale", "gate.hash_table")
        small = {name: tensors[name][...] for name in names if name in tensors}
        input_ids = None
        if spec.routing.select == "hash":
            input_ids = np.asarray(tensors["input_ids"][...]).astype(np.int64)
        given = None if spec.replay_ids is None else read_ids(tensors["topk_ids"])
        routing = Routing(spec, logits, small, input_ids, given)
        ids = routing.ids.copy()
        weights = routing.weights(np.arange(tokens), ids)
    present = present_rows(spec, tensors, tokens)
    if spec.padding_mask:
        ids[~present] = -1
    valid = (ids >= 0) & (ids < spec.num_routes) & present[:, None]
    replicas = None
    if spec.replicas is not None:
        replicas = Replicas(
            np.asarray(tensors["replicas.physical_ids"][...]).astype(np.int64),
            np.asarray(tensors["replicas.counts"][...]).astype(np.int64),
            spec.replicas.num_physical_experts,
        )
    numbers = first_token + np.arange(tokens) if first_token else None
    return Decision(ids, weights, valid, routing, numbers, replicas)


def local_index(spec: LayerSpec) -> np.ndarray:
    """For every id the index of its weights, -1 for ids without weights."""
    index = np.full(spec.num_routes, -1)
    local = spec.local_experts
    held = np.arange(spec.num_experts) if local is None else np.array(local)
    index[held] = np.arange(len(held))
    return index


def places(spec: LayerSpec, decision: Decision) -> np.ndarray:
    """For every slot the index of the weights it uses, -1 for none."""
    ids = np.where(decision.valid, decision.ids, 0)
    if decision.replicas is None:
        place = local_index(spec)[ids]
    else:
        tokens = decision.tokens
        if tokens is None:
            tokens = np.arange(len(ids))
        place = decision.replicas.place(tokens[:, None], ids)
    return np.where(decision.valid, place, -1)


def expert_counts(spec: LayerSpec, decision: Decision) -> np.ndarray:
    """Number of slots of each local expert."""
    index = places(spec, decision)[decision.valid]
    return np.bincount(index[index >= 0], minlength=spec.num_local_experts)


def expert_offsets(counts: np.ndarray) -> np.ndarray:
    """First row of each expert in expert order, and the total at the end."""
    return np.concatenate([[0], np.cumsum(counts)])


def _adapted(spec: LayerSpec, tensors: Mapping, name: str, expert: int, x: np.ndarray, adapters: np.ndarray):
    """B (A x) of each row's adapter; 0 for rows without one."""
    b = tensors[f"lora.{name}_b"]
    out = np.zeros((len(x), b.shape[2]))
    for adapter in range(spec.lora.adapters):
        rows = np.flatnonzero(adapters == adapter)
        a = _float64(tensors[f"lora.{name}_a"][adapter, expert])
        out[rows] = x[rows] @ a.T @ _float64(b[adapter, expert]).T
    return out


def _activated(spec: LayerSpec, tensors: Mapping, expert: int, x: np.ndarray, found, adapters: np.ndarray | None):
    """D(activation(w13 @ x)), with the bias and the adapters."""
    given = x
    if spec.expert_columns:
        x = x[:, np.asarray(tensors["experts.w13_columns"][expert])]
    up = _expert_product(spec, tensors, "experts.w13", x, expert, found)
    if spec.expert_bias:
        up += np.asarray(tensors["experts.w13_bias"][expert]).astype(np.float64)
    gate, up = split_gate_up(up, spec.gate_up_order, spec.activation.gated)
    if adapters is not None:
        first = "gate" if spec.activation.gated else "up"
        gate = gate + _adapted(spec, tensors, first, expert, given, adapters)
        if spec.activation.gated:
            up = up + _adapted(spec, tensors, "up", expert, given, adapters)
    return round_to(apply(spec.activation, gate, up), spec.dtype)


def _second(spec: LayerSpec, tensors: Mapping, expert: int, a: np.ndarray, found, adapters: np.ndarray | None):
    """w2 @ a, with the bias and the adapters, not rounded."""
    y = _expert_product(spec, tensors, "experts.w2", a, expert, found)
    if spec.expert_bias:
        y += np.asarray(tensors["experts.w2_bias"][expert]).astype(np.float64)
    if adapters is not None:
        y += _adapted(spec, tensors, "down", expert, a, adapters)
    return y


def _shared_gate(spec: LayerSpec, tensors: Mapping, hidden: np.ndarray) -> tuple:
    """Factors of the weights and of the shared expert, a row each or 1."""
    shared = spec.shared_experts
    if shared is None or shared.gate == "none":
        return 1.0, 1.0
    values = product(hidden, tensors["shared_experts.gate"])
    if shared.gate_bias:
        values = values + _float64(tensors["shared_experts.gate_bias"])
    if shared.gate == "sigmoid":
        return 1.0, sigmoid(values)
    difference = values[:, 1:] - values[:, :1]
    return sigmoid(-difference), sigmoid(difference)


def _shared(spec: LayerSpec, tensors: Mapping, hidden: np.ndarray, factor) -> np.ndarray:
    x = hidden
    if spec.shared_experts.columns:
        x = x[:, np.asarray(tensors["shared_experts.w13_columns"][0])]
    found = _find_scale(spec, "shared_experts.w13", x)
    up = _expert_product(spec, tensors, "shared_experts.w13", x, found=found)
    if spec.shared_experts.bias:
        up = up + _float64(tensors["shared_experts.w13_bias"])
    activation = spec.shared_experts.activation or spec.activation
    gate, up = split_gate_up(up, spec.gate_up_order, activation.gated)
    a = round_to(apply(activation, gate, up), spec.dtype)
    found = _find_scale(spec, "shared_experts.w2", a)
    s = _expert_product(spec, tensors, "shared_experts.w2", a, found=found)
    if spec.shared_experts.bias:
        s = s + _float64(tensors["shared_experts.w2_bias"])
    return round_to(s * factor * spec.shared_experts.scale, spec.dtype)


def _normalize(spec: LayerSpec, tensors: Mapping, name: str, x: np.ndarray) -> np.ndarray:
    """The norm of rows of D, not rounded."""
    norm, weight = spec.norms[name], _float64(tensors[f"norms.{name}"])
    if norm.weight_first:
        x = round_to(x * (norm.offset + weight), spec.dtype)
    x = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + norm.epsilon)
    return x if norm.weight_first else x * (norm.offset + weight)


def _routed(
    spec: LayerSpec, tensors: Mapping, x: np.ndarray, decision: Decision, adapters: np.ndarray | None
) -> np.ndarray:
    """Formulas 7 to 9 without the latent projections; with output `slots` without 9 and the weights of 8."""
    on_input = spec.routing.weight_on_input
    in_slots = spec.output == "slots"
    # A row for each slot of a token, or one for all.
    r = np.zeros((x.shape[0], spec.top_k if in_slots else 1, spec.width))
    rows, slots = np.nonzero(decision.valid)
    ids = decision.ids[rows, slots]
    weights = decision.weights[rows, slots][:, None]
    index = places(spec, decision)[rows, slots]
    # Every token is multiplied by its weight, whichever expert it has.
    weighed = round_to(x * decision.weights[:, :1], spec.dtype) if on_input else x
    found = _find_scale(spec, "experts.w13", weighed)
    activated = {}
    for expert in np.unique(index[index >= 0]):
        chosen = np.flatnonzero(index == expert)
        inputs = weighed[rows[chosen]]
        own = None if adapters is None else adapters[rows[chosen]]
        activated[int(expert)] = chosen, _activated(spec, tensors, int(expert), inputs, found, own)
    rounded = [a for _, a in activated.values()] or [np.zeros((0, 1))]
    found = _find_scale(spec, "experts.w2", np.concatenate(rounded))
    for expert, (chosen, a) in activated.items():
        own = None if adapters is None else adapters[rows[chosen]]
        y = _second(spec, tensors, expert, a, found, own)
        if "expert" in spec.norms:
            y = _normalize(spec, tensors, "expert", round_to(y, spec.dtype))
        if not on_input and not in_slots:
            y = y * weights[chosen]
        np.add.at(r, (rows[chosen], slots[chosen] if in_slots else 0), round_to(y, spec.dtype))
    zero = np.flatnonzero(ids >= spec.num_experts)
    np.add.at(r, (rows[zero], 0), x[rows[zero]] * weights[zero])
    return r.reshape(len(r), r.shape[1] * r.shape[2])


def evaluate(
    spec: LayerSpec,
    tensors: Mapping,
    decision: Decision,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the output of the layer (or of some of its rows), float64 rounded to D.

    `decision` refers to the requested rows."""
    if rows is not None and any(each.shares_scale for each in spec.quantizations):
        # Other rows affect shared scales: evaluate all, routed as in the reference.
        every = decide(spec, tensors)
        for field in ("ids", "weights", "valid"):
            getattr(every, field)[rows] = getattr(decision, field)
        return evaluate(spec, tensors, every)[rows]
    hidden = _hidden_states(spec, tensors)
    tokens = hidden.shape[0]
    present = present_rows(spec, tensors, tokens)
    if rows is not None:
        hidden, present = hidden[rows], present[rows]
    out = np.zeros((len(hidden), spec.output_width))
    # Rows that do not count are left out, not multiplied by zero.
    hidden = hidden[present]
    decision = decision.rows(np.flatnonzero(present))
    adapters = None
    if spec.lora is not None:
        adapters = np.asarray(tensors["adapter_ids"][...])
        adapters = (adapters if rows is None else adapters[rows])[present]
    with np.errstate(all="ignore"):
        x = hidden
        if spec.latent_size is not None:
            x = round_to(product(hidden, tensors["latent.down"]), spec.dtype)
        if "latent_in" in spec.norms:
            x = round_to(_normalize(spec, tensors, "latent_in", x), spec.dtype)
        share, factor = _shared_gate(spec, tensors, hidden)
        decision.weights = decision.weights * share
        total = _routed(spec, tensors, x, decision, adapters)
        if spec.latent_size is not None:
            total = round_to(total, spec.dtype)
            if "latent_out" in spec.norms:
                total = round_to(_normalize(spec, tensors, "latent_out", total), spec.dtype)
            total = product(total, tensors["latent.up"])
        if spec.shared_experts is not None:
            total = total + _shared(spec, tensors, hidden, factor)
        if spec.output_bias:
            total = total + _float64(tensors["output_bias"])
    out[present] = round_to(total, spec.dtype)
    return out
