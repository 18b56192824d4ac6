# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether an output agrees with the reference.

The measure is the relative Frobenius error, over the whole output and over each
token row. A row of the reference that is exactly zero must be exactly zero, and
NaN and infinities must stand at the same places. A row of the reference that is
not finite fails, unless the caller expects it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

#: Bound on the error over the whole output, by layer dtype.
BOUNDS = {"f32": 1e-5, "bf16": 3e-3, "f16": 1e-3}
#: The same for bf16 where scales of groups are multiplied into the weights: sm_90a rounds those of both products to
#: 16 bits, which moves the roundings of what is between the products and of the output: four times 2^-9. Ranks that
#: add up rows round each summand, too.
ROUNDED_BOUND = 8e-3
#: The same where products quantize their input: sums in f32 move a rounding to
#: e4m3, of four significant bits, now and then.
QUANTIZED_BOUND = 2e-2
#: A row may be that many times worse than the whole.
ROW_FACTOR = 3.0
#: The same there: the next code is up to an eighth away, and all of a row may
#: hang on one element.
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
    """Quotient of norms; without a size any difference is infinitely wrong."""
    with np.errstate(all="ignore"):
        quotient = difference / size
    return np.where(size > 0.0, quotient, np.where(difference > 0.0, np.inf, 0.0))


def _norms(x: np.ndarray) -> np.ndarray:
    """Euclidean norms of rows, without overflow of the squares."""
    largest = np.abs(x).max(axis=1, initial=0.0)
    scale = np.where(largest > 0.0, largest, 1.0)
    return np.sqrt(((x / scale[:, None]) ** 2).sum(axis=1)) * scale


def relative_errors(reference: np.ndarray, output: np.ndarray) -> tuple[float, float]:
    """How far elements are off, in parts of their size: the farthest, and on average.

    The size is that of the reference's element, or the root of the mean square of all where it
    is smaller than that; the average is a root of a mean square too.
    """
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
    """Compares two arrays of token rows; `bound` is that of the whole.

    `expected_nonfinite` says for each row, or for all, that NaN and infinities are expected.
    """
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
    # Places of NaN, +inf and -inf: all three must agree.
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
