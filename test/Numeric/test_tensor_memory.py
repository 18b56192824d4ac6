# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products of tensor memory (sm100.contract), on the simulator of PTX.

No GPU with tensor memory has run them: what they compute is what the simulator makes of the PTX ISA's text."""

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
    assert SEEDS == 1 or f"the same bits of {SEEDS} seeds" in run.messages
    runs.forget(run)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tensor_memory(case, runs, tmp_path):
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model))
    assert "sm100.contract" in chosen(model, TARGET, for_tokens(case))
    run_case(case, runs)


@pytest.mark.parametrize("config", [
    # Two stages, of which copies of one may be open; more stages than steps.
    "tile_rows=16 tile_columns=128 stages=2", "tile_rows=32 tile_columns=128 stages=5",
    # One set of sums: of 256 weight rows, the columns of tensor memory are full.
    "tile_rows=128 tile_columns=128 stages=4", "tile_rows=48 tile_columns=128 stages=3",
])
@pytest.mark.parametrize("name", ["tiles", "e2m1_tiles"])
def test_configs(config, name, runs):
    case = next(case for case in CASES if case.name == name)
    run_case(case, runs, f"--config=experts_hidden:{config}", f"--config=experts_out:{config}")
