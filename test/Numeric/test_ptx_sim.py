# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for GPUs, in the simulator of PTX, under adverse schedules.

MOEC_SIM_SEEDS=100 takes each case through as many schedules; the default is one,
another one for each case. docs/ptx-sim.md says what the simulator checks.
"""

import os
import zlib

import pytest
from cases import CASES
from features import multiplications

SEEDS = int(os.environ.get("MOEC_SIM_SEEDS", "1"))
TARGETS = ("sm_80", "sm_90a")
#: Tens of millions of multiplications take a second.
SMALL = [case for case in CASES if multiplications(case) <= 20_000_000]


def seeds(case) -> range:
    first = zlib.crc32(case.name.encode()) % 1000
    return range(first, first + SEEDS)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_ptx_sim(case, target, runs):
    started = [
        runs.start(case, f"--device=sim:{seed}", f"--target={target}") for seed in seeds(case)
    ]
    outputs = set()
    for future in started:
        run = future.result()
        report = run.check()
        assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
        outputs.add(run.outputs.read_bytes())
        runs.forget(run)
    assert len(outputs) == 1, "the bits depend on the schedule"
