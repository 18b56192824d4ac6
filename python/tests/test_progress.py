# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is told of a compilation or a load that takes long, where, and to whom."""

from __future__ import annotations

import io
import os
import pty
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_layer import SPEC

import moec
from moec import progress
from moec.reference import write_tensors
from moec.reference.numerics import NUMPY_DTYPES


class Terminal:
    """A terminal in the place of the error stream, and what was written to it. pytest puts its own there
    behind every fixture, so that tests make it themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w")
        monkeypatch.setattr(sys, "stderr", self.stream)

    def read(self) -> str:
        self.stream.write("end")
        self.stream.flush()
        text = ""
        while not text.endswith("end"):
            text += os.read(self.master, 4096).decode()
        return text.removesuffix("end")


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seconds are over in a moment."""
    for name, seconds in (("PATIENCE", 0.0), ("PERIOD", 0.02), ("FRAME", 0.005)):
        monkeypatch.setattr(progress, name, seconds)


def test_a_bar_on_a_terminal(hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with progress.watch("work", None):
        time.sleep(0.2)
    text = terminal.read()
    *pictures, rest = text.split("\r")
    assert len(pictures) > 5 and rest == "\033[K"
    assert all("moec: work [" in each and "######" in each for each in pictures[1:])
    # The block moves, in a bar that does not.
    assert len(set(pictures)) > 2 and len({each.index("]") for each in pictures[1:]}) == 1


def test_nothing_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    assert progress.PATIENCE == 2.0
    told: list[str] = []
    for how in (None, False, told.append, True):
        with progress.watch("work", how):
            pass
    assert terminal.read() == "" and not told


def test_nothing_where_it_is_not_wanted(hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)

    def work(how: progress.Progress) -> None:
        with progress.watch("work", how):
            time.sleep(0.1)

    work(False)
    assert terminal.read() == ""
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        work(None)
        assert stream is None or stream.getvalue() == ""
    work(True)


def test_lines_for_those_who_ask(hurry: None, capfd: pytest.CaptureFixture) -> None:
    told: list[str] = []
    for how in (True, told.append):
        with progress.watch("work", how):
            time.sleep(0.15)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) > 2 and set(lines) == {"moec: work ... 0 s"}
    assert len(told) > 2 and set(told) == {"work ... 0 s"}


def test_ends_with_the_work(hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError):
        with progress.watch("work", None):
            time.sleep(0.05)
            raise ZeroDivisionError
    assert "moec progress" not in {each.name for each in threading.enumerate()}
    assert terminal.read().endswith("\r\033[K")


def test_compiling_and_loading_are_watched(hurry: None, tmp_path: Path) -> None:
    told: list[str] = []
    layer = moec.compile(SPEC, device="cpu", progress=told.append)
    assert "layer.json is compiled ... 0 s" in told
    moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False, progress=told.append)
    assert told.count("layer.json is compiled ... 0 s") > 1
    write_tensors(tmp_path / "layer.safetensors", {
        info.name: np.zeros(info.shape, NUMPY_DTYPES[info.dtype])
        for info in layer.tensors if info.role == "weight"})
    layer.load(tmp_path / "layer.safetensors", progress=told.append)
    assert "weights are read ... 0 s" in told and told[-1] == "weights are loaded"
    with pytest.raises(moec.InvalidArgument):
        moec.Layer.from_package(b"x", device="cpu", progress=told.append)
    assert "the package is loaded ... 0 s" in told
