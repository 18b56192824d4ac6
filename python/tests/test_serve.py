# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""examples/serve.py: its tokens equal eager's, and the trace names the launches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
pytest.importorskip("transformers", reason="Transformers is not installed")

SERVE = Path(__file__).resolve().parents[2] / "examples" / "serve.py"


def serve(*options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SERVE, *options], text=True, capture_output=True, timeout=500)


def test_tokens_and_trace(tmp_path: Path) -> None:
    results, trace = tmp_path / "out.json", tmp_path / "trace.json"
    done = serve("--size=tiny", "--batch=2", "--prompt=4", "--tokens=6",
                 "--implementations=moec,eager", f"--json={results}", f"--trace={trace}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(results.read_text())["results"]
    # On the CPU models are f32. On a GPU they are bf16, whose rounding may change tokens.
    moec, eager = found["moec"], found["eager"]
    assert [len(row) for row in moec["tokens"]] == [6, 6] and moec["tokens_per_second"] > 0
    if not torch.cuda.is_available():
        assert moec["tokens"] == eager["tokens"]
    assert moec["graph"] == torch.cuda.is_available(), moec.get("why_no_graph")
    names = " ".join(event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"])
    for kernel in ("experts_hidden", "experts_out", "output"):
        assert kernel in names, kernel


@pytest.mark.parametrize("option, message", [
    ("--model=nothing", "--model: nothing found; qwen3_moe, "),
    ("--tokens=1", "--tokens: 1 found, 2 or more are accepted"),
    ("--implementations=moec,fast", "--implementations: fast found"),
])
def test_errors(option: str, message: str) -> None:
    done = serve(option)
    assert done.returncode != 0 and message in done.stderr
