# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Correctness of ranks, times of their exchange, times of whole layers: what moe-run does."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from machine import Failed, Tools, last_lines

#: Runs of all meshes of a number of ranks together.
ITERATIONS = 10_000
ENGINES = ("nccl", "peer")
PLACEMENTS = ("linear", "round_robin", None)
EXCHANGE_TOKENS = (1, 8, 32, 128, 512, 2048, 4096)
#: Maximum CTAs of an exchange, each on a separate multiprocessor.
EXCHANGE_CTAS = 64
LAYER_TOKENS = (1, 8, 64, 512, 1024, 2048, 4096)

SPEC = {"moec_spec": 1, "dtype": "bf16", "entry": "gate", "activation": {"kind": "silu"}}
DEEPSEEK_ROUTING = {
    "score": "sigmoid", "selection_bias": True, "num_groups": 8, "topk_groups": 4, "group_score": "top2_sum",
    "renormalize": True, "renormalize_epsilon": 1e-20, "scale": 2.5,
}
SMALL = SPEC | {
    "name": "small", "hidden_size": 512, "num_experts": 16, "top_k": 4, "intermediate_size": 1024,
    "routing": {"score": "softmax", "renormalize": True},
}
LAYERS = {
    "dsv3": SPEC | {
        "name": "dsv3", "hidden_size": 7168, "num_experts": 256, "top_k": 8, "intermediate_size": 2048,
        "quantization": "fp8_block128", "shared_experts": {"intermediate_size": 2048}, "routing": DEEPSEEK_ROUTING,
    },
    "qwen3_235b": SPEC | {
        "name": "qwen3_235b", "hidden_size": 4096, "num_experts": 128, "top_k": 8, "intermediate_size": 1536,
        "routing": {"score": "softmax", "renormalize": True},
    },
    "kimi_k2": SPEC | {
        "name": "kimi_k2", "hidden_size": 7168, "num_experts": 384, "top_k": 8, "intermediate_size": 2048,
        "quantization": "fp8_block128", "shared_experts": {"intermediate_size": 2048},
        "routing": {"score": "sigmoid", "selection_bias": True, "renormalize": True, "renormalize_epsilon": 1e-20,
                    "scale": 2.827},
    },
}
#: Layers that are timed only where they are named: ranks exchange the row of each slot, not sums (docs/use/layers.md).
INVARIANT = {f"{name}_invariant": spec | {"name": f"{name}_invariant", "batch_invariant": True}
             for name, spec in LAYERS.items()}
#: Exchanged rows are those of DeepSeek-V3; experts are so narrow that they take little time and memory.
EXCHANGE = {name: value for name, value in LAYERS["dsv3"].items() if name != "shared_experts"} | {
    "name": "dsv3_rows", "intermediate_size": 128}


@dataclass
class Part:
    """Parameters of a part."""

    tools: Tools
    ranks: int
    #: time.monotonic() at its end.
    until: float
    #: Sizes for a machine without GPUs, where ranks are threads.
    tiny: bool
    #: The exchange between GPUs: one of ENGINES, or "all-to-all".
    engine: str = "nccl"
    #: Runs are replays of a graph.
    graph: bool = True
    #: Further options of moe-run for GPUs.
    extra: tuple[str, ...] = ()

    def options(self, parallel: dict) -> list[str]:
        if self.tools.device == "host":
            return ["--device=host"]
        options = [f"--device={self.tools.device}", "--rank-limit=30"]
        # Rows of ranks that share a GPU then go through host memory, which no graph supports.
        if self.tools.shares_gpu and self.engine == "nccl":
            return options
        options += [*(["--graph"] if self.graph else []), f"--exchange={self.engine}", *self.extra]
        return [*options, *self.share(parallel)] if self.tools.shares_gpu else options

    def share(self, parallel: dict) -> list[str]:
        """Options with which kernels that wait for other ranks run concurrently on one GPU: CTAs for each rank's
        share of the multiprocessors, and no other resident kernels."""
        options = ["--disable=join-products,quantize-inputs"]
        ctas = self.tools.multiprocessors // self.ranks
        if ctas >= EXCHANGE_CTAS:
            return options
        names = ["all_gather_dp", "reduce_scatter_dp"] if parallel.get("dp", 1) * parallel.get("pcp", 1) > 1 else []
        if parallel.get("tp", 1) > 1:
            names += ["all_gather_tp", "reduce_scatter_tp"] if parallel.get("sp") else ["all_reduce_tp"]
        return [*options, *(f"--config={name}:ctas={ctas}" for name in names)]

    def shrink(self, spec: dict) -> dict:
        """Small sizes of a layer, fast on a CPU; the routing stays the same."""
        return spec | {"hidden_size": 256, "intermediate_size": 128} if self.tiny else spec

    def write(self, spec: dict, parallel: dict | None) -> str:
        spec = spec | ({"parallel": parallel} if parallel else {})
        number = len(list(self.tools.scratch.glob("*.json")))
        path = self.tools.scratch / f"{spec['name']}_{number}.json"
        path.write_text(json.dumps(spec))
        return str(path)


def meshes(ranks: int) -> Iterator[tuple[dict, str]]:
    """Each with its name."""
    for dp in range(1, ranks + 1):
        if ranks % dp:
            continue
        for placement in PLACEMENTS:
            mesh = {"dp": dp, "tp": ranks // dp}
            named = mesh if placement is None else mesh | {"experts": placement}
            yield named, f"dp {dp} x tp {ranks // dp}, {placement or 'parts of experts'}"


def check_layer(part: Part, row: dict, spec: dict, parallel: dict, *options: str) -> dict:
    """The row, with the comparisons of a layer with the float64 reference and of its runs with each other, bit for
    bit."""
    begin = time.monotonic()
    groups = parallel.get("dp", 1) * parallel.get("pcp", 1) * (parallel.get("tp", 1) if parallel.get("sp") else 1)
    row |= {"ok": False}
    try:
        output = part.tools.moe_run(part.write(spec, parallel), "--check", f"--compare={row['runs']}", *options,
                                    *part.options(parallel), until=part.until)
        row["errors"] = [float(found) for found in re.findall(r"ok: relative error (\S+)", output)]
        row["ok"] = f"equal bits in {row['runs']} more runs" in output and len(row["errors"]) == groups
        if not row["ok"]:
            row["error"] = "moe-run does not say that all is well: " + output[-300:]
    except Failed as error:
        row["error"] = str(error)
    row["seconds"] = round(time.monotonic() - begin, 1)
    return row


def check_meshes(part: Part, iterations: int = ITERATIONS) -> Iterator[dict]:
    """Each mesh with each placement of experts, `iterations` runs in total."""
    cases = list(meshes(part.ranks))
    for number, (parallel, name) in enumerate(cases):
        # Formats alternate over meshes and placements.
        form = ("bf16", "fp8_block128")[(number + number // len(PLACEMENTS)) % 2]
        spec = SMALL | {"max_tokens": 64} | ({"quantization": form} if form != "bf16" else {})
        runs = -(-(iterations if not part.tiny else 600) // len(cases))
        row = {"ranks": part.ranks, "engine": part.engine, "mesh": name, "format": form, "runs": runs}
        yield check_layer(part, row, spec, parallel, "--tokens=24", f"--seed={number}")


def read_times(output: str) -> dict[tuple[int, str], dict]:
    """The table of --times-at: by tokens and part. The time of an exchange beyond its sums or quantization may be
    negative."""
    return {
        (int(tokens), name): {"samples": int(samples), "us": float(median), "p99_us": float(p99)}
        for tokens, name, samples, median, p99 in re.findall(
            r"^ *(\d+)  (\S.*?) +(\d+) +(-?\d+\.\d+) +(-?\d+\.\d+)$", output, re.MULTILINE)
    }


def time_at(part: Part, spec: dict, parallel: dict | None, tokens: tuple[int, ...], repeat: int) -> dict:
    spec = part.shrink(spec) | {"max_tokens": max(tokens)}
    if parallel is None and part.tools.device != "host":
        options = ["--device=cuda:0", "--graph"]
    else:
        options = part.options(parallel or {})
    output = part.tools.moe_run(
        part.write(spec, parallel), f"--tokens={max(tokens)}", f"--repeat={repeat}",
        "--times-at=" + ",".join(map(str, tokens)), *options, until=part.until)
    times = read_times(output)
    names = ("layer",) if parallel is None else ("layer", "compute", "exchange", "dispatch", "combine")
    if missing := [f"{name} with {count} tokens" for count in tokens for name in names if (count, name) not in times]:
        raise Failed(f"moe-run does not say the time of {missing[0]}: {last_lines(output)}")
    return times


def time_exchange(part: Part, engines: tuple[str, ...] = ("nccl",), spec: dict = EXCHANGE,
                  tokens: tuple[int, ...] = EXCHANGE_TOKENS) -> Iterator[dict]:
    """Dispatch and combine of each number of tokens by each engine, beside NCCL with as many bytes, or copies."""
    tokens = tokens if not part.tiny else (1, 8)
    names = {"nccl": ("dispatch", "combine", "gather bytes", "blocks dispatch", "blocks combine"),
             "peer": ("dispatch", "combine", "sums", "quantization", "copy dispatch", "copy combine")}
    rows = {count: {"ranks": part.ranks, "tokens_per_rank": count} for count in tokens}
    for engine in engines:
        try:
            times = time_at(replace(part, engine=engine), spec, {"dp": part.ranks, "experts": "linear"}, tokens,
                            100 if not part.tiny else 5)
        except Failed as error:
            for row in rows.values():
                row.setdefault("error", f"{engine}: {error}")
            continue
        for count, row in rows.items():
            row.update({("peer_" if engine == "peer" else "") + name.replace(" ", "_"): times[count, name]
                        for name in names[engine] if (count, name) in times})
    yield from rows.values()


def time_layers(part: Part, names: Iterable[str] = tuple(LAYERS)) -> Iterator[dict]:
    """Whole layers on the ranks, and on one GPU with the tokens of all."""
    tokens = LAYER_TOKENS if not part.tiny else (1, 8)
    repeat = 50 if not part.tiny else 3
    for name in names:
        spec = (LAYERS | INVARIANT)[name]
        found = {count: {"layer": name, "ranks": part.ranks, "tokens_per_rank": count} for count in tokens}
        begin = time.monotonic()
        try:
            times = time_at(part, spec, {"dp": part.ranks, "experts": "linear"}, tokens, repeat)
            for count, row in found.items():
                parts = ("compute", "exchange", "dispatch", "combine", "sums", "quantization")
                row.update(together=times[count, "layer"], **{
                    each: times[count, each] for each in parts if (count, each) in times})
            one = time_at(part, spec, None, tuple(count * part.ranks for count in tokens), repeat)
            for count, row in found.items():
                row["one_gpu"] = one[count * part.ranks, "layer"]
        except Failed as error:
            for row in found.values():
                row.setdefault("error", str(error))
        for row in found.values():
            row["seconds"] = round(time.monotonic() - begin, 1)
        yield from found.values()
