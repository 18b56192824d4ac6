# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What vLLM's runner does around moec's experts: shared experts, transforms of the input, the sum over ranks, routing by
a function, counts of load, and other ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from typing import Any

import pytest
import torch
import triton
import triton.language
from checkpoints import list_formats
from test_formats import EXPERTS, HIDDEN, TOKENS, TOP_K, compute, load, make_call, verify
from test_formats import make_runner as make_unloaded
from test_modular import LOCAL, RANKS, on_ranks, workspaces  # noqa: F401
from test_selection import make_inputs, make_runner, run, select
from triton.runtime.interpreter import InterpretedFunction
from vllm.config import VllmConfig
from vllm.distributed.eplb.eplb_state import EplbLayerState
from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig, FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.eep_reconfigure import _make_eep_experts
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import MoEPrepareAndFinalizeNoDPEPModular
from vllm.model_executor.layers.fused_moe.router import base_router
from vllm.model_executor.layers.fused_moe.runner import moe_runner, shared_experts
from vllm.model_executor.layers.fused_moe.runner.shared_experts import SharedExperts

from moec import ranks
from moec.functions import QuantConfig, fused_experts
from moec.vllm.experts import MoecExperts
from moec.vllm.prepare import MoecPrepareAndFinalize

FORMATS = list_formats()
PLAIN = FORMATS["16 bits"]


def make_dense(columns: int, rows: int) -> torch.nn.Linear:
    layer = torch.nn.Linear(columns, rows)
    torch.nn.init.normal_(layer.weight, std=0.05)
    return layer.requires_grad_(False)


def make_shared() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(make_dense(HIDDEN, 96), torch.nn.GELU(), make_dense(96, HIDDEN))


class Compiled(torch.nn.Module):
    """An MLP with biases that moec compiles: a layer of one expert, which all tokens choose."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.w1, self.w2 = (torch.randn(1, *size).mul(0.05) for size in ((2 * 96, HIDDEN), (HIDDEN, 96)))
        self.config = QuantConfig(w1_bias=torch.randn(1, 2 * 96), w2_bias=torch.randn(1, HIDDEN))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(rows.shape[0], 1, dtype=torch.float32)
        return fused_experts(rows, self.w1, self.w2, ones, ones.int() - 1, quant_config=self.config)

    def compute(self, rows: torch.Tensor) -> torch.Tensor:
        gate, up = (rows.float() @ self.w1[0].float().T + self.config.w1_bias[0].float()).chunk(2, -1)
        return (torch.nn.functional.silu(gate) * up) @ self.w2[0].float().T + self.config.w2_bias[0].float()


# parity: R9
@pytest.mark.parametrize("kind", ["any module", "compiled"])
@pytest.mark.parametrize("name", ["16 bits", "fp8 blocks"])
def test_shared_experts(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, name: str, kind: str) -> None:
    monkeypatch.setenv("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "1")
    shared = make_shared() if kind == "any module" else Compiled()
    runner, numbers = make_runner(engine, FORMATS[name], shared_experts=shared)
    runner._forward_entry = moe_runner._moe_forward_shared
    hidden, logits = make_inputs()
    added = shared(hidden).float() if kind == "any module" else shared.compute(hidden)
    wanted = compute(numbers, (hidden, *select(hidden, logits)))
    verify(run(engine, runner, hidden, logits), wanted + added, FORMATS[name].bound)


class Stream:
    """A stream without a GPU, which notes what waits for what."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def make_event(self) -> Any:
        return types.SimpleNamespace(
            record=lambda stream: self.notes.append("record"), wait=lambda stream: self.notes.append("wait"))


# parity: R7
@pytest.mark.parametrize("change, is_beside", [
    ({}, True), ({"VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD": str(TOKENS)}, True),
    ({"VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD": str(TOKENS - 1)}, False),
    ({"VLLM_DISABLE_SHARED_EXPERTS_STREAM": "1"}, False),
])
def test_stream_of_shared_experts(
    engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], is_beside: bool
) -> None:
    stream = Stream()
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shared_experts, "aux_stream", lambda: stream)
    monkeypatch.setattr(shared_experts, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", stream.make_event)
    monkeypatch.setattr(torch.cuda, "stream", lambda given: contextlib.nullcontext(stream.notes.append("begin")))
    shared = make_shared()
    runner, numbers = make_runner(engine, PLAIN, shared_experts=shared)
    runner._forward_entry = moe_runner._moe_forward_shared
    hidden, logits = make_inputs()
    wanted = compute(numbers, (hidden, *select(hidden, logits))) + shared(hidden).float()
    verify(run(engine, runner, hidden, logits), wanted, PLAIN.bound)
    assert stream.notes == (["record", "begin", "wait", "record", "wait"] if is_beside else [])


# parity: R11
def test_kernel_owns_the_shared_experts(
    engine: VllmConfig, workspaces: None, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    """Kernels of vLLM with moec's exchange run them while rows return, on two ranks."""
    monkeypatch.setenv("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "1")
    layer = make_unloaded(PLAIN).routed_experts
    numbers, call = load(layer, PLAIN), make_call()
    shared, communicators = make_shared(), ranks.local(RANKS, limit=20)

    def work(rank: int) -> torch.Tensor:
        notes: list[str] = []

        class Noting(MoecPrepareAndFinalize):
            def finalize_async(self, *arguments: Any, **named: Any) -> Any:
                hook, receive = super().finalize_async(*arguments, **named)
                notes.append("rows return")
                return (lambda: notes.append("hook") or hook()), receive

        kernel = FusedMoEKernel(
            Noting(communicators[rank], EXPERTS, max_tokens=8),
            MoecExperts(layer.moe_config, FusedMoEQuantConfig.make()))
        assert kernel.can_overlap_shared_experts
        owned = SharedExperts(
            lambda rows: notes.append("shared") or shared(rows), layer.moe_config, False,
            lambda: kernel.can_overlap_shared_experts)
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        held = slice(rank * LOCAL, (rank + 1) * LOCAL)
        output = kernel.apply(
            call[0].clone(), layer.w13_weight[held].contiguous(), layer.w2_weight[held].contiguous(),
            topk_weights=call[1], topk_ids=call[2], activation=layer.activation, global_num_experts=EXPERTS,
            expert_map=expert_map, apply_router_weight_on_input=False, shared_experts=owned,
            shared_experts_input=call[0])
        assert notes == ["rows return", "shared", "hook"]
        return output + owned.output

    for output in on_ranks(work):
        verify(output, compute(numbers, call) + shared(call[0]).float(), 1e-2)


# parity: R18
@pytest.mark.parametrize("reduces", [True, False])
def test_sum_over_ranks(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, reduces: bool) -> None:
    """Of two ranks with halves of the experts, this one has the first: the caller adds, or the runner."""
    make = FusedMoEParallelConfig.make

    def make_of_two(*given: Any, **named: Any) -> FusedMoEParallelConfig:
        return dataclasses.replace(make(*given, **named), tp_size=1, ep_size=RANKS, ep_rank=0, use_ep=True)

    monkeypatch.setattr(FusedMoEParallelConfig, "make", make_of_two)
    added: list[torch.Tensor] = []
    monkeypatch.setattr(moe_runner, "tensor_model_parallel_all_reduce", lambda rows: added.append(rows) or rows * 2)
    runner, numbers = make_runner(engine, PLAIN, reduce_results=reduces)
    hidden, logits = make_inputs()
    weights, ids = select(hidden, logits)
    part = compute(numbers, (hidden, torch.where(ids < LOCAL, weights, 0), ids))
    assert runner.moe_config.skip_final_all_reduce != reduces
    verify(run(engine, runner, hidden, logits), part * (2 if reduces else 1), PLAIN.bound)
    assert len(added) == reduces


class Transform(torch.nn.Module):
    """Neither linear nor without a bias, and narrower than the experts, whose input is padded."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.map = make_dense(before, after)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.map(rows))


# parity: R20
@pytest.mark.parametrize("width", [HIDDEN, HIDDEN - 64])
def test_transform_of_the_input(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "1")
    before, after, shared = Transform(2 * HIDDEN, width), Transform(width, 2 * HIDDEN), Transform(2 * HIDDEN, 2 * HIDDEN)
    runner, numbers = make_runner(
        engine, PLAIN, shared_experts=shared, routed_input_transform=before, routed_output_transform=after)
    runner._forward_entry = moe_runner._moe_forward_shared
    _, logits = make_inputs()
    hidden = torch.randn(TOKENS, 2 * HIDDEN)
    rows = torch.nn.functional.pad(before(hidden), (0, HIDDEN - width))
    routed = compute(numbers, (rows, *select(hidden, logits)))[:, :width]
    wanted = torch.nn.functional.silu(routed @ after.map.weight.float().T + after.map.bias.float())
    verify(run(engine, runner, hidden, logits), wanted + shared(hidden).float(), PLAIN.bound)


def route_by_hand(
    hidden_states: torch.Tensor, gating_output: torch.Tensor, topk: int, renormalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lowest logits, which no field of a spec chooses, with weights of the rows."""
    ids = torch.topk(-gating_output, topk).indices
    return hidden_states.float().norm(dim=1, keepdim=True).expand(-1, topk) / 16, ids


# parity: L16
@pytest.mark.parametrize("name", ["16 bits", "mxfp4"])
def test_routing_by_a_function(engine: VllmConfig, name: str) -> None:
    runner, numbers = make_runner(engine, FORMATS[name], custom_routing_function=route_by_hand)
    hidden, logits = make_inputs()
    wanted = compute(numbers, (hidden, *route_by_hand(hidden, logits, TOP_K, True)))
    verify(run(engine, runner, hidden, logits), wanted, FORMATS[name].bound)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two ranks, between which experts move."""
    make = FusedMoEParallelConfig.make

    def make_moving(*given: Any, **named: Any) -> FusedMoEParallelConfig:
        return dataclasses.replace(
            make(*given, **named), tp_size=1, ep_size=RANKS, ep_rank=0, use_ep=True, enable_eplb=True)

    monkeypatch.setattr(FusedMoEParallelConfig, "make", make_moving)


# parity: L29
def test_other_ranks(engine: VllmConfig, moving: None) -> None:
    """From two ranks to four, and back: vLLM updates the map, gives the weights and makes the experts anew."""
    layer = make_unloaded(PLAIN, enable_eplb=True).routed_experts
    numbers, (hidden, weights, ids) = load(layer, PLAIN), make_call()
    method = layer.quant_method
    method.process_weights_after_loading(layer)
    whole = [each.data.clone() for each in (layer.w13_weight, layer.w2_weight)]
    for size in (2, 4, 2):
        parallel = dataclasses.replace(layer.moe_config.moe_parallel_config, ep_size=size)
        layer._set_moe_config(dataclasses.replace(layer.moe_config, moe_parallel_config=parallel))
        layer.update_expert_map()
        own = EXPERTS // size
        assert layer.local_num_experts == own and int(layer.expert_map.ge(0).sum()) == own
        layer.w13_weight.data, layer.w2_weight.data = (each[:own].clone() for each in whole)
        prepare = MoEPrepareAndFinalizeNoDPEPModular()
        method.moe_kernel = FusedMoEKernel(
            prepare, _make_eep_experts(method, method.moe_kernel.fused_experts, prepare, layer.moe_config))
        output = method.apply(layer, hidden, weights, ids, None, None)
        verify(output, compute(numbers, (hidden, torch.where(ids < own, weights, 0), ids)), PLAIN.bound)


# parity: L59
def test_load_is_counted(engine: VllmConfig, moving: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By vLLM's router, whose kernel Triton's interpreter runs: calls add up, and not while recording is off."""
    # Without a GPU, vLLM has no Triton.
    monkeypatch.setattr(base_router, "triton", triton)
    monkeypatch.setattr(base_router, "tl", triton.language)
    kernel = InterpretedFunction(base_router._eplb_map_and_record_i32_kernel)
    monkeypatch.setattr(base_router, "_eplb_map_and_record_i32_kernel", kernel)
    monkeypatch.setattr(moe_runner, "tensor_model_parallel_all_reduce", lambda rows: rows)
    runner, numbers = make_runner(engine, PLAIN, enable_eplb=True, custom_routing_function=route_by_hand)
    counts = torch.zeros(1, EXPERTS, dtype=torch.int32)
    replicas = torch.arange(EXPERTS).view(1, EXPERTS, 1)
    records = torch.ones((), dtype=torch.bool)
    runner.set_eplb_state(0, counts, replicas, torch.ones(1, EXPERTS, dtype=torch.int64))
    state: EplbLayerState = runner.router.eplb_state
    state.should_record_tensor = records
    state.num_unpadded_tokens_tensors = [torch.tensor(TOKENS, dtype=torch.int32)]
    hidden, logits = make_inputs()
    weights, ids = route_by_hand(hidden, logits, TOP_K, True)
    wanted = compute(numbers, (hidden, torch.where(ids < LOCAL, weights, 0), ids))
    own = torch.bincount(ids.flatten(), minlength=EXPERTS).int()
    for number in (1, 2):
        verify(run(engine, runner, hidden, logits), wanted, PLAIN.bound)
        assert torch.equal(counts[0], number * own)
    records.fill_(False)
    run(engine, runner, hidden, logits)
    assert torch.equal(counts[0], 2 * own)
