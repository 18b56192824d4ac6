# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layout of scripts/kernels-hub, loaded by the package `kernels` in an environment without moec, which
`scripts/test --frameworks` makes (.venv-kernels), and by its kernelize() in one with Transformers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import moec

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["MOEC_LIBRARY_DIR"]).parent
WHEELS = sorted(BUILD.glob("moec-*.whl"))
PYTHON = ROOT / ".venv-kernels/bin/python"
FRAMEWORKS = ROOT / ".venv-frameworks/bin/python"
pytestmark = pytest.mark.skipif(not WHEELS, reason="there is no wheel; scripts/wheel makes it")

#: One token of a layer whose two experts are multiples of the unit matrix: 1.75 silu(x) x.
PROGRAM = """
import importlib.util, pathlib, sys
import kernels, numpy as np
assert importlib.util.find_spec("moec") is None
moec = kernels.get_local_kernel(pathlib.Path(sys.argv[1]))
size = 32
unit = np.eye(size, dtype=np.float32)
spec = {"moec_spec": 1, "dtype": "f32", "hidden_size": size, "num_experts": 2, "top_k": 2, "intermediate_size": size,
        "max_tokens": 4, "entry": "ids", "activation": {"kind": "silu"}}
layer = moec.compile(spec, device="cpu")
layer.bind({"experts.w13": np.stack([np.concatenate([unit, unit])] * 2), "experts.w2": np.stack([unit, 3 * unit])})
x = np.linspace(-0.5, 0.5, size, dtype=np.float32)[None]
found = layer(x, topk_ids=np.array([[1, 0]], np.int32), topk_weights=np.array([[0.5, 0.25]], np.float32))
np.testing.assert_allclose(found, 1.75 * x / (1 + np.exp(-x)) * x, atol=1e-6)
assert len(moec.compile_package(spec, "sm_90a", cache=False)) > 10000
try:
    moec.compile(spec | {"top_k": 3}, device="cpu")
except moec.InvalidArgument as error:
    print(error)
"""

#: Logits of a small Qwen3-MoE whose experts are replaced, against its own.
KERNELIZED = """
import pathlib, sys
sys.path.append(sys.argv[2])
import torch, transformers
from kernels import LocalLayerRepository, Mode, kernelize, replace_kernel_forward_from_hub, use_kernel_mapping
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
config = transformers.Qwen3MoeConfig(
    hidden_size=64, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=1, vocab_size=64)
torch.manual_seed(1)
model = transformers.AutoModelForCausalLM.from_config(config).eval()
for parameter in model.parameters():
    parameter.data.normal_(0, 0.1)
tokens = torch.arange(12)[None]
with torch.inference_mode():
    wanted = model(tokens).logits
replace_kernel_forward_from_hub(Qwen3MoeExperts, "MoecExperts")
own = LocalLayerRepository(pathlib.Path(sys.argv[1]), layer_name="MoecExperts")
with use_kernel_mapping({"MoecExperts": {"cpu": own}}):
    kernelize(model, mode=Mode.INFERENCE, device="cpu")
experts, = (module for module in model.modules() if isinstance(module, Qwen3MoeExperts))
with torch.inference_mode():
    torch.testing.assert_close(model(tokens).logits, wanted, atol=1e-6, rtol=1e-5)
print(experts.forward.__func__.__module__)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("hub") / "moec"
    assert run(WHEELS[-1], target).returncode == 0
    return target


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts/kernels-hub", *map(str, arguments)], text=True, capture_output=True)


def test_layout(folder: Path) -> None:
    variant = folder / "build/torch-universal"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["id"].startswith(f"moec_{moec.__version__.replace('.', '_')}_") and metadata["id"].isidentifier()
    assert (variant / "moec/libmoec.so.1").stat().st_size > 1e7
    assert (variant / "licenses/LICENSE").is_file() and (variant / "sboms/moec.cdx.json").is_file()
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: kernels\n")


def test_wrong_arguments_are_refused(folder: Path, tmp_path: Path) -> None:
    done = run(WHEELS[-1], folder)
    assert done.returncode == 1 and "exists: remove it" in done.stderr
    done = run(tmp_path / "other-1.0.whl", tmp_path / "made")
    assert done.returncode == 1 and "is no wheel of moec" in done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-kernels; scripts/test --frameworks makes it")
def test_kernels_loads_it(folder: Path) -> None:
    done = subprocess.run([PYTHON, "-c", PROGRAM, folder], env={"HF_HUB_OFFLINE": "1"}, cwd=folder, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "top_k" in done.stdout


@pytest.mark.skipif(not PYTHON.exists() or not FRAMEWORKS.exists(),
                    reason="there is no .venv-kernels or .venv-frameworks; scripts/test --frameworks makes them")
def test_kernelize_takes_experts(folder: Path) -> None:
    kernels = next(PYTHON.parents[1].glob("lib/python3*/site-packages"))
    done = subprocess.run([FRAMEWORKS, "-c", KERNELIZED, folder, kernels], env={"HF_HUB_OFFLINE": "1"}, cwd=folder,
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("moec_") and done.stdout.endswith(".layers\n")
