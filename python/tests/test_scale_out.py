# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scale-out without GPUs: its parts with ranks as threads, and that it finds what is wrong."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/scale_out"
sys.path.insert(0, str(FOLDER))

import drills  # noqa: E402
import machine  # noqa: E402
import parts  # noqa: E402
import tables  # noqa: E402


def scale_out(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, FOLDER, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, env=os.environ | environment)


def make_moe_run(folder: pathlib.Path, script: str) -> machine.Tools:
    program = folder / "bin/moe-run"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    scratch = folder / "scratch"
    scratch.mkdir()
    return machine.Tools(folder, program.parent, folder / "lib", scratch, "host", "")


def test_times_may_be_less_than_nothing():
    """Of an exchange that makes its sums, what these take alone is taken off."""
    times = parts.read_times("tokens  part             timed   median us      p99 us\n"
                             "     8  combine            100       -0.53        2.10\n")
    assert times == {(8, "combine"): {"samples": 100, "us": -0.53, "p99_us": 2.1}}


@pytest.mark.skipif("MOEC_BIN_DIR" not in os.environ, reason="needs moe-run")
def test_parts_run_on_the_host(tmp_path):
    record = tmp_path / "record.json"
    done = scale_out("--device=host", "--gpus=2", "--only=exchange,layers", f"--json={record}")
    assert done.returncode == 0, done.stdout
    found = json.loads(record.read_text())["parts"]
    assert [row["tokens_per_rank"] for row in found["exchange"]["rows"]] == [1, 8]
    for row in found["exchange"]["rows"]:
        assert row["dispatch"]["us"] > 0 and row["combine"]["us"] > 0
    assert {row["layer"] for row in found["layers"]["rows"]} == set(parts.LAYERS)
    for row in found["layers"]["rows"]:
        assert row["together"]["us"] > row["exchange"]["us"] / 4 > 0 and row["one_gpu"]["us"] > 0


def test_what_is_missing_is_named(tmp_path):
    assert "no moe-run in" in scale_out(f"--bundle={tmp_path}", "--device=host").stdout
    assert "'foo' is none of" in scale_out("--only=foo").stdout
    assert "'foo' is none of" in scale_out("--layers=foo").stdout
    make_moe_run(tmp_path, "echo moec 0")
    done = scale_out(f"--bundle={tmp_path}", "--gpus=4", MOERT_CUDA_LIBRARY="/none/libcuda.so.1")
    assert done.returncode == 1 and "no GPU: /none/libcuda.so.1" in done.stdout


def test_a_record_has_what_was_measured_when_it_is_stopped(tmp_path):
    """A machine's time may be over in the middle of a part."""
    record = tmp_path / "record.json"
    make_moe_run(tmp_path, 'case "$*" in *--version*) echo moec 0; exit;; esac\n'
                 'mkdir "$0.once" 2>/dev/null || sleep 60; echo "the output differs"; exit 1')
    run = subprocess.Popen([sys.executable, FOLDER, f"--bundle={tmp_path}", "--device=host", "--only=correctness",
                            f"--json={record}"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        run.kill()
        run.wait()
    rows = json.loads(record.read_text())["parts"]["correctness"]["rows"]
    assert len(rows) == 1 and "differs" in rows[0]["error"]


@pytest.mark.parametrize(("script", "text"), [
    ("echo moe-run: error: the output differs; exit 1", "the output differs"),
    ("echo ranks of group 0: ok: relative error 1e-3", "does not say that all is well"),
    ("sleep 60", "not done after"),
])
def test_wrong_results_are_found(script, text, tmp_path):
    part = parts.Part(make_moe_run(tmp_path, script), 2, time.monotonic() + 1, tiny=True)
    rows = list(parts.check_meshes(part))
    assert len(rows) == 6 and not any(row["ok"] for row in rows)
    assert text in rows[0]["error"]
    assert all("error" in row for row in parts.time_layers(part))


#: Ranks that find each other by nothing: what a survivor does after it was told, by the phase.
STAND_IN = """
import json, os, sys, time
order = json.loads(sys.argv[1])
say = lambda **event: print(json.dumps(event), flush=True)
say(event="at")
if order["rank"] == order["victim"] and order["mode"] != "package":
    time.sleep(60)
time.sleep(0.6)
does = os.environ["SURVIVORS"]
if does == "hang": time.sleep(60)
if does == "crash": sys.exit("Segmentation fault")
say(event="no error" if does == "no error" else "error", text="a rank is gone")
say(event="alive", same=does != "other bits")
if does == "never end": time.sleep(60)
"""


@pytest.mark.parametrize(("does", "ok", "hangs"), [
    ("error", True, 0), ("hang", False, 1), ("crash", False, 0), ("no error", False, 0), ("other bits", False, 0),
    ("never end", False, 1),
])
def test_drills_judge_survivors(does, ok, hangs, tmp_path, monkeypatch):
    stand_in = tmp_path / "rank.py"
    stand_in.write_text(STAND_IN)
    monkeypatch.setattr(drills, "RANK", stand_in)
    for name, seconds in (("LIMIT", 0.5), ("GRACE", 1.0), ("END", 1.0), ("PAUSE", 0.1)):
        monkeypatch.setattr(drills, name, seconds)
    monkeypatch.setenv("SURVIVORS", does)
    cell = drills.run_cell(make_moe_run(tmp_path, ""), 2, "kill", "replay")
    assert (cell["ok"], cell["hangs"]) == (ok, hangs), cell
    assert f"{int(ok)} of 1 cells ok, {hangs} hangs" in "\n".join(tables.drills([cell]))
    if does == "crash":
        assert "Segmentation fault" in cell["survivors"][0]["says"]


def test_every_cell_is_a_phase_of_a_failure():
    assert len(drills.cells()) == 13
    assert [phase for mode, phase in drills.cells() if mode == "package"] == ["init"]
