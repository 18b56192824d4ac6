# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named rules that make the quantized weights of a layer hard."""

from __future__ import annotations

from typing import Callable

import numpy as np

from .fields import SpecError
from .quantization import Operand
from .signature import scale_column, scale_row
from .spec import LayerSpec
from .weights import unpack_pairs

Tensors = dict[str, np.ndarray]


def _weights(
    spec: LayerSpec, tensors: Tensors, rule: str, holds=lambda weight: True, what: str = ""
) -> list[tuple[str, Operand, np.ndarray]]:
    """Returns the weights that are quantized as a rule requires, with their scales; at least one."""
    found = []
    for name in spec.expert_weights:
        quantization = spec.quantization_of(name)
        if quantization is not None and holds(quantization.weight):
            found.append((name, quantization.weight, tensors[f"{name}_scale"]))
    if not found:
        raise SpecError(f"hard inputs '{rule}' need field 'quantization'{what}")
    return found


def _ue8m0_scales(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """f32 scales of weights are powers of two."""
    for _, _, scales in _weights(
        spec, tensors, "ue8m0_scales",
        lambda weight: weight.scale_dtype == "f32", " with scales of f32",
    ):
        scales[...] = (scales.view(np.uint32) & 0x7F800000).view(np.float32)


def _clear(spec: LayerSpec, tensors: Tensors, name: str, where: np.ndarray, rng) -> None:
    """Sets weights to zero where `where`, of the shape of the scales, is true.

    Float zeros get either sign."""
    weight, stored = spec.quantization_of(name).weight, tensors[name]
    *_, rows, columns = stored.shape
    columns *= 2 if weight.in_pairs else 1
    at = scale_row(spec, name, rows)[:, None], scale_column(spec, name, columns)
    chosen = where[..., at[0], at[1]]
    shape = chosen.shape
    if weight.minimum:
        tensors[f"{name}_minimum"][where] = 0
        zeros = np.zeros(shape, np.uint8)
    elif weight.zero_point:
        zeros = tensors[f"{name}_zero_point"].view(np.uint8)[..., at[0], at[1]]
    elif weight.dtype in ("int4", "nf4"):
        zeros = np.full(shape, 8 if weight.dtype == "int4" else 7, np.uint8)
    elif weight.dtype == "int8":
        zeros = np.zeros(shape, np.uint8)
    else:
        zeros = rng.choice(np.array([0, 8 if weight.in_pairs else 0x80], np.uint8), shape)
    if not weight.in_pairs:
        values = np.where(chosen, zeros, stored.view(np.uint8))
    else:
        values = np.where(chosen, zeros & 15, unpack_pairs(stored))
        values = (values[..., ::2] | values[..., 1::2] << 4).astype(np.uint8)
    stored[...] = values.view(stored.dtype)


def _zero_weights(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Some groups of weights are all zeros of either sign; one whole expert too."""
    for name, _, scales in _weights(spec, tensors, "zero_weights"):
        where = rng.random(scales.shape) < 0.3
        if name == "experts.w13":
            where[-1] = True
        _clear(spec, tensors, name, where, rng)


#: Extreme scales of each type, as bits: the smallest, including zeros and subnormals, and the largest.
_SCALE_ENDS = {
    "e8m0": ([0, 1], [200, 254]),
    "e4m3": ([0x00, 0x80, 0x01, 0x07, 0x08], [0x7D, 0x7E]),
    "f16": ([0x0000, 0x8000, 0x0001, 0x03FF, 0x0400], [0x7BFF]),
    "bf16": ([0x0000, 0x8000, 0x0080, 0x1000], [0x7F7F]),
    "f32": ([0x00000000, 0x80000000, 0x00800000, 0x10000000], [0x7F7FFFFF]),
}


def _scale_ends(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Scales are the smallest and largest of their type; weights with the largest scales are zeros."""
    for name, weight, scales in _weights(spec, tensors, "scale_ends"):
        least, largest = _SCALE_ENDS[weight.scale_dtype]
        bits = scales.view(f"u{scales.itemsize}")
        draw = rng.random(scales.shape)
        low, high = draw < 0.2, draw > 0.8
        bits[low] = rng.choice(least, int(low.sum()))
        bits[high] = rng.choice(largest, int(high.sum()))
        _clear(spec, tensors, name, high, rng)


def _zero_scales(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """A fifth of the scales, and all of the last expert's w13, are zeros of either sign; weights stay."""
    for name, weight, scales in _weights(
        spec, tensors, "zero_scales",
        lambda weight: weight.scale_dtype != "e8m0", " with scales that can be 0",
    ):
        where = rng.random(scales.shape) < 0.2
        if name == "experts.w13":
            where[-1] = True
        scales[where] = rng.choice([0.0, -0.0], int(where.sum()))
        if weight.global_scale:
            tensors[f"{name}_global_scale"][0] = 0.0


def _nan_scales(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """One scale of the last expert's w2 is NaN; all weights that share it are zeros."""
    if spec.quantization.w2 is None:
        raise SpecError("hard inputs 'nan_scales' need field 'quantization' of experts.w2")
    scales = tensors["experts.w2_scale"]
    where = np.zeros(scales.shape, bool)
    where[-1, scales.shape[1] // 2, 0] = True
    scales[where] = np.nan
    _clear(spec, tensors, "experts.w2", where, rng)


def _nan_codes(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Two rows of the last expert's w2 contain a NaN: the first element of one, the last of the other."""
    quantization = spec.quantization.w2
    if quantization is None or quantization.weight.dtype != "fp8_e4m3":
        raise SpecError("hard inputs 'nan_codes' need field 'quantization' of experts.w2 in fp8_e4m3")
    values = tensors["experts.w2"][-1].view(np.uint8)
    middle = len(values) // 2
    values[middle, 0], values[middle - 1, -1] = 0x7F, 0xFF


def _least_scales(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Scales of w13 are 2^-127, subnormal in f32, and hidden states compensate for it."""
    first = [
        (name, scales)
        for name, _, scales in _weights(
            spec, tensors, "least_scales",
            lambda weight: weight.scale_dtype == "e8m0" and spec.dtype != "f16",
            " with scales of e8m0, and another dtype than f16",
        )
        if name.endswith("w13")
    ]
    # Other uses of the hidden states would overflow.
    if 2 * len(first) != len(spec.expert_weights):
        raise SpecError("hard inputs 'least_scales' need scales of e8m0 in each w13")
    typical = int(np.median(tensors["experts.w13_scale"].view(np.uint8)))
    for _, scales in first:
        scales.view(np.uint8)[...] = 0
    # Sums of a group, before scaling, stay below the largest float.
    hidden = tensors["hidden_states"]
    hidden *= hidden.dtype.type(2.0 ** (typical - 2))


def _zero_point_ends(spec: LayerSpec, tensors: Tensors, rng) -> None:
    """Zero points are 0, 255 and the largest int4 value."""
    for name, weight, scales in _weights(
        spec, tensors, "zero_point_ends", lambda weight: weight.zero_point, " with zero points"
    ):
        points = tensors[f"{name}_zero_point"].view(np.uint8)
        ends = rng.random(points.shape) < 0.4
        points[ends] = rng.choice(np.array([0, 15, 255], np.uint8), int(ends.sum()))
        if weight.dtype == "int4":
            # Values are far from a zero point of 255; smaller scales keep results in range.
            scales[points == 255] *= scales.dtype.type(1 / 64)


HARD_WEIGHTS: dict[str, Callable[..., None]] = {
    "ue8m0_scales": _ue8m0_scales,
    "zero_weights": _zero_weights,
    "scale_ends": _scale_ends,
    "zero_scales": _zero_scales,
    "nan_scales": _nan_scales,
    "nan_codes": _nan_codes,
    "least_scales": _least_scales,
    "zero_point_ends": _zero_point_ends,
}
