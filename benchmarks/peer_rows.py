# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows, records and tables of peers.py. Needs no PyTorch."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import math
import pathlib
from typing import Any, Iterable

#: vLLM's names (--moe-backend) of the kernels that take a format of weights on Hopper. Marlin and Humming keep
#: activations in 16 bits. vLLM's other names for a format are refused on Hopper, or emulate it.
PEERS: dict[str, tuple[str, ...]] = {
    "bf16": ("triton",),
    "fp8_block128": ("triton", "deep_gemm", "marlin", "humming"),
    "fp8_channel": ("triton", "cutlass", "marlin", "humming"),
    "fp8_tensor": ("triton", "cutlass", "marlin", "humming"),
    "fp8_weights": ("marlin", "humming"),
    "int4_group32": ("triton", "marlin", "humming"),
    "int4_group128": ("triton", "marlin", "humming"),
    "mxfp4": ("triton_unfused", "marlin", "humming"),
    "nvfp4": ("marlin", "humming"),
}


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    num_experts: int
    local_experts: int
    top_k: int
    hidden: int
    columns: int
    format: str

    @property
    def weight_bytes(self) -> float:
        """About the bytes of its weights, without scales."""
        bits = 16 if self.format == "bf16" else 8 if self.format.startswith("fp8") else 4
        return 3 * self.local_experts * self.hidden * self.columns * bits / 8

    def expect_touched(self, tokens: int) -> float:
        """Mean number of local experts that a call needs, with ids drawn uniformly."""
        return self.local_experts * (1 - (1 - self.top_k / self.num_experts) ** tokens)


@dataclasses.dataclass(frozen=True)
class Row:
    layer: Layer
    tokens: int
    #: Left out unless its layer is named.
    on_demand: bool = False

    @property
    def name(self) -> str:
        return f"{self.layer.name}:{self.tokens}"


def read_rows(path: pathlib.Path) -> tuple[list[Row], list[str]]:
    """Rows of a table of moe-bench, without those with skewed ids, and the names of the layers whose format no peer
    takes."""
    table = json.loads(path.read_text())
    layers = {}
    for each in table["layers"]:
        experts = each["num_experts"]
        layers[each["name"]] = Layer(each["name"], experts, each.get("local_experts", experts), each["top_k"],
                                     each["hidden_size"], each["intermediate_size"], each["dtype"])
    found = [Row(layers[row["layer"]], tokens, row.get("on_demand", False)) for row in table["rows"]
             if set(row) <= {"layer", "tokens", "on_demand"} for tokens in row["tokens"]
             if layers[row["layer"]].format in PEERS]
    # Rows of a layer stand together, since its weights are made once.
    order = {name: index for index, name in enumerate(layers)}
    found.sort(key=lambda row: (order[row.layer.name], row.tokens))
    return found, [layer.name for layer in layers.values() if layer.format not in PEERS]


def choose_rows(rows: list[Row], text: str) -> list[Row]:
    """Rows by `NAME[:TOKENS,...];...`, with patterns as names. Token counts need not be in the table. Raises
    ValueError."""
    if not text:
        return [row for row in rows if not row.on_demand]
    layers = {row.layer.name: row.layer for row in rows}
    chosen: dict[str, Row] = {}
    for part in text.split(";"):
        pattern, _, counts = part.strip().partition(":")
        names = [name for name in layers if fnmatch.fnmatch(name, pattern)]
        if not names:
            raise ValueError(f"no layer with peers has a name like '{pattern}'; there are {', '.join(layers)}")
        try:
            tokens = [int(word) for word in counts.split(",")] if counts else []
        except ValueError:
            raise ValueError(f"token counts such as 1,8 expected, '{counts}' found") from None
        if any(not 0 < count <= 16384 for count in tokens):
            raise ValueError(f"1 to 16384 tokens expected, '{counts}' found")
        for name in names:
            own = [row for row in rows if row.layer.name == name]
            for row in [Row(layers[name], count) for count in tokens] or own:
                chosen[row.name] = row
    return list(chosen.values())


def count_sets(tokens: int) -> int:
    """Hidden states and routings that the runs of a graph rotate among, as in moe-bench."""
    return 2 if tokens >= 16384 else 4 if tokens >= 4096 else 8


def find_best(us: dict[str, float]) -> str | None:
    """The fastest peer."""
    return min((name for name in us if name != "moec"), key=us.__getitem__, default=None)


class Record:
    """A record on disk, whole after each row. An existing file is gone on with if `resumes`."""

    def __init__(self, path: pathlib.Path | None, head: dict[str, Any], resumes: bool) -> None:
        self.path, self.document = path, head | {"lost": {}, "rows": []}
        if resumes and path is not None and path.exists():
            before = json.loads(path.read_text())
            for field in ("benchmark", "commit", "device", "torch", "vllm"):
                if before.get(field) != head.get(field):
                    raise ValueError(f"{path}: {field} {before.get(field)!r} found, {head.get(field)!r} expected; "
                                     "write another file")
            self.document = before
        self.done = {f"{row['layer']}:{row['tokens']}" for row in self.document["rows"]}

    def find_lost(self, layer: Layer) -> dict[str, str]:
        """Kernels that broke the device in earlier runs with this layer, and how."""
        return self.document["lost"].get(layer.name, {})

    def lose(self, layer: Layer, kernel: str, reason: str) -> None:
        """Makes further runs leave out this kernel of the layer."""
        self.document["lost"].setdefault(layer.name, {})[kernel] = reason
        self._write()

    def add(self, row: dict[str, Any]) -> None:
        self.document["rows"].append(row)
        self.done.add(f"{row['layer']}:{row['tokens']}")
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            part = self.path.with_name(self.path.name + ".part")
            part.write_text(json.dumps(self.document, indent=1) + "\n")
            part.replace(self.path)


def print_row(row: dict[str, Any]) -> str:
    """A line of progress."""
    cells = [f"{name} {us:.1f}" for name, us in row["us"].items()]
    cells += [f"({name}: {reason[:60]})" for name, reason in row["refused"].items()]
    ratio = f"  {row['ratio']:.2f}x" if "ratio" in row else ""
    return f"{row['layer']}:{row['tokens']}  {'  '.join(cells)}{ratio}"


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def summarize(rows: list[dict[str, Any]]) -> list[str]:
    """A short table: for each format, rows, the mean ratio and the rows behind."""
    lines = ["| format | rows | best peer / moec | least | behind a peer |", "|---|--:|--:|--:|---|"]
    compared = [row for row in rows if "ratio" in row]
    for format in dict.fromkeys(row["format"] for row in compared):
        own = [row for row in compared if row["format"] == format]
        behind = [f"{row['layer']}:{row['tokens']} {row['ratio']:.2f} {row['best']}" for row in own if row["ratio"] < 1]
        ratios = [row["ratio"] for row in own]
        lines.append(f"| {format} | {len(own)} | {mean(ratios):.2f} | {min(ratios):.2f} | {', '.join(behind) or '-'} |")
    return lines
