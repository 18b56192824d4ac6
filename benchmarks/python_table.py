# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record of python_on_gpu.py as the tables of benchmarks/journal/records.md."""

from __future__ import annotations

OTHERS = ("eager", "batched_mm", "grouped_mm")


def tests(step: dict) -> list[str]:
    decoded = sum("greedy_decoding" in name for name in step["passed"])
    skipped = f", {len(step['skipped'])} skipped" if step["skipped"] else ""
    return ["", f"{len(step['passed'])} tests of `moec.torch` and `moec.transformers` pass on the GPU{skipped}, "
            f"{decoded} of them 64 tokens of greedy decoding beside eager."]


def overhead(step: dict) -> list[str]:
    entries = {name: cell for name, cell in step.items() if isinstance(cell, dict)}
    kinds = list(next(iter(entries.values()))["median_us"])
    lines = ["", "Host time of a call in us, by how it is made (`benchmarks/call_overhead.py`):", "",
             "| entry | " + " | ".join(kinds) + " |", "|---|" + "--:|" * len(kinds)]
    for name, cell in entries.items():
        lines.append(f"| {name} | " + " | ".join(f"{cell['median_us'][kind]:.1f}" for kind in kinds) + " |")
    return lines


def forwards(step: dict) -> list[str]:
    lines = ["", "A block's forward at a real model's sizes in Transformers, experts by moec: us, and how many times that "
             "the others take (`benchmarks/transformers_forward.py`; - where it runs out of memory or has no such "
             "experts):", "", "| block | tokens | moec us | " + " | ".join(OTHERS) + " |",
             "|---|--:|--:|" + "--:|" * len(OTHERS)]
    for name, cell in step.items():
        if not isinstance(cell, dict):
            continue
        for row in cell["rows"]:
            ratios = [row["of_moec"].get(other) for other in OTHERS]
            texts = ["-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios]
            label = name.replace(" --graph", ", CUDA graph")
            lines.append(f"| {label} | {row['tokens']} | {row['median_us']['moec']:.0f} | {' | '.join(texts)} |")
    return lines


def serve(step: dict) -> list[str]:
    lines = ["", f"A whole model with random weights ({step['model']}, batch {step['batch']}, a prompt of {step['prompt']} "
             "tokens; `examples/serve.py`):", "", "| experts | prompt ms | tokens per second | CUDA graph |",
             "|---|--:|--:|---|"]
    for name, cell in step["results"].items():
        lines.append(f"| {name} | {cell['prompt_ms']:.1f} | {cell['tokens_per_second']:.0f} | "
                     f"{'yes' if cell['graph'] else 'no'} |")
    return lines


PARTS = {"tests": tests, "overhead": overhead, "forwards": forwards, "serve": serve}


def table(record: dict) -> list[str]:
    lines = [f"{record['device']} ({record['date']}, commit {record['commit']}; `benchmarks/python_on_gpu.py`), torch "
             f"{record['torch']}, Transformers {record['transformers']}, Python {record['python']}."]
    for name, part in PARTS.items():
        if name in record["steps"]:
            lines += part(record["steps"][name])
    return lines
