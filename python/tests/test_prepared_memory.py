# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepared weights are allocated by PyTorch, once, and their memory is reused when other weights are loaded. Expected
bits come from fused_experts() with the original weights."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec import functions  # noqa: E402
from moec.functions import QuantConfig, fused_experts  # noqa: E402
from moec.functions.experts import Experts  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

DEVICE = "cuda:0"
EXPERTS, HIDDEN, WIDTH, TOP_K, TOKENS = 16, 1024, 2048, 4, 64
#: Largest rounding of an allocation in PyTorch.
ROUNDED = 2 << 20
FORMATS = ("int4 g128", "mxfp4", "nvfp4", "int8", "fp8")
every_format = pytest.mark.parametrize("form", FORMATS)


def make(form: str, seed: int) -> tuple[torch.Tensor, torch.Tensor, QuantConfig]:
    generator = torch.Generator(DEVICE).manual_seed(seed)

    def draw(rows: int, columns: int, low: int = 0, high: int = 256) -> torch.Tensor:
        return torch.randint(low, high, (EXPERTS, rows, columns), device=DEVICE, generator=generator)

    pack = 1 if form in ("int8", "fp8") else 2
    shapes = (2 * WIDTH, HIDDEN), (HIDDEN, WIDTH)
    w13, w2 = (draw(rows, columns // pack).to(torch.uint8) for rows, columns in shapes)
    if form == "int4 g128":
        scales = [(draw(rows, columns // 128) / 65536).bfloat16() for rows, columns in shapes]
    elif form == "mxfp4":
        scales = [draw(rows, columns // 32, 118, 124).to(torch.uint8) for rows, columns in shapes]
    elif form == "nvfp4":
        scales = [(draw(rows, columns // 16) / 64).to(torch.float8_e4m3fn) for rows, columns in shapes]
    elif form == "int8":
        w13, w2 = w13.view(torch.int8), w2.view(torch.int8)
        scales = [draw(rows, 1) / 262144 for rows, _ in shapes]
    else:
        w13, w2 = ((draw(*shape) / 256 - 0.5).to(torch.float8_e4m3fn) for shape in shapes)
        scales = [torch.full((EXPERTS,), 0.1, device=DEVICE) for _ in shapes]
    globals_ = {}
    if form == "nvfp4":
        globals_ = {name: torch.full((EXPERTS,), 1 / 16, device=DEVICE) for name in ("g1_alphas", "g2_alphas")}
    return w13, w2, QuantConfig(w1_scale=scales[0], w2_scale=scales[1], **globals_)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with torch.no_grad():
        yield
    functions.clear()


@pytest.fixture
def call() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator(DEVICE).manual_seed(7)
    hidden = torch.randn(TOKENS, HIDDEN, device=DEVICE, generator=generator).bfloat16()
    ids = torch.randint(0, EXPERTS, (TOKENS, TOP_K), device=DEVICE, generator=generator, dtype=torch.int32)
    return hidden, torch.rand(TOKENS, TOP_K, device=DEVICE, generator=generator), ids


def collect() -> int:
    """Returns the bytes allocated by PyTorch."""
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def count_others() -> int:
    """Returns the bytes on the device not allocated by PyTorch."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def run_held(experts: Experts, call: tuple[torch.Tensor, ...], out: torch.Tensor | None = None) -> torch.Tensor:
    hidden, weights, ids = call
    nothing = torch.empty(EXPERTS, 0, 0, device=DEVICE)
    return experts.run(hidden, nothing, nothing, weights, ids, out=out)


@every_format
def test_weights_are_there_once(form: str, call: tuple[torch.Tensor, ...]) -> None:
    w13, w2, config = make(form, 1)
    words = w13.nbytes + w2.nbytes
    wanted = fused_experts(call[0], w13, w2, *call[1:], quant_config=config).clone()
    assert wanted.isfinite().all() and wanted.any()
    functions.clear()
    experts = Experts("silu", config)
    before, others = collect(), count_others()
    held = experts.hold(w13, w2, HIDDEN, torch.bfloat16, TOP_K)
    prepared = sum(each.nbytes for each in held.prepared.values())
    assert abs(collect() - before - prepared) < ROUNDED * len(held.prepared)
    # Apart from code and events, all memory is allocated by PyTorch.
    assert count_others() - others < words / 4
    experts.quant_config = None
    del w13, w2, config
    if held.prepared:
        assert prepared >= words
        assert collect() < before - words + prepared + ROUNDED * len(held.prepared)
    assert torch.equal(run_held(experts, call), wanted)


@every_format
def test_graphs_go_on_with_weights_that_are_loaded_later(form: str, call: tuple[torch.Tensor, ...]) -> None:
    experts = Experts("silu", None)

    def load(seed: int, previous: Any = None) -> tuple[Any, torch.Tensor]:
        w13, w2, config = make(form, seed)
        wanted = fused_experts(call[0], w13, w2, *call[1:], quant_config=config).clone()
        functions.clear()
        experts.quant_config = config
        return experts.hold(w13, w2, HIDDEN, torch.bfloat16, TOP_K, previous), wanted

    held, wanted = load(1)
    out = torch.empty_like(call[0])
    assert torch.equal(run_held(experts, call, out), wanted)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        run_held(experts, call, out)
    again, wanted = load(2, held)
    assert {name: each.data_ptr() for name, each in (again.prepared | again.read).items()} == {
        name: each.data_ptr() for name, each in (held.prepared | held.read).items()}
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)
    assert torch.equal(run_held(experts, call), wanted)


def test_prepared_weights_of_functions_are_pytorch_s(call: tuple[torch.Tensor, ...]) -> None:
    w13, w2, config = make("int4 g128", 1)
    fused_experts(call[0], w13, w2, *call[1:], quant_config=config)
    functions.clear()
    before, others = collect(), count_others()
    fused_experts(call[0], w13, w2, *call[1:], quant_config=config)
    if torch.cuda.get_device_capability() == (9, 0):
        assert collect() - before >= w13.nbytes + w2.nbytes
    assert count_others() - others < w13.nbytes / 4
