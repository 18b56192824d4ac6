# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases that scripts/simulate omits for time contain no tile that the others lack."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from cases import CASES
from runs import ALL_CASES
from schedules import EVERY_CHANGE, for_tokens, products


# field-bug: flashinfer#4486, sglang#34629, flashinfer#3197, flashinfer#3227
@pytest.mark.skipif(not ALL_CASES, reason="compiles every case: MOEC_ALL_CASES, every night")
def test_all_tiles_are_simulated():
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        chosen = list(pool.map(products, CASES))
        simulated = pool.map(lambda case: products(case, *for_tokens(case)),
                             [case for target, case in EVERY_CHANGE if target == "sm_90a"])
    found = set().union(*simulated)
    assert len(found) > 20
    missed = set().union(*chosen) - found
    assert missed == set(), "WHOLE lacks " + "; ".join(
        f"for {tile} one of {[case.name for case, tiles in zip(CASES, chosen) if tile in tiles]}"
        for tile in sorted(missed))
