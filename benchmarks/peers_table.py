# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of records of peers.py."""

from __future__ import annotations

from typing import Any

from peer_rows import mean

#: Names of vLLM's kernels in the text; others are written as they are.
NAMES = {"triton": "Triton", "triton_unfused": "triton_kernels", "deep_gemm": "DeepGEMM", "cutlass": "CUTLASS",
         "marlin": "Marlin", "humming": "Humming"}


def find_rows(records: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows with moec and a peer, by layer and tokens: the newest of each."""
    runs = [record for record in records if record["benchmark"] == "peers"]
    return {(row["layer"], row["tokens"]): row for record in sorted(runs, key=lambda record: record["date"])
            for row in record["rows"] if "ratio" in row}


def list_origins(records: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(
        f"{record['device']}, {record['date'][:10]}, commit {record['commit']}, vLLM {record['vllm']}, PyTorch "
        f"{record['torch']}" for record in records if record["benchmark"] == "peers"))


def describe_behind(rows: list[dict[str, Any]]) -> str:
    behind = sorted((row for row in rows if row["ratio"] < 1), key=lambda row: row["ratio"])
    if not behind:
        return "No row is behind its best peer."
    named = ", ".join(f"`{row['layer']}:{row['tokens']}` {row['ratio']:.2f} ({NAMES.get(row['best'], row['best'])})"
                      for row in behind)
    return f"Behind the best peer: {named}."


def table(records: list[dict[str, Any]], layers: dict[str, Any], tokens: tuple[int, ...]) -> list[str]:
    """Lines of the rows of these layers; none without a record."""
    rows = {key: row for key, row in find_rows(records).items() if key[0] in layers}
    if not rows:
        return []
    every = list(rows.values())
    ahead = sum(row["ratio"] >= 1 for row in every)
    defaults = sum(row["tables"].get("triton") == "default" for row in every)
    tuned = sum(row["tables"].get("triton") == "tuned" for row in every)
    lines = [
        "",
        f"Beside vLLM's kernels in the same run ({'; '.join(list_origins(records))}; `benchmarks/peers.py`), from ids "
        "and weights in CUDA graphs in turn, with cold weights. Each cell has the time of the fastest peer over moec's, "
        f"that peer, and both times in microseconds. {ahead} of {len(every)} rows are ahead of their best peer, with "
        f"{mean(row['ratio'] for row in every):.2f} as geometric mean. vLLM's Triton kernel has a table of tuned configs "
        f"for {tuned} of the rows that it ran, and its default config in {defaults}. {describe_behind(every)}",
        "",
        "| layer | format | " + " | ".join(map(str, tokens)) + " |",
        "|---|---|" + "--:|" * len(tokens),
    ]
    for name in dict.fromkeys(layer for layer in layers if any(layer == key[0] for key in rows)):
        cells = []
        for count in tokens:
            row = rows.get((name, count))
            cells.append("" if row is None else f"{row['ratio']:.2f} {NAMES.get(row['best'], row['best'])} "
                         f"{row['us'][row['best']]:.0f}:{row['us']['moec']:.0f}")
        lines.append(f"| `{name}` | {layers[name]['dtype']} | {' | '.join(cells)} |")
    return lines
