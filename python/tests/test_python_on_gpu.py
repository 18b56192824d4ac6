# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/python_on_gpu.py: all steps except tests with toy models, on the CPU, and its report of failing steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
pytest.importorskip("transformers", reason="Transformers is not installed")

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "python_on_gpu.py"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PROGRAM, f"--output={folder}", "--device=cpu", "--quick", *options], text=True,
        capture_output=True)


def test_steps(tmp_path: Path) -> None:
    done = run(tmp_path, "--steps=overhead,forwards,serve,report", "--commit=abc")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "python_on_gpu.json").read_text())
    assert record["commit"] == "abc" and record["device"] == "cpu"
    steps = record["steps"]
    assert set(steps["overhead"]) == {"ids", "gate", "seconds"}
    assert [row["tokens"] for row in steps["forwards"]["qwen3_moe"]["rows"]] == [1, 16]
    assert steps["serve"]["results"]["moec"]["tokens"] == steps["serve"]["results"]["eager"]["tokens"]
    assert steps["report"]["median_us"]["4096"] > 0
    assert "measured" in (tmp_path / "layer.html").read_text()
    assert json.loads((tmp_path / "serve_trace.json").read_text())["traceEvents"]
    assert {each.name for each in tmp_path.iterdir()} == {
        "python_on_gpu.json", "layer.html", "serve_trace.json"}


def test_failures(tmp_path: Path) -> None:
    done = run(tmp_path, "--steps=overhead,report", "--seconds=0")
    assert done.returncode == 1
    steps = json.loads((tmp_path / "python_on_gpu.json").read_text())["steps"]
    assert {each["error"] for each in steps.values()} == {"no time left"}
    done = run(tmp_path, "--steps=speed")
    assert done.returncode == 2 and "--steps: 'speed' found; tests, overhead, " in done.stderr
