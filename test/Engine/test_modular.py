# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Halves of moec and of the real vLLM in one kernel, of either, on two ranks that are threads and on one."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Callable

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, HIDDEN, TOKENS, compute, load, make_call, make_layer, verify
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe import config, modular_kernel
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.experts import fused_batched_moe
from vllm.model_executor.layers.fused_moe.experts.fused_batched_moe import NaiveBatchedExperts
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel
from vllm.model_executor.layers.fused_moe.prepare_finalize.batched import BatchedPrepareAndFinalize
from vllm.model_executor.layers.fused_moe.prepare_finalize.no_dp_ep import MoEPrepareAndFinalizeNoDPEPModular
from vllm.v1.worker.workspace import WorkspaceManager

from moec import InvalidArgument, functions, ranks
from moec.modular import BatchedExperts, Experts, InBatches, ModularKernel, NoEP, OverRanks
from moec.vllm.experts import MoecBatchedExperts, MoecExperts
from moec.vllm.prepare import MoecBatchedPrepareAndFinalize, MoecPrepareAndFinalize

PLAIN = list_formats()["16 bits"]
RANKS, ROWS = 2, 8
LOCAL = EXPERTS // RANKS
CONFIG = FusedMoEQuantConfig.make()

_kernels = torch.library.Library("_C", "IMPL", "CPU")


def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    gate, up = input.chunk(2, -1)
    out.copy_(torch.nn.functional.silu(gate) * up)


_kernels.impl("silu_and_mul", silu_and_mul)


@pytest.fixture
def workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of one process would share the memory of vLLM's experts."""
    own = threading.local()

    def get_manager() -> WorkspaceManager:
        if not hasattr(own, "manager"):
            own.manager = WorkspaceManager(torch.device("cpu"))
        return own.manager

    monkeypatch.setattr(modular_kernel, "current_workspace_manager", get_manager)


@pytest.fixture
def layer(engine: VllmConfig, workspaces: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    # The question needs a driver.
    monkeypatch.setattr(fused_batched_moe, "_is_capturing_or_compiling", lambda: False)
    return make_layer(engine, PLAIN)


def make_moec_kernel(kind: str, communicator: Any, layer: Any) -> Any:
    """A kernel with an exchange of moec's: what makes the call, the form of rows, and whose experts they are for."""
    rank, moe = communicator.rank, layer.moe_config
    over = OverRanks(communicator, EXPERTS, max_tokens=ROWS)
    return {
        "moec batches vLLM": lambda: ModularKernel(
            InBatches(over, ROWS, LOCAL, rank), NaiveBatchedExperts(moe, CONFIG, ROWS, RANKS)),
        "vLLM batches vLLM": lambda: FusedMoEKernel(
            MoecBatchedPrepareAndFinalize(communicator, EXPERTS, ROWS, LOCAL),
            NaiveBatchedExperts(moe, CONFIG, ROWS, RANKS)),
        "vLLM batches moec": lambda: FusedMoEKernel(
            MoecBatchedPrepareAndFinalize(communicator, EXPERTS, ROWS, LOCAL),
            MoecBatchedExperts(moe, CONFIG, ROWS, RANKS)),
        "vLLM rows moec": lambda: FusedMoEKernel(
            MoecPrepareAndFinalize(communicator, EXPERTS, max_tokens=ROWS), MoecExperts(moe, CONFIG)),
        "moec rows vLLM's class of moec": lambda: ModularKernel(over, MoecExperts(moe, CONFIG)),
    }[kind]()


def on_ranks(work: Callable[[int], torch.Tensor]) -> list[torch.Tensor]:
    results: list[Any] = [None] * RANKS

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


# parity: M2, M6
@pytest.mark.parametrize("kind", [
    "moec batches vLLM", "vLLM batches vLLM", "vLLM batches moec", "vLLM rows moec", "moec rows vLLM's class of moec"])
def test_exchange_of_moec(layer: Any, kind: str) -> None:
    """Both ranks have the same rows, so each gets the whole layer's output."""
    numbers, call = load(layer, PLAIN), make_call()
    communicators = ranks.local(RANKS, limit=20)

    def work(rank: int) -> torch.Tensor:
        kernel = make_moec_kernel(kind, communicators[rank], layer)
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        held = slice(rank * LOCAL, (rank + 1) * LOCAL)
        return kernel.apply(
            call[0].clone(), layer.w13_weight[held].contiguous(), layer.w2_weight[held].contiguous(), topk_weights=call[1],
            topk_ids=call[2], activation=MoEActivation.SILU, global_num_experts=EXPERTS, expert_map=expert_map,
            apply_router_weight_on_input=False)

    for output in on_ranks(work):
        verify(output, compute(numbers, call), 1e-2)


# parity: M13
@pytest.mark.parametrize("kind", ["vLLM's prepare", "vLLM's batches", "moec's batches"])
def test_moec_kernel_of_both(layer: Any, kind: str) -> None:
    prepare, experts = {
        "vLLM's prepare": lambda: (MoEPrepareAndFinalizeNoDPEPModular(), Experts("silu", CONFIG, reduces=False)),
        "vLLM's batches": lambda: (
            BatchedPrepareAndFinalize(ROWS, EXPERTS, 1, 0), BatchedExperts("silu", CONFIG, max_num_tokens=ROWS)),
        "moec's batches": lambda: (InBatches(NoEP(), ROWS, EXPERTS), NaiveBatchedExperts(layer.moe_config, CONFIG, ROWS, 1)),
    }[kind]()
    numbers, call = load(layer, PLAIN), make_call()
    activation = MoEActivation.SILU if kind == "moec's batches" else "silu"
    output = ModularKernel(prepare, experts).apply(
        call[0], layer.w13_weight, layer.w2_weight, call[1], call[2], activation, EXPERTS)
    assert output.shape == (TOKENS, HIDDEN)
    verify(output, compute(numbers, call), 1e-2)


@pytest.mark.parametrize("name", [name for name in functions.__all__ if name.endswith("_moe_quant_config")])
def test_constructors_of_quant_configs(name: str) -> None:
    own, engine = (list(inspect.signature(getattr(module, name)).parameters) for module in (functions, config))
    assert own == engine


def test_parts_that_do_not_fit(layer: Any) -> None:
    with pytest.raises(InvalidArgument, match="MoEPrepareAndFinalizeNoDPEPModular and NaiveBatchedExperts: rows of Standard"):
        ModularKernel(MoEPrepareAndFinalizeNoDPEPModular(), NaiveBatchedExperts(layer.moe_config, CONFIG, ROWS, 1))
    with pytest.raises(InvalidArgument, match="max_num_tokens is 8 and 9"):
        ModularKernel(BatchedPrepareAndFinalize(ROWS, EXPERTS, 1, 0), BatchedExperts("silu", max_num_tokens=9))
    with pytest.raises(InvalidArgument, match="reads more of a quant_config than a QuantConfig has"):
        ModularKernel(MoEPrepareAndFinalizeNoDPEPModular(), Experts())
