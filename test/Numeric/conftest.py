# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the numeric tests share."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).resolve().parents[2] / "python"),
]

from runs import Runs  # noqa: E402


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("numeric"))
