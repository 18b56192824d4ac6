# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Failures of one rank, and the reactions of the others: processes, one per GPU, that NCCL connects."""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from machine import Tools, last_lines
from parts import SPEC

#: Seconds that ranks wait for each other, and the additional time in which they must report.
LIMIT, GRACE = 3.0, 5.0
#: Seconds for programs to start and layers to be compiled, and for a rank to end after its error.
START, END = 60.0, 15.0
MODES = ("kill", "stop", "skip", "package")
PHASES = ("init", "compute", "collective", "replay")
#: The program of a rank.
RANK = Path(__file__).with_name("drill_rank.py")
#: Time that the victim spends in its phase before it is killed or stopped.
PAUSE = 0.4

LAYER = SPEC | {
    "name": "drill", "hidden_size": 512, "num_experts": 16, "top_k": 4, "intermediate_size": 512, "max_tokens": 4096,
    "routing": {"score": "softmax", "renormalize": True},
}


def cells() -> list[tuple[str, str]]:
    """A rank with another package is detected before the first call."""
    return [(mode, phase) for mode in MODES for phase in PHASES if mode != "package" or phase == "init"]


def find_shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("nccl*")}


@dataclass
class Process:
    """A rank and its output."""

    rank: int
    popen: subprocess.Popen
    events: queue.Queue = field(default_factory=queue.Queue)
    log: list[str] = field(default_factory=list)

    def read(self) -> None:
        for line in self.popen.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                self.log.append(line)
                continue
            event["time"] = time.monotonic()
            self.events.put(event)
        self.events.put({"event": "gone", "time": time.monotonic()})

    def wait_for(self, names: tuple[str, ...], until: float) -> dict:
        """The first event with one of these names; None in `event` after a timeout."""
        while True:
            try:
                event = self.events.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                return {"event": None, "time": time.monotonic()}
            if event["event"] in names or event["event"] == "gone":
                return event

    def tell(self) -> None:
        try:
            self.popen.stdin.write("go\n")
            self.popen.stdin.flush()
        except OSError:
            pass

    def end(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()


def start(tools: Tools, folder: Path, ranks: int, victim: int, mode: str, phase: str) -> list[Process]:
    token = secrets.token_hex(8)
    per_rank = LAYER["num_experts"] // ranks
    processes = []
    for rank in range(ranks):
        order = {
            "rank": rank, "ranks": ranks, "victim": victim, "mode": mode, "phase": phase, "limit": LIMIT, "device": f"cuda:{rank}",
            "own_spec": LAYER | {"max_tokens": 64}, "spec": LAYER | {"parallel": {"dp": ranks, "experts": "linear"}},
            "placement.local_ids": [e - rank * per_rank if e // per_rank == rank else -1 for e in range(LAYER["num_experts"])],
            "placement.destinations": [e // per_rank for e in range(LAYER["num_experts"])],
        }
        environment = tools.environment() | tools.rank_environment(rank, ranks, token, folder)
        popen = subprocess.Popen(
            [sys.executable, str(RANK), json.dumps(order)], env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        processes.append(Process(rank, popen))
        threading.Thread(target=processes[-1].read, daemon=True).start()
    return processes


def strike(processes: list[Process], victim: Process, mode: str, phase: str) -> float:
    """Causes the failure; returns its time."""
    time.sleep(PAUSE)
    if mode in ("kill", "stop"):
        os.kill(victim.popen.pid, signal.SIGKILL if mode == "kill" else signal.SIGSTOP)
    struck = time.monotonic()
    # Ranks that wait for a line: all at the start of init, the others at that of a collective. A rank that skips a call
    # gets the first line but never the second.
    for process in processes:
        if phase == "init" or (phase == "collective" and (process is not victim or mode == "skip")):
            if process is not victim or mode in ("skip", "package"):
                process.tell()
    return struck


def judge(process: Process, struck: float) -> dict:
    """Behaviour of a rank without a failure."""
    row = {"rank": process.rank, "ok": False, "hang": False}
    error = process.wait_for(("error", "no error"), struck + LIMIT + GRACE)
    row["seconds"] = round(error["time"] - struck, 2)
    row["says"] = error.get("text", last_lines("".join(process.log)) or str(error["event"]))
    row["hang"] = error["event"] is None
    if error["event"] != "error":
        return row
    alive = process.wait_for(("alive",), time.monotonic() + END)
    ended = process.wait_for(("gone",), time.monotonic() + END) if alive["event"] == "alive" else alive
    row["hang"] = None in (alive["event"], ended["event"])
    row["alive"] = alive.get("same", False) is True
    row["ended"] = ended["event"] == "gone" and process.popen.wait(END) == 0
    row["ok"] = row["alive"] and row["ended"]
    return row


def run_cell(tools: Tools, ranks: int, mode: str, phase: str) -> dict:
    folder = tools.scratch / f"meet_{mode}_{phase}_{ranks}"
    folder.mkdir(mode=0o700)
    cell = {"ranks": ranks, "mode": mode, "phase": phase, "ok": False, "hangs": 0, "survivors": []}
    shared = find_shared_memory()
    processes = start(tools, folder, ranks, ranks - 1, mode, phase)
    victim = processes[-1]
    try:
        begun = time.monotonic() + START
        for process in processes:
            event = process.wait_for(("at", "error"), begun)
            if event["event"] != "at":
                cell["error"] = (f"rank {process.rank} did not get to the phase: "
                                 f"{event.get('text') or last_lines(''.join(process.log)) or event['event']}")
                return cell
        struck = strike(processes, victim, mode, phase)
        judged = processes if mode == "package" else processes[:-1]
        cell["survivors"] = [judge(process, struck) for process in judged]
        cell["hangs"] = sum(row["hang"] for row in cell["survivors"])
        cell["ok"] = all(row["ok"] for row in cell["survivors"])
        return cell
    finally:
        for process in processes:
            process.end()
        cell["shared_memory_left"] = len(find_shared_memory() - shared)


def run_drills(tools: Tools, ranks: int, until: float) -> Iterator[dict]:
    for mode, phase in cells():
        if time.monotonic() + LIMIT + GRACE > until:
            yield {"ranks": ranks, "mode": mode, "phase": phase, "ok": False, "hangs": 0, "survivors": [],
                   "error": "not begun: the part's time is over"}
        else:
            yield run_cell(tools, ranks, mode, phase)
