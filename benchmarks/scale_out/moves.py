# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts that move between ranks while a layer runs: processes, one per GPU, that NCCL connects."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from pathlib import Path

from machine import Failed, last_lines
from parts import SPEC, Part

RANK = Path(__file__).with_name("move_rank.py")
#: Seconds that ranks wait for each other; each compiles its own layer.
LIMIT = 60.0
TOKENS, RUNS, TINY_RUNS = 32, 200, 10


def make_order(part: Part) -> dict:
    each = 16 // part.ranks + 2
    spec = SPEC | {
        "name": "moves", "entry": "ids", "hidden_size": 512, "num_experts": 16, "top_k": 1, "intermediate_size": 512,
        "routing": {}, "quantization": "fp8_block128", "record_load": True, "max_tokens": 64,
        "parallel": {"dp": part.ranks, "experts": "linear"},
        "replicas": {"num_physical_experts": each * part.ranks, "max_replicas": min(4, each * part.ranks - 15)},
    }
    return {"ranks": part.ranks, "spec": spec, "tokens": TOKENS, "runs": TINY_RUNS if part.tiny else RUNS,
            "limit": LIMIT}


def start(part: Part) -> list[subprocess.Popen]:
    """A process for each rank if each has a GPU, else one for all."""
    tools, order = part.tools, make_order(part)
    if tools.device != "cuda":
        orders = [(order | {"device": "cuda:0" if tools.device == "cuda:0" else "cpu"}, {})]
    else:
        folder = tools.scratch / f"moves_{part.engine}"
        folder.mkdir(mode=0o700)
        token = secrets.token_hex(8)
        orders = [(order | {"rank": rank, "device": f"cuda:{rank}"},
                   tools.rank_environment(rank, part.ranks, token, folder) | {"MOERT_EXCHANGE": part.engine})
                  for rank in range(part.ranks)]
    return [subprocess.Popen([sys.executable, str(RANK), json.dumps(each)], env=tools.environment() | environment,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for each, environment in orders]


def read_findings(processes: list[subprocess.Popen], until: float) -> tuple[list[dict], str]:
    """Results of the ranks, and their other output."""
    found, rest = [], []
    try:
        for process in processes:
            try:
                output, _ = process.communicate(timeout=max(until - time.monotonic(), 0.001))
            except subprocess.TimeoutExpired:
                raise Failed("not done when the part's time was over, and killed") from None
            for line in output.splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    rest.append(line)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found, last_lines("\n".join(rest))


def check_moves(part: Part) -> dict:
    """The layer under one map, between the steps of a move, and under another map: equal bits."""
    begin = time.monotonic()
    order = make_order(part)
    row = {"ranks": part.ranks, "engine": part.engine, "feature": "experts that move",
           "mesh": f"dp {part.ranks}, linear", "format": "fp8_block128", "runs": order["runs"], "ok": False}
    try:
        if begin >= part.until:
            raise Failed("not begun: the part's time is over")
        found, rest = read_findings(start(part), part.until)
        row["errors"] = [each["error_of_output"] for each in found if each["ok"]]
        wrong = [each["error"] for each in found if not each["ok"]]
        if wrong or len(row["errors"]) != part.ranks:
            raise Failed(wrong[0] if wrong else rest or f"{len(row['errors'])} of {part.ranks} ranks were right")
        if not all(each["replaced"] > 0 for each in found):
            raise Failed("the map is what it was")
        row["ok"] = True
    except Failed as error:
        row["error"] = str(error)
    row["seconds"] = round(time.monotonic() - begin, 1)
    return row
