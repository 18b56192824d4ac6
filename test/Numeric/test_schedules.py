# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the simulator's lane leaves out for time loses no tile that the compiler chooses for a case."""

import os
from concurrent.futures import ThreadPoolExecutor

from cases import CASES
from schedules import for_tokens, products


def test_all_tiles_are_simulated():
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        chosen = pool.map(products, CASES)
        simulated = pool.map(lambda case: products(case, *for_tokens(case)), CASES)
    found = set().union(*simulated)
    assert len(found) > 20
    assert set().union(*chosen) - found == set()
