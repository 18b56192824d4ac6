# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators of PyTorch around a layer. In a CUDA graph each operator except views and allocations is one more launch
per layer, which takes a share of the time at few tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, load, make_call, make_layer, make_logits
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.config import VllmConfig
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map

from moec.vllm.experts import MoecExperts

FORMATS = list_formats()


class Launches(TorchDispatchMode):
    """Collects operators that launch kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_view = any(each.alias_info and not each.alias_info.is_write for each in func._schema.arguments)
        if not is_view and "empty" not in func._schema.name:
            self.found.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def make(
    config: VllmConfig, format: str, monkeypatch: pytest.MonkeyPatch, selects: bool, **options: Any
) -> tuple[Any, Any]:
    monkeypatch.setenv("MOEC_VLLM_ROUTER", str(int(selects)))
    layer = make_layer(config, FORMATS[format], **options)
    load(layer, FORMATS[format])
    return layer, layer.quant_method


def count(config: VllmConfig, layer: Any, tokens: int, dtype: torch.dtype = torch.bfloat16) -> list[str]:
    """Operators of a call after the first one."""
    call = [each[:tokens].contiguous() for each in make_call()]
    if layer.apply_router_weight_on_input:
        call[1:] = [each[:, :1].contiguous() for each in call[1:]]
    logits = make_logits(make_call())[:tokens].to(dtype)
    is_padding = torch.zeros(8, dtype=torch.bool)
    method = layer.quant_method

    def run() -> None:
        if method.is_monolithic:
            method.apply_monolithic(layer, call[0], logits)
        else:
            method.apply(layer, *call, None, None)

    with set_forward_context(None, config, num_tokens=tokens, is_padding=is_padding):
        run()
        with Launches() as launches:
            run()
    return launches.found


@pytest.mark.parametrize("format", ["16 bits", "fp8 blocks", "GPTQ int4 g128", "mxfp4"])
@pytest.mark.parametrize(("selects", "dtype"), [(False, torch.bfloat16), (True, torch.bfloat16), (True, torch.float32)])
def test_nothing_is_launched_beside_a_layer(
    engine: VllmConfig, format: str, selects: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, method = make(engine, format, monkeypatch, selects, router_logits_dtype=dtype)
    method.process_weights_after_loading(layer)
    assert method.is_monolithic == selects
    for tokens in (1, 5):
        assert count(engine, layer, tokens, dtype) == []


def test_experts_of_other_ranks(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of all experts need no mapping."""
    layer, method = make(engine, "16 bits", monkeypatch, selects=False)
    _, layer._expert_map, _ = determine_expert_map(2, 1, EXPERTS)
    held = layer._expert_map >= 0
    for name in ("w13_weight", "w2_weight"):
        setattr(layer, name, torch.nn.Parameter(getattr(layer, name)[held], requires_grad=False))
    method.process_weights_after_loading(layer)
    assert isinstance(method.moe_kernel.fused_experts, MoecExperts)
    assert count(engine, layer, 5) == []


def test_weights_on_the_input(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's prepare converts the weights and multiplies."""
    layer, method = make(engine, "16 bits", monkeypatch, selects=False, top_k=1, apply_router_weight_on_input=True)
    method.process_weights_after_loading(layer)
    assert count(engine, layer, 5) == ["aten::_to_copy", "aten::mul"]
