# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounding to the layer dtype, and the order of keys."""

import math
import random

import numpy as np
import pytest
import scalar_layer

from moec.reference.numerics import (
    ORDER_EXCLUDED,
    PARTS_OF_ULP,
    is_near,
    key_order,
    round_to,
)


def test_bf16_is_rounded_once():
    # Just above the midpoint of 1 and 1 + 2^-7; f32 would round it to the midpoint.
    x = 1 + 2**-8 + 2**-40
    assert round_to(np.array([x, -x]), "bf16").tolist() == [1 + 2**-7, -1 - 2**-7]
    # Just below the midpoint of 1 + 2^-7 and 1 + 2^-6, whose even neighbour is above.
    x = 1 + 3 * 2**-8 - 2**-40
    assert round_to(np.array([x]), "bf16").tolist() == [1 + 2**-7]
    assert round_to(np.array([1 + 3 * 2**-8]), "bf16").tolist() == [1 + 2**-6]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_against_scalar_rounding(dtype):
    numbers = random.Random(1)
    values = [0.0, -0.0, math.inf, -math.inf, 65504.0, 65519.99, 65520.0, 3.4e38, 3.39e38]
    values += [3.5e38, 1e300, 1e-300, 5.9e-8, 2.9e-8, 3.1e-8, 1.2e-38, 4.7e-41, 4.5e-41]
    for _ in range(3000):
        values.append(numbers.gauss(0, 1) * 2.0 ** numbers.randint(-30, 20))
        coarse = scalar_layer.to_dtype(values[-1], dtype)
        values.append(coarse * (1 + 2**-8))
        values.append(coarse * (1 + 2**-8 + 2**-45))
    got = round_to(np.array(values), dtype)
    for value, result in zip(values, got.tolist()):
        assert result == scalar_layer.to_dtype(value, dtype), value
    assert np.isnan(round_to(np.array([np.nan]), dtype)).all()


def test_key_order():
    one = np.float32(1)
    keys = [one, np.nextafter(one, np.float32(2)), -one, -0.0, 0.0, 1e-45, -1e-45]
    order = key_order(np.array(keys, np.float32))
    assert order[1] - order[0] == PARTS_OF_ULP
    assert order[3] == order[4] == 0
    assert order[5] == PARTS_OF_ULP and order[6] == -PARTS_OF_ULP
    assert order[2] == -order[0]


def test_key_order_tells_keys_apart_that_f32_does_not():
    ulp = 2.0**-23
    keys = np.array([1.0, 1 + ulp / 4, 1 + ulp * 3 / 4, 1 + ulp, -1 - ulp / 4])
    parts = [0, 1 / 4, 3 / 4, 1]
    order = key_order(keys)
    assert (order[:4] - order[0]).tolist() == [PARTS_OF_ULP * p for p in parts]
    assert order[4] == -order[1]
    assert key_order(np.array([0.0, 1e-50])).tolist() == [0, 0]


def test_key_order_of_nonfinite_keys():
    largest = np.finfo(np.float32).max
    keys = np.array([np.nan, -np.inf, -largest, largest, np.inf, 1e39], np.float64)
    order = key_order(keys)
    assert order[5] == order[4]
    assert (np.diff(order[:5]) > 4 * PARTS_OF_ULP).all()
    assert order[0] > ORDER_EXCLUDED


def test_near_is_up_to_four_ulps():
    ulps = [0, 1 / PARTS_OF_ULP, 1, 4, 4 + 1 / PARTS_OF_ULP, 5]
    near = [bool(is_near(0, int(d * PARTS_OF_ULP))) for d in ulps]
    assert near == [False, True, True, True, False, False]
    assert is_near(3, 0) and is_near(-1, 1)
