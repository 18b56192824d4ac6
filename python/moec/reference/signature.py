# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names, shapes and dtypes of the tensors of a layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fields import SpecError
from .spec import LayerSpec


#: Dtypes of tensors of ids; those of 8 bits are bytes.
ID_TENSORS = {"int32": "i32", "int16": "i16", "uint8": "i8"}


def read_ids(tensor) -> np.ndarray:
    """Returns ids as i64. Bytes have no sign."""
    ids = np.asarray(tensor[...])
    return (ids.view(np.uint8) if ids.dtype.itemsize == 1 else ids).astype(np.int64)


@dataclass(frozen=True)
class Tensor:
    """One tensor; with `tokens` its first dimension is the token count."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    tokens: bool = False

    def shape_for(self, num_tokens: int) -> tuple[int, ...]:
        return (num_tokens, *self.shape) if self.tokens else self.shape


def inputs(spec: LayerSpec) -> list[Tensor]:
    """Returns all input tensors of a call, in the order of docs/use/layers.md."""
    if not all(quantization.supported for quantization in spec.quantizations):
        raise SpecError(
            "field 'quantization': nothing has numbers for fp8_e5m2"
        )
    dtype, routing, k = spec.dtype, spec.routing, spec.top_k
    hidden, routes = spec.hidden_size, spec.num_routes
    tensors = _hidden_states(spec)
    if spec.entry == "logits":
        tensors.append(Tensor("router_logits", (routes,), spec.routing.logits_dtype, tokens=True))
    if spec.entry == "ids":
        tensors.append(Tensor("topk_ids", (k,), "i32", tokens=True))
        tensors.append(Tensor("topk_weights", (k,), "f32", tokens=True))
    if spec.replay_ids is not None:
        tensors.append(Tensor("topk_ids", (k,), ID_TENSORS[spec.replay_ids], tokens=True))
    if spec.num_valid_tokens:
        tensors.append(Tensor("num_valid_tokens", (1,), "i32"))
    if spec.padding_mask:
        tensors.append(Tensor("is_padding", (), "i8", tokens=True))
    if spec.entry != "ids":
        if routing.select == "hash":
            tensors.append(Tensor("input_ids", (), "i32", tokens=True))
        if spec.entry == "gate":
            rows = 2 * routes if routing.split_gate else routes
            width = routing.gate_hidden_size or hidden
            if routing.gate_hidden_size:
                tensors.append(Tensor("gate.hidden", (width, hidden), dtype))
            tensors.append(Tensor("gate.weight", (rows, width), dtype))
            if routing.gate_bias:
                tensors.append(Tensor("gate.bias", (routes,), "f32"))
        if routing.selection_bias:
            tensors.append(Tensor("gate.selection_bias", (routes,), "f32"))
        if routing.expert_scale:
            tensors.append(Tensor("gate.expert_scale", (routes,), "f32"))
        if routing.select == "hash":
            shape = (routing.hash_vocab_size, k)
            tensors.append(Tensor("gate.hash_table", shape, "i32"))
    if spec.lora is not None:
        tensors.append(Tensor("adapter_ids", (), "i32", tokens=True))
    experts, width, size = spec.num_local_experts, spec.width, spec.intermediate_size
    rows = spec.first_rows(size)
    tensors += _matrix(spec, "experts.w13", (experts, rows, width))
    if spec.expert_columns:
        tensors.append(Tensor("experts.w13_columns", (experts, width), "i32"))
    if spec.expert_bias:
        tensors.append(Tensor("experts.w13_bias", (experts, rows), dtype))
    tensors += _matrix(spec, "experts.w2", (experts, width, size))
    if spec.expert_bias:
        tensors.append(Tensor("experts.w2_bias", (experts, width), dtype))
    if spec.output_bias:
        tensors.append(Tensor("output_bias", (hidden,), dtype))
    if spec.shared_experts is not None:
        size = spec.shared_experts.intermediate_size
        rows = spec.first_rows(size)
        tensors += _matrix(spec, "shared_experts.w13", (rows, hidden))
        if spec.shared_experts.columns:
            tensors.append(Tensor("shared_experts.w13_columns", (1, hidden), "i32"))
        if spec.shared_experts.bias:
            tensors.append(Tensor("shared_experts.w13_bias", (rows,), dtype))
        tensors += _matrix(spec, "shared_experts.w2", (hidden, size))
        if spec.shared_experts.bias:
            tensors.append(Tensor("shared_experts.w2_bias", (hidden,), dtype))
        if spec.shared_experts.gate != "none":
            rows = 2 if spec.shared_experts.gate == "softmax" else 1
            tensors.append(Tensor("shared_experts.gate", (rows, hidden), dtype))
            if spec.shared_experts.gate_bias:
                tensors.append(Tensor("shared_experts.gate_bias", (rows,), "f32"))
    if spec.latent_size is not None:
        tensors.append(Tensor("latent.down", (spec.latent_size, hidden), dtype))
        tensors.append(Tensor("latent.up", (hidden, spec.latent_size), dtype))
    tensors += [Tensor(f"norms.{name}", (spec.width,), dtype) for name in spec.norms]
    if spec.lora is not None:
        adapters, rank, size = spec.lora.adapters, spec.lora.rank, spec.intermediate_size
        pairs = {"gate": (width, size), "up": (width, size), "down": (size, width)}
        for name, (columns, rows) in pairs.items():
            if name != "gate" or spec.activation.gated:
                tensors.append(Tensor(f"lora.{name}_a", (adapters, experts, rank, columns), dtype))
                tensors.append(Tensor(f"lora.{name}_b", (adapters, experts, rows, rank), dtype))
    if spec.replicas is not None:
        shape = (spec.num_experts, spec.replicas.max_replicas)
        tensors.append(Tensor("replicas.physical_ids", shape, "i32"))
        tensors.append(Tensor("replicas.counts", (spec.num_experts,), "i32"))
    return tensors


def scale_row(spec: LayerSpec, name: str, rows: int) -> np.ndarray:
    """Returns the row of the scale for every row of a weight.

    Gate and up halves, which only w13 has, have separate scales."""
    row = np.arange(rows)
    height = spec.quantization_of(name).weight.rows or rows
    if not has_halves(spec, name):
        return row // height
    half = rows // 2
    return row // half * -(-half // height) + row % half // height


def scale_column(spec: LayerSpec, name: str, columns: int) -> np.ndarray:
    """Returns the column of the scale for every K element of a weight."""
    return np.arange(columns) // (spec.quantization_of(name).weight.columns or columns)


def _hidden_states(spec: LayerSpec) -> list[Tensor]:
    """The rows, and their scales if the caller has quantized them."""
    hidden = spec.hidden_size
    if not spec.quantized_input:
        return [Tensor("hidden_states", (hidden,), spec.dtype, tokens=True)]
    rows = spec.quantization.w13.activation
    tensors = [Tensor("hidden_states", (hidden,), _STORAGE_TENSORS[rows.dtype], tokens=True)]
    if rows.static:
        return tensors
    if rows.granularity == "tensor":
        return [*tensors, Tensor("hidden_states_scale", (1,), "f32")]
    return [*tensors, Tensor("hidden_states_scale", (-(-hidden // (rows.columns or hidden)),), "f32", tokens=True)]


def has_halves(spec: LayerSpec, name: str) -> bool:
    """Whether gate and up rows of a weight are separate halves, which share no scale."""
    return name.endswith("w13") and spec.activation.gated and spec.gate_up_order != "interleaved"


#: Tensor dtypes of scales and of weight elements.
_SCALE_TENSORS = {
    "f32": "f32", "bf16": "bf16", "f16": "f16", "e8m0": "f8e8m0", "e4m3": "f8e4m3",
}
_STORAGE_TENSORS = {"fp8_e4m3": "f8e4m3", "fp4_e2m1": "i8", "nf4": "i8", "int8": "i8", "int4": "i8"}


def _matrix(spec: LayerSpec, name: str, shape: tuple[int, ...]) -> list[Tensor]:
    """A weight of an expert and its scales, if it has any."""
    quantization = spec.quantization_of(name)
    if quantization is None:
        return [Tensor(name, shape, spec.dtype)]
    weight, activation = quantization.weight, quantization.activation
    *experts, rows, columns = shape
    blocks = int(scale_row(spec, name, rows)[-1]) + 1
    scales = (*experts, blocks, int(scale_column(spec, name, columns)[-1]) + 1)
    stored = (*experts, rows, columns // 2) if weight.in_pairs else shape
    tensors = [
        Tensor(name, stored, _STORAGE_TENSORS[weight.dtype]),
        Tensor(f"{name}_scale", scales, _SCALE_TENSORS[weight.scale_dtype]),
    ]
    if weight.minimum:
        tensors.append(Tensor(f"{name}_minimum", scales, _SCALE_TENSORS[weight.scale_dtype]))
    if weight.zero_point:
        tensors.append(Tensor(f"{name}_zero_point", scales, "i8"))
    if weight.global_scale:
        halves = 2 if has_halves(spec, name) else 1
        tensors.append(Tensor(f"{name}_global_scale", (*experts, halves), "f32"))
    if activation is not None and activation.static:
        tensors.append(Tensor(f"{name}_input_scale", (1,), "f32"))
    return tensors


def outputs(spec: LayerSpec) -> list[Tensor]:
    """Returns the tensors of an outputs file; only `output` is required."""
    experts = spec.num_local_experts
    return [
        Tensor("output", (spec.output_width,), spec.dtype, tokens=True),
        Tensor("topk_ids", (spec.top_k,), ID_TENSORS[spec.record_ids or spec.replay_ids or "int32"], tokens=True),
        Tensor("topk_weights", (spec.top_k,), "f32", tokens=True),
        Tensor("expert_counts", (experts,), "i32"),
        Tensor("expert_offsets", (experts + 1,), "i32"),
    ]
