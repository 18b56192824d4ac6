# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gemms with tensor memory (sm100.gemm), on the simulator of PTX.

No GPU with tensor memory has run them: results are those of the simulator, which follows the text of the PTX
ISA.
"""

import json

import pytest
from runs import SEEDS
from schedules import chosen, for_tokens
from tensor_cases import CASES

TARGET = "sm_100a"


def run_case(case, runs, *options):
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", f"--target={TARGET}", *for_tokens(case), *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert SEEDS == 1 or f"equal bits for {SEEDS} seeds" in run.messages
    runs.forget(run)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tensor_memory(case, runs, tmp_path):
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model))
    assert "sm100.gemm" in chosen(model, TARGET, for_tokens(case))
    run_case(case, runs)


@pytest.mark.parametrize("config", [
    # Two stages, so that copies of one may be pending; more stages than k tiles.
    "block_m=16 block_n=128 stages=2", "block_m=32 block_n=128 stages=5",
    # One set of sums: with 256 weight rows the columns of tensor memory are full.
    "block_m=128 block_n=128 stages=4", "block_m=48 block_n=128 stages=3",
])
@pytest.mark.parametrize("name", ["tiles", "e2m1_tiles"])
def test_configs(config, name, runs):
    case = next(case for case in CASES if case.name == name)
    run_case(case, runs, f"--config=experts_hidden:{config}", f"--config=experts_out:{config}")
