# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selection inside the layer: from vLLM's runner with router logits to the output, against the torch code of vLLM's own
routers for CPUs and experts in float32; and where vLLM keeps the selection."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Optional

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, HIDDEN, TOKENS, TOP_K, compute, load, make_layer, verify
from vllm.config import VllmConfig
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEExpertsMonolithic
from vllm.model_executor.layers.fused_moe.routed_experts_capturer import RoutedExpertsSink
from vllm.model_executor.layers.fused_moe.router import cpu_router
from vllm.model_executor.layers.fused_moe.runner import moe_runner
from vllm.model_executor.models.cohere2_moe import token_choice_with_bias
from vllm.model_executor.models.llama4 import Llama4MoE

import moec
from moec.vllm import report
from moec.vllm.experts import MoecExperts
from moec.vllm.monolithic import MoecMonolithicExperts

FORMATS = list_formats()
PLAIN = FORMATS["16 bits"]


def make_bias() -> torch.Tensor:
    torch.manual_seed(3)
    return torch.rand(EXPERTS, dtype=torch.float32) / 2


def get_groups(groups: int, kept: int) -> dict[str, Any]:
    return {"use_grouped_topk": True, "num_expert_group": groups, "topk_group": kept}


#: A model's arguments to vLLM. In vLLM's router for CPUs only grouped routing has scores other than softmax; one group
#: means none.
ROUTING = {
    "softmax": {"renormalize": False},
    "softmax, renormalized": {},
    "sigmoid": {"scoring_func": "sigmoid", "renormalize": False},
    "sigmoid, renormalized": {"scoring_func": "sigmoid"},
    "sigmoid, bias, scale": {"scoring_func": "sigmoid", "e_score_correction_bias": make_bias(),
                             "routed_scaling_factor": 2.5},
    "softmax, bias": {"e_score_correction_bias": make_bias()},
    "softmax, groups, scale": {**get_groups(4, 2), "routed_scaling_factor": 16.0, "renormalize": False},
    "sigmoid, bias, groups, scale": {**get_groups(2, 1), "scoring_func": "sigmoid",
                                     "e_score_correction_bias": make_bias(), "routed_scaling_factor": 2.5},
    "Llama 4": {"custom_routing_function": Llama4MoE.custom_routing_function, "renormalize": False, "top_k": 1,
                "apply_router_weight_on_input": True},
    "Cohere": {"custom_routing_function": token_choice_with_bias},
}


def make_runner(config: VllmConfig, format: Any, **routing: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """vLLM's runner, and the values of its experts' projections. Otherwise its forward would be a CUDA operator."""
    layer = make_layer(config, format, **routing)
    numbers = load(layer, format)
    layer.quant_method.process_weights_after_loading(layer)
    runner = config.compilation_config.static_forward_context[layer.layer_name]
    runner._forward_entry = moe_runner._moe_forward
    return runner, numbers


def make_inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    hidden = torch.randn(TOKENS, HIDDEN, dtype=torch.float32).to(torch.bfloat16)
    return hidden, torch.randn(TOKENS, EXPERTS, dtype=torch.float32).to(dtype)


def run(
    config: VllmConfig, runner: Any, hidden: torch.Tensor, logits: torch.Tensor,
    is_padding: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    with set_forward_context(None, config, num_tokens=TOKENS, is_padding=is_padding):
        return runner(hidden, logits)


def select(hidden: torch.Tensor, logits: torch.Tensor, **routing: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """vLLM's choice, of f32."""
    options = {"top_k": TOP_K, "use_grouped_topk": False, "renormalize": True, **routing}
    options.pop("apply_router_weight_on_input", None)
    if "scoring_func" in options or "e_score_correction_bias" in options:
        options = {**get_groups(1, 1), **options, "use_grouped_topk": True}
    return cpu_router.select_experts(hidden, logits.float(), **options)


def get_experts(runner: Any) -> Any:
    return runner.routed_experts.quant_method.moe_kernel.fused_experts


@pytest.mark.parametrize("name, format, dtype", [
    *((name, "16 bits", dtype) for name in ROUTING for dtype in (torch.float32, torch.bfloat16)),
    *(("sigmoid, bias, groups, scale", format, torch.float32)
      for format in ("fp8 blocks", "GPTQ int4 g128", "mxfp4")),
])
def test_selection(engine: VllmConfig, name: str, format: str, dtype: torch.dtype) -> None:
    routing = ROUTING[name]
    runner, numbers = make_runner(engine, FORMATS[format], **routing)
    assert runner.is_monolithic and isinstance(get_experts(runner), MoecMonolithicExperts)
    hidden, logits = make_inputs(dtype)
    weights, ids = select(hidden, logits, **routing)
    rows = hidden
    if routing.get("apply_router_weight_on_input"):
        rows, weights = hidden * weights.to(hidden.dtype), torch.ones_like(weights)
    wanted = compute(numbers, (rows, weights, ids))
    verify(run(engine, runner, hidden, logits), wanted, FORMATS[format].bound)


def test_ties_go_to_the_lowest_id(engine: VllmConfig) -> None:
    """NaN logits lose, too."""
    runner, numbers = make_runner(engine, PLAIN, scoring_func="sigmoid", top_k=3)
    hidden, _ = make_inputs()
    logits = torch.zeros(TOKENS, EXPERTS, dtype=torch.float32)
    logits[1, 5:] = 1
    logits[2, ::3] = 0.5
    logits[3, 0] = float("nan")
    logits[4] = torch.tensor([1, 2, 3, 3, 2, 1, 3, 3])
    ids = torch.tensor([[0, 1, 2], [5, 6, 7], [0, 3, 6], [1, 2, 3], [2, 3, 6]])
    weights = torch.full((TOKENS, 3), 1 / 3, dtype=torch.float32)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        output = run(engine, runner, hidden, logits.to(dtype))
        verify(output, compute(numbers, (hidden, weights, ids)), PLAIN.bound)


def test_padding_contributes_nothing(engine: VllmConfig) -> None:
    runner, _ = make_runner(engine, PLAIN)
    hidden, logits = make_inputs()
    whole = run(engine, runner, hidden, logits)
    is_padding = torch.zeros(TOKENS + 3, dtype=torch.bool)
    is_padding[3:] = True
    cut = run(engine, runner, hidden, logits, is_padding)
    assert torch.equal(cut[:3], whole[:3]) and not cut[3:].any()


def test_experts_of_other_ranks(engine: VllmConfig) -> None:
    runner, numbers = make_runner(engine, PLAIN)
    layer, (hidden, logits) = runner.routed_experts, make_inputs(torch.bfloat16)
    total = torch.zeros(TOKENS, HIDDEN, dtype=torch.float32)
    for rank in range(2):
        _, expert_map, _ = determine_expert_map(2, rank, EXPERTS, "round_robin")
        held = expert_map >= 0
        total += layer.quant_method.moe_kernel.apply_monolithic(
            hidden, layer.w13_weight[held], layer.w2_weight[held], logits, activation=layer.activation,
            global_num_experts=EXPERTS, expert_map=expert_map, apply_router_weight_on_input=False, routing_sink=None,
        ).float()
    verify(total, compute(numbers, (hidden, *select(hidden, logits))), 8e-3)


def test_selected_ids_are_returned(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.aux_output_config, "enable_return_routed_experts", True)
    runner, numbers = make_runner(engine, PLAIN)
    experts = get_experts(runner)
    assert isinstance(experts, MoecMonolithicExperts) and experts.supports_routing_replay_capture()
    captured = []
    config = dataclasses.replace(experts.moe_config, device="cpu")
    sink = RoutedExpertsSink(config, lambda ids: captured.append(ids.clone()))
    layer, (hidden, logits) = runner.routed_experts, make_inputs()
    output = layer.quant_method.moe_kernel.apply_monolithic(
        hidden, layer.w13_weight, layer.w2_weight, logits, activation=layer.activation, global_num_experts=EXPERTS,
        expert_map=None, apply_router_weight_on_input=False, routing_sink=sink,
    )
    weights, ids = select(hidden, logits)
    verify(output, compute(numbers, (hidden, weights, ids)), PLAIN.bound)
    assert captured[0].dtype == torch.int16 and torch.equal(captured[0].long(), ids.long())


def test_a_bias_that_is_loaded_later(engine: VllmConfig) -> None:
    """Models' parameters are written to in place, repeatedly."""
    bias = torch.zeros(EXPERTS, dtype=torch.float32)
    routing = {"scoring_func": "sigmoid", "e_score_correction_bias": bias}
    runner, numbers = make_runner(engine, PLAIN, **routing)
    hidden, logits = make_inputs()
    for _ in range(2):
        verify(run(engine, runner, hidden, logits),
               compute(numbers, (hidden, *select(hidden, logits, **routing))), PLAIN.bound)
        bias.copy_(make_bias() * 10)


def test_wrong_logits(engine: VllmConfig) -> None:
    runner, _ = make_runner(engine, PLAIN)
    hidden, logits = make_inputs()
    for wrong in (logits[:, 1:], logits[1:], logits.double()):
        with pytest.raises(moec.InvalidArgument, match=r"router_logits: \[5, 8\] of float32, bfloat16 or float16"):
            run(engine, runner, hidden, wrong)


def choose_freely(hidden_states: Any, gating_output: torch.Tensor, topk: int, renormalize: bool) -> Any:
    return torch.topk(gating_output, topk)


@pytest.mark.parametrize("routing, change, reason", [
    ({}, {"MOEC_VLLM_ROUTER": "0"}, "MOEC_VLLM_ROUTER is 0"),
    ({}, {"VLLM_MOE_ROUTING_SIMULATION_STRATEGY": "uniform_random"}, "RoutingSimulatorRouter"),
    ({"custom_routing_function": choose_freely}, {}, "CustomRoutingRouter has its own selection rules"),
    ({"scoring_func": "sqrtsoftplus", "hash_indices_table": torch.zeros(4, TOP_K, dtype=torch.int32)}, {},
     "hash routing"),
    ({**get_groups(3, 1)}, {}, "8 experts in 3 groups"),
    ({"router_logits_dtype": torch.float64}, {}, "router logits dtype torch.float64"),
    ({"zero_expert_type": "identity", "e_score_correction_bias": make_bias()}, {}, "ZeroExpertRouter"),
])
def test_what_keeps_vllm_s_selection(
    engine: VllmConfig, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, routing: dict[str, Any],
    change: dict[str, Any], reason: str,
) -> None:
    monkeypatch.setattr(report, "_told", set())
    log.set_level(logging.DEBUG, "vllm.moec")
    for name, value in change.items():
        if name.isupper():
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.setattr(engine.aux_output_config, name, value)
    runner, _ = make_runner(engine, PLAIN, **routing)
    assert not runner.is_monolithic and isinstance(get_experts(runner), MoecExperts)
    lines = [record.getMessage() for record in log.records if record.levelname == "DEBUG"]
    assert any("16-bit experts take ids from vLLM's selection: " in line and reason in line for line in lines), lines


def test_dispatch_keeps_vllm_s_selection(engine: VllmConfig) -> None:
    layer = make_layer(engine, PLAIN)
    config = layer.moe_config.moe_parallel_config
    for change in ({"dp_size": 2}, {"pcp_size": 2}, {"is_sequence_parallel": True}, {"enable_eplb": True},
                   {"dp_size": 2, "use_ep": True}):
        if "is_sequence_parallel" in change:
            change = {"sp_size": 2}
        assert not MoecMonolithicExperts._supports_parallel_config(dataclasses.replace(config, **change)), change
    assert MoecMonolithicExperts._supports_parallel_config(dataclasses.replace(config, use_ep=True, ep_size=2))


def test_signature_of_experts() -> None:
    import inspect

    assert not inspect.isabstract(MoecMonolithicExperts)
    wanted, found = (inspect.signature(each.apply).parameters
                     for each in (FusedMoEExpertsMonolithic, MoecMonolithicExperts))
    assert list(found) == list(wanted)


def test_logits_that_a_layer_would_round(engine: VllmConfig) -> None:
    """Weights are prepared for logits of the stated dtype: wider ones are refused, and not rounded."""
    runner, _ = make_runner(engine, FORMATS["fp8 blocks"], router_logits_dtype=torch.bfloat16)
    hidden, logits = make_inputs()
    with pytest.raises(moec.InvalidArgument, match="router_logits: torch.bfloat16 expected.*MOEC_VLLM_ROUTER=0"):
        run(engine, runner, hidden, logits)
