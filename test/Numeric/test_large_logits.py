# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logits so large that a difference of 100 between them is none: the largest is chosen all the same."""

import json
import subprocess

import numpy as np
import pytest
from cases import BASE, TINY
from runs import TIMEOUT, binary
from safetensors import safe_open

from moec.reference import LayerSpec, check, generate, write_tensors

TARGETS = {"cpu": (), "sm_80": ("--target=sm_80", "--device=sim"), "sm_90a": ("--target=sm_90a", "--device=sim")}
#: Few experts are held by lanes, 300 are several per lane.
EXPERTS = (2, 40, 300)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("factor", [1e8, 1e10, 1e36])
def test_large_logits(factor, experts, target, tmp_path):
    model = BASE | TINY | {"num_experts": experts, "top_k": 1, "routing": {"score": "softmax"}, "max_tokens": 9}
    spec = LayerSpec.from_json(model)
    tensors = generate(spec, 9, 1)
    tensors["router_logits"] = tensors["router_logits"] * np.float32(factor)
    model_file, inputs, outputs = (tmp_path / name for name in ("l.json", "in.safetensors", "out.safetensors"))
    model_file.write_text(json.dumps(model))
    write_tensors(inputs, tensors)
    done = subprocess.run([str(binary("moe-run")), str(model_file), "--tokens=9", f"--inputs={inputs}",
                           f"--outputs={outputs}", *TARGETS[target]], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(outputs), framework="np") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    report = check(spec, tensors, found)
    assert report.ok, [report.summary(), *report.failures]
