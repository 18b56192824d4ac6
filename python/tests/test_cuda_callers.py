# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Actions of a program around a layer on a GPU: streams, threads, CUDA graphs, writes to weights. Expected values come
from calls one at a time, or from a new layer with the same weights."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
import moec.torch as moec_torch  # noqa: E402

from moec.functions import fused_experts  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

DEVICE = "cuda:0"
TOKENS, HIDDEN, EXPERTS, TOP_K, WIDTH = 1024, 512, 16, 4, 256
COUNTS = (1, 7, 64, 300, 1024)
INT4 = {"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "bf16"}}
#: For the last two formats the sm_90a kernels read prepared copies of the weights.
FORMATS: dict[str, Any] = {"bf16": None, "fp8": "fp8_block128", "int4": INT4, "mxfp4": "mxfp4"}
every_format = pytest.mark.parametrize("form", FORMATS)


def describe(form: str) -> dict[str, Any]:
    spec = {
        "moec_spec": 1, "name": "callers", "dtype": "bf16", "hidden_size": HIDDEN, "num_experts": EXPERTS,
        "top_k": TOP_K, "intermediate_size": WIDTH, "max_tokens": TOKENS, "routing": {"renormalize": True},
        "activation": {"kind": "silu"},
    }
    return spec if FORMATS[form] is None else spec | {"quantization": FORMATS[form]}


def fill(info: moec.TensorInfo, generator: torch.Generator) -> torch.Tensor:
    def uniform() -> torch.Tensor:
        return torch.rand(info.shape, device=DEVICE, generator=generator)

    def normal() -> torch.Tensor:
        return torch.randn(info.shape, device=DEVICE, generator=generator)

    if info.dtype == "f8e8m0":
        return torch.full(info.shape, 122, device=DEVICE, dtype=torch.uint8)
    if info.dtype in ("i8", "u8"):
        found = torch.randint(0, 256, info.shape, device=DEVICE, generator=generator).to(torch.uint8)
        return found.view(torch.int8) if info.dtype == "i8" else found
    if info.dtype == "f8e4m3":
        return normal().to(torch.float8_e4m3fn)
    values = uniform() * 0.01 + 0.004 if "scale" in info.name else normal() * 0.05
    return values.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[info.dtype])


def make(form: str, **options: Any) -> tuple[moec.Layer, dict[str, torch.Tensor]]:
    layer = moec.compile(describe(form), device=DEVICE, **options)
    generator = torch.Generator(DEVICE).manual_seed(1)
    weights = {info.name: fill(info, generator) for info in layer.tensors if info.role == "weight"}
    return layer.bind(weights), weights


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(TOKENS, HIDDEN, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(9)).bfloat16()


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int16), b.view(torch.int16))


def refer(layer: moec.Layer, x: torch.Tensor) -> dict[int, torch.Tensor]:
    found = {tokens: layer(x[:tokens]).clone() for tokens in COUNTS}
    torch.cuda.synchronize()
    return found


def capture(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        call()
    return graph


def replay(graph: torch.cuda.CUDAGraph, out: torch.Tensor) -> torch.Tensor:
    out.fill_(-1)
    graph.replay()
    torch.cuda.synchronize()
    return out


#: Calls of a layer with a given output; all use an external workspace.
def call_layer(layer: moec.Layer) -> Callable[..., Any]:
    return lambda hidden, out: layer(hidden, out=out)


def call_in_workspace(layer: moec.Layer) -> Callable[..., Any]:
    size = layer.workspace_bytes(layer.max_tokens)
    layer.use_workspace(torch.empty(size, dtype=torch.uint8, device=DEVICE))
    return call_layer(layer)


def call_module(layer: moec.Layer) -> Callable[..., Any]:
    module = moec_torch.MoE(layer)
    return lambda hidden, out: out.copy_(module(hidden))


def call_operator(layer: moec.Layer) -> Callable[..., Any]:
    module = moec_torch.MoE(layer)
    return lambda hidden, out: torch.ops.moec.forward_out(out, hidden, module.number)


ways = pytest.mark.parametrize("way", [call_layer, call_in_workspace, call_module, call_operator])

# Streams and threads.


@every_format
def test_threads_with_a_stream_each(form: str, x: torch.Tensor) -> None:
    layer, _ = make(form)
    expected = refer(layer, x)
    wrong: list[Any] = []

    def work(first: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.no_grad(), torch.cuda.stream(stream):
                for i in range(30):
                    tokens = COUNTS[(i + first) % len(COUNTS)]
                    output = layer(x[:tokens])
                    stream.synchronize()
                    if not is_same(output, expected[tokens]):
                        wrong.append(tokens)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@every_format
@pytest.mark.parametrize("is_given", [False, True])
def test_streams_that_nobody_waits_for(form: str, is_given: bool, x: torch.Tensor) -> None:
    layer, _ = make(form)
    expected = refer(layer, x)
    if is_given:
        call_in_workspace(layer)
    streams = [torch.cuda.Stream() for _ in range(3)]
    found = []
    for i in range(60):
        tokens = COUNTS[i * 7 % len(COUNTS)]
        with torch.cuda.stream(streams[i % 3]):
            found.append((tokens, layer(x[:tokens])))
    torch.cuda.synchronize()
    assert all(is_same(output, expected[tokens]) for tokens, output in found)


def test_a_stream_while_the_workspace_grows(x: torch.Tensor) -> None:
    expected = refer(make("bf16")[0], x)
    for _ in range(5):
        layer, _ = make("bf16")
        layer(x[:1])
        streams = [torch.cuda.Stream() for _ in COUNTS]
        torch.cuda.synchronize()
        found = []
        for stream, tokens in zip(streams, COUNTS):
            with torch.cuda.stream(stream):
                found.append((tokens, layer(x[:tokens])))
        torch.cuda.synchronize()
        assert all(is_same(output, expected[tokens]) for tokens, output in found)


# CUDA graphs.


@every_format
@ways
def test_graphs_with_a_larger_call_between(form: str, way: Callable[..., Any], x: torch.Tensor) -> None:
    layer, _ = make(form)
    call = way(layer)
    captured = []
    for tokens in (8, 513, 64):
        hidden, out = x[:tokens].clone(), torch.empty(tokens, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
        call(hidden, out)
        captured.append((capture(lambda: call(hidden, out)), hidden, out))
    big = torch.empty_like(x)
    call(x, big)
    torch.cuda.synchronize()
    for _ in range(3):
        for graph, hidden, out in captured:
            found = replay(graph, out).clone()
            call(hidden, out)
            assert is_same(found, out)


@every_format
@ways
def test_graphs_outlive_layer_and_weights(form: str, way: Callable[..., Any], x: torch.Tensor) -> None:
    layer, weights = make(form)
    call = way(layer)
    hidden, out = x[:130].clone(), torch.empty(130, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    call(hidden, out)
    torch.cuda.synchronize()
    expected = out.clone()
    graph = capture(lambda: call(hidden, out))
    del layer, weights, call
    gc.collect()
    torch.cuda.empty_cache()
    sevens = [torch.full((1 << 22,), 7.0, device=DEVICE) for _ in range(40)]
    assert is_same(replay(graph, out), expected)
    del sevens


def test_graphs_while_the_shared_workspace_of_functions_grows(x: torch.Tensor) -> None:
    w1, w2 = (torch.randn(shape, device=DEVICE).bfloat16() / 16
              for shape in ((EXPERTS, 2 * WIDTH, HIDDEN), (EXPERTS, HIDDEN, WIDTH)))
    ids = torch.stack([torch.randperm(EXPERTS)[:TOP_K] for _ in range(64)]).to(DEVICE, torch.int32)
    weights = torch.rand(64, TOP_K, device=DEVICE)
    hidden = x[:64].clone()
    expected = fused_experts(hidden, w1, w2, weights, ids).clone()
    out = torch.empty_like(hidden)
    graph = capture(lambda: out.copy_(fused_experts(hidden, w1, w2, weights, ids)))
    # A wider layer on the capturing stream forces a new workspace.
    wide = [torch.randn(shape, device=DEVICE).bfloat16() / 64
            for shape in ((EXPERTS, 4096, 2048), (EXPERTS, 2048, 2048))]
    rows = torch.randn(64, 2048, device=DEVICE).bfloat16()
    fused_experts(rows, *wide, weights, ids)
    other = capture(lambda: fused_experts(rows, *wide, weights, ids))
    gc.collect()
    torch.cuda.empty_cache()
    sevens = [torch.full((1 << 22,), 7.0, device=DEVICE) for _ in range(40)]
    assert is_same(replay(graph, out), expected)
    del sevens, other


def test_graphs_keep_their_number_of_valid_tokens(x: torch.Tensor) -> None:
    layer, _ = make("bf16", num_valid_tokens=True)
    hidden, out = x[:16].clone(), torch.empty(16, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    layer(hidden, out=out)
    graphs = {count: capture(lambda: layer(hidden, out=out, num_valid_tokens=count)) for count in (3, 9)}
    for count in (16, 0, 9, 5):
        layer(hidden, out=out, num_valid_tokens=count)
        expected = out.clone()
        assert not expected[count:].any() and (count == 0 or expected[:count].any())
        for valid, graph in graphs.items():
            found = replay(graph, out)
            assert not found[valid:].any() and found[:valid].any(1).all()


def test_two_runs_of_one_graph_on_two_streams(x: torch.Tensor) -> None:
    layer, _ = make("bf16")
    expected = refer(layer, x)
    outs = {tokens: torch.empty(tokens, HIDDEN, device=DEVICE, dtype=torch.bfloat16) for tokens in COUNTS}
    side = torch.cuda.Stream()

    def call() -> None:
        main = torch.cuda.current_stream()
        for stream, tokens in zip(itertools.cycle((main, side)), COUNTS):
            side.wait_stream(main)
            with torch.cuda.stream(stream):
                layer(x[:tokens], out=outs[tokens])
        main.wait_stream(side)

    graph = capture(call)
    for _ in range(5):
        for out in outs.values():
            out.fill_(-1)
        graph.replay()
        torch.cuda.synchronize()
        assert all(is_same(out, expected[tokens]) for tokens, out in outs.items())


@every_format
def test_layers_and_graphs_leave_no_memory(form: str, x: torch.Tensor) -> None:
    _, weights = make(form)
    out = torch.empty(100, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    hidden = x[:100].clone()

    def use() -> None:
        layer = moec.compile(describe(form), device=DEVICE).bind(weights)
        layer(hidden, out=out)
        graph = capture(lambda: layer(hidden, out=out))
        layer(x)
        del layer
        replay(graph, out)

    free = []
    for i in range(8):
        use()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if i >= 3:
            free.append(torch.cuda.mem_get_info()[0])
    assert free[0] - free[-1] < 8 << 20


# Writes to weights.


def write(weight: torch.Tensor) -> None:
    if weight.dtype.itemsize == 1 and not weight.is_floating_point():
        weight.bitwise_xor_(0x11)
    else:
        weight.copy_((weight.float() * 0.5).to(weight.dtype))


@every_format
@ways
def test_writes_are_seen(form: str, way: Callable[..., Any], x: torch.Tensor) -> None:
    layer, weights = make(form)
    call = way(layer)
    hidden, out = x[:33].clone(), torch.empty(33, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    call(hidden, out)
    graph = capture(lambda: call(hidden, out))
    for name in ("experts.w2", "experts.w13"):
        before = out.clone()
        write(weights[name])
        expected = moec.compile(describe(form), device=DEVICE).bind(weights)(hidden)
        call(hidden, out)
        assert is_same(out, expected) and not is_same(out, before)
        # Prepared weights keep their memory, which the graph reads.
        assert is_same(replay(graph, out), expected)


def test_writes_that_are_not_counted_are_prepared_when_asked(x: torch.Tensor) -> None:
    layer, weights = make("int4")
    with torch.inference_mode():
        uncounted = weights["experts.w2"].clone()
    layer.bind(experts_w2=uncounted)
    layer(x[:33])
    weights["experts.w13"].data.bitwise_xor_(0x11)
    with torch.inference_mode():
        uncounted.bitwise_xor_(0x11)
    expected = moec.compile(describe("int4"), device=DEVICE).bind(weights | {"experts.w2": uncounted})(x[:33])
    report = layer.prepare(again=True)
    assert report.bytes == 0 or report.seconds > 0
    assert is_same(layer(x[:33]), expected)


def test_writes_before_a_capture_are_named(x: torch.Tensor) -> None:
    layer, weights = make("int4")
    if not layer.prepare().bytes:
        pytest.skip("the kernels of this GPU read weights as they are")
    hidden, out = x[:33].clone(), torch.empty(33, HIDDEN, device=DEVICE, dtype=torch.bfloat16)
    layer(hidden, out=out)
    write(weights["experts.w2"])
    with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        with pytest.raises(moec.Error, match="experts.w2: was written to after it was prepared"):
            layer(hidden, out=out)
        raise RuntimeError
    torch.cuda.synchronize()
    expected = moec.compile(describe("int4"), device=DEVICE).bind(weights)(hidden)
    assert is_same(layer(hidden, out=out), expected)
