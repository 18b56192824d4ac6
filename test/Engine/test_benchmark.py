# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/engine without a GPU: vLLM constructs each of its models, moec takes their experts, and random weights
give outputs that depend on them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import list_formats
from test_formats import make_call, make_layer, run
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.fused_moe.runner import shared_experts
from vllm.model_executor.model_loader.reload import record_metadata_for_reloading
from vllm.model_executor.model_loader.utils import initialize_model

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "engine"))

import jobs  # noqa: E402
import measure  # noqa: E402
import models  # noqa: E402
import weights  # noqa: E402


def make_engine_config(name: str, layers: int, folder: Path) -> VllmConfig:
    job = jobs.parse_job(f"{name}:moec-no-compile:{layers}:c:60", tuple(models.MODELS))
    return EngineArgs(**measure.make_arguments(job, folder)).create_engine_config()


#: One of each architecture takes half a minute, all take three.
MODELS = list(models.MODELS) if os.environ.get("MOEC_ALL_CASES") else ["q3", "oss20", "glm", "ernie", "kimi"]


@pytest.mark.parametrize("name", MODELS)
def test_model(engine: VllmConfig, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constructed at its real size, without memory."""
    monkeypatch.setattr(shared_experts, "aux_stream", lambda: None)
    config = make_engine_config(name, 2, tmp_path)
    with set_current_vllm_config(config), torch.device("meta"):
        model = initialize_model(vllm_config=config)
    layers = list(weights.list_experts(model))
    assert layers and all(type(layer.quant_method).__module__.startswith("moec.vllm") for _, layer in layers)


FORMATS = {name: list_formats()[name] for name in (
    "16 bits", "fp8 blocks", "compressed-tensors W4A16 g32", "compressed-tensors int8", "compressed-tensors nvfp4",
    "GPTQ int4 g128", "AWQ", "mxfp4", "ModelOpt fp8", "ModelOpt nvfp4", "experts_int8",
)}


@pytest.mark.parametrize("name", list(FORMATS))
def test_random_weights(engine: VllmConfig, name: str) -> None:
    """Outputs are as large as inputs, differ with other weights, and are equal after the first weights are loaded
    again."""
    layer = make_layer(engine, FORMATS[name])
    record_metadata_for_reloading(layer)
    weights.fill_layer(layer, "", 0)
    layer.quant_method.process_weights_after_loading(layer)
    call = make_call()
    first = run(layer, call).clone()
    assert 0.02 < float(first.float().std()) < 5
    weights.reload_experts(engine, layer, 1)
    other = run(layer, call).clone()
    assert float((other - first).float().norm() / first.float().norm()) > 0.5
    weights.reload_experts(engine, layer, 0)
    assert torch.equal(run(layer, call), first)
