# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranks that share one GPU, between which kernels move rows as they do between GPUs: are they right, what does moving
take beside copies of the same bytes, and what becomes of them when one fails?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from drills import GRACE, LAYER, LIMIT, START
from machine import Failed, last_lines
from parts import EXCHANGE, ITERATIONS, Part, check_meshes, meshes, time_exchange

RANKS = (2, 4)
TOKENS = (1, 8, 128, 1024, 4096)
#: With a concurrent shared expert copy engines move the rows, from 4 MB per rank on.
COPIED_TOKENS = (1024, 4096)
COPIED = EXCHANGE | {"name": "dsv3_rows_copied", "shared_experts": {"intermediate_size": 128}}
#: Limits on the time of an exchange of two ranks: microseconds above the copies up to a number of tokens, and a factor
#: from a number of tokens on.
MORE_US, FEW_TOKENS = 4.0, 128
RATIO, MANY_TOKENS = 1.25, 1024

#: Failures caused from outside.
MODES = ("kill", "stop")
#: Commands that keep ranks in a phase.
PHASES = {"init": (), "collective": (), "replay": ("--graph",)}
#: For a rank's own failures: a run is skipped among several, and another package is detected before the first.
OWN_CELLS = (("skip", "collective"), ("skip", "replay"), ("package", "init"))
#: Runs of ranks during which one fails, and runs that measure the time to get there.
FOREVER, FEW = 10**9, 4
#: Runs of which one is skipped.
SOME = 20
#: Seconds from the start of ranks to the failure in init, and an upper limit on the time until their runs.
EARLY, PAUSE = 0.2, 0.5


def check_shared_meshes(part: Part) -> Iterator[dict]:
    """Every mesh of two and of four ranks."""
    counts = {ranks: len(list(meshes(ranks))) for ranks in RANKS}
    for ranks, count in counts.items():
        yield from check_meshes(replace(part, ranks=ranks), -(-ITERATIONS * count // sum(counts.values())))


def is_within_target(row: dict, name: str) -> bool | None:
    """The target of dispatch or combine; None if there is none."""
    tokens, copy = row["tokens_per_rank"], row.get(f"peer_copy_{name}")
    if row["ranks"] != 2 or not copy or f"peer_{name}" not in row:
        return None
    us = row[f"peer_{name}"]["us"]
    if tokens <= FEW_TOKENS:
        return us <= copy["us"] + MORE_US
    return us <= copy["us"] * RATIO if tokens >= MANY_TOKENS else None


def time_shared_exchange(part: Part) -> Iterator[dict]:
    """Rows that kernels move, and rows that copy engines do, of two ranks."""
    for ranks, spec, tokens in ((2, EXCHANGE, TOKENS), (2, COPIED, COPIED_TOKENS), (4, EXCHANGE, TOKENS)):
        for row in time_exchange(replace(part, ranks=ranks), ("peer",), spec, tokens):
            row |= {"ranks_per_gpu": ranks, "rows_by": "kernel" if spec is EXCHANGE else "copies"}
            targets = {name: is_within_target(row, name) for name in ("dispatch", "combine")}
            if found := {name: met for name, met in targets.items() if met is not None}:
                row["within_target"] = found
            yield row


def read_state(pid: int) -> tuple[str, int]:
    """The state of a process, as /proc has it, and its parent; ended ones are zombies."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "Z", 0
    state, parent = text[text.rindex(")") + 2:].split()[:2]
    return state, int(parent)


def is_running(pid: int) -> bool:
    return read_state(pid)[0] != "Z"


def find_children(pid: int) -> list[int]:
    """In the order of ranks."""
    pids = sorted(int(folder.name) for folder in Path("/proc").glob("[0-9]*"))
    return [each for each in pids if is_running(each) and read_state(each)[1] == pid]


def wait_for_ranks(process: subprocess.Popen, ranks: int) -> list[int]:
    until = time.monotonic() + START
    while len(found := find_children(process.pid)) < ranks:
        if process.poll() is not None or time.monotonic() > until:
            raise Failed(f"{len(found)} of {ranks} ranks began")
        time.sleep(0.01)
    return found


def run_alone(part: Part) -> bytes:
    """Results of a one-rank layer on the GPU."""
    outputs = part.tools.scratch / "alone.safetensors"
    part.tools.moe_run(part.write(LAYER | {"max_tokens": 64}, None), "--tokens=16", f"--device={part.tools.device}",
                       f"--outputs={outputs}", until=part.until)
    return outputs.read_bytes()


def make_options(part: Part, phase: str) -> list[str]:
    """Ranks that are processes."""
    parallel = {"dp": part.ranks, "experts": "linear"}
    return [part.write(LAYER, parallel), "--tokens=16", f"--nproc={part.ranks}", f"--device={part.tools.device}",
            "--exchange=peer", f"--rank-limit={LIMIT:.0f}", *PHASES[phase]]


def time_start(part: Part) -> float:
    """Seconds until ranks whose kernels are compiled have run."""
    options = [*make_options(part, "replay"), f"--compare={FEW}"]
    part.tools.moe_run(*options, until=part.until)
    begin = time.monotonic()
    part.tools.moe_run(*options, until=part.until)
    return time.monotonic() - begin


def wait_for_ends(pids: list[int], until: float) -> bool:
    while time.monotonic() < until:
        if not any(is_running(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def judge(process: subprocess.Popen, pids: list[int], victim: int, struck: float) -> dict:
    """The outcomes of all ranks but one, whose process is ended after the others."""
    row = {"rank": 0, "ok": False}
    row["ended"] = wait_for_ends([pid for rank, pid in enumerate(pids) if rank != victim], struck + LIMIT + GRACE)
    row["hang"] = not row["ended"]
    row["seconds"] = round(time.monotonic() - struck, 2)
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGKILL)
    if row["hang"]:
        process.kill()
    output, _ = process.communicate()
    row["says"] = last_lines(output)
    told, _, errors = output.partition(f"rank {victim} was killed by signal 9 (Killed)")
    # The others must report errors that name the rank, and end normally.
    row["ok"] = row["ended"] and process.returncode == 1 and "was killed" not in told + errors and (
        f"rank {victim}" in errors)
    return row


def run_cell(part: Part, mode: str, phase: str, seconds: float, before: bytes) -> dict:
    """A failure `seconds` behind the begin of ranks, beside whom a layer alone had the bits `before`."""
    cell = {"ranks": part.ranks, "mode": mode, "phase": phase, "ok": False, "hangs": 0, "survivors": []}
    process = subprocess.Popen(
        [str(part.tools.binaries / "moe-run"), *make_options(part, phase), f"--compare={FOREVER}"],
        env=part.tools.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        pids = wait_for_ranks(process, part.ranks)
        time.sleep(seconds)
        if process.poll() is not None:
            raise Failed(f"ranks did not get to the phase: {last_lines(process.communicate()[0])}")
        victim = part.ranks - 1
        os.kill(pids[victim], signal.SIGKILL if mode == "kill" else signal.SIGSTOP)
        judged = judge(process, pids, victim, time.monotonic())
        judged["alive"] = run_alone(part) == before
        judged["ok"] = judged["ok"] and judged["alive"]
        cell.update(ok=judged["ok"], hangs=int(judged["hang"]), survivors=[judged])
    except Failed as error:
        cell["error"] = str(error)
    finally:
        process.kill()
        process.wait()
    return cell


def run_own_cell(part: Part, mode: str, phase: str, seconds: float, before: bytes) -> dict:
    """A failure caused by the rank itself; ranks without one take `seconds`."""
    cell = {"ranks": part.ranks, "mode": mode, "phase": phase, "ok": False, "hangs": 0, "survivors": []}
    victim = part.ranks - 1
    begin = time.monotonic()
    row = {"rank": 0, "ended": True, "hang": False, "says": ""}
    try:
        done = subprocess.run(
            [str(part.tools.binaries / "moe-run"), *make_options(part, phase), f"--compare={SOME}",
             f"--drill={victim}:{mode}"],
            env=part.tools.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=seconds + LIMIT + GRACE)
        row["says"] = last_lines(done.stdout)
        row["ok"] = done.returncode == 1 and re.search(rf"rank 0: .*rank {victim}", done.stdout) is not None
    except subprocess.TimeoutExpired:
        row |= {"ended": False, "hang": True, "ok": False}
    row["seconds"] = round(max(0.0, time.monotonic() - begin - seconds), 2)
    row["alive"] = run_alone(part) == before
    row["ok"] = row["ok"] and row["alive"]
    return cell | {"ok": row["ok"], "hangs": int(row["hang"]), "survivors": [row]}


def run_shared_drills(part: Part) -> Iterator[dict]:
    part = replace(part, ranks=RANKS[0])
    before = run_alone(part)
    seconds = time_start(part) + PAUSE
    for mode in MODES:
        for phase in PHASES:
            yield run_cell(part, mode, phase, EARLY if phase == "init" else seconds, before)
    for mode, phase in OWN_CELLS:
        yield run_own_cell(part, mode, phase, seconds, before)
