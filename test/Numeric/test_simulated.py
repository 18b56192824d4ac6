# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for GPUs, in the simulator, through the small cases."""

import json
import subprocess

import numpy as np
import pytest
from cases import CASES
from features import multiplications
from runs import TIMEOUT, binary

from moec.reference import LayerSpec, check, generate
from moec.simulator import SimulatedLayer

#: A simulated multiplication takes about a microsecond.
SMALL = [case for case in CASES if multiplications(case) <= 300_000]


def emit(model, level: str) -> str:
    command = [str(binary("moe-compile")), str(model), "--target=sm_80", f"--emit={level}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_simulated(case, tmp_path):
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model))
    spec = LayerSpec.from_json(case.model)
    inputs = generate(spec, case.tokens, case.seed, case.hard)
    layer = SimulatedLayer(emit(model, "tile"), emit(model, "ptx"))
    outputs = layer.run(inputs, case.tokens)
    if "expert_offsets" in outputs:
        outputs["expert_counts"] = np.diff(outputs["expert_offsets"])
    report = check(spec, inputs, outputs)
    assert report.ok, "\n".join(report.failures)
