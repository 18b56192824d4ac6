# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's LoRA layer around experts that moec runs, and layers that keep vLLM's kernel."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, HIDDEN, TOKENS, WIDTH, load, make_call, make_runner, run, swiglu, verify
from test_memory import preparing  # noqa: F401 (a fixture)
from vllm.config import LoRAConfig, VllmConfig
from vllm.lora.layers.fused_moe import FusedMoEWithLoRA

import moec
from moec.vllm.experts import choose
from moec.vllm.lora import MoecLoRAExperts

ADAPTERS, RANK = 2, 8


@pytest.fixture
def adapted(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> LoRAConfig:
    config = LoRAConfig(max_loras=ADAPTERS, max_lora_rank=RANK, lora_dtype=torch.bfloat16)
    monkeypatch.setattr(engine, "lora_config", config)
    return config


def make_adapter(seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """A and B of gate, down and up, stacked over experts, as vLLM's loader gives them."""
    torch.manual_seed(seed)
    sizes = [(HIDDEN, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    draw = lambda *shape: (torch.rand(EXPERTS, *shape) - 0.5).to(torch.bfloat16)  # noqa: E731
    return [draw(RANK, before) for before, _ in sizes], [draw(after, RANK) for _, after in sizes]


def compute(numbers: dict[str, torch.Tensor], call: Any, adapters: list[Any], mapping: torch.Tensor) -> torch.Tensor:
    hidden, weights, ids = call
    output = torch.zeros(TOKENS, HIDDEN, dtype=torch.float32)
    for token in range(TOKENS):
        row, own = hidden[token].float(), int(mapping[token])
        for weight, expert in zip(weights[token], ids[token].tolist()):
            def add(place: int, x: torch.Tensor) -> Any:
                if own < 0 or adapters[own] is None:
                    return 0
                a, b = (each[place][expert].float() for each in adapters[own])
                return b @ (a @ x)
            gate, up = (numbers[f"{expert}.{name}"] @ row for name in ("gate_proj", "up_proj"))
            h = swiglu(gate + add(0, row), up + add(2, row))
            output[token] += weight * (numbers[f"{expert}.down_proj"] @ h + add(1, h))
    return output


FORMATS = list_formats()
PLAIN = FORMATS["16 bits"]
#: Formats whose weights a layer prepares, ahead of the adapters.
PREPARED = ("fp8 blocks", "GPTQ int4 g128", "mxfp4")


# parity: N8, L64
@pytest.mark.parametrize("name, is_prepared", [("16 bits", False), *((name, True) for name in PREPARED)])
def test_adapters_of_vllm(
    adapted: LoRAConfig, request: pytest.FixtureRequest, name: str, is_prepared: bool
) -> None:
    """The stacked tensors are read in place: adapters are set, and reset, between calls."""
    if is_prepared:
        request.getfixturevalue("preparing")
    format = FORMATS[name]
    runner = make_runner(format)
    layer = runner.routed_experts
    numbers, call = load(layer, format), make_call()
    layer.quant_method.process_weights_after_loading(layer)
    assert ("moec_experts_w13_prepacked" in dict(layer.named_parameters())) == is_prepared
    none = compute(numbers, call, [None] * ADAPTERS, torch.full((TOKENS,), -1))
    # vLLM may have no adapters for these modules.
    verify(run(layer, call), none, format.bound)
    wrapped = FusedMoEWithLoRA(runner)
    wrapped.create_lora_weights(ADAPTERS, adapted)
    assert isinstance(wrapped._moe_kernel.fused_experts, MoecLoRAExperts)
    verify(run(layer, call), none, format.bound)
    mapping = (torch.arange(TOKENS) % (ADAPTERS + 1) - 1).to(torch.int32)
    meta = types.SimpleNamespace(meta_args=lambda tokens, specialize: (mapping[:tokens],))
    wrapped.set_mapping(types.SimpleNamespace(lora_config=adapted, token_mapping_meta=meta))
    adapters: list[Any] = [None] * ADAPTERS
    for index in range(ADAPTERS):
        adapters[index] = make_adapter(index)
        wrapped.set_lora(index, *adapters[index])
        verify(run(layer, call), compute(numbers, call, adapters, mapping), format.bound + 2e-3)
    wrapped.reset_lora(0)
    adapters[0] = None
    verify(run(layer, call), compute(numbers, call, adapters, mapping), format.bound + 2e-3)


@pytest.mark.parametrize("change, reason", [
    ({"fully_sharded_loras": True}, "LoRA adapters with fully_sharded_loras"),
    ({"enable_moe_shared_loras": True}, "LoRA adapters with enable_moe_shared_loras"),
    ({"lora_dtype": torch.float16}, "LoRA adapters of torch.float16 beside torch.bfloat16"),
])
def test_what_keeps_the_kernel_of_vllm(
    adapted: LoRAConfig, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reason: str
) -> None:
    for name, value in change.items():
        monkeypatch.setattr(adapted, name, value)
    chosen, found = choose(make_runner(PLAIN).routed_experts.moe_config, None, None)
    assert chosen is None and found is not None and reason in found


def test_gate_and_up_in_one_tensor(adapted: LoRAConfig) -> None:
    layer = make_runner(PLAIN).routed_experts
    chosen, _ = choose(layer.moe_config, None, None)
    assert chosen is not None and issubclass(chosen, MoecLoRAExperts)
    context = types.SimpleNamespace(w13_lora_a_stacked=(torch.zeros(1),))
    experts = object.__new__(chosen)
    experts.moe_config = layer.moe_config
    with pytest.raises(moec.InvalidArgument, match="gate and up in one tensor"):
        experts.set_lora_context(context)
