# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Progress reports of long compilations and loads."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_layer import SPEC, Case

import moec
from moec import progress
from moec.reference import write_tensors
from moec.reference.numerics import NUMPY_DTYPES


class Terminal:
    """A terminal that replaces the error stream and records output. Tests create it themselves, because pytest installs
    its own stream after every fixture."""

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
    """Shortens the delay of two seconds."""
    for name, seconds in (("PATIENCE", 0.0), ("PERIOD", 0.02), ("FRAME", 0.005)):
        monkeypatch.setattr(progress, name, seconds)


def test_a_bar_on_a_terminal(hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with progress.watch("work", None):
        time.sleep(0.2)
    text = terminal.read()
    *pictures, rest = text.split("\r")
    assert len(pictures) > 5 and rest == "\033[K"
    assert all("moec: work [" in each and "######" in each and "%" not in each for each in pictures[1:])
    # The block moves inside a bar of constant length.
    assert len(set(pictures)) > 2 and len({each.index("]") for each in pictures[1:]}) == 1


def test_a_bar_of_known_length(hurry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(monkeypatch)
    with progress.watch("work", None) as work:
        for done in (1, 3, 2, 4):  # threads may report in any order
            work.step(done, 4)
            time.sleep(0.05)
    pictures = terminal.read().split("\r")[1:-1]
    widths = [each.count("#") for each in pictures]
    assert widths == sorted(widths) and {6, 18, 24} <= set(widths) and 12 not in widths
    assert {each.index("]") for each in pictures} == {pictures[0].index("]")}
    assert any("] 75 %, 0 s" in each for each in pictures)


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


def test_fractions_of_compilations_and_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    monkeypatch.setattr(progress.Work, "step", lambda self, done, of: steps.append((done, of)))
    layer = moec.compile(SPEC, device="cpu")
    assert steps == [(1, 2), (2, 2)]
    steps.clear()
    moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False)
    of = steps[0][1]
    assert of > 2 and sorted(steps)[-1] == (of, of) and {each for _, each in steps} == {of}
    assert sorted({done for done, _ in steps}) == list(range(2, of + 1))
    weights = {info.name: np.zeros(info.shape, NUMPY_DTYPES[info.dtype])
               for info in layer.tensors if info.role == "weight"}
    write_tensors(tmp_path / "layer.safetensors", weights)
    steps.clear()
    layer.load(tmp_path / "layer.safetensors")
    size = sum(each.nbytes for each in weights.values())
    # Steps: the router, and the matrices of each expert.
    assert len(steps) == 1 + 2 * SPEC["num_experts"] and steps[-1] == (size, size)
    assert steps == sorted(steps) and {of for _, of in steps} == {size}
    steps.clear()
    layer.save_prepared(tmp_path / "prepared.safetensors")
    assert steps == sorted(steps) and steps[-1] == (size, size)
    steps.clear()
    layer.load_prepared(tmp_path / "prepared.safetensors")
    assert steps == sorted(steps) and steps[-1] == (2 * size, 2 * size)


# field-bug: vllm#54529, sglang#38063
def test_compiling_and_loading_are_watched(hurry: None, tmp_path: Path) -> None:
    told: list[str] = []
    layer = moec.compile(SPEC, device="cpu", progress=told.append)
    assert "layer.json is compiled ... 0 s" in told
    moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False, progress=told.append)
    assert len([each for each in told if re.fullmatch(r"layer.json is compiled ... (\d+ %, )?\d+ s", each)]) > 1
    write_tensors(tmp_path / "layer.safetensors", {
        info.name: np.zeros(info.shape, NUMPY_DTYPES[info.dtype])
        for info in layer.tensors if info.role == "weight"})
    layer.load(tmp_path / "layer.safetensors", progress=told.append)
    assert any(each.startswith("weights are read ... ") for each in told) and told[-1] == "weights are loaded"
    with pytest.raises(moec.InvalidArgument):
        moec.Layer.from_package(b"x", device="cpu", progress=told.append)
    assert "loading the package ... 0 s" in told


def test_an_interrupt_is_raised_after_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Python raises KeyboardInterrupt in the function that hears the library, which must not lose it."""
    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    def leave(*_: object) -> None:
        raise SystemExit

    # A shell that starts the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    file = tmp_path / "prepared.safetensors"
    case = Case()
    for step, expected in ((interrupt, KeyboardInterrupt), (leave, SystemExit)):
        layer = moec.compile(SPEC, device="cpu").generate_weights()
        layer.save_prepared(file)
        with monkeypatch.context() as patch:
            patch.setattr(progress.Work, "step", step)
            for call in (
                lambda: moec.compile(SPEC, device="cpu"),
                lambda: moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False),
                lambda: layer.save_prepared(tmp_path / "second.safetensors"),
                lambda: layer.load_prepared(file),
                lambda: layer.load(case.weights),
            ):
                with pytest.raises(expected):
                    call()
        layer.load(case.weights)
        case.verify(layer(**case.arguments))
    with pytest.raises(SystemExit):
        moec.compile(SPEC, device="cpu", progress=leave)


def test_a_call_within_a_call_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one in a signal handler. It waited for itself."""
    case = Case()
    layer = case.compile()
    output = layer(**case.arguments)
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.exc_value)))
    uses = (lambda: layer(**case.arguments), layer.close, layer.clone, layer.synchronize, lambda: layer.bind(case.weights))
    for use in uses:
        with monkeypatch.context() as patch:
            patch.setattr(progress.Work, "step", lambda *_: use())
            layer.save_prepared(tmp_path / "prepared.safetensors")
        assert told and all("another call of this thread" in each for each in told)
        told.clear()
    seen: set[object] = set()
    monkeypatch.setattr(progress.Work, "step", lambda *_: seen.add((repr(layer), layer.closed)))
    layer.save_prepared(tmp_path / "prepared.safetensors")
    assert seen == {("<moec.Layer 'small' on cpu, up to 64 tokens>", False)} and not told
    assert (layer(**case.arguments) == output).all()
