# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows between data-parallel ranks of the real vLLM: quantized ahead of experts, and moved by moec (MOEC_EXCHANGE)."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, compute, load, make_call, make_layer, verify
from test_modular import LOCAL, RANKS, ROWS, on_ranks, workspaces  # noqa: F401
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel

from moec import InvalidArgument, ranks
from moec.modular import Exchange
from moec.vllm import exchange
from moec.vllm.experts import MoecExperts
from moec.vllm.prepare import MoecPrepareAndFinalize

FORMATS = list_formats()


def make_parallel(layer: Any, **changes: Any) -> Any:
    """The layer's configuration with data-parallel ranks."""
    parallel = dataclasses.replace(
        layer.moe_config.moe_parallel_config, dp_size=RANKS, ep_size=RANKS, use_ep=True,
        all2all_backend="allgather_reducescatter", **changes)
    return dataclasses.replace(layer.moe_config, moe_parallel_config=parallel)


def hold_part(config: Any, rank: int) -> Any:
    """A rank's part of the scales."""
    held = slice(rank * LOCAL, (rank + 1) * LOCAL)
    part = dataclasses.replace(config)
    for name in ("_w1", "_w2"):
        own = getattr(config, name)
        scale = own.scale[held].contiguous() if isinstance(own.scale, torch.Tensor) else own.scale
        setattr(part, name, dataclasses.replace(own, scale=scale))
    return part


# parity: M49, N5
@pytest.mark.parametrize("name", ["fp8 blocks", "compressed-tensors fp8 of channel", "compressed-tensors int8"])
def test_rows_travel_quantized(engine: VllmConfig, name: str, workspaces: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("MOEC_VLLM_ROUTER", "0")
    layer = make_layer(engine, FORMATS[name])
    numbers, call = load(layer, FORMATS[name]), make_call()
    weights = [getattr(layer, part).data.clone() for part in ("w13_weight", "w2_weight")]
    config = layer.quant_method.get_fused_moe_quant_config(layer)
    moe = make_parallel(layer)
    communicators, moved = ranks.local(RANKS, limit=20), []

    def work(rank: int) -> torch.Tensor:
        experts = MoecExperts(moe, hold_part(config, rank))
        assert experts.takes_quantized and not experts.expects_unquantized_inputs
        run = experts.experts.run
        experts.experts.run = lambda rows, *rest: moved.append(rows.dtype) or run(rows, *rest)
        kernel = FusedMoEKernel(MoecPrepareAndFinalize(communicators[rank], EXPERTS, max_tokens=ROWS), experts)
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        held = slice(rank * LOCAL, (rank + 1) * LOCAL)
        return kernel.apply(
            call[0].clone(), *(each[held].contiguous() for each in weights), topk_weights=call[1], topk_ids=call[2],
            activation=layer.activation, global_num_experts=EXPERTS, expert_map=expert_map,
            apply_router_weight_on_input=False)

    for output in on_ranks(work):
        verify(output, compute(numbers, call), FORMATS[name].bound)
    assert set(moved) == {torch.int8 if "int8" in name else torch.float8_e4m3fn}


def test_rows_of_one_rank_stay_as_they_are(engine: VllmConfig) -> None:
    layer = make_layer(engine, FORMATS["fp8 blocks"])
    load(layer, FORMATS["fp8 blocks"])
    config = layer.quant_method.get_fused_moe_quant_config(layer)
    experts = MoecExperts(layer.moe_config, config)
    assert experts.expects_unquantized_inputs and not experts.takes_quantized
    with pytest.raises(InvalidArgument, match="a1q_scale: unquantized inputs expected"):
        experts._check(layer.activation, torch.ones(1))


@pytest.mark.parametrize("changes, reason", [
    ({"sp_size": 2}, "ranks have parts of one sequence"), ({"ep_size": 4}, "tensor parallelism")])
def test_exchange_that_cannot_be(engine: VllmConfig, changes: dict[str, Any], reason: str) -> None:
    moe = make_parallel(make_layer(engine, FORMATS["16 bits"]))
    moe = dataclasses.replace(moe, moe_parallel_config=dataclasses.replace(moe.moe_parallel_config, **changes))
    assert reason in (exchange.find_reason(types.SimpleNamespace(is_monolithic=False), moe) or "")


# parity: N1, N9
def test_exchange_of_the_plugin(
    engine: VllmConfig, workspaces: None, monkeypatch: pytest.MonkeyPatch, log: Any  # noqa: F811
) -> None:
    """Ranks have 3 and 5 rows, as vLLM's forward context says; the engine's log has moec's line."""
    monkeypatch.setenv("MOEC_VLLM_ROUTER", "0")
    monkeypatch.setenv("MOEC_EXCHANGE", "1")
    layer = make_layer(engine, FORMATS["16 bits"])
    numbers, call = load(layer, FORMATS["16 bits"]), make_call()
    layer.quant_method.process_weights_after_loading(layer)
    # One rank: nothing to exchange.
    assert not isinstance(layer.quant_method.moe_kernel.prepare_finalize, exchange.InEngine)
    moe = make_parallel(layer)
    communicators = ranks.local(RANKS, limit=20)
    monkeypatch.setattr(exchange, "count_rows", lambda own: ROWS)

    def work(rank: int) -> torch.Tensor:
        own = FusedMoEKernel(
            MoecPrepareAndFinalize(communicators[rank], EXPERTS), MoecExperts(moe, layer.quant_method.moe_quant_config))
        found = exchange.InEngine(Exchange(communicators[rank]), EXPERTS, max_tokens=ROWS)
        kernel = FusedMoEKernel(found, own.fused_experts)
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        held, rows = slice(rank * LOCAL, (rank + 1) * LOCAL), (3, 5)[rank]
        return kernel.apply(
            call[0][:rows].clone(), layer.w13_weight[held].contiguous(), layer.w2_weight[held].contiguous(),
            topk_weights=call[1][:rows], topk_ids=call[2][:rows], activation=layer.activation,
            global_num_experts=EXPERTS, expert_map=expert_map, apply_router_weight_on_input=False)

    wanted = compute(numbers, call)
    for rank, output in enumerate(on_ranks(work)):
        verify(output, wanted[: (3, 5)[rank]], 1e-2)

    monkeypatch.setattr(exchange, "_connect", lambda: Exchange(communicators[0]))
    kernel = FusedMoEKernel(MoecPrepareAndFinalize(communicators[0], EXPERTS), MoecExperts(
        moe, layer.quant_method.moe_quant_config))
    assert isinstance(exchange.replace(kernel, moe).prepare_finalize, exchange.InEngine)
    assert "moec exchanges the rows of data-parallel ranks" in log.text
    monkeypatch.setenv("MOEC_EXCHANGE", "0")
    assert exchange.replace(kernel, moe) is kernel
