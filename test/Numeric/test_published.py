# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tolerances of public tests, where they say something that ours does not."""

import pytest
from cases import CASES

from moec.reference import LayerSpec, TensorFile, decide, evaluate, signature
from moec.reference.compare import relative_errors


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name.startswith("gpt_oss_mxfp4_")],
    ids=lambda case: case.name,
)
def test_mxfp4_elements(case, runs):
    """Each element, and all on average, in parts of its size."""
    run = runs.get(case)
    assert run.returncode == 0, run.messages
    spec = LayerSpec.from_json(case.model)
    inputs, outputs = TensorFile(run.inputs), TensorFile(run.outputs)
    tokens = inputs.require(signature.inputs(spec))
    outputs.require(signature.outputs(spec), tokens, optional=True)
    expected = evaluate(spec, inputs, decide(spec, inputs))
    largest, rms = relative_errors(expected, outputs["output"][...].astype(float))
    assert largest <= 0.025 and rms <= 0.005
