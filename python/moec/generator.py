# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counter-based pseudo-random tensors: the generator of include/moec/Generator in NumPy.

An element is a function of seed, tensor name and index. Any part of a tensor can be generated separately, with the same
bits as in moe-run and gpu-test."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "i8": np.dtype(np.int8),
}

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(key: np.uint64, index: np.ndarray) -> np.ndarray:
    """Returns 64 random bits per index: the finalizer of SplitMix64."""
    with np.errstate(over="ignore"):
        z = key + (index + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def stream_key(seed: int, name: str) -> int:
    """Returns the key that separates the values of different tensors."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return int(_mix(np.uint64(value), np.array([seed], np.uint64))[0])


def factor(deviation: float) -> np.float32:
    """Returns the factor that gives sums this standard deviation."""
    return np.float32(deviation / math.sqrt(4294967295.0 / 3.0))


def generate(
    seed: int, name: str, dtype: str, deviation: float, first: int, count: int, shift: int = 0
) -> np.ndarray:
    """Returns elements first .. first+count-1 of a tensor, approximately normal.

    An i8 is the low byte of the nearest integer, an f8e8m0 the power of two at or below the magnitude. The mean is 0,
    or factor(deviation) times `shift`."""
    index = np.uint64(first) + np.arange(count, dtype=np.uint64)
    bits = _mix(np.uint64(stream_key(seed, name)), index)
    parts = bits.view("<u2").reshape(count, 4).astype(np.int32)
    sums = parts.sum(axis=1, dtype=np.int32) - 2 * 0xFFFF + shift
    values = sums.astype(np.float32) * factor(deviation)
    if dtype == "i8":
        return np.rint(values).astype(np.int64).astype(np.int8)
    if dtype == "f8e8m0":
        return (values.view(np.uint32) >> 23).astype(np.uint8).view(DTYPES[dtype])
    return values.astype(DTYPES[dtype])


def mean_shift(deviations: float) -> int:
    """Returns the `shift` that moves the mean by that many deviations; from 3.5 on no value is negative."""
    return round(deviations * math.sqrt(4294967295.0 / 3.0))
