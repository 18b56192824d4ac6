# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the results of a run of a layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

import numpy as np

from .compare import (
    BOUNDS,
    LORA_BOUND,
    LORA_ROW_FACTOR,
    QUANTIZED_BOUND,
    QUANTIZED_ROW_FACTOR,
    ROUNDED_BOUND,
    ROW_FACTOR,
    Comparison,
    compare,
)
from .layer import (
    Decision,
    decide,
    evaluate,
    expert_counts,
    expert_offsets,
    present_rows,
)
from .signature import read_ids
from .spec import LayerSpec

#: The share of rows with a near tie must stay below this.
NEAR_TIE_SHARE = 0.01
#: Bound on the error of routing weights, which are f32 for every layer dtype.
_WEIGHT_BOUND = BOUNDS["f32"]


@dataclass
class Report:
    """Result of a check; `failures` is empty if it passed."""

    comparison: Comparison
    near_ties: int = 0
    rows: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.failures

    def summary(self) -> str:
        comparison = self.comparison
        worst = "no rows"
        if comparison.worst_row is not None:
            worst = (
                f"worst row {comparison.worst_row} with "
                f"{comparison.worst_row_error:.2e}"
            )
        share = 100.0 * self.near_ties / self.rows if self.rows else 0.0
        return (
            f"{'ok' if self.ok else 'FAILED'}: relative error "
            f"{comparison.error:.2e} (bound {comparison.bound:.0e}), {worst}, "
            f"near ties {self.near_ties} of {self.rows} rows ({share:.2f} %)"
        )


def _quantizes(spec: LayerSpec) -> bool:
    """Whether a gemm quantizes its input."""
    return any(quantization.activation is not None for quantization in spec.quantizations)


def _may_round_weights(spec: LayerSpec) -> bool:
    """Whether the product of a weight and its scale, or an nf4 code-book entry, may be rounded to 16 bits."""
    weights = (quantization.weight for quantization in spec.quantizations)
    return any(
        weight.dtype == "nf4"
        or (weight.granularity in ("group", "block") and weight.dtype != "fp4_e2m1" and weight.scale_dtype != "e8m0")
        for weight in weights
    )


def _bounds(spec: LayerSpec) -> tuple[float, float]:
    """The bound on the error over the whole output, and the factor for a row."""
    if _quantizes(spec):
        return QUANTIZED_BOUND, QUANTIZED_ROW_FACTOR
    if spec.dtype == "bf16" and (_may_round_weights(spec) or spec.adds_over_ranks):
        return ROUNDED_BOUND, ROW_FACTOR
    # Second matrices multiply rounded rows where they have the type of the weights.
    if spec.dtype == "bf16" and spec.lora is not None and not spec.quantizations:
        return LORA_BOUND, LORA_ROW_FACTOR
    return BOUNDS[spec.dtype], ROW_FACTOR


def check(
    spec: LayerSpec,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    first_token: int = 0,
    weights_are_finite: bool = True,
) -> Report:
    """Compares `outputs` with the reference's results for `inputs`, rows of a call starting at `first_token`.

    A row that is not finite is wrong unless its own inputs are not finite. Tests that put NaN among the weights on
    purpose pass `weights_are_finite=False`."""
    decision = decide(spec, inputs, first_token)
    tokens = decision.ids.shape[0]
    nonfinite = _nonfinite_rows(inputs, tokens) | (not weights_are_finite)
    present = present_rows(spec, inputs, tokens)
    bound, row_factor = _bounds(spec)
    report = Report(Comparison(bound=bound))
    near = np.zeros(0, np.int64)
    if spec.entry != "ids" and spec.routing.select != "hash" and spec.replay_ids is None:
        near = np.flatnonzero(decision.routing.near & present)
        report.rows, report.near_ties = int(present.sum()), len(near)

    if "topk_ids" in outputs:
        ids = read_ids(outputs["topk_ids"])
        _adopt(spec, decision, ids, present, report)
    reference = evaluate(spec, inputs, decision)
    output = np.asarray(outputs["output"][...]).astype(np.float64)
    if "topk_ids" not in outputs and output.shape == reference.shape:
        for row in near:
            _closest(spec, inputs, decision, reference, output, int(row))

    report.comparison = compare(reference, output, bound, row_factor=row_factor, expected_nonfinite=nonfinite)
    report.failures += report.comparison.failures
    if "topk_weights" in outputs:
        weights = np.asarray(outputs["topk_weights"][...]).astype(np.float64)
        expected = np.where(decision.valid, decision.weights, 0.0)
        if weights.shape == expected.shape:
            weights = np.where(decision.valid, weights, 0.0)
        compared = compare(
            expected, weights, _WEIGHT_BOUND, "topk_weights", expected_nonfinite=nonfinite
        )
        report.failures += compared.failures
    counts = expert_counts(spec, decision)
    _exact(outputs, "expert_counts", counts, report)
    _exact(outputs, "expert_offsets", expert_offsets(counts), report)
    if report.near_ties and report.near_ties >= NEAR_TIE_SHARE * report.rows:
        report.failures.append(
            f"{report.near_ties} of {report.rows} rows depend on a near tie: the share "
            f"must be below {100 * NEAR_TIE_SHARE:g} %, take other inputs"
        )
    return report


def _nonfinite_rows(inputs: Mapping[str, np.ndarray], tokens: int) -> np.ndarray:
    """Rows with NaN or infinities in the inputs of the call."""
    rows = np.zeros(tokens, bool)
    for name in ("hidden_states", "router_logits", "topk_weights"):
        if name in inputs:
            rows |= ~np.isfinite(np.asarray(inputs[name][...]).astype(np.float64)).all(axis=1)
    return rows


def _adopt(
    spec: LayerSpec,
    decision: Decision,
    ids: np.ndarray,
    present: np.ndarray,
    report: Report,
) -> None:
    """Checks the ids of the run and adopts those that near ties allow."""
    if ids.shape != decision.ids.shape:
        report.failures.append(
            f"topk_ids: shape {ids.shape}, expected {decision.ids.shape}"
        )
        return
    routes = spec.num_routes
    # The number in a slot that does not count is irrelevant.
    same = (ids == decision.ids) | (
        ~decision.valid & ((ids < 0) | (ids >= routes))
    )
    same[~present] = True
    wrong = []
    for row in np.flatnonzero(~same.all(axis=1)):
        routing = decision.routing
        if routing is not None and routing.accepts(row, ids[row]):
            decision.replace_ids(row, ids[row])
        else:
            wrong.append(int(row))
    if not wrong:
        return
    row = wrong[0]
    message = (
        f"topk_ids: row {row} is {ids[row].tolist()}, expected "
        f"{decision.ids[row].tolist()}"
    )
    slot = int(np.flatnonzero(~same[row])[0])
    got, expected = int(ids[row, slot]), int(decision.ids[row, slot])
    if decision.routing is not None and decision.routing.has_keys:
        if 0 <= got < routes:
            distance = decision.routing.key_distance(row, got, expected)
            message += f" (keys of {got} and {expected} are {distance} ulps apart)"
    report.failures.append(f"{message}; {len(wrong)} wrong rows")


def _closest(
    spec: LayerSpec,
    inputs: Mapping[str, np.ndarray],
    decision: Decision,
    reference: np.ndarray,
    output: np.ndarray,
    row: int,
) -> None:
    """Selects, for each row with a near tie, the alternative that fits its output best."""
    rows = np.array([row])

    def distance(candidate: np.ndarray) -> float:
        with np.errstate(all="ignore"):
            return float(np.nan_to_num(((output[row] - candidate) ** 2).sum(), nan=np.inf))

    best = distance(reference[row])
    chosen = decision.ids[row].copy()
    for ids in decision.routing.alternatives(row):
        decision.replace_ids(row, ids)
        candidate = evaluate(spec, inputs, decision.rows(rows), rows)[0]
        if distance(candidate) < best:
            best, chosen = distance(candidate), ids
            reference[row] = candidate
    decision.replace_ids(row, chosen)


def _exact(
    outputs: Mapping[str, np.ndarray], name: str, expected: np.ndarray, report: Report
) -> None:
    if name not in outputs:
        return
    got = np.asarray(outputs[name][...])
    if got.shape != expected.shape:
        report.failures.append(f"{name}: shape {got.shape}, expected {expected.shape}")
    elif (got != expected).any():
        at = int(np.flatnonzero(got != expected)[0])
        report.failures.append(f"{name}[{at}] is {got[at]}, expected {expected[at]}")
