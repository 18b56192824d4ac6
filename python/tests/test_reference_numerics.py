# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounding to the layer dtype and the order of keys."""

import math
import random

import numpy as np
import pytest
import scalar_layer

from moec.reference.numerics import ORDER_EXCLUDED, is_near, key_order, round_to


def test_bf16_is_rounded_once():
    # Just above the middle of 1 and 1 + 2^-7; f32 would put it on the middle.
    x = 1 + 2**-8 + 2**-40
    assert round_to(np.array([x, -x]), "bf16").tolist() == [1 + 2**-7, -1 - 2**-7]
    # Just below the middle of 1 + 2^-7 and 1 + 2^-6, whose even side is above.
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
    assert order[1] - order[0] == 1
    assert order[3] == order[4] == 0
    assert order[5] == 1 and order[6] == -1
    assert order[2] == -order[0]


def test_key_order_of_nonfinite_keys():
    largest = np.finfo(np.float32).max
    keys = np.array([np.nan, -np.inf, -largest, largest, np.inf], np.float32)
    order = key_order(keys)
    assert (np.diff(order) > 4).all() and order[0] > ORDER_EXCLUDED


def test_near_is_one_to_four():
    assert [bool(is_near(0, d)) for d in range(7)] == [False] + [True] * 4 + [False] * 2
    assert is_near(3, 0) and is_near(-1, 1)
