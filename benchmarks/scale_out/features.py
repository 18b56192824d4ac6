# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What layers over ranks may have beside meshes and placements: each feature on the ranks of all GPUs, right and with
the same bits in every run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from moves import check_moves
from parts import ENGINES, SMALL, Part, check_layer

#: Runs of a feature, whose four inputs alternate every 50 runs.
RUNS, TINY_RUNS = 400, 60
TOKENS = 24
#: Enough rows (256) that they go only to destination ranks.
MANY_TOKENS = 320

SHARED = {"shared_experts": {"intermediate_size": 1024}}
ONE_EXPERT = {"entry": "ids", "routing": {}, "top_k": 1}
INT4 = {"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "bf16", "zero_point": True}}
BY_TOKEN = {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
            "activation": {"dtype": "fp8_e4m3", "scale": "token"}}
#: A last gemm that is split by columns has a dynamic tile scheduler and several tiles.
COLUMNS = ("--set=split-columns.chunks=2", "--disable=join-products",
           "--config=experts_out:sm90.gemm block_m=16 block_n=64 stages=8 dynamic_scheduler=true")
COPIES = ("--copy-rows-from=1",)


@dataclass(frozen=True)
class Feature:
    name: str
    mesh: dict
    #: Beside SMALL.
    spec: dict
    #: The exchange that moves the rows.
    engines: tuple[str, ...] = ENGINES
    tokens: int = TOKENS
    options: tuple[str, ...] = ()
    #: Of kernels for GPUs.
    gpu_options: tuple[str, ...] = ()
    #: Expected steps of a rank in the trace of a run through peer memory, and their numbers.
    shows: tuple[tuple[str, int], ...] = ()
    #: A process for each rank.
    processes: bool = False
    #: Runs are replays of a graph, on GPUs.
    graph: bool = True

    def form(self) -> str:
        form = self.spec.get("quantization", "bf16")
        return form if isinstance(form, str) else form["weight"]["dtype"]


def with_replicas(ranks: int, spec: dict) -> dict:
    """Two more physical experts on each rank, or as many as some replicas require."""
    each = SMALL["num_experts"] // ranks + 2
    return spec | {"replicas": {"num_physical_experts": each * ranks, "max_replicas": 4}}


def spread_replicas(ranks: int) -> list[list[int]]:
    """Experts per rank: its own in descending order, and two of the next rank's."""
    each = SMALL["num_experts"] // ranks
    return [[(rank * each + number) % SMALL["num_experts"] for number in range(each + 2)][::-1]
            for rank in range(ranks)]


def features(ranks: int) -> list[Feature]:
    whole = {"dp": ranks, "experts": "linear"}
    split = {"tp": ranks}
    grid = {"dp": ranks // 2, "tp": 2} if ranks % 2 == 0 else {"tp": ranks}
    pcp = {"pcp": 2, "tp": ranks // 2, "sp": ranks > 2} if ranks % 2 == 0 else {"pcp": ranks}
    in_parts = grid | {"sp": True, "experts": "linear"}
    # The last rank has no tokens, the one before it few.
    counts = ",".join(map(str, [TOKENS] * (ranks - 2) + [7, 0]))
    return [
        Feature("parts of a group's tokens", in_parts, SHARED),
        Feature("parts of a group's tokens, some ranks with fewer", split | {"sp": True},
                SHARED | {"quantization": "fp8_block128", "num_valid_tokens": True},
                options=(f"--rank-tokens={counts}",)),
        Feature("parts of a prompt", pcp | {"experts": "round_robin"}, SHARED, ("nccl",)),
        Feature("replicas", whole, with_replicas(ranks, SHARED | {"quantization": "fp8_block128"})),
        Feature("replicas by a table, logits", grid | {"experts": spread_replicas(ranks)},
                with_replicas(ranks, {"entry": "logits"}), ("peer",)),
        Feature("zero experts, shared expert", grid | {"experts": "linear"}, SHARED | {"num_zero_experts": 8}),
        Feature("zero experts, ids", split, {"num_zero_experts": 8, "entry": "ids", "routing": {}}, ("peer",)),
        Feature("latent width, shared expert", split | {"experts": "round_robin"}, SHARED | {"latent_size": 256},
                ("nccl",)),
        Feature("4 bits", whole, {"quantization": "mxfp4"}, ("peer",)),
        Feature("4 bits, groups of 128", split, {"quantization": INT4}, ("nccl",)),
        Feature("rows for destination ranks alone, sums in the exchange", whole, ONE_EXPERT, ("peer",), MANY_TOKENS,
                shows=(("partial_out", 0), ("reduce_scatter dp", 1))),
        Feature("all-to-all, as many rows as there are", whole, ONE_EXPERT, ("all-to-all",), MANY_TOKENS, graph=False),
        Feature("all-to-all, blocks with a capacity", whole, ONE_EXPERT, ("all-to-all",), MANY_TOKENS,
                gpu_options=("--all-to-all-capacity=0.9",)),
        Feature("all-to-all, fp8, shared expert, processes", whole,
                ONE_EXPERT | SHARED | {"quantization": "fp8_block128"}, ("all-to-all",), MANY_TOKENS, graph=False,
                processes=True),
        Feature("rows quantized in the exchange", whole, {"quantization": "fp8_block128"}, ("peer",), MANY_TOKENS,
                shows=(("hidden_quantized", 0), ("all_gather dp", 1))),
        Feature("rows quantized in the exchange, a scale for each", whole, {"quantization": BY_TOKEN}, ("peer",),
                MANY_TOKENS, shows=(("hidden_quantized", 0), ("all_gather dp", 1))),
        Feature("rows copied", whole, SHARED | {"quantization": "fp8_block128"}, ("peer",), gpu_options=COPIES,
                shows=(("all_gather dp (rows copied)", 1),)),
        Feature("combine by columns", whole, {}, gpu_options=COLUMNS,
                shows=(("reduce_scatter dp columns 0 to 255", 1), ("reduce_scatter dp columns 256 to 511", 1))),
        Feature("rows copied, combine by columns", whole, SHARED, ("peer",), gpu_options=COLUMNS + COPIES,
                shows=(("all_gather dp (rows copied)", 1), ("reduce_scatter dp columns 256 to 511", 1))),
        Feature("processes", grid | {"experts": "linear"}, SHARED, processes=True),
        Feature("processes, rows copied", whole, SHARED | {"quantization": "fp8_block128"}, ("peer",),
                gpu_options=COPIES, processes=True, shows=(("all_gather dp (rows copied)", 1),)),
    ]


def find_missing(feature: Feature, trace: str, ranks: int) -> str:
    """Steps that are missing in the trace of all ranks; empty if there are none."""
    steps = Counter(event["name"] for event in json.loads(trace)["traceEvents"])
    return ", ".join(f"'{name}' {steps[name]} times among the steps of all ranks, not {count * ranks}"
                     for name, count in feature.shows if steps[name] != count * ranks)


def describe(mesh: dict) -> str:
    axes = " x ".join(f"{name} {mesh[name]}" for name in ("dp", "pcp", "tp") if name in mesh)
    experts = mesh.get("experts", "parts of experts")
    return f"{axes}{' sp' if mesh.get('sp') else ''}, {experts if isinstance(experts, str) else 'table'}"


def check_feature(part: Part, feature: Feature) -> dict:
    runs = TINY_RUNS if part.tiny else RUNS
    row = {"ranks": part.ranks, "engine": part.engine, "feature": feature.name, "mesh": describe(feature.mesh),
           "format": feature.form(), "runs": runs}
    spec = SMALL | feature.spec | {"max_tokens": max(64, feature.tokens)}
    options = [f"--tokens={feature.tokens}", *feature.options]
    if feature.processes:
        options.append(f"--nproc={part.ranks}")
    trace = None
    if part.tools.device != "host":
        options += feature.gpu_options
        if feature.shows and part.engine == "peer":
            trace = part.tools.scratch / "trace.json"
            options.append(f"--trace={trace}")
    row = check_layer(part, row, spec, feature.mesh, *options)
    if row["ok"] and trace and (missing := find_missing(feature, trace.read_text(), part.ranks)):
        row |= {"ok": False, "error": f"{missing}: the feature was not run"}
    return row


def check_features(part: Part, engines: list[str]) -> Iterator[dict]:
    # NCCL moves the messages too.
    moving = [*engines, "all-to-all"] if "nccl" in engines and part.tools.device == "cuda" else engines
    for feature in features(part.ranks):
        for engine in moving:
            if engine in feature.engines or part.tools.device == "host":
                yield check_feature(replace(part, engine=engine, graph=feature.graph), feature)
    # Ranks that share a device move rows in one way.
    for engine in engines if part.tools.device == "cuda" else engines[:1]:
        yield check_moves(replace(part, engine=engine))
