# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts the runs of all selected tests at once."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).resolve().parents[2] / "python"),
]

from runs import Runs  # noqa: E402


@pytest.fixture(scope="session")
def runs(request, tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("numeric"))
    for item in request.session.items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "case" in parameters and "runs" in item.fixturenames:
            alternatives = getattr(item.module, "OPTIONS", [()])
            if "options" in parameters:
                alternatives = [parameters["options"]]
            for options in alternatives:
                runs.start(parameters["case"], *options)
    yield runs
    runs.close()
