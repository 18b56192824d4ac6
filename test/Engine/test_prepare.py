# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec's experts between the halves of vLLM's prepares in the batched format. Those of NIXL and DeepEP are vLLM's
classes beside a buffer on the CPU. The wheel of NIXL is imported; that of DeepEP refuses to be without a GPU."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import types
from typing import Any, Optional

import pytest
import test_formats
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, compute, load, make_call, make_layer, verify
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel
from vllm.model_executor.layers.fused_moe.prepare_finalize.batched import BatchedPrepareAndFinalize

from moec.vllm import quantized
from moec.vllm.experts import MoecBatchedExperts, choose

FORMATS = list_formats()
ROWS = 16


class Buffer:
    """What the buffers of both packages do between one rank and itself, by their documentation."""

    def dispatch(self, x: torch.Tensor, ids: torch.Tensor, most: int, experts: int, **options: Any) -> tuple[Any, ...]:
        assert not options["use_fp8"]
        received = torch.full((EXPERTS, most, x.shape[1]), float("nan"), dtype=x.dtype)
        rows: list[list[tuple[int, int]]] = [[] for _ in range(EXPERTS)]
        for token, choice in torch.cartesian_prod(*map(torch.arange, ids.shape)).tolist():
            expert = int(ids[token, choice])
            received[expert, len(rows[expert])] = x[token]
            rows[expert].append((token, choice))
        return received, torch.tensor([*map(len, rows)], dtype=torch.int32), rows, None, lambda: None

    def combine(
        self, y: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, rows: Any, out: torch.Tensor, **options: Any
    ) -> tuple[Any, ...]:
        total = torch.zeros(out.shape, dtype=torch.float32)
        for expert, held in enumerate(rows):
            for row, (token, choice) in enumerate(held):
                total[token] += weights[token, choice] * y[expert, row].float()
        out.copy_(total)
        return None, None, lambda: None

    low_latency_dispatch, low_latency_combine = dispatch, combine


def make_prepare(kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    if kind == "batched":
        return BatchedPrepareAndFinalize(ROWS, EXPERTS, 1, 0)
    options: dict[str, Any] = {}
    if kind == "nixl_ep":
        # It asks for functions of the driver only when it calls them.
        flags = sys.getdlopenflags()
        sys.setdlopenflags(os.RTLD_LAZY)
        try:
            importlib.import_module("nixl_ep")
        finally:
            sys.setdlopenflags(flags)
        options["expert_capacity"] = EXPERTS
    else:
        package = types.SimpleNamespace(Buffer=Buffer, topk_idx_t=torch.int64)
        monkeypatch.setitem(sys.modules, "deep_ep", package)
    module = importlib.import_module(f"vllm.model_executor.layers.fused_moe.prepare_finalize.{kind}")
    name = {"nixl_ep": "NixlEPPrepareAndFinalize", "deepep_ll": "DeepEPLLPrepareAndFinalize"}[kind]
    return getattr(module, name)(Buffer(), max_tokens_per_rank=ROWS, num_dispatchers=1, **options)


@pytest.mark.parametrize("kind", ["nixl_ep", "deepep_ll"])
def test_prepares_of_packages(engine: VllmConfig, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Their kernels are compiled for these hidden sizes.
    monkeypatch.setattr(test_formats, "HIDDEN", 2048)
    monkeypatch.setattr(test_formats, "WIDTH", 32)
    layer = make_layer(engine, FORMATS["16 bits"])
    numbers, (hidden, weights, ids) = load(layer, FORMATS["16 bits"]), make_call()
    prepare = make_prepare(kind, monkeypatch)
    experts = MoecBatchedExperts(
        layer.moe_config, FusedMoEQuantConfig.make(), max_num_tokens=ROWS, num_dispatchers=prepare.num_dispatchers())
    output = FusedMoEKernel(prepare, experts).apply(
        hidden, layer.w13_weight, layer.w2_weight, weights, ids.to(prepare.topk_indices_dtype()),
        activation=layer.activation, global_num_experts=EXPERTS, expert_map=None, apply_router_weight_on_input=False,
    )
    verify(output, compute(numbers, (hidden, weights, ids)), 8e-3)


@pytest.mark.parametrize("name, taken", [
    ("compressed-tensors W4A16 g128", True), ("ModelOpt mxfp8", True), ("mxfp4", True), ("fp8 blocks", False),
])
def test_quantized_weights(
    engine: VllmConfig, name: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that dispatch does not round."""
    layer = make_layer(engine, FORMATS[name])
    method = layer.quant_method
    parallel = dataclasses.replace(
        layer.moe_config.moe_parallel_config, dp_size=2, use_ep=True, all2all_backend="deepep_low_latency")
    monkeypatch.setattr(layer.moe_config, "moe_parallel_config", parallel)
    cls, reason = choose(layer.moe_config, *method.moec_keys)
    assert cls is (MoecBatchedExperts if taken else None) and taken == (reason is None)
    if not taken:
        return
    method.experts_cls = cls
    prepare: Optional[Any] = make_prepare("batched", monkeypatch)
    for module in (quantized, importlib.import_module("vllm.model_executor.layers.fused_moe.oracle.fp8")):
        monkeypatch.setattr(module, "maybe_make_prepare_finalize", lambda **options: prepare)
    numbers, (hidden, weights, ids) = load(layer, FORMATS[name]), make_call()
    method.process_weights_after_loading(layer)
    assert isinstance(method.moe_kernel.fused_experts, MoecBatchedExperts)
    verify(method.apply(layer, hidden, weights, ids, None, None), compute(numbers, (hidden, weights, ids)), 8e-3)
