# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels for GPUs, in the simulator, through the small cases."""

import json
import re
import subprocess

import numpy as np
import pytest
from cases import CASES
from features import multiplications
from runs import TIMEOUT, binary

from moec.reference import LayerSpec, check, generate
from moec.simulator import SimulatedLayer

#: A simulated multiplication takes about a microsecond.
SMALL = [case for case in CASES if multiplications(case) <= 300_000]

#: Small cases whose slots are also placed by several CTAs.
RANKED = ("entry_ids_tokens_7", "groups_64_6_8_4_softmax", "huge_local_experts", "huge_padding",
          "topk_6_4_tokens_33")


def emit(model, level: str) -> str:
    command = [str(binary("moe-compile")), str(model), "--target=sm_80", f"--emit={level}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def simulate(case, layer) -> None:
    spec = LayerSpec.from_json(case.model)
    inputs = generate(spec, case.tokens, case.seed, case.hard)
    outputs = layer.run(inputs, case.tokens)
    if "expert_offsets" in outputs:
        outputs["expert_counts"] = np.diff(outputs["expert_offsets"])
    report = check(spec, inputs, outputs)
    assert report.ok, "\n".join(report.failures)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_simulated(case, tmp_path):
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model))
    simulate(case, SimulatedLayer(emit(model, "tile"), emit(model, "ptx")))


@pytest.mark.parametrize(
    "case", [case for case in SMALL if case.name in RANKED], ids=lambda case: case.name
)
def test_rank_of_many_ctas(case, tmp_path):
    """Small cases have one CTA that places slots; with few tokens each they have many."""
    model = tmp_path / "model.json"
    model.write_text(json.dumps(case.model))
    text = emit(model, "tile")
    rows = re.search(r'"sm80.rank".*? rows = (\d+)', text)[1]
    text = text.replace(f"rows = {rows}>", "rows = 2>")
    text = text.replace(f"max(min(ceildiv(tokens, {rows})", "max(min(ceildiv(tokens, 2)")
    tile = tmp_path / "tile.mlir"
    tile.write_text(text)
    layer = SimulatedLayer(text, emit(tile, "ptx"))
    assert any("max(min(ceildiv(tokens, 2)" in kernel.grid for kernel in layer.kernels.values())
    simulate(case, layer)
