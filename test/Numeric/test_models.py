# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every real model at its published quantization: lowered to LLVM IR whole, run and checked with
fewer experts."""

import json
import os
import subprocess
import sys

import pytest
from runs import ALL_CASES, ROOT, binary

MODELS = sorted((ROOT / "test" / "models").glob("*.json"))
TOKENS = 7
#: Fewest experts that a check keeps, and fewest of a group.
EXPERTS, EXPERTS_OF_GROUP = 4, 2


def _config(path):
    config = json.loads(path.read_text())
    return config | config.get("text_config", {})


def _kind(path) -> tuple:
    """Properties that layers of a family share in one format, whatever their sizes."""
    config = _config(path)
    quantization = config.get("quantization_config") or {}
    return config["model_type"], quantization.get("quant_method"), bool(config.get("n_group", 1) > 1)


def _smallest() -> list:
    """The model of each kind with the smallest experts; all in the nightly run."""
    found = {}
    for path in MODELS:
        config = _config(path)
        size = config["hidden_size"] * (config.get("moe_intermediate_size") or config["intermediate_size"]) * _experts(path)
        found.setdefault(path if ALL_CASES else _kind(path), []).append((size, path))
    return sorted(min(each)[1] for each in found.values())


def _experts(path) -> int:
    config = _config(path)
    names = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    total = next(config[name] for name in names if name in config)
    top_k = config.get("num_experts_per_tok", config.get("moe_k"))
    return min(total, max(top_k, EXPERTS, EXPERTS_OF_GROUP * (config.get("n_group") or 1)))


def _run(*command: str) -> subprocess.CompletedProcess:
    environment = os.environ | {
        "MOEC_PYTHON": os.environ.get("MOEC_PYTHON", sys.executable),
        "PYTHONPATH": str(ROOT / "python"),
    }
    return subprocess.run(
        [str(part) for part in command], text=True, capture_output=True, env=environment
    )


def test_all_models_are_here():
    assert len(MODELS) == 21


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_lowers_whole(path):
    done = _run(binary("moe-compile"), path, "--emit=llvm")
    assert done.returncode == 0, done.stderr
    assert "define void @experts_hidden" in done.stdout


@pytest.mark.one_of(3)
@pytest.mark.parametrize("path", _smallest(), ids=lambda path: path.stem)
def test_runs_right(path):
    done = _run(
        binary("moe-run"), path, f"--num-experts={_experts(path)}", f"--tokens={TOKENS}", "--check"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: relative error" in done.stdout
