# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of records as tables: base beside moec."""

from __future__ import annotations

import re
import statistics
from typing import Any, Optional

Row = dict[str, Any]
#: A model with its layers and mode: what is compared.
Case = tuple[str, int, str]
BATCHES = (1, 8, 64, 256)
PREFILLS = (1024, 4096, 16384)
COLUMNS = [("decode", batch) for batch in BATCHES] + [("prefill", tokens) for tokens in PREFILLS]


def case_of(row: Row) -> Case:
    return row["model"], row["layers"], row["mode"]


def list_cases(rows: list[Row]) -> list[Case]:
    return list(dict.fromkeys(case_of(row) for row in rows))


def pick(rows: list[Row], case: Case, what: str, experts: Optional[str] = None) -> list[Row]:
    return [row for row in rows if case_of(row) == case and row["what"] == what
            and experts in (None, row["experts"])]


def median_ms(rows: list[Row], case: Case, experts: str, column: tuple[str, int]) -> Optional[float]:
    """Over all jobs that measured it."""
    what, size = column
    times = [ms for row in pick(rows, case, what, experts) if row["size"] == size for ms in row["all_ms"]]
    return statistics.median(times) if times else None


def list_built_in(rows: list[Row], case: Case) -> list[str]:
    """vLLM's default first."""
    names = {row["experts"] for row in rows if case_of(row) == case} - {"moec"}
    return sorted(names, key=lambda name: (name != "base", name))


def find_best(rows: list[Row], case: Case, column: tuple[str, int]) -> Optional[tuple[float, str]]:
    """The time and the name of the fastest built-in kernel."""
    times = [(ms, name) for name in list_built_in(rows, case)
             if (ms := median_ms(rows, case, name, column)) is not None]
    return min(times, default=None)


def find_ratio(rows: list[Row], case: Case, column: tuple[str, int]) -> Optional[float]:
    """Above 1: moec is faster than the best built-in kernel."""
    best, ours = find_best(rows, case, column), median_ms(rows, case, "moec", column)
    return best[0] / ours if best and ours else None


def join_kernels(kernels: dict[str, list[float]]) -> dict[str, float]:
    """Microseconds by name. PyTorch's compiler numbers its kernels anew in each model."""
    joined: dict[str, float] = {}
    for name, (_, us) in kernels.items():
        key = re.sub(r"^(triton_.*?)(_\d+)+$", r"\1", name)
        joined[key] = joined.get(key, 0) + us
    return joined


def find_expert_times(base: Row, ours: Row, base_ms: float, our_ms: float, layers: int) -> tuple[float, float, float]:
    """Microseconds of a layer's experts: of base's kernels, of moec's, and of moec by the step. Kernels of the experts
    are what one of the two has alone. moec's kernels start before those ahead of them end, so that their sum counts
    the wait as well; by the step, moec takes what base's kernels take and the difference of the two steps."""
    theirs, own = join_kernels(base["kernels"]), join_kernels(ours["kernels"])
    base_us = sum(us for name, us in theirs.items() if name not in own) / layers
    our_us = sum(us for name, us in own.items() if name not in theirs) / layers
    return base_us, our_us, base_us + (our_ms - base_ms) * 1e3 / layers


def expert_times(rows: list[Row], case: Case, column: tuple[str, int]) -> Optional[tuple[float, float, float]]:
    what, size = column
    found = {
        name: [row for row in pick(rows, case, "kernels", name) if (row["phase"], row["size"]) == (what, size)]
        for name in ("base", "moec")
    }
    times = [median_ms(rows, case, name, column) for name in found]
    layers = [row["moec_layers"] for row in pick(rows, case, "start", "moec")]
    if not all(found.values()) or None in times or not layers:
        return None
    return find_expert_times(found["base"][-1], found["moec"][-1], *times, layers[-1])


def format_cell(rows: list[Row], case: Case, column: tuple[str, int]) -> str:
    best, ours = find_best(rows, case, column), median_ms(rows, case, "moec", column)
    if not best and not ours:
        return ""
    ratio = find_ratio(rows, case, column)
    texts = [f"{best[0]:.2f}" if best else "-", f"{ours:.2f}" if ours else "-"]
    return " / ".join(texts) + (f" ({ratio:.2f})" if ratio else "")


def speed_lines(rows: list[Row]) -> list[str]:
    cases = [case for case in list_cases(rows) if any(pick(rows, case, what) for what in ("decode", "prefill"))]
    if not cases:
        return []
    heads = [f"{what} {size}" for what, size in COLUMNS]
    lines = ["| model | layers | mode | " + " | ".join(heads) + " |", "|---|--:|---|" + "--:|" * len(heads)]
    for case in cases:
        cells = [format_cell(rows, case, column) for column in COLUMNS]
        lines.append(f"| {case[0]} | {case[1]} | {case[2]} | " + " | ".join(cells) + " |")
    return lines


def expert_lines(rows: list[Row]) -> list[str]:
    lines = []
    for case in list_cases(rows):
        times = [expert_times(rows, case, column) for column in COLUMNS]
        if any(times):
            cells = [f"{each[0]:.0f} / {each[1]:.0f} / {each[2]:.0f}" if each else "" for each in times]
            lines.append(f"| {case[0]} | {case[1]} | {case[2]} | " + " | ".join(cells) + " |")
    if not lines:
        return []
    heads = [f"{what} {size}" for what, size in COLUMNS]
    return ["| model | layers | mode | " + " | ".join(heads) + " |", "|---|--:|---|" + "--:|" * len(heads), *lines]


def give(value: Optional[float], digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def other_lines(rows: list[Row]) -> list[str]:
    """One line for each job: memory, start, outputs; and what failed."""
    lines = ["| model | layers | mode | experts | moec layers | start s | KV cache GiB | model GiB | outputs |",
             "|---|--:|---|---|--:|--:|--:|--:|---|"]
    for case in list_cases(rows):
        for experts in [*list_built_in(rows, case), "moec"]:
            here = [row for row in rows if case_of(row) == case and row["experts"] == experts]
            if not here:
                continue
            last = {row["what"]: row for row in here}
            start, memory = last.get("start", {}), last.get("memory", {})
            lines.append(
                f"| {case[0]} | {case[1]} | {case[2]} | {experts} | {start.get('moec_layers', '-')} | "
                f"{give(start.get('seconds'), 1)} | {give(memory.get('kv_cache_gib'), 2)} | "
                f"{give(memory.get('model_gib'), 2)} | {'; '.join(describe_outputs(here))} |")
    return lines


def describe_outputs(rows: list[Row]) -> list[str]:
    texts = []
    for row in rows:
        if row["what"] == "outputs":
            texts.append("same twice" if row["same_twice"] else "not the same twice")
            if row["not_finite"]:
                texts.append(f"{row['not_finite']} values not finite")
        elif row["what"] == "log-probabilities":
            texts.append(f"mean {give(row['mean'], 4)}, max {give(row['max'], 2)} to {row['against']}")
        elif row["what"] in ("sleep", "reload"):
            texts.append(f"{row['what']}: {'the same' if row['is_same'] else 'DIFFERENT'}")
        elif row["what"] in ("failed", "time limit"):
            texts.append(f"{row['what'].upper()}: {row['error']}".replace("|", "/").replace("\n", " "))
    return texts


def serving_lines(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row["what"] == "serving"]
    if not found:
        return []
    lines = ["| model | layers | mode | experts | requests at once | tokens/s | first token p99 ms | next token p99 ms |",
             "|---|--:|---|---|--:|--:|--:|--:|"]
    for row in found:
        lines.append(
            f"| {row['model']} | {row['layers']} | {row['mode']} | {row['experts']} | {row['size']} | "
            f"{row['tokens_per_second']:.0f} | {row['first_token_ms']['p99']:.1f} | {row['next_token_ms']['p99']:.2f} |")
    return lines


def summarize(rows: list[Row]) -> list[str]:
    """What a run prints last."""
    parts = [
        ("ms of the best built-in kernel / moec (ratio; above 1 moec is faster)", speed_lines(rows)),
        ("us of a layer's experts: base / moec by kernels / moec by the step", expert_lines(rows)),
        ("serving", serving_lines(rows)),
        ("jobs", other_lines(rows)),
    ]
    return [line for title, lines in parts if lines for line in ("", title, *lines)]
