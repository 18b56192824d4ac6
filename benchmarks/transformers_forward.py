# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A forward of one MoE block of Transformers', by implementation of its experts.

    python benchmarks/transformers_forward.py [--layer=qwen3_30b] [--device=cuda:0]
        [--tokens=1,64,4096] [--implementations=moec,eager,batched_mm,grouped_mm] [--graph]
        [--repeat=30] [--output=FILE.json]

The block is Qwen3-MoE's (router, experts, sum) with random weights in bf16 and the sizes of a layer of
rows.json. Router and tokens are the same for all; tokens are random, so that they spread over the experts.
Each time is between two CUDA events around one forward, host time included where it is what is waited
for; on the CPU it is the wall clock's. With --graph each forward is a replay of a CUDA graph, and an
implementation that cannot be captured says so. Runs of the implementations alternate; reported are
medians in microseconds, and how many times moec's each other's is. `difference` is the largest
difference from eager's result, of its largest element. A shape that an implementation refuses or has no
memory for has its message under `errors`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import moec.transformers

IMPLEMENTATIONS = ("moec", "eager", "batched_mm", "grouped_mm")
SIZES = ("num_experts", "top_k", "hidden_size", "intermediate_size")
ROWS = pathlib.Path(__file__).with_name("rows.json")


def find_sizes(options: argparse.Namespace) -> dict[str, int]:
    layers = json.loads(ROWS.read_text())["layers"]
    found = next((each for each in layers if each["name"] == options.layer), None)
    if found is None:
        sys.exit(f"--layer: {options.layer} found; {', '.join(each['name'] for each in layers)} "
                 "are accepted")
    return {name: getattr(options, name) or found[name] for name in SIZES}


def make_block(sizes: dict[str, int], device: str) -> torch.nn.Module:
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = transformers.Qwen3MoeConfig(
        hidden_size=sizes["hidden_size"],
        moe_intermediate_size=sizes["intermediate_size"],
        num_experts=sizes["num_experts"],
        num_experts_per_tok=sizes["top_k"],
        norm_topk_prob=True,
    )
    with torch.device("meta"):
        block = Qwen3MoeSparseMoeBlock(config)
    block = block.to(torch.bfloat16).to_empty(device=device).eval()
    torch.manual_seed(1)
    for parameter in block.parameters():
        parameter.data.normal_(0, parameter.shape[-1] ** -0.5)
    return block


def make_forward(
    block: torch.nn.Module, name: str, hidden: torch.Tensor, graph: bool
) -> Callable[[], torch.Tensor]:
    def forward() -> torch.Tensor:
        block.experts.config._experts_implementation = name
        return block(hidden)

    for _ in range(3):
        forward()
    if not graph:
        return forward
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        output = forward()

    def replay() -> torch.Tensor:
        captured.replay()
        return output

    return replay


def time_once(forward: Callable[[], torch.Tensor], device: str) -> float:
    """Microseconds of one forward."""
    if device == "cpu":
        begin = time.perf_counter()
        forward()
        return (time.perf_counter() - begin) * 1e6
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    forward()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def measure(block: torch.nn.Module, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    hidden = torch.randn(
        1, tokens, block.experts.config.hidden_size, dtype=torch.bfloat16, device=options.device
    )
    forwards, outputs, errors = {}, {}, {}
    for name in options.implementations.split(","):
        try:
            forwards[name] = make_forward(block, name, hidden, options.graph)
            outputs[name] = forwards[name]().float().clone()
        except (RuntimeError, moec.Error, ImportError) as error:
            forwards.pop(name, None)
            errors[name] = str(error).splitlines()[0]
            if options.device != "cpu":
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
    times: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(options.repeat):
        for name, forward in forwards.items():
            times[name].append(time_once(forward, options.device))
    medians = {name: statistics.median(each) for name, each in times.items()}
    row: dict[str, Any] = {"tokens": tokens, "median_us": medians}
    if "moec" in medians:
        row["of_moec"] = {name: each / medians["moec"] for name, each in medians.items()}
    if "eager" in outputs:
        wanted = outputs["eager"]
        row["difference"] = {
            name: float((each - wanted).abs().max() / wanted.abs().max())
            for name, each in outputs.items()
        }
    return row | ({"errors": errors} if errors else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer", default="qwen3_30b", help="a layer of rows.json")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tokens", default="1,64,4096")
    parser.add_argument("--implementations", default=",".join(IMPLEMENTATIONS))
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--output", help="where the JSON goes (default: standard output)")
    parser.add_argument("--commit", default="", help="recorded with the result")
    for name in SIZES:
        parser.add_argument("--" + name.replace("_", "-"), type=int, help="in place of the layer's")
    options = parser.parse_args()
    sizes = find_sizes(options)
    moec.transformers.register()
    with torch.inference_mode():
        block = make_block(sizes, options.device)
        rows = [measure(block, int(tokens), options) for tokens in options.tokens.split(",")]
    is_cpu = options.device == "cpu"
    result = {
        "benchmark": "transformers_forward",
        "commit": options.commit,
        "date": datetime.date.today().isoformat(),
        "layer": options.layer,
        "sizes": sizes,
        "device": "cpu" if is_cpu else torch.cuda.get_device_name(options.device),
        "graph": options.graph,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "repeat": options.repeat,
        "rows": rows,
    }
    text = json.dumps(result, indent=1)
    if options.output:
        pathlib.Path(options.output).write_text(text + "\n")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
