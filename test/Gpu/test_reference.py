# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The reference in C++ against the reference in Python, on cases with each feature in each entry and in each dtype
(in the nightly run, on every numeric case)."""

import json

import numpy as np
import pytest
from gpu_cases import CPU_CASES, NUMERIC
from features import covering
from gpu_runs import ALL_CASES, gpu_test, read

from moec.reference import LayerSpec, decide, evaluate, generate, write_tensors

EVERY_CASE = NUMERIC + CPU_CASES
#: Both use float64, with different orders of summation.
BOUND = 1e-12
#: Because of that order, values halfway between two quantized values may be rounded differently: few of the quantized
#: rows differ, by one quantized value.
MOST_APART = 0.02
CODE_BOUND = 1e-3


def run(case, folder):
    """Inputs of a case, and the results of the C++ reference."""
    model, inputs, outputs = (
        folder / name for name in ("model.json", "in.safetensors", "out.safetensors")
    )
    model.write_text(json.dumps(case.model))
    tensors = generate(LayerSpec.from_json(case.model), case.tokens, case.seed, case.hard)
    write_tensors(inputs, tensors)
    done = gpu_test(f"--reference={model}", f"--inputs={inputs}", f"--outputs={outputs}")
    assert done.returncode == 0, done.stderr
    results = read(outputs)
    inputs.unlink()
    return tensors, results


def difference(expected: np.ndarray, actual: np.ndarray) -> float:
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(expected[~finite], actual[~finite])
    size = np.linalg.norm(expected[finite])
    return np.linalg.norm(expected[finite] - actual[finite]) / (size or 1.0)


@pytest.mark.parametrize("case", EVERY_CASE if ALL_CASES else covering(EVERY_CASE), ids=lambda case: case.name)
def test_agrees(case, tmp_path):
    tensors, results = run(case, tmp_path)
    spec = LayerSpec.from_json(case.model)
    decision = decide(spec, tensors)
    np.testing.assert_array_equal(results["topk_ids"], decision.ids)
    assert difference(decision.weights, results["topk_weights"]) <= BOUND
    expected, actual = evaluate(spec, tensors, decision), results["output"]
    if difference(expected, actual) <= BOUND:
        return
    assert any(quantization.activation is not None for quantization in spec.quantizations)
    assert difference(expected, actual) <= CODE_BOUND
    apart = sum(difference(*rows) > BOUND for rows in zip(expected, actual))
    assert apart <= max(1, MOST_APART * len(expected))
