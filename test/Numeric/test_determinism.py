# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same inputs give the same bits, however many threads there are."""

import pytest
from cases import CASES

NAMES = ("entry_gate_bf16", "zero_experts_many", "latent_shared", "shared_sigmoid_f32",
         "empty_experts_gate", "conformance_300_128_256_64_6")
OPTIONS = [("--threads=1",), ("--threads=2",), ("--threads=3",)]


# field-bug: flashinfer#2569
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in NAMES], ids=lambda case: case.name
)
def test_same_bits(case, runs):
    outputs = []
    for options in OPTIONS:
        run = runs.get(case, *options)
        assert run.returncode == 0, run.explain(f"moe-run exits {run.returncode}")
        outputs.append(run.outputs.read_bytes())
        runs.forget(run)
    assert outputs[0] == outputs[1] == outputs[2]
