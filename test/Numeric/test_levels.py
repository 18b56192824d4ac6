# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The levels above the kernels, executed on the inputs of numeric cases: those with each feature (every night, all).

The first level that disagrees with the reference shows which passes to suspect.
"""

import pytest
from cases import CASES, CPU_CASES
from features import cost, cover, features, multiplications
from runs import ALL_CASES

# The interpreter works on one f32 at a time.
LARGEST = 2_000_000
SMALL = {case.name: case for case in CASES + CPU_CASES if multiplications(case) <= LARGEST}
#: test_numeric.py runs kernels of each feature with each entry and with each dtype; the levels above them do not differ.
KEPT = list(SMALL) if ALL_CASES else cover(
    {name: features(case) for name, case in SMALL.items()}, {name: cost(case) for name, case in SMALL.items()}, set())

PASSES = {
    "moe": "the importer or moe-decompose",
    "plan": "convert-moe-to-plan or plan-assign-slots",
    "tile": "convert-plan-to-tile, tile-split-phases or tile-assign-config",
}


@pytest.mark.parametrize("case", [SMALL[name] for name in KEPT], ids=lambda case: case.name)
def test_levels(case, runs):
    for level, passes in PASSES.items():
        run = runs.get(case, f"--level={level}")
        report = run.check()
        assert report.ok, run.explain(
            f"level {level} is the first to be wrong: look at {passes}\n"
            + "\n".join([report.summary(), *report.failures])
        )
        runs.forget(run)
