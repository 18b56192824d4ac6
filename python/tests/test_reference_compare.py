# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The comparison accepts and rejects what it should."""

import numpy as np
import pytest

from moec.reference import BOUNDS, ROW_FACTOR, compare
from moec.reference.compare import relative_errors


def random_rows(rows=50, columns=40, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, columns))


def failures(reference, output, bound=1e-5):
    return compare(reference, output, bound, expected_nonfinite=True).failures


def test_bounds():
    assert BOUNDS == {"f32": 1e-5, "bf16": 3e-3, "f16": 1e-3} and ROW_FACTOR == 3.0


def test_equal():
    x = random_rows()
    result = compare(x, x, 1e-5)
    assert result.ok and result.error == 0.0


def test_error_is_relative_frobenius():
    reference = np.array([[3.0, 4.0], [0.0, 12.0]])
    output = np.array([[3.0, 4.0], [5.0, 12.0]])
    result = compare(reference, output, 1.0)
    assert result.error == pytest.approx(5 / 13)
    assert result.worst_row == 1
    assert result.worst_row_error == pytest.approx(5 / 12)
    assert result.ok


def test_whole_is_above_the_bound():
    x = random_rows()
    assert not failures(x, x * (1 + 0.9e-5))
    assert any("relative error" in text for text in failures(x, x * (1 + 1.1e-5)))


def test_a_single_wrong_row():
    x = random_rows(rows=1000)
    y = x.copy()
    # Far below the bound for the whole, but above that for a row.
    y[17] *= 1 + 4e-5
    result = compare(x, y, 1e-5)
    assert result.error < 1e-5 and result.worst_row == 17
    assert len(result.failures) == 1 and "row 17" in result.failures[0]
    y[17] = x[17] * (1 + 2.9e-5)
    assert not failures(x, y)


def test_a_small_row_counts_by_its_own_size():
    x = random_rows()
    x[3] *= 1e-12
    y = x.copy()
    y[3] *= 1.001
    assert "row 3" in failures(x, y)[0]


def test_a_swapped_row():
    x = random_rows()
    y = x.copy()
    y[[4, 5]] = y[[5, 4]]
    assert failures(x, y)


def test_zero_rows_are_exact():
    x = random_rows()
    x[9] = 0.0
    y = x.copy()
    y[9] = -0.0
    assert not failures(x, y)
    y[9, 2] = 1e-30
    assert any("row 9 must be exactly zero" in text for text in failures(x, y))


def test_all_zero():
    zero = np.zeros((3, 4))
    assert not failures(zero, zero)
    assert failures(zero, zero + 1e-40)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_places(value):
    x = random_rows()
    x[1, 2] = value
    assert not failures(x, x)
    assert "output[1, 2] is" in failures(x, np.where(np.isfinite(x), x, 0.0))[0]
    y = x.copy()
    y[7, 7] = value
    assert "output[7, 7] is" in failures(x, y)[0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_rows_are_wrong_unless_expected(value):
    x = random_rows()
    x[[1, 7], 2] = value
    said = compare(x, x, 1e-5).failures
    assert len(said) == 1 and "2 of 50 rows are not finite in the reference, row 1" in said[0]
    expected = np.arange(50) == 1
    said = compare(x, x, 1e-5, expected_nonfinite=expected).failures
    assert len(said) == 1 and "1 of 50 rows are not finite in the reference, row 7" in said[0]
    expected[7] = True
    assert compare(x, x, 1e-5, expected_nonfinite=expected).ok


def test_nan_is_not_inf_and_signs_matter():
    x = np.array([[np.nan, np.inf, -np.inf, 1.0]])
    assert not failures(x, x)
    for column, other in [(0, np.inf), (1, -np.inf), (1, np.nan), (2, np.inf)]:
        y = x.copy()
        y[0, column] = other
        assert f"output[0, {column}]" in failures(x, y)[0]


def test_finite_values_beside_nan_are_compared():
    x = random_rows()
    x[1, 2] = np.nan
    y = x.copy()
    y[1, 3] += 1.0
    assert failures(x, y)


def test_large_and_tiny_values_do_not_overflow():
    x = random_rows() * 1e300
    assert not failures(x, x * (1 + 1e-6))
    assert failures(x, x * (1 + 1e-4))
    x = random_rows() * 1e-300
    assert not failures(x, x * (1 + 1e-6))
    assert failures(x, x * (1 + 1e-4))


def test_shapes():
    assert "shape" in failures(np.zeros((2, 3)), np.zeros((2, 4)))[0]
    assert not failures(np.zeros((0, 3)), np.zeros((0, 3)))


def test_relative_errors_are_of_the_larger_of_element_and_mean():
    # The root mean square is 5.
    reference = np.array([[1.0, 7.0, -1.0, -7.0]])
    largest, rms = relative_errors(reference, np.array([[1.5, 7.0, -1.0, -7.7]]))
    assert largest == pytest.approx(0.1) and rms == pytest.approx((0.02 / 4) ** 0.5)
