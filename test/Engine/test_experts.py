# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""16-bit experts in the real vLLM's kernels and formats, refusals of the plugin, and signatures."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, HIDDEN, TOKENS, compute, load, make_call, make_layer, run, verify
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe import moe_permute_unpermute
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig, fp8_w8a16_moe_quant_config
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEExpertsModular, FusedMoEKernel
from vllm.model_executor.layers.fused_moe.moe_align_block_size import (
    batched_moe_align_block_size,
    moe_align_block_size,
)
from vllm.model_executor.layers.fused_moe.prepare_finalize.batched import BatchedPrepareAndFinalize
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import MoEPrepareAndFinalizeNoDPEPModular
from vllm.model_executor.layers.fused_moe.router.fused_topk_bias_router import fused_topk_bias
from vllm.model_executor.layers.fused_moe.router.fused_topk_router import fused_topk
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import grouped_topk
from vllm.model_executor.layers.fused_moe.utils import count_expert_num_tokens
from vllm.platforms import current_platform
from vllm.platforms.interface import DeviceCapability

import moec
from moec import functions
from moec.vllm.experts import MoecBatchedExperts, MoecExperts, choose

FORMATS = list_formats()
PLAIN = FORMATS["16 bits"]


@pytest.fixture
def layer(engine: VllmConfig) -> Any:
    return make_layer(engine, PLAIN)


def make_batched(layer: Any, config: FusedMoEQuantConfig) -> MoecBatchedExperts:
    return MoecBatchedExperts(layer.moe_config, config, max_num_tokens=16, num_dispatchers=1)


def apply(kernel: FusedMoEKernel, layer: Any, call: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return kernel.apply(
        *(call[0], layer.w13_weight, layer.w2_weight, call[1], call[2]), activation=layer.activation,
        global_num_experts=EXPERTS, expert_map=None, apply_router_weight_on_input=False,
    )


# parity: M6
def test_batched_format(layer: Any) -> None:
    """vLLM's prepare of this format refuses experts that round their inputs themselves."""
    numbers, call = load(layer, PLAIN), make_call()
    kernel = FusedMoEKernel(
        BatchedPrepareAndFinalize(16, EXPERTS, 1, 0), make_batched(layer, FusedMoEQuantConfig.make()))
    wanted = compute(numbers, call)
    verify(apply(kernel, layer, call), wanted, 6e-3)
    # Bounds are those of sums of bf16 products; f32 does not need them.
    for each in (layer.w13_weight, layer.w2_weight):
        each.data = each.data.float()
    verify(apply(kernel, layer, (call[0].float(), *call[1:])), wanted, 1e-5)


def test_experts_of_other_ranks(layer: Any) -> None:
    numbers, call = load(layer, PLAIN), make_call()
    total = torch.zeros(TOKENS, HIDDEN, dtype=torch.float32)
    for rank in range(2):
        _, expert_map, _ = determine_expert_map(2, rank, EXPERTS, "round_robin")
        held = expert_map >= 0
        experts = MoecExperts(layer.moe_config, FusedMoEQuantConfig.make())
        kernel = FusedMoEKernel(MoEPrepareAndFinalizeNoDPEPModular(), experts)
        total += kernel.apply(
            call[0], layer.w13_weight[held], layer.w2_weight[held], *call[1:], activation=layer.activation,
            global_num_experts=EXPERTS, expert_map=expert_map, apply_router_weight_on_input=False,
        ).float()
    verify(total, compute(numbers, call), 8e-3)


@pytest.fixture
def modular(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOEC_VLLM_ROUTER", "0")


def test_weights_on_the_input(engine: VllmConfig, modular: None) -> None:
    layer = make_layer(engine, PLAIN, top_k=1, apply_router_weight_on_input=True)
    numbers, (hidden, weights, ids) = load(layer, PLAIN), make_call()
    weights, ids = weights[:, :1].contiguous(), ids[:, :1].contiguous()
    layer.quant_method.process_weights_after_loading(layer)
    weighted = hidden * weights.to(hidden.dtype)
    wanted = compute(numbers, (weighted, torch.ones_like(weights), ids))
    verify(run(layer, (hidden, weights, ids)), wanted, 6e-3)


def act(kind: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    if kind == "silu":
        return torch.nn.functional.silu(gate.clamp(max=0.5)) * up.clamp(-0.5, 0.5)
    if kind == "swigluoai_uninterleave":
        gate, up = gate.clamp(max=0.5), up.clamp(-0.5, 0.5)
        return (up + 1) * gate * torch.sigmoid(1.5 * gate)
    raise AssertionError(kind)


@pytest.mark.parametrize("kind, parameters", [
    ("silu", {"swiglu_limit": 0.5}),
    ("swigluoai_uninterleave", {"swiglu_limit": 0.5, "swiglu_alpha": 1.5, "swiglu_beta": 1.0}),
])
def test_parameters_of_activations(engine: VllmConfig, kind: str, parameters: dict[str, float]) -> None:
    layer = make_layer(engine, PLAIN, activation=kind, **parameters)
    numbers, call = load(layer, PLAIN), make_call()
    layer.quant_method.process_weights_after_loading(layer)
    wanted = compute(numbers, call, lambda gate, up: act(kind, gate, up))
    verify(run(layer, call), wanted, 6e-3)


def test_quantized_activations_in_the_batched_format_are_refused(layer: Any) -> None:
    scale = torch.ones(EXPERTS)
    config = FusedMoEQuantConfig.make(torch.float8_e4m3fn, w1_scale=scale, w2_scale=scale)
    with pytest.raises(moec.InvalidArgument, match="float8_e4m3fn in the batched format"):
        make_batched(layer, config)


def test_inputs_are_rounded_by_the_layer(layer: Any) -> None:
    scale = torch.ones(EXPERTS)
    config = FusedMoEQuantConfig.make(torch.float8_e4m3fn, w1_scale=scale, w2_scale=scale)
    assert MoecExperts(layer.moe_config, config).expects_unquantized_inputs
    assert not MoecExperts(layer.moe_config, FusedMoEQuantConfig.make()).expects_unquantized_inputs


def test_blocks_beside_activations_of_16_bits(engine: VllmConfig) -> None:
    """vLLM's block_shape of a configuration is that of activations: here it has none."""
    format = FORMATS["fp8 blocks"]
    layer, call = make_layer(engine, format), make_call()
    numbers = load(layer, format)
    config = fp8_w8a16_moe_quant_config(
        layer.w13_weight_scale_inv, layer.w2_weight_scale_inv, block_shape=[128, 128])
    output = functions.fused_experts(call[0], layer.w13_weight, layer.w2_weight, *call[1:], quant_config=config)
    verify(output, compute(numbers, call), 6e-3)


@pytest.mark.parametrize("change, reason", [
    ({"is_lora_enabled": True}, "LoRA adapters without a lora_config"),
    ({"moe_backend": "triton"}, "--moe-backend asks for triton"),
    ({"in_dtype": torch.float64}, "torch.float64 hidden states"),
    ({"hidden_dim": 60}, "a hidden dim of 60"),
    ({"activation": MoEActivation.GELU, "swiglu_limit": 7.0}, "gelu with a limit of 7.0"),
    ({"activation": MoEActivation.SWIGLUOAI, "swiglu_limit": 5.0}, "with a limit of 5.0"),
    ({"all2all_backend": "passthrough"}, "parallel config"),
    ({"dp_size": 2, "use_ep": True, "all2all_backend": "deepep_high_throughput"}, "parallel config"),
    ({"capability": DeviceCapability(7, 5)}, "current device"),
])
def test_refusals(layer: Any, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reason: str) -> None:
    if "capability" in change:
        monkeypatch.setattr(type(current_platform), "capability", change.pop("capability"))
    parallel = {name: change.pop(name) for name in ("dp_size", "use_ep", "all2all_backend") if name in change}
    config = layer.moe_config
    for name, value in change.items():
        monkeypatch.setattr(config, name, value)
    if parallel:
        monkeypatch.setattr(config, "moe_parallel_config", dataclasses.replace(config.moe_parallel_config, **parallel))
    chosen, found = choose(config, None, None)
    assert chosen is None and reason in found


def test_wrong_calls(layer: Any, modular: None) -> None:
    load(layer, PLAIN)
    layer.quant_method.process_weights_after_loading(layer)
    hidden, weights, ids = call = make_call()
    assert run(layer, call).shape == (TOKENS, HIDDEN)
    experts = layer.quant_method.moe_kernel.fused_experts
    arguments = dict(
        output=torch.empty_like(hidden), hidden_states=hidden, w1=layer.w13_weight, w2=layer.w2_weight,
        topk_weights=weights, topk_ids=ids, activation=layer.activation, global_num_experts=EXPERTS,
        expert_map=None, a1q_scale=None, a2_scale=None, workspace13=torch.empty(0), workspace2=torch.empty(0),
        expert_tokens_meta=None, apply_router_weight_on_input=False,
    )
    for change, message in (({"a1q_scale": torch.ones(1)}, "a1q_scale: unquantized inputs"),
                            ({"activation": MoEActivation.GELU}, "activation: MoEActivation.SILU expected")):
        with pytest.raises(moec.InvalidArgument, match=message):
            experts.apply(**arguments | change)


def test_signatures_of_experts() -> None:
    for cls in (MoecExperts, MoecBatchedExperts):
        assert not inspect.isabstract(cls)
        for name in ("apply", "workspace_shapes", "moe_problem_size", "finalize_weight_and_reduce_impl"):
            wanted = inspect.signature(getattr(FusedMoEExpertsModular, name)).parameters
            assert list(inspect.signature(getattr(cls, name)).parameters) == list(wanted), name


@pytest.mark.parametrize("own", [
    moe_permute_unpermute.moe_permute, moe_permute_unpermute.moe_unpermute, moe_align_block_size,
    batched_moe_align_block_size, count_expert_num_tokens, determine_expert_map, fused_experts, fused_topk,
    fused_topk_bias, grouped_topk,
], ids=lambda each: each.__name__)
def test_signatures_of_functions(own: Any) -> None:
    """Names, order and defaults are vLLM's; moec's own parameters are keyword-only."""
    wanted = list(inspect.signature(own).parameters.values())
    found = list(inspect.signature(getattr(functions, own.__name__)).parameters.values())
    taken = [each for each in found if each.kind is not each.KEYWORD_ONLY]
    assert [each.name for each in taken] == [each.name for each in wanted]
    for each, other in zip(taken, wanted):
        default = getattr(other.default, "value", other.default)
        assert default in (inspect.Parameter.empty, each.default), each.name
