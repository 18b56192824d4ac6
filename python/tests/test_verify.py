# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layer.verify() and MOEC_VERIFY: right layers pass, and a wrong row is told with files that reproduce it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_layer import SPEC, Case
from test_fake_gpu import gpu  # noqa: F401

import moec
from moec.reference.files import write_tensors
from moec.reference.generate import generate
from moec.reference.spec import LayerSpec

BINARIES = Path(os.environ["MOEC_LIBRARY_DIR"]).parent / "bin"
GROUPS = {"score": "sigmoid", "selection_bias": True, "expert_scale": True, "num_groups": 2, "topk_groups": 1,
          "renormalize": True}
LAYERS = {
    "groups": {"routing": GROUPS},
    "logits": {"entry": "logits", "padding_mask": True, "num_valid_tokens": True},
    "shared": {"shared_experts": {"intermediate_size": 32, "gate": "sigmoid"}, "expert_bias": True},
    "zero_experts": {"entry": "ids", "num_zero_experts": 2, "latent_size": 32, "top_k": 3},
    "replicas": {"entry": "ids", "replicas": {"num_physical_experts": 6, "max_replicas": 2}},
    "placed": {"entry": "ids", "placement": {"local_experts": [3, 1]}},
    "mxfp4": {"quantization": "mxfp4"},
    "int4": {"quantization": {"weight": {"dtype": "int4", "scale": {"group": 32}, "zero_point": True}}},
    "fp8": {"quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                             "activation": {"dtype": "fp8_e4m3", "scale": "token"}}},
}


@pytest.mark.parametrize("name", LAYERS)
def test_right_layers_pass(name: str, tmp_path: Path) -> None:
    case = Case(9, **LAYERS[name])
    layer = case.compile(num_valid_tokens=case.spec.num_valid_tokens).verify(2, rows=9, folder=tmp_path)
    for _ in range(2):
        case.verify(layer(**case.arguments))
    layer.synchronize()
    assert list(tmp_path.iterdir()) == []


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    assert not case.compile().verifies_runs
    monkeypatch.setenv("MOEC_VERIFY", "1000")
    layer = case.compile()
    assert layer.verifies_runs and layer.clone().verifies_runs
    with pytest.raises(moec.InvalidArgument, match="cannot be released or replaced.*unset MOEC_VERIFY, or keep the"):
        layer.release_weights()
    monkeypatch.setenv("MOEC_VERIFY", "often")
    with pytest.raises(moec.InvalidArgument, match="MOEC_VERIFY is 'often'; give a number N"):
        case.compile()
    with pytest.raises(moec.InvalidArgument, match="in_graphs: 'no' found; \"refuse\" and \"skip\" are accepted"):
        layer.verify(3, in_graphs="no")


def test_layers_that_cannot_be_compared(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    scale = {"dtype": "fp8_e4m3", "scale": "tensor"}
    case = Case(quantization={"weight": scale, "activation": scale})
    why = "activations of 'experts.w13' have one scale that depends on all rows"
    with pytest.raises(moec.Unavailable, match=why):
        case.compile().verify(1)
    monkeypatch.setenv("MOEC_VERIFY", "1")
    case.verify(case.compile()(**case.arguments))
    assert f"moec: warning: MOEC_VERIFY: {why}" in capfd.readouterr().err


def run_python(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def test_a_wrong_row_is_reproduced(gpu, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    """The kernels of the emulated GPU do nothing, so the output stays as it was: ones."""
    spec = LayerSpec.from_json(SPEC)
    tensors = generate(spec, 5, 1)
    write_tensors(tmp_path / "layer.safetensors", {name: each for name, each in tensors.items() if "." in name})
    package = moec.compile_package(SPEC, "sm_80", cache=False, use_ptxas=False)
    layer = moec.Layer.from_package(package, device="cuda:0").load(tmp_path / "layer.safetensors")
    hidden, out = gpu((5, 64)), gpu((5, 64))
    hidden.copy_in(tensors["hidden_states"].tobytes())
    out.copy_in(np.ones((5, 64), tensors["hidden_states"].dtype).tobytes())
    layer.verify(2, rows=5, folder=tmp_path / "found")
    layer(hidden, out=out)
    layer.synchronize()
    layer(hidden, out=out)
    with pytest.raises(moec.Error, match="layer 'small', run 2 of 5 tokens: row 0 is wrong: output: relative error"):
        layer.synchronize()
    assert "moec: error: MOEC_VERIFY" in capfd.readouterr().err
    (folder,) = (tmp_path / "found").iterdir()
    finding = json.loads((folder / "finding.json").read_text())
    assert finding["row"] == 0 and finding["tokens"] == 5 and finding["device"] == "cuda:0 (Fake GPU)"
    assert json.loads((folder / "layer.json").read_text())["routing"] == SPEC["routing"]

    # The reference in Python finds the same, and kernels of the CPU are right for the same row.
    files = "--spec", folder / "spec.json", "--inputs", folder / "inputs.safetensors"
    checked = run_python(sys.executable, "-m", "moec.reference", "check", *files,
                         "--outputs", folder / "outputs.safetensors")
    assert checked.returncode == 1 and "relative error" in checked.stdout, checked.stdout + checked.stderr
    replay = finding["replay"].split()
    assert replay[0] == "moe-run"
    done = subprocess.run([str(BINARIES / "moe-run"), *replay[1:]], cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"MOEC_PYTHON": sys.executable})
    assert done.returncode == 0, done.stdout + done.stderr
