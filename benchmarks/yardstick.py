#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures PyTorch on the same GPU for moe-bench, which starts this program and sends requests.

A request is a line of JSON on standard input in which `do` names a function below. The answer is a line
of JSON, with `error` on failure. The first line describes the program's versions and device. No code of
moec is used.

Ceilings: bytes read per second (the best of a sum, a maximum and a product with a vector, over 8 GiB),
and operations per second of a dense gemm of 8192^3 in bf16 and in e4m3 (torch._scaled_mm, a scale per
tensor): the best of 20 runs.

A row is a whole layer around torch._grouped_mm (fp8: torch._scaled_grouped_mm with a scale per row,
a quantization other than that by blocks): sort by expert, gather, gemm, silu, gemm, weigh, sum; one
CUDA graph alternates between routings. The dense pair is cuBLAS on as many rows at once, with the
weights of one expert; it is observed in the same way as the layer, and in a long replay.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

E4M3 = torch.float8_e4m3fn
E4M3_MAX = 448.0


class State:
    """The weights of the current layer, and the graphs of the current row: that of the layer, with a number
    of sets, and that of the dense pair. Tensors that graphs read must live as long as the graphs."""

    layer = weights = graph = inputs = dense = operands = None
    sets = 0


def best_seconds(work, repeat: int) -> float:
    work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(repeat):
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return min(times)


def release() -> None:
    State.layer = State.weights = None
    release_row()


def release_row() -> None:
    State.graph = State.inputs = State.dense = State.operands = None
    torch.cuda.empty_cache()


def ceilings(_: dict) -> dict:
    release()
    data = torch.ones(8 << 30, dtype=torch.uint8, device="cuda")
    matrix = data.view(torch.bfloat16).view(1 << 16, 1 << 16)
    vector = torch.ones(1 << 16, dtype=torch.bfloat16, device="cuda")
    reads = (data.view(torch.float32).sum, matrix.amax, lambda: torch.mv(matrix, vector))
    bandwidth = data.numel() / min(best_seconds(work, 20) for work in reads)
    del data, matrix, reads
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bf16 = 2 * n**3 / best_seconds(lambda: a @ b.T, 20)
    answer = {"bandwidth": bandwidth, "bf16": bf16}
    if torch.cuda.get_device_capability() >= (8, 9):
        one = torch.ones((), device="cuda")
        qa, qb = a.to(E4M3), b.to(E4M3)
        answer["fp8"] = 2 * n**3 / best_seconds(
            lambda: torch._scaled_mm(qa, qb.T, scale_a=one, scale_b=one,
                                     out_dtype=torch.bfloat16, use_fast_accum=True), 20)
    torch.cuda.empty_cache()
    return answer


def random_weights(*shape: int) -> torch.Tensor:
    weights = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    for matrix in weights:
        matrix.normal_(std=shape[-1] ** -0.5)
    return weights


def quantize(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantizes to e4m3 with a scale per row."""
    scale = rows.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / E4M3_MAX
    return (rows.float() / scale).to(E4M3), scale.squeeze(-1)


def quantize_weights(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values = torch.empty(weights.shape, dtype=E4M3, device="cuda")
    scales = torch.empty(weights.shape[:2], device="cuda")
    for expert, matrix in enumerate(weights):
        values[expert], scales[expert] = quantize(matrix)
    return values, scales


def layer(request: dict) -> dict:
    """Makes the weights of a layer."""
    release()
    experts, hidden, size = (request[key] for key in ("local_experts", "hidden", "intermediate"))
    w13, w2 = random_weights(experts, 2 * size, hidden), random_weights(experts, hidden, size)
    State.weights = (quantize_weights(w13), quantize_weights(w2)) if request["fp8"] else (w13, w2)
    State.layer = request
    del w13, w2
    torch.cuda.empty_cache()
    return {}


def run_bf16(x, token, offsets, weights):
    w13, w2 = weights
    u = torch._grouped_mm(x[token], w13.transpose(-2, -1), offs=offsets)
    gate, up = u.chunk(2, -1)
    return torch._grouped_mm(F.silu(gate) * up, w2.transpose(-2, -1), offs=offsets)


def run_fp8(x, token, offsets, weights):
    def product(rows, scales, matrix):
        return torch._scaled_grouped_mm(rows, matrix[0].transpose(-2, -1), scales, matrix[1],
                                        offs=offsets, out_dtype=torch.bfloat16, use_fast_accum=True)

    values, scales = quantize(x)
    u = product(values.view(torch.uint8)[token].view(E4M3), scales[token], weights[0])
    gate, up = u.chunk(2, -1)
    return product(*quantize(F.silu(gate) * up), weights[1])


def run(x, ids, route_weights):
    local, top_k = State.layer["local_experts"], ids.shape[1]
    key = torch.where(ids < 0, local, ids).flatten()
    order = torch.argsort(key, stable=True)
    counts = torch.zeros(local + 1, dtype=torch.int32, device="cuda")
    counts.scatter_add_(0, key, torch.ones_like(key, dtype=torch.int32))
    offsets = counts[:local].cumsum(0).to(torch.int32)
    run_products = run_fp8 if State.layer["fp8"] else run_bf16
    y = run_products(x, order // top_k, offsets, State.weights)
    # Rows of other ranks are not written.
    y = torch.where((key[order] < local)[:, None], y, 0) * route_weights.flatten()[order, None]
    sorted_back = torch.empty_like(y, dtype=torch.bfloat16)
    sorted_back[order] = y.to(torch.bfloat16)
    return sorted_back.view(*ids.shape, -1).sum(1)


def draw_ids(tokens: int, exponent: float, one: bool) -> torch.Tensor:
    """Draws distinct experts among all, with popularity rank^-exponent; -1 for those of other ranks. With
    `one`, draws a single expert for all tokens, for layers whose top_k is 1."""
    experts = State.layer["num_experts"]
    if one:
        return torch.randint(State.layer["local_experts"], (1, 1), device="cuda").repeat(tokens, 1)
    rank = 1 + torch.randperm(experts, device="cuda")
    noise = -torch.log(-torch.log(torch.rand(tokens, experts, device="cuda").clamp(min=1e-20)))
    ids = (noise - exponent * rank.log()).topk(State.layer["top_k"], -1).indices
    return torch.where(ids < State.layer["local_experts"], ids, -1)


def capture(work) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def row(request: dict) -> dict:
    """Makes the graph of a row."""
    release_row()
    tokens = request["tokens"]
    x = [torch.randn(tokens, State.layer["hidden"], device="cuda", dtype=torch.bfloat16)
         for _ in range(request["sets"])]
    ids = [draw_ids(tokens, request["exponent"], request["one"]) for _ in x]
    weights = torch.full_like(ids[0], 1 / ids[0].shape[1], dtype=torch.float32)
    State.sets = request["sets"]
    State.graph = capture(lambda: [run(one, route, weights) for one, route in zip(x, ids)])
    State.inputs = (x, ids, weights)
    return {}


def replay_times(graph, seconds: float) -> list[float]:
    def times(count: int) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])]

    return times(max(5, min(5000, int(seconds / times(2)[-1]))))


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def observe(request: dict) -> dict:
    """Replays the graph of the row."""
    return {"us": median(replay_times(State.graph, request["seconds"])) / State.sets * 1e6}


def dense(request: dict) -> dict:
    """Makes the graph of both gemms on all rows at once."""
    rows = max(16, -(-int(request["rows"]) // 16) * 16)
    hidden, size = State.layer["hidden"], State.layer["intermediate"]
    shapes = ((rows, hidden, 2 * size), (rows, size, hidden))
    operands = [(torch.randn(m, k, device="cuda", dtype=torch.bfloat16), random_weights(1, n, k)[0])
                for m, k, n in shapes]
    one = torch.ones((), device="cuda")
    if State.layer["fp8"]:
        operands = [(a.to(E4M3), b.to(E4M3)) for a, b in operands]

    def product(a, b):
        if not State.layer["fp8"]:
            return a @ b.T
        return torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                                use_fast_accum=True)

    State.operands = (operands, one)
    State.dense = capture(lambda: [product(a, b) for a, b in operands])
    return {}


def observe_dense(request: dict) -> dict:
    """Replays the dense pair in the same way as the layer."""
    return {"us": median(replay_times(State.dense, request["seconds"])) * 1e6}


def sustain_dense(request: dict) -> dict:
    """The median of the later half of a long replay."""
    times = replay_times(State.dense, request["seconds"])
    return {"us": median(times[len(times) // 2:]) * 1e6}


def main() -> int:
    torch.cuda.set_device(int(sys.argv[1]))
    torch.manual_seed(1)
    functions = {f.__name__: f for f in (
        ceilings, layer, row, observe, dense, observe_dense, sustain_dense)}
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda,
                      "device": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        begin = time.monotonic()
        try:
            answer = functions[request["do"]](request)
        except Exception as error:  # The caller's table continues without this value.
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer | {"seconds": time.monotonic() - begin}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
