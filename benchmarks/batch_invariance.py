# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether the bits of a row depend on its batch, and what `batch_invariant` costs, on a GPU.

    pip install torch
    python benchmarks/batch_invariance.py --output=FILE.json [--layers=NAME,...] [--entries=router,ids] [--seconds=500]

Each layer is compiled with and without the field, and both get the same pseudo-random weights. For each, rows of calls
of 1 to 16,384 tokens are compared bit by bit with the same rows of the largest call: the first rows, the last rows, and
rows in a replayed CUDA graph. Then both are timed in turn, as CUDA graphs over several sets of tokens, so that few
tokens do not find all their experts' weights in the cache. A ratio is the median time with the field over the one
without. Layers that do not fit into --seconds are left out, and named.

    python benchmarks/batch_invariance.py --table FILE.json     prints the record's tables in Markdown
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import pathlib
import statistics
import time
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parents[1]
COUNTS = (1, 2, 3, 5, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8192,
          16384)
TIMED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
LARGEST = COUNTS[-1]
#: Published models (test/models).
MODELS = ("qwen3-30b-a3b", "gpt-oss-120b", "qwen3-next-80b-a3b", "mixtral-8x7b", "deepseek-v2-lite", "glm-4.5-air",
          "qwen3-235b-a22b", "deepseek-v3")
_TOKEN = {"dtype": "fp8_e4m3", "scale": "token"}
_INT4 = {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "bf16"}
#: Qwen3-30B-A3B in other formats.
FORMATS: dict[str, dict[str, Any]] = {
    "fp8-block": {"weight": "fp8_block128"},
    "fp8-channel": {"weight": {"dtype": "fp8_e4m3", "scale": "channel"}, "activation": _TOKEN},
    "int4": {"weight": _INT4},
    "int4-fp8": {"weight": _INT4, "activation": _TOKEN},
    "int4-minima": {"weight": {"dtype": "int4", "minimum": True, "scale": {"group": 32}}},
    "nvfp4": {"weight": "nvfp4"},
    "mxfp4": {"weight": "mxfp4"},
    "mxfp8": {"weight": "mxfp8"},
    "int8": {"weight": {"dtype": "int8", "scale": "channel"}},
}
LAYERS = (*MODELS, *FORMATS)


def read_layer(name: str) -> Any:
    """Returns what moec.compile() takes for a layer's name."""
    if name in MODELS:
        return ROOT / "test" / "models" / f"{name}.json"
    return {
        "moec_spec": 1, "name": name, "dtype": "bf16", "num_experts": 128, "top_k": 8, "hidden_size": 2048,
        "intermediate_size": 768, "activation": {"kind": "silu"}, "quantization": FORMATS[name],
        "routing": {"score": "softmax", "renormalize": True},
    }


def draw(torch: Any, info: Any, generator: Any) -> Any:
    """Returns pseudo-random values of a weight, such that outputs have no NaN."""
    shape, dtype, is_scale = tuple(info.shape), info.dtype, "scale" in info.name
    floats = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    device = generator.device
    if dtype in floats:
        if is_scale:
            return (torch.rand(shape, device=device, generator=generator) * 0.01 + 0.004).to(floats[dtype])
        size = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        return (torch.randn(shape, device=device, generator=generator) * size).to(floats[dtype])
    if dtype.startswith("f8e4m3"):
        values = torch.randn(shape, device=device, generator=generator)
        return (values.abs() * 0.5 + 0.25 if is_scale else values).to(torch.float8_e4m3fn)
    if dtype == "i32":
        return torch.arange(shape[-1], device=device, dtype=torch.int32).expand(shape).contiguous()
    low, high = (119, 123) if is_scale else (0, 256)
    values = torch.randint(low, high, shape, device=device, dtype=torch.int32, generator=generator)
    return values.to(torch.uint8).view(torch.int8 if dtype == "i8" else torch.uint8)


class Pair:
    """A layer with and without the field, with inputs for both."""

    def __init__(self, name: str, entry: str, device: str) -> None:
        import moec
        import torch

        self.torch = torch
        options = {} if entry == "router" else {"entry": entry}
        source = read_layer(name)
        begin = time.monotonic()
        self.layers = {field: moec.compile(source, device=device, max_tokens=LARGEST, batch_invariant=field, **options)
                       for field in (False, True)}
        self.compile_seconds = time.monotonic() - begin
        generator = torch.Generator(device).manual_seed(7)
        weights = {info.name: draw(torch, info, generator)
                   for info in self.layers[True].tensors if info.role == "weight"}
        for layer in self.layers.values():
            layer.bind(weights)
        shapes = {info.name: info.shape for info in self.layers[True].tensors}
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[self.layers[True].dtype]
        rows = LARGEST
        self.inputs = [torch.randn(rows, shapes["hidden_states"][1], device=device, generator=generator).to(dtype)]
        if entry == "ids":
            experts = next(shape[0] for tensor, shape in shapes.items() if tensor.startswith("experts.w"))
            top = shapes["topk_ids"][1]
            drawn = torch.rand(rows, experts, device=device, generator=generator)
            self.inputs.append(drawn.topk(top, dim=1).indices.to(torch.int32))
            scales = torch.rand(rows, top, device=device, generator=generator)
            self.inputs.append(scales / scales.sum(1, keepdim=True))

    def run(self, field: bool, begin: int, end: int) -> Any:
        # Tensors of a call begin at multiples of 16 bytes.
        parts = (each[begin:end] for each in self.inputs)
        hidden, *routing = (each.clone() if each.data_ptr() % 16 else each for each in parts)
        return self.layers[field](hidden, **dict(zip(("topk_ids", "topk_weights"), routing)))

    def capture(self, run: Callable[[], Any]) -> tuple[Any, Any]:
        """Returns a graph of `run`, and what `run` returned."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = run()
        return graph, results


def count_other_rows(torch: Any, one: Any, other: Any) -> int:
    size = {2: torch.int16, 4: torch.int32}[one.element_size()]
    return int((one.view(size) != other.view(size)).any(1).sum())


def compare_bits(pair: Pair, field: bool) -> dict[str, Any]:
    """Returns the number of rows with other bits than in the largest call, by the number of tokens."""
    torch = pair.torch
    whole = pair.run(field, 0, LARGEST).clone()
    other: dict[str, dict[int, int]] = {"first": {}, "last": {}, "graph": {}}
    for tokens in COUNTS:
        other["first"][tokens] = count_other_rows(torch, pair.run(field, 0, tokens), whole[:tokens])
        other["last"][tokens] = count_other_rows(torch, pair.run(field, LARGEST - tokens, LARGEST), whole[-tokens:])
        if tokens <= 1024:
            graph, result = pair.capture(lambda: pair.run(field, 100, 100 + tokens))  # noqa: B023
            result.zero_()
            graph.replay()
            other["graph"][tokens] = count_other_rows(torch, result, whole[100:100 + tokens])
    return {
        "rows_compared": 2 * sum(COUNTS) + sum(each for each in COUNTS if each <= 1024),
        "nan": int(whole.isnan().sum()),
        "other_rows": {kind: {str(tokens): rows for tokens, rows in found.items() if rows}
                       for kind, found in other.items()},
    }


def time_pair(pair: Pair, tokens: int) -> dict[str, Any]:
    """Returns microseconds per call of both layers, medians of observations in turn."""
    torch = pair.torch
    sets = max(1, min(16, LARGEST // tokens, 4096 // tokens))

    def run(field: bool) -> list[Any]:
        return [pair.run(field, index * tokens, (index + 1) * tokens) for index in range(sets)]

    # Slices of the inputs are contiguous rows, so that only the layer's launches are in the graph.
    graphs = {field: pair.capture(lambda: run(field))[0] for field in (False, True)}  # noqa: B023
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(3):
        for graph in graphs.values():
            graph.replay()
    for observation in range(15):
        for field in (False, True) if observation % 2 else (True, False):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graphs[field].replay()
            start.record()
            graphs[field].replay()
            end.record()
            end.synchronize()
            found[field].append(start.elapsed_time(end) * 1e3 / sets)
    spread = max((max(each) - min(each)) / statistics.median(each) for each in found.values())
    return {"tokens": tokens, "us": statistics.median(found[False]), "us_invariant": statistics.median(found[True]),
            "spread": spread}


def measure(name: str, entry: str, device: str) -> dict[str, Any]:
    pair = Pair(name, entry, device)
    orders = pair.layers[True].plan.get("sum_orders")
    result: dict[str, Any] = {
        "layer": name, "entry": entry, "compile_seconds": round(pair.compile_seconds, 2), "sum_orders": orders,
        "without": compare_bits(pair, False), "with": compare_bits(pair, True),
        "times": [time_pair(pair, tokens) for tokens in TIMED],
    }
    return result


def get_ratio(row: dict[str, Any]) -> float:
    return row["us_invariant"] / row["us"]


def get_mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def make_tables(record: dict[str, Any]) -> str:
    lines = ["| layer, entry | rows with other bits, without | with | rows compared |", "|---|--:|--:|--:|"]
    for each in record["layers"]:
        counts = [sum(sum(kind.values()) for kind in each[side]["other_rows"].values()) for side in ("without", "with")]
        lines.append(f"| {each['layer']}, {each['entry']} | {counts[0]:,} | {counts[1]:,} "
                     f"| {each['with']['rows_compared']:,} |")
    lines += ["", "| layer, entry | " + " | ".join(f"{tokens:,}" for tokens in TIMED) + " | mean |",
              "|---|" + "--:|" * (len(TIMED) + 1)]
    all_ratios = []
    for each in record["layers"]:
        ratios = [get_ratio(row) for row in each["times"]]
        all_ratios += ratios
        lines.append(f"| {each['layer']}, {each['entry']} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios)
                     + f" | {get_mean(ratios):.3f} |")
    if all_ratios:
        lines += ["", f"Geometric mean of all cells: {get_mean(all_ratios):.4f}."]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, help="the record, written after each layer")
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--entries", default="router,ids")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--commit", default="", help="recorded with the result")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.json", help="print the tables of a record and stop")
    options = parser.parse_args()
    if options.table:
        print(make_tables(json.loads(options.table.read_text())))
        return 0
    if not options.output:
        parser.error("--output: a file is required")
    names = options.layers.split(",")
    if unknown := [each for each in names if each not in LAYERS]:
        parser.error(f"--layers: {unknown[0]!r} found; {', '.join(LAYERS)} are accepted")
    import torch

    begin = time.monotonic()
    record: dict[str, Any] = {
        "benchmark": "batch_invariance", "commit": options.commit, "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(options.device), "torch": torch.__version__, "layers": [], "left_out": [],
    }
    for name in names:
        for entry in options.entries.split(","):
            if time.monotonic() - begin > options.seconds:
                record["left_out"].append(f"{name}, {entry}: no time left")
                continue
            start = time.monotonic()
            try:
                record["layers"].append(measure(name, entry, options.device))
            except Exception as error:  # Each layer has its line in the record.
                record["left_out"].append(f"{name}, {entry}: {type(error).__name__}: {str(error)[:300]}")
            torch.cuda.empty_cache()
            print(f"{name}, {entry}: {time.monotonic() - start:.1f} s", flush=True)
            options.output.write_text(json.dumps(record))
    print(make_tables(record))
    print(*record["left_out"], sep="\n")
    return 1 if record["left_out"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
