# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A forward of one MoE block of Transformers', by implementation of its experts.

    python benchmarks/transformers_forward.py [--layer=qwen3_30b | --model=mixtral]
        [--config=hidden_size=64,...] [--device=cuda:0] [--tokens=1,64,4096]
        [--implementations=moec,eager,batched_mm,grouped_mm] [--graph] [--repeat=30] [--output=FILE.json]

The block (router, experts, sum, shared expert) has random weights in bf16. It is Qwen3-MoE's with the sizes of a
layer of rows.json, or with --model that of a family of Transformers' with the configuration that is the
family's default, a real model's, and with what --config changes about it. Router and tokens are the same for all; tokens are random, so that they spread over the experts.
Each time is between two CUDA events around one forward, host time included where it is what is waited
for; on the CPU it is the wall clock's. With --graph each forward is a replay of a CUDA graph, and an
implementation that cannot be captured says so. Runs of the implementations alternate; reported are
medians and least times in microseconds, and how many times moec's each other's is. `difference` is the largest
difference from eager's result, of its largest element. A shape that an implementation refuses or has no
memory for has its message under `errors`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
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


def make_config(options: argparse.Namespace) -> Any:
    """The configuration of a model that has the block."""
    changes = dict(each.split("=", 1) for each in filter(None, options.config.split(",")))
    changes = {name: int(value) for name, value in changes.items()}
    if options.model:
        config = transformers.AutoConfig.for_model(options.model, **changes)
    else:
        sizes = find_sizes(options)
        config = transformers.Qwen3MoeConfig(
            hidden_size=sizes["hidden_size"],
            moe_intermediate_size=sizes["intermediate_size"],
            num_experts=sizes["num_experts"],
            num_experts_per_tok=sizes["top_k"],
            norm_topk_prob=True,
            **changes,
        )
    # One layer, with experts.
    config.num_hidden_layers = 1
    for name, value in (("first_k_dense_replace", 0), ("layer_types", ["full_attention"]),
                        ("mlp_layer_types", ["sparse"]), ("moe_layers", [0])):
        if getattr(config, name, None) is not None:
            setattr(config, name, value)
    return config


def make_block(config: Any, device: str) -> torch.nn.Module:
    """The block of experts of a model with this configuration."""
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    block = next(each for each in model.modules() if hasattr(each, "experts"))
    block = block.to_empty(device=device).eval()
    torch.manual_seed(1)
    for parameter in block.parameters():
        parameter.data.normal_(0, parameter.shape[-1] ** -0.5)
    for buffer in block.buffers():
        buffer.zero_()
    return block


class Block:
    """A block and its call."""

    def __init__(self, config: Any, device: str) -> None:
        self.module = make_block(config, device)
        self.hidden_size = config.hidden_size
        #: moec's forward of a block that has no registry of implementations; its own forward is then the only
        #: other one.
        self.replaced = None
        if moec.transformers.replace(self.module):
            self.replaced = vars(self.module).pop("forward")

    def __call__(self, name: str, hidden: torch.Tensor) -> torch.Tensor:
        if self.replaced:
            if name not in ("moec", "eager"):
                raise NotImplementedError("the block passes no registry of implementations")
            output = self.replaced(hidden) if name == "moec" else self.module(hidden)
        else:
            self.module.experts.config._experts_implementation = name
            output = self.module(hidden)
        # Some blocks also return the router's scores, some return rows instead of a sequence.
        output = output[0] if isinstance(output, tuple) else output
        return output.view(hidden.shape)


def make_forward(
    block: Block, name: str, hidden: torch.Tensor, graph: bool
) -> Callable[[], torch.Tensor]:
    def forward() -> torch.Tensor:
        return block(name, hidden)

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


def measure(block: Block, tokens: int, options: argparse.Namespace) -> dict[str, Any]:
    hidden = torch.randn(
        1, tokens, block.hidden_size, dtype=torch.bfloat16, device=options.device
    )
    forwards, outputs, errors = {}, {}, {}
    for name in options.implementations.split(","):
        try:
            forwards[name] = make_forward(block, name, hidden, options.graph)
            outputs[name] = forwards[name]().float().clone()
        except (RuntimeError, NotImplementedError, moec.Error, ImportError) as error:
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
    row: dict[str, Any] = {"tokens": tokens, "median_us": medians,
                           "least_us": {name: min(each) for name, each in times.items()}}
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
    parser.add_argument("--model", help="a family of Transformers' instead, as in mixtral")
    parser.add_argument("--config", default="", help="NAME=INT,... of its configuration")
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
    moec.transformers.register()
    with torch.inference_mode():
        block = Block(make_config(options), options.device)
        rows = [measure(block, int(tokens), options) for tokens in options.tokens.split(",")]
    is_cpu = options.device == "cpu"
    result = {
        "benchmark": "transformers_forward",
        "commit": options.commit,
        "date": datetime.date.today().isoformat(),
        "layer": options.model or options.layer,
        "sizes": {"config": options.config} if options.model else find_sizes(options),
        "device": "cpu" if is_cpu else torch.cuda.get_device_name(options.device),
        "cores": len(os.sched_getaffinity(0)) if is_cpu else None,
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
