# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of the layers that users of other libraries asked for, from records of asked.py, moe-bench and peers.py."""

from __future__ import annotations

import json
import pathlib

import peers_table

TABLE = pathlib.Path(__file__).with_name("asked.json")
#: Columns of the page; other counts of asked.json are in the records.
TOKENS = (1, 8, 64, 1024, 4096)


def find_measured(records: list[dict]) -> tuple[dict[tuple[str, int], float], list[str]]:
    """Times on a GPU by layer and tokens, of the newest record that has the row, and where they are from."""
    names = {layer["name"] for layer in json.loads(TABLE.read_text())["layers"]}
    times, origins = {}, {}
    runs = [record for record in records if record["benchmark"] == "moe_bench"]
    for record in sorted(runs, key=lambda record: record["date"]):
        for row in record["rows"]:
            if row.get("layer") in names and "us" in row:
                times[row["layer"], row["tokens"]] = row["us"]
                origins[f"{record['device']}, {record['date'][:10]}, commit {record['commit']}"] = None
    return times, list(origins)


def find_newest(records: list[dict]) -> dict | None:
    return max((record for record in records if record["benchmark"] == "asked"), default=None,
               key=lambda record: record["date"])


def link(asked: dict[str, str]) -> str:
    repository, number = asked["in"].split("#")
    return f"[{repository.split('/')[1]}#{number}](https://github.com/{repository}/issues/{number})"


def table(records: list[dict]) -> list[str]:
    record = find_newest(records)
    if record is None:
        return ["There is no record of `benchmarks/asked.py` in `benchmarks/results/`."]
    layers = {layer["name"]: layer for layer in json.loads(TABLE.read_text())["layers"]}
    measured, origins = find_measured(records)
    lines = [
        f"Compiled for {record['target']} on {record['cores']} cores ({record['date']}, commit {record['commit']}; "
        "`benchmarks/asked.py`), each by a new process without a cache. Times are microseconds of a call from ids and "
        "weights on an H200, expected by the cost model"
        + (f"; measured ones are bold ({'; '.join(origins)})." if origins else ": none was measured yet."),
        "",
        "| experts, top k | hidden x intermediate | format | asked for | compile s | package MB | weights MB | "
        + " | ".join(map(str, TOKENS)) + " |",
        "|---|---|---|---|--:|--:|--:|" + "--:|" * len(TOKENS),
    ]
    for row in record["rows"]:
        layer = layers[row["layer"]]
        expected = {time["tokens"]: time["us"] for time in row["times"]}
        cells = [f"**{measured[row['layer'], count]:.0f}**" if (row["layer"], count) in measured
                 else f"{expected[count]:.0f}" if count in expected else "" for count in TOKENS]
        local = f" ({layer['local_experts']} here)" if "local_experts" in layer else ""
        asked = f"{layer['asked']['of']}, {link(layer['asked'])}" if "asked" in layer else f"`{row['layer']}`"
        lines.append(f"| {layer['num_experts']}{local}, {layer['top_k']} | {layer['hidden_size']} x "
                     f"{layer['intermediate_size']} | {layer['dtype']} | {asked} | {row['compile_seconds']:.1f} | "
                     f"{row['package_bytes'] / 1e6:.1f} | {row['weight_bytes'] / 1e6:.0f} | {' | '.join(cells)} |")
    return lines + peers_table.table(records, layers, TOKENS)
