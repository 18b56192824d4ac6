# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts that vLLM moves between its physical slots (EPLB), with its own rearrangement on one rank, and experts that
it makes anew (elastic expert parallelism)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, compute, load, make_call, make_layer, verify
from test_memory import preparing  # noqa: F401 (a fixture)
from vllm.config import VllmConfig
from vllm.distributed import get_tp_group
from vllm.distributed.eplb.eplb_communicator import TorchDistGlooStagedEplbCommunicator
from vllm.distributed.eplb.eplb_state import EplbState
from vllm.distributed.eplb.rebalance_execute import rearrange_expert_weights_inplace
from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig
from vllm.model_executor.layers.fused_moe.eep_reconfigure import _make_eep_experts
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import MoEPrepareAndFinalizeNoDPEPModular

from moec.functions.experts import Experts
from moec.vllm.experts import MoecExperts

FORMATS = list_formats()
REPLICAS = 2


@pytest.fixture(autouse=True)
def moving(monkeypatch: pytest.MonkeyPatch) -> None:
    make = FusedMoEParallelConfig.make

    def make_moving(*given: Any, **named: Any) -> FusedMoEParallelConfig:
        return dataclasses.replace(make(*given, **named), enable_eplb=True)

    monkeypatch.setattr(FusedMoEParallelConfig, "make", make_moving)


def choose_slots(ids: torch.Tensor, experts: list[int]) -> torch.Tensor:
    """Physical ids, alternating between the slots of an expert. experts: of the slots."""
    slots = [[slot for slot, each in enumerate(experts) if each == expert] for expert in range(EXPERTS)]
    found = [slots[expert][place % len(slots[expert])] for place, expert in enumerate(ids.flatten().tolist())]
    return torch.tensor(found, dtype=ids.dtype).view(ids.shape)


# parity: L63
@pytest.mark.parametrize("name", ["16 bits", "fp8 blocks"])
def test_experts_move(engine: VllmConfig, name: str) -> None:
    check_moves(engine, name)


# parity: L62
@pytest.mark.parametrize("name", ["fp8 blocks", "compressed-tensors fp8 of block", "mxfp4"])
def test_prepared_experts_move(engine: VllmConfig, preparing: None, name: str) -> None:  # noqa: F811
    """What calls read of an expert is moved, not prepared anew."""
    assert "moec_experts_w13_prepacked" in dict(check_moves(engine, name).named_parameters())


def check_moves(engine: VllmConfig, name: str) -> torch.nn.Module:
    """Moves experts between the slots of a layer, which is returned, and compares outputs."""
    format = FORMATS[name]
    layer = make_layer(engine, format, enable_eplb=True, num_redundant_experts=REPLICAS)
    numbers, (hidden, weights, ids) = load(layer, format), make_call()
    method = layer.quant_method
    method.process_weights_after_loading(layer)
    # vLLM's router maps ids and counts load.
    assert type(method.moe_kernel.fused_experts) is MoecExperts

    def run(experts: list[int]) -> torch.Tensor:
        return method.apply(layer, hidden, weights, choose_slots(ids, experts), None, None)

    before = EplbState.build_initial_global_physical_to_logical_map(EXPERTS, REPLICAS)
    wanted, first = compute(numbers, (hidden, weights, ids)), run(before)
    verify(first, wanted, format.bound)
    after = [5, 5, 7, 1, 0, 3, 2, 6, 4, 5]
    stored = layer.get_expert_weights()
    rearrange_expert_weights_inplace(
        torch.tensor([before]), torch.tensor([after]), [stored], [torch.empty_like(each) for each in stored],
        get_tp_group().cpu_group, TorchDistGlooStagedEplbCommunicator(get_tp_group().cpu_group),
    )
    # Where each expert now is, and, as a check of this test, no longer where it was.
    assert torch.equal(run(after), first)
    assert not torch.equal(run(before), first)

    prepare = MoEPrepareAndFinalizeNoDPEPModular()
    anew = _make_eep_experts(method, method.moe_kernel.fused_experts, prepare, layer.moe_config)
    output = FusedMoEKernel(prepare, anew).apply(
        hidden, layer.w13_weight, layer.w2_weight, weights, choose_slots(ids, after), activation=layer.activation,
        global_num_experts=EXPERTS + REPLICAS, expert_map=None, apply_router_weight_on_input=False,
    )
    assert torch.equal(output, first)
    return layer


def test_weights_prepared_over_experts_are_refused(
    engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """vLLM's method goes on, with parameters that nothing has changed."""
    layer = make_layer(engine, FORMATS["fp8 blocks"], enable_eplb=True, num_redundant_experts=REPLICAS)
    load(layer, FORMATS["fp8 blocks"])
    hold = Experts.hold

    def prepare(*given: Any) -> Any:
        return dataclasses.replace(hold(*given), prepared={"experts.w13_prepacked": torch.empty(1)})

    monkeypatch.setattr(Experts, "hold", prepare)
    own = layer.quant_method.moec_own
    layer.quant_method.process_weights_after_loading(layer)
    assert "experts move between ranks (EPLB), and calls do not read the parameters in place" in log.text
    assert layer.quant_method is own and own.moe_kernel is not None


def test_scales_of_tensors_are_refused(engine: VllmConfig, log: pytest.LogCaptureFixture) -> None:
    """vLLM makes one scale of those of gate and up, of which a layer makes two again."""
    make_layer(engine, FORMATS["fp8 tensors"], enable_eplb=True, num_redundant_experts=REPLICAS)
    assert "fp8 experts keep vLLM's kernel: experts move between ranks (EPLB), and gate and up share" in log.text
