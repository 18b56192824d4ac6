# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares an output with the reference.

The measure is the relative Frobenius error, over the whole output and over each token row. A row that is exactly zero
in the reference must be exactly zero, and NaN and infinities must be at the same positions. A row of the reference that
is not finite fails, unless the caller expects it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

#: Bound on the error over the whole output, by layer dtype.
BOUNDS = {"f32": 1e-5, "bf16": 3e-3, "f16": 1e-3}
#: Bound for bf16 with group scales multiplied into the weights: sm_90a rounds the scaled weights of both gemms to 16
#: bits, which changes roundings of the intermediate result and of the output: four times 2^-9. Ranks that sum rows
#: round each summand, too.
ROUNDED_BOUND = 8e-3
#: Bound for bf16 with adapters: rows times the first matrices may be rounded to bf16, as the intermediate result is,
#: whose rounding then changes, too.
LORA_BOUND = 6e-3
#: Bound with quantized gemm inputs: differences of f32 sums occasionally change a rounding to e4m3, which has four
#: significant bits.
QUANTIZED_BOUND = 2e-2
#: Factor by which the error of one row may exceed the bound.
ROW_FACTOR = 3.0
#: Factor for a row of such a layer, so that it is off by at most 1e-2.
LORA_ROW_FACTOR = 1e-2 / LORA_BOUND
#: Factor for a row with quantized inputs: the next e4m3 value is up to an eighth away, and a row may depend on one
#: element.
QUANTIZED_ROW_FACTOR = 1 / 8 / QUANTIZED_BOUND


@dataclass
class Comparison:
    error: float = 0.0
    bound: float = 0.0
    worst_row: int | None = None
    worst_row_error: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures


def _relative(difference: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Quotient of norms; infinite for a nonzero difference from a zero reference."""
    with np.errstate(all="ignore"):
        quotient = difference / size
    return np.where(size > 0.0, quotient, np.where(difference > 0.0, np.inf, 0.0))


def _norms(x: np.ndarray) -> np.ndarray:
    """Euclidean norms of rows, without overflow of the squares."""
    largest = np.abs(x).max(axis=1, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return np.sqrt(((x / scale[:, None]) ** 2).sum(axis=1)) * scale


def relative_errors(reference: np.ndarray, output: np.ndarray) -> tuple[float, float]:
    """Returns the maximum and the root-mean-square of the relative element errors.

    An element's error is relative to the reference's element, or to the root mean square of all elements if that is
    larger."""
    reference = np.asarray(reference, np.float64)
    typical = np.sqrt((reference**2).mean())
    errors = np.abs(output - reference) / np.maximum(typical, np.abs(reference))
    return float(errors.max()), float(np.sqrt((errors**2).mean()))


def compare(
    reference: np.ndarray,
    output: np.ndarray,
    bound: float,
    name: str = "output",
    row_factor: float = ROW_FACTOR,
    expected_nonfinite: np.ndarray | bool = False,
) -> Comparison:
    """Compares two arrays of token rows; `bound` applies to the whole.

    `expected_nonfinite` states per row, or for all rows, that NaN and infinities are expected."""
    reference = np.asarray(reference, np.float64)
    output = np.asarray(output, np.float64)
    result = Comparison(bound=bound)
    if reference.shape != output.shape:
        result.failures.append(
            f"{name}: shape {output.shape}, expected {reference.shape}"
        )
        return result
    if reference.shape[0] == 0:
        return result

    finite = np.isfinite(reference)
    # Positions of NaN, +inf and -inf, all of which must agree.
    place = np.where(np.isnan(reference), 2.0, np.sign(reference) * ~finite)
    seen = np.where(
        np.isnan(output), 2.0, np.where(np.isinf(output), np.sign(output), 0.0)
    )
    misplaced = np.flatnonzero((place != seen).any(axis=1))
    if misplaced.size:
        row = int(misplaced[0])
        column = int(np.flatnonzero(place[row] != seen[row])[0])
        result.failures.append(
            f"{name}[{row}, {column}] is {output[row, column]}, expected "
            f"{reference[row, column]} ({misplaced.size} rows differ in NaN or inf)"
        )

    lost = np.flatnonzero(~finite.all(axis=1) & ~np.asarray(expected_nonfinite))
    if lost.size:
        result.failures.append(
            f"{name}: {lost.size} of {len(reference)} rows are not finite in the reference, "
            f"row {int(lost[0])} is the first; their inputs are finite, so look for NaN or "
            f"infinity among the weights, or for an overflow"
        )

    both = finite & np.isfinite(output)
    expected = np.where(both, reference, 0.0)
    difference = _norms(np.where(both, output, 0.0) - expected)
    size = _norms(expected)

    zero = (reference == 0.0).all(axis=1)
    wrong = np.flatnonzero(zero & (output != 0.0).any(axis=1))
    if wrong.size:
        result.failures.append(
            f"{name}: row {int(wrong[0])} must be exactly zero ({wrong.size} such rows)"
        )

    rows = _relative(difference, size)
    result.worst_row = int(np.argmax(rows))
    result.worst_row_error = float(rows[result.worst_row])
    whole = _relative(
        _norms(difference[None, :]), _norms(size[None, :])
    )
    result.error = float(whole[0])
    if not result.error <= bound:
        result.failures.append(
            f"{name}: relative error {result.error:.3g} is above {bound:g}"
        )
    if not result.worst_row_error <= row_factor * bound:
        result.failures.append(
            f"{name}: row {result.worst_row} has relative error "
            f"{result.worst_row_error:.3g}, above {row_factor * bound:g}"
        )
    return result
