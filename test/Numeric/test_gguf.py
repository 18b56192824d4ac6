# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose weights are in the GGUF files of test/Tools/Inputs/checkpoints."""

import json
import subprocess

import pytest
from runs import ROOT, TIMEOUT, binary

CHECKPOINTS = ROOT / "test" / "Tools" / "Inputs" / "checkpoints"


@pytest.mark.parametrize(
    ("block", "fields", "options"),
    [
        ("q8_0", {}, ()),
        ("mxfp4", {}, ()),
        # Blocks of 256 in the first products. Minima, and scales of few elements.
        ("q4_K", {}, ()),
        ("q5_K", {}, ()),
        ("q6_K", {}, ()),
        ("q4_K", {"dtype": "bf16", "entry": "logits"}, ("--target=sm_90a", "--device=sim:0")),
        ("q5_K", {"dtype": "f16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        ("q6_K", {"dtype": "bf16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        # Scales of either sign, and 0: decoded, and brought into the order of Hopper's tensor cores.
        ("q4_0", {}, ()),
        ("q4_0", {"dtype": "bf16", "entry": "logits"}, ("--target=sm_90a", "--device=sim:0")),
    ],
)
def test_gguf(block, fields, options, tmp_path):
    folder = CHECKPOINTS / f"gguf-{block}"
    model = tmp_path / "spec.json"
    model.write_text(json.dumps(json.loads((folder / "spec.json").read_text()) | fields))
    command = [binary("moe-run"), model, f"--inputs={folder / 'model.gguf'}", "--tokens=5", "--check", *options]
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0 and "ok: relative error" in done.stdout + done.stderr, done.stdout + done.stderr
