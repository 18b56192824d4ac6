# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every case through the kernels for GPUs, on the simulator of PTX, under several schedules.

moe-run fails if the simulator finds a race, a missing fence, a read of what nobody wrote and the
like under any seed, and if the bits of the output depend on the seed.
"""

import pytest
from cases import CASES
from runs import SEEDS
from schedules import TARGETS, count_cases, never_chosen


@pytest.mark.parametrize(
    "options",
    [(f"--device=sim:0-{SEEDS - 1}", f"--target={target}") for target in TARGETS],
    ids=TARGETS,
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_simulated(case, options, runs):
    run = runs.get(case, *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    assert SEEDS == 1 or f"the same bits of {SEEDS} seeds" in run.messages
    runs.forget(run)


def test_every_schedule_is_simulated():
    assert never_chosen(count_cases(CASES)) == []
