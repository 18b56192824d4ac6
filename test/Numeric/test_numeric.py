# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases with each feature in each entry and in each dtype (every night, all) through the compiled kernels, against the
float64 reference."""

import pytest
from cases import CASES, CPU_CASES
from features import covering
from runs import ALL_CASES

EVERY_CASE = CASES + CPU_CASES


@pytest.mark.parametrize("case", EVERY_CASE if ALL_CASES else covering(EVERY_CASE), ids=lambda case: case.name)
def test_case(case, runs):
    run = runs.get(case)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)
