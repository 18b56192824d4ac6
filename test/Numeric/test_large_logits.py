# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extreme logits: so large that a difference of 100 is rounded away, or with subnormal scores."""

import json
import subprocess

import numpy as np
import pytest
from cases import BASE, TINY
from runs import TIMEOUT, binary
from safetensors import safe_open

from moec.reference import LayerSpec, check, generate, write_tensors

TARGETS = {"cpu": (), "sm_80": ("--target=sm_80", "--device=sim"), "sm_90a": ("--target=sm_90a", "--device=sim")}
#: With few experts each lane has at most one, with 300 several.
EXPERTS = (2, 40, 300)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("factor", [1e8, 1e10, 1e36])
def test_large_logits(factor, experts, target, tmp_path):
    model = BASE | TINY | {"num_experts": experts, "top_k": 1, "routing": {"score": "softmax"}, "max_tokens": 9}
    spec = LayerSpec.from_json(model)
    tensors = generate(spec, 9, 1)
    tensors["router_logits"] = tensors["router_logits"] * np.float32(factor)
    run(tmp_path, model, spec, tensors, target)


def run(folder, model, spec, tensors, target):
    """The outputs, which the reference finds right."""
    model_file, inputs, outputs = (folder / name for name in ("l.json", "in.safetensors", "out.safetensors"))
    model_file.write_text(json.dumps(model))
    write_tensors(inputs, tensors)
    done = subprocess.run([str(binary("moe-run")), str(model_file), "--tokens=9", f"--inputs={inputs}",
                           f"--outputs={outputs}", *TARGETS[target]], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(outputs), framework="np") as file:
        found = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    report = check(spec, tensors, found)
    assert report.ok, [report.summary(), *report.failures]
    return found


#: The score function, and the shares of exp(-95) and exp(-95.3), or of their roots.
SMALL_SCORES = {
    "sigmoid": ({"score": "sigmoid"}, (0.574443, 0.425557)),
    "weight": ({"score": "identity", "weight": "sigmoid"}, (0.574443, 0.425557)),
    "sqrtsoftplus": ({"score": "sqrtsoftplus"}, (0.537430, 0.462570)),
}


# field-bug: flashinfer#3875
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", SMALL_SCORES)
def test_shares_of_small_scores(kind, target, tmp_path):
    routing, shares = SMALL_SCORES[kind]
    model = BASE | TINY | {"num_experts": 8, "top_k": 2, "routing": routing | {"renormalize": True}, "max_tokens": 9}
    spec = LayerSpec.from_json(model)
    tensors = generate(spec, 9, 1)
    logits = tensors["router_logits"]
    logits[:] = -200
    # Scores from 7e-28 down to 15 units of 2^-149, on both sides of the least normal number.
    for token, largest in enumerate((-62.5, -63.9, -87.2, -89, -95, -97, -98, -99, -100.3)):
        logits[token, (token + 3) % 8], logits[token, (token + 5) % 8] = largest, largest - 0.3
    found = run(tmp_path, model, spec, tensors, target)
    assert found["topk_ids"][4].tolist() == [7, 1]
    np.testing.assert_allclose(found["topk_weights"][4], shares, rtol=5e-4)
    assert np.abs(found["output"]).max(axis=1).min() > 0
