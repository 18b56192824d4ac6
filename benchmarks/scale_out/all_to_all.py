# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows that go to their destination ranks alone by NCCL's messages, beside all rows to all:
what dispatch and combine take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from machine import Failed
from parts import EXCHANGE, Part, time_at

TOKENS = (128, 512, 2048, 4096)
#: Rows of DeepSeek-V3, nearly each with an expert on each of few ranks, and such rows with one expert each.
ROWS = {
    "dsv3_rows": EXCHANGE,
    "one_expert": EXCHANGE | {"name": "one_expert", "top_k": 1, "routing": {"score": "softmax"}},
}


def share_of(spec: dict, ranks: int) -> float:
    """Share of a rank's rows with an expert on a given rank, if experts are equally likely."""
    share = 1.0
    for taken in range(spec["top_k"]):
        experts = spec["num_experts"]
        share *= (experts - experts // ranks - taken) / (experts - taken)
    return 1 - share


def ways(spec: dict, ranks: int) -> dict[str, dict]:
    """Exchanges by name: all rows to all, exact sizes, blocks with a capacity; in graphs if possible."""
    capacity = min(1.0, share_of(spec, ranks) + 0.25)
    return {
        "all rows, graph": {"engine": "nccl"},
        "exact": {"engine": "all-to-all", "graph": False},
        "padded, graph": {"engine": "all-to-all", "extra": (f"--all-to-all-capacity={capacity:.3f}",)},
    }


def time_all_to_all(part: Part) -> Iterator[dict]:
    tokens = TOKENS if not part.tiny else (1, 8)
    for name, spec in ROWS.items():
        for way, how in ways(spec, part.ranks).items():
            rows = [{"layer": name, "ranks": part.ranks, "rows_by": way, "tokens_per_rank": count} for count in tokens]
            try:
                times = time_at(replace(part, **how), spec, {"dp": part.ranks, "experts": "linear"}, tokens,
                                100 if not part.tiny else 5)
                for row in rows:
                    row.update({each: times[row["tokens_per_rank"], each] for each in ("dispatch", "combine")})
            except Failed as error:
                for row in rows:
                    row["error"] = str(error)
            yield from rows
