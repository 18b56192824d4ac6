# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of a layer: random values of reasonable size, optionally modified by a named rule that makes them hard.

Weights are randn / sqrt(fan in), so that logits and outputs are of order one."""

from __future__ import annotations

import math

import numpy as np

from .fields import SpecError
from .hard_inputs import HARD_INPUTS, Tensors
from .numerics import NUMPY_DTYPES
from .signature import Tensor, inputs
from .spec import LayerSpec

#: Standard deviation of e4m3 weights, whose values go up to 448.
CODE_DEVIATION = 64.0

#: Standard deviations of stored weights. For byte types and 4-bit types all values are about equally frequent.
_DEVIATIONS = {"fp8_e4m3": CODE_DEVIATION, "fp4_e2m1": 3.0, "nf4": 0.55, "int8": 74.0, "int4": 4.6}

#: Mean and standard deviation of zero points.
_ZERO_POINTS = {"int8": (128.0, 24.0), "int4": (8.0, 2.0)}

#: Minima, as multiples of typical scales: for unsigned elements, and for elements around 0.
_MINIMA = {"int8": (-16.0, 16.0), "int4": (4.0, 12.0)}

#: Factor of scales that have a global scale, so that e4m3 represents them precisely.
_LOCAL_SCALE = 64.0

#: Elements that share a scale in block fp8. Scales of other granularities are shared by as many as possible.
_BLOCK = 128

#: Static input scales of a gemm: few values of a normal distribution exceed their range.
_INPUT_SCALES = {"fp8_e4m3": 4.0 / 448.0, "int8": 4.0 / 127.0}


def generate(spec: LayerSpec, tokens: int, seed: int, hard: str | None = None) -> Tensors:
    """Returns all tensors of the signature for a call with `tokens` tokens."""
    if not 0 <= tokens <= spec.max_tokens:
        raise SpecError(f"{tokens} tokens: expected 0 to {spec.max_tokens}")
    rng = np.random.default_rng(seed)
    tensors = {
        tensor.name: _random(spec, tensor, tokens, rng) for tensor in inputs(spec)
    }
    if hard is not None:
        if hard not in HARD_INPUTS:
            raise SpecError(
                f"no hard inputs '{hard}': expected one of "
                + ", ".join(sorted(HARD_INPUTS))
            )
        HARD_INPUTS[hard](spec, tensors, rng)
    return tensors


def _random(spec: LayerSpec, tensor: Tensor, tokens: int, rng) -> np.ndarray:
    shape = tensor.shape_for(tokens)
    dtype = NUMPY_DTYPES[tensor.dtype]

    def normal(scale: float) -> np.ndarray:
        values = np.empty(shape, dtype)
        # Expert by expert: all at once need much memory.
        for part in values if values.ndim == 3 else [values]:
            part[...] = rng.standard_normal(part.shape, np.float32) * np.float32(scale)
        return values

    name = tensor.name
    if name == "hidden_states" and tensor.dtype == "i8":
        return rng.integers(-127, 128, shape).astype(dtype)
    if name == "hidden_states" and spec.quantized_input:
        return normal(CODE_DEVIATION)
    if name == "hidden_states_scale":
        return np.exp2(rng.integers(-8, -4, shape)).astype(dtype)
    if name in ("hidden_states", "router_logits"):
        return normal(1.0)
    if name == "topk_ids":
        order = rng.random((tokens, spec.num_routes)).argsort(axis=1)
        return order[:, : spec.top_k].astype(dtype)
    if name == "topk_weights":
        weights = rng.random(shape) + 0.1
        return (weights / weights.sum(axis=1, keepdims=True)).astype(dtype)
    if name == "num_valid_tokens":
        return np.array([tokens - tokens // 4], dtype)
    if name == "is_padding":
        # Every nonzero byte means true.
        return np.where(rng.random(shape) < 0.25, rng.integers(1, 256, shape), 0).astype(np.uint8).view(dtype)
    if name.startswith("replicas."):
        return _replicas(spec)[name].astype(dtype)
    if name == "input_ids":
        return rng.integers(0, spec.routing.hash_vocab_size, shape).astype(dtype)
    if name == "adapter_ids":
        # Some tokens have none.
        return rng.integers(-1, spec.lora.adapters, shape).astype(dtype)
    if name == "gate.hash_table":
        order = rng.random((shape[0], spec.num_routes)).argsort(axis=1)
        return order[:, : spec.top_k].astype(dtype)
    if name == "gate.selection_bias":
        # Softmax scores are of order 1 / R. A bias of that order matters but does not decide alone.
        softmax = spec.routing.score == "softmax"
        return normal(0.3 / spec.num_routes if softmax else 0.1)
    if name == "gate.expert_scale":
        return (0.5 + rng.random(shape)).astype(dtype)
    if name.endswith("experts.w13_columns"):
        return rng.random(shape).argsort(axis=1).astype(dtype)
    if "bias" in name:
        return normal(0.1)
    if name.endswith("_input_scale"):
        activation = spec.quantization_of(_matrix(name)).activation
        return np.full(shape, _INPUT_SCALES[activation.dtype], dtype)
    if name.endswith("_scale"):
        return _scales(spec, name, shape, rng).astype(dtype)
    if name.endswith("_minimum"):
        least, largest = _MINIMA[spec.quantization_of(_matrix(name)).weight.dtype]
        return ((least + (largest - least) * rng.random(shape)) / _size(spec, _matrix(name))).astype(dtype)
    if name.endswith("_zero_point"):
        mean, deviation = _ZERO_POINTS[spec.quantization_of(_matrix(name)).weight.dtype]
        points = np.rint(mean + deviation * rng.standard_normal(shape))
        return np.clip(points, 1, 2 * mean - 1).astype(np.uint8).view(dtype)
    if tensor.dtype == "f8e4m3":
        # Values that fill their range, up to 7 standard deviations.
        return normal(CODE_DEVIATION)
    if tensor.dtype == "i8":
        return rng.integers(0, 256, shape, np.uint8).view(dtype)
    return normal(1.0 / math.sqrt(shape[-1]))


def _replicas(spec: LayerSpec) -> dict[str, np.ndarray]:
    """Returns replicas: each physical expert belongs to one expert, with at most the allowed number per expert."""
    physical, most = spec.replicas.num_physical_experts, spec.replicas.max_replicas
    table = np.full((spec.num_experts, most), -1)
    counts = np.zeros(spec.num_experts, np.int64)
    # The first experts get the most replicas, in random positions.
    places = iter(np.random.default_rng(1).permutation(physical))
    for count in range(1, most + 1):
        for expert in range(0, spec.num_experts, count):
            place = next(places, None)
            if place is not None:
                table[expert, counts[expert]] = place
                counts[expert] += 1
    return {"replicas.physical_ids": table, "replicas.counts": counts}


def _scales(spec: LayerSpec, name: str, shape: tuple[int, ...], rng) -> np.ndarray:
    """Returns weight scales with which gemm results are about as large as their input."""
    weight = spec.quantization_of(_matrix(name)).weight
    size = _size(spec, _matrix(name))
    if name.endswith("_global_scale"):
        return (0.5 + rng.random(shape)) / (size * _LOCAL_SCALE)
    scales = (0.5 + rng.random(shape)) * (_LOCAL_SCALE if weight.global_scale else 1 / size)
    # The rounding of ml_dtypes to a power of two is unspecified; round down explicitly.
    return np.exp2(np.floor(np.log2(scales))) if weight.scale_dtype == "e8m0" else scales


def _size(spec: LayerSpec, matrix: str) -> float:
    """Returns the divisor of a weight's values with which gemm results are about as large as their input."""
    blocks = -(-_contracted(spec, matrix) // _BLOCK)
    return _DEVIATIONS[spec.quantization_of(matrix).weight.dtype] * math.sqrt(_BLOCK * blocks)


def _matrix(name: str) -> str:
    """Returns the weight that a tensor belongs to, `experts.w2` for `experts.w2_scale`."""
    experts, tensor = name.split(".")
    return f"{experts}.{tensor.split('_')[0]}"


def _contracted(spec: LayerSpec, matrix: str) -> int:
    """Returns K of a weight."""
    shared = matrix.startswith("shared_experts.")
    if matrix.endswith("w13"):
        return spec.hidden_size if shared else spec.width
    return spec.shared_experts.intermediate_size if shared else spec.intermediate_size
