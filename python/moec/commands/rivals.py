# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Other implementations of a model's layer, for `moec bench`: the block of Transformers, and kernels of vLLM."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from .model import Model

#: Returns a run of a layer on some number of tokens.
Maker = Callable[[int], Callable[[], Any]]


class Unfit(Exception):
    """Why an implementation cannot be compared."""


def _import(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unfit(f"{module} is not installed ({error})") from None


def _find_torch_device(name: str) -> str:
    """The name of moec's device ("cuda:0 (NVIDIA H200)" or "host") as PyTorch says it."""
    return name.split(" ")[0] if name.startswith("cuda") else "cpu"


def _find_block(model: Any, layer: int) -> Any:
    for name, module in model.named_modules():
        if f".layers.{layer}." in f".{name}." and hasattr(module, "experts") and callable(getattr(module, "forward")):
            return module
    raise Unfit(f"layer {layer} of {type(model).__name__} has no module with experts")


def _make_generator(torch: Any, device: str) -> Any:
    """Returns a generator of random numbers. A failed capture leaves the default one of a GPU unusable."""
    return torch.Generator(device=device).manual_seed(0)


def _fill(torch: Any, block: Any, dtype: Any, device: str) -> Any:
    """Gives a block without memory random weights of the order of 1 / sqrt(columns)."""
    block = block.to_empty(device=device).to(dtype)
    generator = _make_generator(torch, device)
    with torch.no_grad():
        for tensor in (*block.parameters(), *block.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(std=(tensor.shape[-1] if tensor.dim() > 1 else 1) ** -0.5, generator=generator)
            else:
                tensor.zero_()
    return block.eval()


def make_transformers(model: Model, spec: Mapping[str, Any], layer: int, device: str, implementation: str) -> Maker:
    """Returns the block of Transformers' model, with random weights, by an implementation of its experts ("eager",
    "grouped_mm"). Raises Unfit if it is not installed, or if the weights are quantized."""
    if spec.get("quantization"):
        raise Unfit("the weights are quantized, and Transformers' block would be compared without quantization")
    torch, transformers = _import("torch"), _import("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(model.config)
        with torch.device("meta"):
            whole = transformers.AutoModelForCausalLM.from_config(config)
        whole.set_experts_implementation(implementation)
        block = _fill(torch, _find_block(whole, layer), getattr(torch, _DTYPES[spec["dtype"]]),
                      _find_torch_device(device))
    except Unfit:
        raise
    except Exception as error:  # noqa: BLE001
        raise Unfit(f"Transformers cannot make it: {type(error).__name__}: {str(error).splitlines()[0]}") from error

    def make(tokens: int) -> Callable[[], Any]:
        where = _find_torch_device(device)
        hidden = torch.randn(1, tokens, spec["hidden_size"], dtype=next(block.parameters()).dtype, device=where,
                             generator=_make_generator(torch, where))

        def run() -> Any:
            with torch.no_grad():
                return block(hidden)

        return run

    return make


#: PyTorch's names of dtypes.
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def make_vllm(model: Model, spec: Mapping[str, Any], layer: int, device: str) -> Maker:
    """Returns vLLM's fused_experts, from ids and weights to the output, without router and shared experts, with random
    weights. Raises Unfit unless it is installed, on a GPU, for 16-bit weights with silu."""
    if not device.startswith("cuda"):
        raise Unfit("vLLM's kernels need a GPU")
    if spec.get("quantization") or spec.get("activation", {}).get("kind") != "silu":
        raise Unfit("only 16-bit weights with silu are compared")
    torch = _import("torch")
    fused_experts = _import("vllm.model_executor.layers.fused_moe").fused_experts
    dtype, where = getattr(torch, _DTYPES[spec["dtype"]]), _find_torch_device(device)
    experts, hidden, inner = spec["num_experts"], spec["hidden_size"], spec["intermediate_size"]
    generator = _make_generator(torch, where)
    w13 = torch.randn(experts, 2 * inner, hidden, dtype=dtype, device=where, generator=generator) * hidden**-0.5
    w2 = torch.randn(experts, hidden, inner, dtype=dtype, device=where, generator=generator) * inner**-0.5

    def make(tokens: int) -> Callable[[], Any]:
        rows = torch.randn(tokens, hidden, dtype=dtype, device=where, generator=generator)
        weights, ids = torch.rand(tokens, experts, device=where, generator=generator).topk(spec["top_k"])
        weights = weights / weights.sum(-1, keepdim=True)
        ids = ids.to(torch.int32)
        return lambda: fused_experts(rows, w13, w2, weights, ids)

    return make


def list_rivals(
    model: Model, spec: Mapping[str, Any], layer: int, device: str
) -> dict[str, Callable[[], Maker]]:
    """Returns the implementations by the names of their columns; a call makes one, or raises Unfit."""
    return {
        "eager": lambda: make_transformers(model, spec, layer, device, "eager"),
        "grouped_mm": lambda: make_transformers(model, spec, layer, device, "grouped_mm"),
        "vllm experts": lambda: make_vllm(model, spec, layer, device),
    }


def time_runs(run: Callable[[], Any], device: str, repeat: int) -> float:
    """Returns the median seconds of `repeat` runs after one warm-up run; on a GPU between events, a replay of a CUDA
    graph each where the run can be captured."""
    run()
    if not device.startswith("cuda"):
        return statistics.median(_time_on_host(run) for _ in range(repeat))
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    except RuntimeError:
        # Implementations with data-dependent shapes are launched one by one.
        torch.cuda.synchronize()
    times = []
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _time_on_host(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
