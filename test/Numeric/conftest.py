# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the numeric tests share.

The mark `pairs` on a test says that its parameters are independent. Then cases that have every pair of two
parameters' values are enough for a change; with MOEC_ALL_CASES set, every night, all run."""

import itertools
import sys
from collections import defaultdict
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


def pytest_collection_modifyitems(config, items):
    found = defaultdict(dict)
    for index, item in enumerate(items):
        if item.get_closest_marker("pairs"):
            values = sorted((name, repr(value)) for name, value in item.callspec.params.items())
            found[item.nodeid.partition("[")[0]][index] = set(itertools.combinations(values, 2))
    left_out = set()
    for cases in found.values():
        left_out |= cases.keys() - set(cover(cases, dict.fromkeys(cases, 1), set()))
    if not ALL_CASES:
        config.hook.pytest_deselected(items=[items[index] for index in sorted(left_out)])
        items[:] = [item for index, item in enumerate(items) if index not in left_out]


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("numeric"))
