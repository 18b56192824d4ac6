# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the numeric tests share.

A change runs fewer cases than the nightly run, which sets MOEC_ALL_CASES. Two marks on a test say which:

- `pairs`: its parameters are independent, so cases that have every pair of two parameters' values are enough.
- `one_of(n)`: its cases differ in sizes alone, and others have their features; every n-th runs."""

import itertools
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).resolve().parents[2] / "python"),
]

from features import cover  # noqa: E402
from runs import ALL_CASES, Runs  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "pairs: cases with every pair of two parameters' values are enough")
    config.addinivalue_line("markers", "one_of(n): every n-th case is enough")


def pytest_collection_modifyitems(config, items):
    found, number, left_out = defaultdict(dict), Counter(), set()
    for index, item in enumerate(items):
        test = item.nodeid.partition("[")[0]
        if share := item.get_closest_marker("one_of"):
            if number[test] % share.args[0]:
                left_out.add(index)
            number[test] += 1
        if item.get_closest_marker("pairs"):
            values = sorted((name, repr(value)) for name, value in item.callspec.params.items())
            found[test][index] = set(itertools.combinations(values, 2))
    for cases in found.values():
        kept = set(cover(cases, dict.fromkeys(cases, 1), set()))
        left_out |= cases.keys() - kept
    if not ALL_CASES:
        config.hook.pytest_deselected(items=[items[index] for index in sorted(left_out)])
        items[:] = [item for index, item in enumerate(items) if index not in left_out]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("numeric"))
