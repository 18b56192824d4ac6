# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dequantization of weights in float64."""

from __future__ import annotations

from typing import Mapping

import numpy as np

from .quantization import Operand
from .signature import has_halves, scale_column, scale_row
from .spec import LayerSpec

#: Values of e2m1: one sign bit, two exponent bits, one mantissa bit.
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
E2M1 = np.concatenate([E2M1, -E2M1])

#: Values of nf4, as in appendix E of QLoRA.
NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
    -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
    0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
], np.float32).astype(np.float64)

#: The stored value of int4 that represents 0.
_INT4_OFFSET = 8.0


def unpack_pairs(stored: np.ndarray) -> np.ndarray:
    """Unpacks 4-bit elements; the first of two is in the low half of the byte."""
    stored = np.asarray(stored).view(np.uint8)
    values = np.stack([stored & 15, stored >> 4], axis=-1)
    return values.reshape(*stored.shape[:-1], 2 * stored.shape[-1])


def elements(stored: np.ndarray, weight: Operand) -> np.ndarray:
    """Returns q of docs/use/layers.md, minus the zero point if it is the same for all elements."""
    stored = np.asarray(stored)
    if weight.dtype == "fp8_e4m3":
        return stored.astype(np.float64)
    if weight.dtype == "fp4_e2m1":
        return E2M1[unpack_pairs(stored)]
    if weight.dtype == "nf4":
        return NF4[unpack_pairs(stored)]
    if weight.dtype == "int4":
        offset = 0.0 if weight.zero_point or weight.minimum else _INT4_OFFSET
        return unpack_pairs(stored).astype(np.float64) - offset
    return stored.view(np.uint8 if weight.zero_point else np.int8).astype(np.float64)


def num_columns(spec: LayerSpec, tensors: Mapping, name: str) -> int:
    """Returns K of a weight."""
    stored = tensors[name].shape[-1]
    return 2 * stored if spec.quantization_of(name).weight.in_pairs else stored


def scaled_rows(
    spec: LayerSpec, tensors: Mapping, name: str, expert: int | None, chunk: slice
) -> np.ndarray:
    """Returns rows of a quantized weight: (q - z) * (s * g) - m, with s * g in f32."""
    weight = spec.quantization_of(name).weight

    def part(suffix: str = "") -> np.ndarray:
        tensor = tensors[name + suffix]
        return np.asarray(tensor[...] if expert is None else tensor[expert])

    rows = tensors[name].shape[-2]
    at = scale_row(spec, name, rows)[chunk]
    columns = scale_column(spec, name, num_columns(spec, tensors, name))
    scales = part("_scale").astype(np.float32)[at]
    with np.errstate(all="ignore"):
        if weight.global_scale:
            half = np.arange(rows)[chunk] // (rows // 2 if has_halves(spec, name) else rows)
            scales = scales * part("_global_scale").astype(np.float32)[half, None]
        values = elements(
            tensors[name][chunk] if expert is None else tensors[name][expert, chunk], weight
        )
        if weight.zero_point:
            zero_points = part("_zero_point").view(np.uint8).astype(np.float64)[at]
            values = values - zero_points[:, columns]
        values = values * scales.astype(np.float64)[:, columns]
        if weight.minimum:
            values = values - part("_minimum").astype(np.float64)[at][:, columns]
        return values
