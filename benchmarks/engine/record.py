# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The file of one run: a head, and a row for each result, written as soon as it is known. Log-probabilities stand in a
file beside it, since only their differences belong into a record."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import statistics
from pathlib import Path
from typing import Any, Iterator, Optional

Row = dict[str, Any]
#: Fields of the head that all rows of a file share.
SHARED = ("engine", "commit", "device", "torch")


def describe_times(seconds: list[float]) -> Row:
    ms = [round(each * 1e3, 4) for each in seconds]
    return {"ms": statistics.median(ms), "spread_ms": [min(ms), max(ms)], "all_ms": ms}


def join_times(spans: list[tuple[float, float]]) -> float:
    """The time during which at least one of the spans lasted."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def compare_log_probabilities(values: list[float], others: list[float]) -> Row:
    """Raises ValueError for lists of other prompts."""
    if len(values) != len(others) or not values:
        raise ValueError(f"{len(values)} log-probabilities beside {len(others)}")
    differences = [abs(a - b) for a, b in zip(values, others)]
    finite = [each for each in differences if math.isfinite(each)]
    return {
        "tokens": len(values), "not_finite": len(differences) - len(finite),
        "mean": round(statistics.fmean(finite), 6) if finite else None, "max": round(max(finite, default=0), 6),
    }


class Record:
    def __init__(self, path: Path, head: Row) -> None:
        """Continues an existing file. Raises ValueError if its rows have another origin."""
        self.path, self.head, self.rows = path, head, []
        if path.exists():
            there = json.loads(path.read_text())
            for field in SHARED:
                if there.get(field) != head[field]:
                    raise ValueError(
                        f"{path} has rows of {field} '{there.get(field)}', and this run is of '{head[field]}'; "
                        "name another file")
            self.rows = there["rows"]
        self._log_probabilities = path.with_name(path.name + ".logprobs")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Processes of a group add to one file."""
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def add(self, **row: Any) -> None:
        """A reader sees the file before or after the write, even if the process is killed."""
        with self._alone():
            self.reload()
            self.rows.append(row)
            new = self.path.with_name(self.path.name + ".new")
            rows = ",\n  ".join(json.dumps(each) for each in self.rows)
            head = json.dumps(self.head, indent=1)[:-2]
            new.write_text(f'{head},\n "rows": [\n  {rows}\n ]\n}}\n')
            os.replace(new, self.path)

    def reload(self) -> None:
        """Rows that another process added."""
        if self.path.exists():
            self.rows = json.loads(self.path.read_text())["rows"]

    def compare(self, job: str, model: str, layers: Optional[int], values: list[float]) -> list[Row]:
        """Compares with all jobs of the same weights in the file, then adds these."""
        others = []
        if self._log_probabilities.exists():
            others = [json.loads(line) for line in self._log_probabilities.read_text().splitlines()]
        found = [
            {"against": other["job"], **compare_log_probabilities(values, other["values"])}
            for other in others if (other["model"], other["layers"]) == (model, layers)
        ]
        with self._log_probabilities.open("a") as file:
            file.write(json.dumps({"job": job, "model": model, "layers": layers, "values": values}) + "\n")
        return found
