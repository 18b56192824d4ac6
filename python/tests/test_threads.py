# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Threads that run layers on the CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from small_layer import SPEC

import moec


def count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def restored():
    before = moec.get_num_threads()
    yield
    moec.set_num_threads(before)


def test_threads_are_set_while_a_layer_runs(restored) -> None:
    layer = moec.compile({**SPEC, "dtype": "f32"}, device="cpu").generate_weights()
    rows = np.ones((8, SPEC["hidden_size"]), np.float32)
    moec.set_num_threads(1)
    alone = count_threads()
    expected = np.array(layer(rows))
    stop = threading.Event()
    wrong = []

    def call() -> None:
        while not stop.is_set():
            if not np.array_equal(layer.clone()(rows), expected):
                wrong.append("another result")

    caller = threading.Thread(target=call)
    caller.start()
    for count in (4, 2, 1, 3):
        moec.set_num_threads(count)
        assert moec.get_num_threads() == count
        assert count_threads() == alone + 1 + count - 1
    stop.set()
    caller.join()
    assert not wrong
    assert np.array_equal(layer(rows), expected)


@pytest.mark.parametrize(("variables", "count"), [
    ({"MOEC_NUM_THREADS": "3"}, 3),
    ({"OMP_NUM_THREADS": "2,1"}, 2),
    ({"MOEC_NUM_THREADS": "3", "OMP_NUM_THREADS": "2"}, 3),
    ({}, None),
])
def test_variables_choose(variables, count) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", "import moec; print(moec.get_num_threads())"], text=True, capture_output=True,
        env={**environment, **variables}, check=True,
    )
    found = int(done.stdout)
    assert found == count if count else 1 <= found <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("name", ["MOEC_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("value", ["many", "0", "-2", "99999"])
def test_a_bad_variable_is_named(name, value) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", "import moec; moec.compile({}, device='cpu')"], text=True, capture_output=True,
        env={**environment, name: value},
    )
    assert done.returncode == 1
    assert f"{name} is '{value}'; a number of threads from 1 to 4096 is expected" in done.stderr


@pytest.mark.parametrize(("count", "kind", "message"), [
    (0, ValueError, "count: 0 found; 1 to 4096 threads are accepted"),
    (5000, ValueError, "count: 5000 found; 1 to 4096 threads are accepted"),
    ("2", TypeError, "count: an int expected, str found"),
    (True, TypeError, "count: an int expected, bool found"),
])
def test_a_bad_count_is_named(count, kind, message) -> None:
    with pytest.raises(kind, match="^" + re.escape(message)):
        moec.set_num_threads(count)
