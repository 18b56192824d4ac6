# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small number formats: rounding to the layer dtype, and order of f32 keys."""

from __future__ import annotations

import ml_dtypes
import numpy as np

#: NumPy type of every dtype in a signature.
NUMPY_DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    # Bytes, of which only the bits matter.
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
}

#: Resolution of key orders, in fractions of an f32 ulp: keys may differ where f32 does not.
PARTS_OF_ULP = 256
#: Largest distance of two keys whose order is undetermined.
NEAR_TIE_ULPS = 4

# Orders of infinite and NaN keys. They are farther than NEAR_TIE_ULPS from every finite key and from each other, so
# that they form no near tie.
_ORDER_INF = 1 << 43
_ORDER_NAN = -(1 << 44)
#: Below every key: an expert that is not a candidate.
ORDER_EXCLUDED = -(1 << 50)


def round_to(x: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds float64 values once, to nearest even, to `dtype`; returns float64."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        if dtype != "bf16":
            return x.astype(NUMPY_DTYPES[dtype]).astype(np.float64)
        # The cast of ml_dtypes goes through f32 and would round twice. An f32 value rounded to odd keeps enough bits
        # for the second rounding.
        single = x.astype(np.float32)
        widened = single.astype(np.float64)
        inexact = (widened != x) & ~np.isnan(x)
        bits = single.view(np.uint32)
        bits = bits - (inexact & (np.abs(widened) > np.abs(x)))
        bits = (bits | inexact).astype(np.uint32)
        return bits.view(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


#: Largest quantized value of an activation.
_LARGEST = {"fp8_e4m3": np.float32(448.0), "int8": np.float32(127.0)}


def _quantize_to(quotients: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds quotients to the nearest quantized values, clamped to their range, as float32."""
    with np.errstate(all="ignore"):
        # np.clip propagates NaN.
        quotients = np.clip(quotients, -_LARGEST[dtype], _LARGEST[dtype])
        if dtype == "int8":
            return np.nan_to_num(np.rint(quotients), nan=0.0)
        return quotients.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def quantize(
    x: np.ndarray, group: int | None = 128, dtype: str = "fp8_e4m3", scale_dtype: str = "f32"
) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes rows; returns values and the scale of every group, both as float64.

    Without a group, each row has one scale. An e8m0 scale is the smallest power of two that is not below the exact one.
    All steps are in f32, unlike the rest of the reference, so that ties and roundings equal those of any
    implementation."""
    x = np.asarray(x).astype(np.float32)
    rows, width = x.shape
    least = np.float32(1e-10)
    if group is None:
        group = width
        least = np.float32(1.0 / 512.0) if dtype == "fp8_e4m3" else least
    groups = -(-width // group)
    padded = np.zeros((rows, groups * group), np.float32)
    padded[:, :width] = x
    padded = padded.reshape(rows, groups, group)
    with np.errstate(all="ignore"):
        # np.max and np.maximum propagate NaN.
        largest = np.max(np.abs(padded), axis=2)
        scale = np.maximum(largest, least) / _LARGEST[dtype]
        if scale_dtype == "e8m0":
            # Mantissa in [0.5, 1), or infinite or NaN.
            digits, exponents = np.frexp(scale)
            powers = np.ldexp(np.float32(1), exponents - (digits == 0.5))
            scale = np.where(np.isfinite(scale), powers, scale)
        values = _quantize_to(padded / scale[:, :, None], dtype)
    values = values.reshape(rows, groups * group)[:, :width]
    return values.astype(np.float64), scale.astype(np.float64)


def tensor_scale(x: np.ndarray, dtype: str = "fp8_e4m3") -> np.float32:
    """The scale shared by all rows, from the largest finite magnitude."""
    with np.errstate(all="ignore"):
        magnitudes = np.abs(np.asarray(x).astype(np.float32))
    finite = magnitudes[np.isfinite(magnitudes)]
    largest = finite.max(initial=np.float32(1e-10))
    return np.float32(largest) / _LARGEST[dtype]


def quantize_by(
    x: np.ndarray, scale: np.float32, dtype: str = "fp8_e4m3"
) -> np.ndarray:
    """Quantizes rows with a given scale; returns float64."""
    with np.errstate(all="ignore"):
        quotients = np.asarray(x).astype(np.float32) / np.float32(scale)
    return _quantize_to(quotients, dtype).astype(np.float64)


def key_order(keys: np.ndarray) -> np.ndarray:
    """Integers ordered like the float64 `keys`, PARTS_OF_ULP apart per f32 ulp."""
    keys = np.asarray(keys, np.float64)
    with np.errstate(all="ignore"):
        single = np.ascontiguousarray(keys.astype(np.float32))
        bits = single.view(np.int32).astype(np.int64)
        order = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) * PARTS_OF_ULP
        ulp = np.spacing(np.abs(single)).astype(np.float64)
        parts = np.rint((keys - single.astype(np.float64)) / ulp * PARTS_OF_ULP)
    parts = np.where(np.isfinite(parts), parts, 0).astype(np.int64)
    infinite = np.where(keys > 0, _ORDER_INF, -_ORDER_INF)
    order = np.where(np.isinf(single), infinite, order + parts)
    return np.where(np.isnan(keys), _ORDER_NAN, order)


def is_near(a, b):
    """Whether two orders differ, by at most NEAR_TIE_ULPS."""
    distance = np.abs(a - b)
    return (distance >= 1) & (distance <= NEAR_TIE_ULPS * PARTS_OF_ULP)
