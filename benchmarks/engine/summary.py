# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of records as tables: base beside moec."""

from __future__ import annotations

import functools
import re
import statistics
from typing import Any, Callable, Optional

Row = dict[str, Any]
#: A compared case: a model with its layers and mode.
Case = tuple[str, int, str]
BATCHES = (1, 8, 64, 256)
PREFILLS = (1024, 4096, 16384)
COLUMNS = [("decode", batch) for batch in BATCHES] + [("prefill", tokens) for tokens in PREFILLS]
HEADS = [f"{what} {size}" for what, size in COLUMNS]


def case_of(row: Row) -> Case:
    return row["model"], row["layers"], row["mode"]


def list_cases(rows: list[Row]) -> list[Case]:
    return list(dict.fromkeys(case_of(row) for row in rows))


def name_case(rows: list[Row], case: Case) -> str:
    """The first cells of a line."""
    row = next(row for row in rows if case_of(row) == case)
    return f"{row['published']} | {row['format']} | {case[1]} | {case[2]}"


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


def find_kernels(rows: list[Row], case: Case, experts: str, column: tuple[str, int]) -> Optional[Row]:
    found = [row for row in pick(rows, case, "kernels", experts) if (row["phase"], row["size"]) == column]
    return found[-1] if found else None


def find_busy_ms(rows: list[Row], case: Case, column: tuple[str, int]) -> Optional[tuple[float, float]]:
    """Time in which the GPU ran kernels, with vLLM's default and with moec."""
    base, ours = (find_kernels(rows, case, name, column) for name in ("base", "moec"))
    return (base["busy_us"] / 1e3, ours["busy_us"] / 1e3) if base and ours else None


def expert_times(rows: list[Row], case: Case, column: tuple[str, int]) -> Optional[tuple[float, float, float]]:
    """Microseconds of a layer's experts: of base's kernels, of moec's, and of moec by the GPU's time. Kernels of the
    experts are what one of the two has alone. moec's kernels start before those ahead of them end, so that their sum
    counts the wait as well; by the GPU's time, moec takes what base's kernels take and the difference of the two."""
    base, ours = (find_kernels(rows, case, name, column) for name in ("base", "moec"))
    layers = [row["moec_layers"] for row in pick(rows, case, "start", "moec")]
    if not base or not ours or not layers:
        return None
    theirs, own = join_kernels(base["kernels"]), join_kernels(ours["kernels"])
    base_us = sum(us for name, us in theirs.items() if name not in own) / layers[-1]
    our_us = sum(us for name, us in own.items() if name not in theirs) / layers[-1]
    return base_us, our_us, base_us + (ours["busy_us"] - base["busy_us"]) / layers[-1]


_HEAD = ("| model | format | layers | mode | ", "|---|---|--:|---|")
#: Columns of text; others have numbers.
_WORDS = ("experts", "layers run by", "outputs")


def make_table(heads: list[str], lines: list[str]) -> list[str]:
    """Empty if there are no lines."""
    marks = "".join("---|" if head in _WORDS else "--:|" for head in heads)
    return [f"{_HEAD[0]}{' | '.join(heads)} |", _HEAD[1] + marks, *lines] if lines else []


def format_cell(rows: list[Row], case: Case, column: tuple[str, int]) -> str:
    best, ours = find_best(rows, case, column), median_ms(rows, case, "moec", column)
    if not best and not ours:
        return ""
    ratio = find_ratio(rows, case, column)
    texts = [f"{best[0]:.2f}" if best else "-", f"{ours:.2f}" if ours else "-"]
    return " / ".join(texts) + (f" ({ratio:.2f})" if ratio else "")


def speed_lines(rows: list[Row], cell: Callable[[list[Row], Case, tuple[str, int]], str] = format_cell) -> list[str]:
    lines = []
    for case in list_cases(rows):
        cells = [cell(rows, case, column) for column in COLUMNS]
        if any(cells):
            lines.append(f"| {name_case(rows, case)} | {' | '.join(cells)} |")
    return make_table(HEADS, lines)


def expert_cell(rows: list[Row], case: Case, column: tuple[str, int]) -> str:
    times = expert_times(rows, case, column)
    return " / ".join(f"{each:.0f}" for each in times) if times else ""


def busy_cell(rows: list[Row], case: Case, column: tuple[str, int]) -> str:
    times = find_busy_ms(rows, case, column)
    return f"{times[0]:.2f} / {times[1]:.2f} ({times[0] / times[1]:.2f})" if times else ""


def give(value: Optional[float], digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def memory_lines(rows: list[Row]) -> list[str]:
    """For jobs that do not share the GPU."""
    lines = []
    for case in list_cases(rows):
        base, ours = ([row["kv_cache_gib"] for row in pick(rows, case, "memory", name) if "kv_cache_gib" in row]
                      for name in ("base", "moec"))
        if base and ours:
            lines.append(f"| {name_case(rows, case)} | {base[-1]:.2f} | {ours[-1]:.2f} | {ours[-1] - base[-1]:+.2f} |")
    return make_table(["base", "moec", "difference"], lines)


def job_lines(rows: list[Row]) -> list[str]:
    """One row per job: kernels, start, weights, outputs; and failures."""
    lines = []
    for case in list_cases(rows):
        for experts in [*list_built_in(rows, case), "moec"]:
            here = [row for row in rows if case_of(row) == case and row["experts"] == experts]
            if not here:
                continue
            last = {row["what"]: row for row in here}
            start, memory = last.get("start", {}), last.get("memory", {})
            kernels = ", ".join(f"{count} {name}" for name, count in start.get("kernels", {}).items())
            lines.append(
                f"| {name_case(rows, case)} | {experts} | {kernels or '-'} | {give(start.get('seconds'), 1)} | "
                f"{give(memory.get('model_gib'), 2)} | {'; '.join(describe_outputs(here))} |")
    return make_table(["experts", "layers run by", "start s", "model GiB", "outputs"], lines)


def choose_others(rows: list[Row]) -> list[Row]:
    """Differences from jobs of the same mode, or from all if there is none."""
    found = [row for row in rows if row["what"] == "log-probabilities"]
    return [row for row in found if f"-{row['mode']}:" in row["against"]] or found


def describe_outputs(rows: list[Row]) -> list[str]:
    texts, others = [], choose_others(rows)
    for row in rows:
        if row["what"] == "outputs":
            texts.append("same twice" if row["same_twice"] else "not the same twice")
            if row["not_finite"]:
                texts.append(f"{row['not_finite']} values not finite")
        elif row["what"] == "log-probabilities" and row in others:
            texts.append(f"mean {give(row['mean'], 4)}, max {give(row['max'], 2)} to {row['against']}")
        elif row["what"] in ("sleep", "reload"):
            texts.append(f"{row['what']}: {'the same' if row['is_same'] else 'DIFFERENT'}")
        elif row["what"] == "few tokens":
            texts.append(f"{min(row['new'])} to {max(row['new'])} tokens of a request: mean {give(row['mean'], 4)}, "
                         f"max {give(row['max'], 2)} to all tokens at once")
        elif row["what"] == "invariance":
            mode = "batch-invariant" if row["is_asked"] else "not batch-invariant"
            texts.append(f"{mode}, {row['size']} at once against 64: of {row['requests']} requests {row['other_tokens']} "
                         f"have other tokens, {row['other_logprobs']} other log-probabilities")
        elif row["what"] == "drafts":
            texts.append(f"{row['accepted_tokens']} of {row['draft_tokens']} drafted tokens accepted, {row['first']} of "
                         f"{row['tokens']} tokens first without drafts")
        elif row["what"] in ("failed", "time limit"):
            texts.append(f"{row['what'].upper()}: {row['error']}".replace("|", "/").replace("\n", " "))
    return texts


def serving_lines(rows: list[Row]) -> list[str]:
    passes: dict[tuple, list[Row]] = {}
    for row in rows:
        if row["what"] == "serving":
            passes.setdefault((case_of(row), row["size"], row["experts"]), []).append(row)
    lines = []
    for case, size, experts in sorted(passes, key=lambda each: list_cases(rows).index(each[0])):
        found = passes[case, size, experts]
        cells = [", ".join(cell) for cell in (
            [f"{row['tokens_per_second']:.0f}" for row in found],
            [f"{row['first_token_ms']['p99']:.1f}" for row in found],
            [f"{row['next_token_ms']['p99']:.2f}" for row in found],
        )]
        lines.append(f"| {name_case(rows, case)} | {experts} | {size} | {' | '.join(cells)} |")
    return make_table(["experts", "requests", "tokens/s", "first token p99 ms", "next token p99 ms"], lines)


#: Lines of a table; none if no row has its values.
Table = Callable[[list[Row]], list[str]]
#: By their headings.
TABLES: dict[str, Table] = {
    "Milliseconds of decode steps, by the number of requests, and of prefills, by the tokens of the prompt: the fastest "
    "of the engine's kernels that was measured / moec (ratio; above 1 moec is faster).": speed_lines,
    "Milliseconds in which the GPU ran kernels during these, from one run of PyTorch's profiler: default / moec "
    "(ratio).": functools.partial(speed_lines, cell=busy_cell),
    "GPU time of one layer's experts in microseconds: its default / moec by its kernels / moec by the GPU's time. "
    "The second counts waits of kernels that start early; the third is the first and the difference of the times above.":
        functools.partial(speed_lines, cell=expert_cell),
    "Serving: a number of requests at once, each of 512 tokens with 128 tokens of output; one value for each pass.":
        serving_lines,
    "GiB that vLLM finds for its KV cache.": memory_lines,
    "Jobs. Differences are those of log-probabilities of 1500 given tokens.": job_lines,
}


def make_tables(rows: list[Row], tables: Optional[dict[str, Table]] = None) -> list[str]:
    return [line for title, table in (tables or TABLES).items() if (lines := table(rows))
            for line in ("", title, "", *lines)]
