#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures experts whose weights alone are quantized: fp8 in blocks of 128 x 128 beside bf16 activations, moec's and,
where vLLM can be imported, its Marlin kernel, in graphs and in turns.

    benchmarks/weights_alone.py                        sizes of Qwen3-30B-A3B, on the first GPU
    benchmarks/weights_alone.py --tokens=1,64 --json=OUT.json

Rows of each call are compared with a float64 product of the dequantized weights before anything is timed; the error is
the relative Frobenius norm over those rows. Weights are larger than the second-level cache. Needs PyTorch and the moec
package."""

import argparse
import datetime
import json
import pathlib
import statistics

import torch

from moec import functions

EXPERTS, TOP_K, HIDDEN, COLUMNS, BLOCK = 128, 8, 2048, 768, 128
#: Runs in a graph, and replays of it between two events.
RUNS, REPLAYS = 8, 8


def draw_weights(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    values = (torch.randn(EXPERTS, rows, columns, device="cuda", dtype=torch.bfloat16) * 64).to(torch.float8_e4m3fn)
    scales = torch.rand(EXPERTS, rows // BLOCK, columns // BLOCK, device="cuda") * 4e-4 + 2e-4
    return values, scales


def dequantize(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    full = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return values.double() * full.double()


def compute(hidden: torch.Tensor, w13: tuple, w2: tuple, weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Results of some rows in float64."""
    out = torch.zeros(hidden.shape, dtype=torch.float64, device="cuda")
    for row in range(hidden.shape[0]):
        for slot, expert in enumerate(ids[row].tolist()):
            gate, up = (dequantize(w13[0][expert], w13[1][expert]) @ hidden[row].double()).chunk(2)
            inner = torch.nn.functional.silu(gate) * up
            out[row] += weights[row, slot].double() * (dequantize(w2[0][expert], w2[1][expert]) @ inner)
    return out


def make_marlin(w13: tuple, w2: tuple):
    """vLLM's kernel for these weights, or None without vLLM."""
    try:
        from vllm.model_executor.layers.fused_moe.experts.marlin_moe import fused_marlin_moe
        from vllm.model_executor.layers.quantization.utils.marlin_utils_fp8 import prepare_fp8_moe_layer_for_marlin
        from vllm.scalar_type import scalar_types
    except ImportError:
        return None
    layer = torch.nn.Module()
    layer.num_experts, layer.hidden_size, layer.intermediate_size_per_partition = EXPERTS, HIDDEN, COLUMNS
    layer.orig_dtype, layer.weight_block_size = torch.bfloat16, [BLOCK, BLOCK]
    first, second, first_scale, second_scale = prepare_fp8_moe_layer_for_marlin(layer, w13[0], w2[0], w13[1], w2[1])
    return lambda hidden, weights, ids: fused_marlin_moe(
        hidden, first, second, None, None, first_scale, second_scale, weights, ids, scalar_types.float8_e4m3fn.id,
        global_num_experts=EXPERTS)


def capture(call) -> torch.cuda.CUDAGraph:
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(RUNS):
            call()
    return graph


def time_graph(graph: torch.cuda.CUDAGraph) -> float:
    """Microseconds of a call."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / (RUNS * REPLAYS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=lambda text: [int(word) for word in text.split(",")],
                        default=[1, 8, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--commit", default="", help="recorded with the result")
    options = parser.parse_args()
    torch.manual_seed(int.from_bytes(b"w8a16", "big") % 2**31)
    w13, w2 = draw_weights(2 * COLUMNS, HIDDEN), draw_weights(HIDDEN, COLUMNS)
    config = functions.fp8_w8a16_moe_quant_config(w13[1], w2[1], block_shape=[BLOCK, BLOCK])
    kernels = {"moec": lambda hidden, weights, ids: functions.fused_experts(
        hidden, w13[0], w2[0], weights, ids, quant_config=config)}
    if marlin := make_marlin(w13, w2):
        kernels["marlin"] = marlin
    rows = []
    print("| tokens | " + " | ".join(f"{name} us | error" for name in kernels) + " |")
    print("|--:|" + "--:|--:|" * len(kernels))
    for tokens in options.tokens:
        hidden = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        weights, ids = torch.rand(tokens, EXPERTS, device="cuda").softmax(-1).topk(TOP_K)
        ids = ids.int()
        some = torch.randperm(tokens, device="cuda")[:4]
        wanted = compute(hidden[some], w13, w2, weights[some], ids[some])
        errors, graphs = {}, {}
        for name, kernel in kernels.items():
            found = kernel(hidden, weights, ids)[some].double()
            errors[name] = float((found - wanted).norm() / wanted.norm())
            if not errors[name] < 8e-3:
                raise SystemExit(f"{name}: error {errors[name]:.2e} at {tokens} tokens")
            graphs[name] = capture(lambda kernel=kernel: kernel(hidden, weights, ids))
        times = {name: [] for name in kernels}
        for _ in range(options.rounds):
            for name, graph in graphs.items():
                times[name].append(time_graph(graph))
        medians = {name: statistics.median(each) for name, each in times.items()}
        rows.append({"tokens": tokens, "us": medians, "error": errors})
        print(f"| {tokens} | " + " | ".join(f"{medians[name]:.1f} | {errors[name]:.1e}" for name in kernels) + " |",
              flush=True)
    if options.json:
        record = {"benchmark": "weights_alone", "commit": options.commit, "device": torch.cuda.get_device_name(),
                  "date": datetime.date.today().isoformat(), "torch": torch.__version__, "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
