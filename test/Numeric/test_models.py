# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every real model: lowered to LLVM IR whole, run and checked with fewer experts.

Block fp8 runs as published; mxfp4 is refused by name below level moe."""

import json
import os
import subprocess
import sys

import pytest
from runs import ROOT, binary

MODELS = sorted((ROOT / "test" / "models").glob("*.json"))
TOKENS = 7
#: Fewest experts that a check keeps.
EXPERTS = 16


def _config(path):
    config = json.loads(path.read_text())
    return config | config.get("text_config", {})


MXFP4 = [
    path for path in MODELS
    if _config(path).get("quantization_config", {}).get("quant_method") == "mxfp4"
]
COMPILED = [path for path in MODELS if path not in MXFP4]


def _experts(path) -> int:
    config = _config(path)
    names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    total = next(config[name] for name in names if name in config)
    top_k = config.get("num_experts_per_tok", config.get("moe_k"))
    return min(total, max(top_k, EXPERTS))


def _run(*command: str) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "MOEC_PYTHON": os.environ.get("MOEC_PYTHON", sys.executable),
        "PYTHONPATH": str(ROOT / "python"),
    }
    return subprocess.run(
        [str(part) for part in command], text=True, capture_output=True, env=environment
    )


def test_all_models_are_here():
    assert (len(MODELS), len(COMPILED), len(MXFP4)) == (21, 19, 2)


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_lowers_whole(path):
    done = _run(binary("moe-compile"), path, "--emit=llvm")
    assert done.returncode == 0, done.stderr
    assert "define void @experts_hidden" in done.stdout


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_runs_right(path):
    done = _run(
        binary("moe-run"), path, f"--num-experts={_experts(path)}", f"--tokens={TOKENS}", "--check"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: relative error" in done.stdout


@pytest.mark.parametrize("path", MXFP4, ids=lambda path: path.stem)
def test_mxfp4_is_described_and_refused_by_name(path):
    done = _run(binary("moe-compile"), path, "--emit=moe")
    assert done.returncode == 0, done.stderr
    assert "weight_quant = #moe.quant" in done.stdout
    done = _run(binary("moe-compile"), path, "--emit=plan")
    assert done.returncode == 1
    # In the words of the file, not in the IR's.
    assert "'quantization_config.quant_method' = \"mxfp4\"" in done.stderr
    assert "weight_quant" not in done.stderr and done.stdout == ""
