#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec beside today's public kernels on one GPU, in one run: layers of asked.json and rows.json from ids and weights.

    benchmarks/peers.py --json=OUT.json --warm=8                 all rows of asked.json
    benchmarks/peers.py --rows='qwen35*:1,64;llada' --seconds=540 --json=OUT.json --resume
    benchmarks/peers.py --table=rows.json --peers=marlin,humming
    benchmarks/peers.py --list

Peers are the kernels that vLLM has for a format under the names of its --moe-backend, each made by vLLM's own
construction of a layer: Triton, DeepGEMM, CUTLASS, Marlin and Humming. Weights are drawn once for a layer and given to
all kernels. A row has 8 sets (4 from 4096 tokens on, 2 from 16,384 on) of hidden states and routing; a CUDA graph of a
kernel runs each once. Rows of its results are compared with float64 before it is timed. Kernels then take turns in an
order that changes each round; a time is the median of rounds, for one call.

A kernel that cannot be imported or made, refuses a row or is wrong is named in the record with the reason. The exit
code is 0 if all rows are in the record, and 2 if --seconds left some for another run with --resume, which are named.
If a kernel breaks the CUDA context, the exit code is 3; with --resume its layer is gone on with without that kernel.

Needs PyTorch, the moec package and, for peers, vLLM 0.33; DeepGEMM also needs nvcc. --device=cpu runs moec alone, for
tests of this program."""

from __future__ import annotations

import argparse
import datetime
import gc
import math
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Sequence

import torch

import peer_kernels
import peer_weights
import yardstick
from peer_rows import (
    PEERS, Layer, Record, Row, choose_rows, count_sets, find_best, print_row, read_rows, summarize,
)

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Weights of a layer that --warm compiles for.
WARM_BYTES = 2e9
#: Least time of an observation.
OBSERVED_US = 5000.0


class DeviceLost(Exception):
    """No kernel can run in this process any more, since this one broke the CUDA context."""

    def __init__(self, kernel: str, reason: str) -> None:
        super().__init__(f"{kernel}: {reason}")
        self.kernel, self.reason = kernel, reason


class Timer:
    """Replays of a graph of some calls; on the CPU, of the calls."""

    def __init__(self, calls: Sequence[Callable[[], Any]], is_gpu: bool) -> None:
        self.calls, self.is_gpu, self.graph = calls, is_gpu, None
        self.outputs = [call() for call in calls]
        if is_gpu:
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.outputs = [call() for call in calls]
        self.replay()

    def replay(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            self.outputs = [call() for call in self.calls]

    def observe(self, replays: int) -> float:
        """Microseconds of a call."""
        if self.is_gpu:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(replays):
                self.replay()
            end.record()
            end.synchronize()
            us = begin.elapsed_time(end) * 1e3
        else:
            start = time.perf_counter()
            for _ in range(replays):
                self.replay()
            us = (time.perf_counter() - start) * 1e6
        return us / (replays * len(self.calls))


def explain(error: Exception) -> str:
    """One line of an exception."""
    lines = str(error).strip().splitlines() or [""]
    name = "" if isinstance(error, peer_kernels.Refused) else f"{type(error).__name__}: "
    return f"{name}{lines[0]}"[:300]


def check_device(device: torch.device, name: str, error: Exception) -> None:
    """Raises DeviceLost if the CUDA context did not survive an exception."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
            gc.collect()
            torch.cuda.empty_cache()
        except Exception:
            raise DeviceLost(name, explain(error)) from error


class LayerRun:
    """The weights of a layer, and its kernels."""

    def __init__(
        self, layer: Layer, peers: list[str], device: torch.device, tokens: int, lost: dict[str, str] | None = None
    ) -> None:
        self.layer, self.device = layer, device
        self.weights = peer_weights.Weights(layer, device)
        self.kernels: dict[str, peer_kernels.Kernel] = {}
        #: Kernels that take no row of the layer, with the reasons.
        self.refused = dict(lost or {})
        for name in ["moec", *(name for name in PEERS[layer.format] if name in peers)]:
            if name in self.refused:
                continue
            try:
                if name == "moec":
                    self.kernels[name] = peer_kernels.MoecKernel(self.weights, tokens)
                else:
                    peer_kernels.start_vllm(device)
                    self.kernels[name] = peer_kernels.VllmKernel(self.weights, name)
            except Exception as error:
                self.refused[name] = explain(error)
                check_device(device, name, error)

    def _start(self, calls: list[peer_weights.Call], row: dict[str, Any]) -> dict[str, Timer]:
        """Timers of the kernels that are right."""
        index, some = peer_weights.choose_checked(self.weights, calls)
        wanted = peer_weights.compute(self.weights, calls[index], some)
        bound, timers, ready = self.weights.format.bound, {}, []
        for name, kernel in self.kernels.items():
            try:
                if table := kernel.describe(calls[0]):
                    row["tables"][name] = table
                # Memory that vLLM's kernels share grows here, and not after a capture.
                for call in calls:
                    kernel.run(call)
                if self.device.type == "cuda":
                    torch.cuda.synchronize()
                ready.append(name)
            except Exception as error:
                row["refused"][name] = explain(error)
                check_device(self.device, name, error)
        for name in ready:
            try:
                run = self.kernels[name].run
                timer = Timer([lambda run=run, call=call: run(call) for call in calls], self.device.type == "cuda")
                error = peer_weights.find_error(timer.outputs[index][some], wanted)
                if not error < bound:
                    row["refused"][name] = f"wrong: error {error:.1e}, less than {bound:.0e} expected"
                    continue
                row["error"][name], timers[name] = error, timer
            except Exception as error:
                row["refused"][name] = explain(error)
                check_device(self.device, name, error)
        return timers

    def measure(self, tokens: int, rounds: int) -> dict[str, Any]:
        calls = peer_weights.draw_calls(self.layer, tokens, count_sets(tokens), self.device)
        touched = statistics.mean(call.count_touched(self.layer) for call in calls)
        row: dict[str, Any] = {
            "layer": self.layer.name, "tokens": tokens, "format": self.layer.format, "experts_touched": touched,
            "bytes": touched * self.weights.bytes_of_expert + 4 * tokens * self.layer.hidden,
            "operations": 6 * self.layer.hidden * self.layer.columns * statistics.mean(
                call.count_rows(self.layer) for call in calls),
            "cold_bytes": peer_weights.count_cold_bytes(self.weights, calls),
            "kernels": {name: kernel.what for name, kernel in self.kernels.items()}, "us": {}, "spread": {},
            "error": {}, "tables": {}, "refused": dict(self.refused),
        }
        timers = self._start(calls, row)
        replays = {name: max(1, math.ceil(OBSERVED_US / len(calls) / max(timer.observe(1), 0.1)))
                   for name, timer in timers.items()}
        seen: dict[str, list[float]] = {name: [] for name in timers}
        names = list(timers)
        for number in range(rounds):
            shift = number % max(1, len(names))
            order = names[shift:] + names[:shift]
            for name in order if number % 2 == 0 else reversed(order):
                seen[name].append(timers[name].observe(replays[name]))
        row["us"] = {name: statistics.median(each) for name, each in seen.items()}
        row["spread"] = {name: [min(each), max(each)] for name, each in seen.items()}
        if (best := find_best(row["us"])) and "moec" in row["us"]:
            row |= {"best": best, "ratio": row["us"][best] / row["us"]["moec"]}
        return row


def warm(options: argparse.Namespace, rows: list[Row]) -> None:
    """Fills the caches of the kernels' compilers on disk by processes that share the GPU, of layers whose weights leave
    room for that. Their times and failures are not looked at."""
    layers = list(dict.fromkeys(row.layer for row in rows if row.layer.weight_bytes < WARM_BYTES))
    children = []
    for number in range(options.warm):
        own = ";".join(row.name for row in rows if row.layer in layers[number::options.warm])
        if own:
            children.append(subprocess.Popen(
                [sys.executable, __file__, f"--rows={own}", f"--table={options.table}", f"--device={options.device}",
                 f"--peers={','.join(options.peers)}", "--rounds=1", f"--seconds={options.seconds / 2}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    for child in children:
        child.wait()


def find_floor(row: dict[str, Any], ceilings: dict[str, float]) -> float:
    """Microseconds for the bytes or the operations of a call, whichever are more."""
    is_fp8 = bool(peer_weights.FORMATS[row["format"]].activation)
    rate = ceilings.get("fp8" if is_fp8 else "bf16", ceilings["bf16"])
    return max(row["bytes"] / ceilings["bandwidth"], row["operations"] / rate) * 1e6


def make_failed(row: Row, reason: str) -> dict[str, Any]:
    """A row that no kernel has run."""
    return {"layer": row.layer.name, "tokens": row.tokens, "format": row.layer.format, "us": {},
            "refused": {"all": reason}}


def find_commit() -> str:
    try:
        done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], text=True, capture_output=True)
    except OSError:
        return ""
    return done.stdout.strip()


def make_head(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    try:
        vllm = peer_kernels.start_vllm(device) if options.peers else ""
    except Exception as error:
        # Each row says so too.
        print(f"vLLM does not start: {explain(error)}", file=sys.stderr)
        vllm = ""
    triton = sys.modules.get("triton")
    return {
        "benchmark": "peers", "commit": options.commit or find_commit(), "table": options.table.name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "torch": torch.__version__, "vllm": vllm, "triton": getattr(triton, "__version__", ""),
        "rounds": options.rounds,
        "ceilings": yardstick.ceilings({}) if device.type == "cuda" else {},
    }


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[Row]]:
    parser = argparse.ArgumentParser(
        prog="peers.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", metavar="NAME[:TOKENS,...];...", help="with patterns as names")
    parser.add_argument("--table", type=pathlib.Path, default=pathlib.Path("asked.json"),
                        help="a file of benchmarks/, or a path")
    every = sorted({name for names in PEERS.values() for name in names})
    parser.add_argument("--peers", default=",".join(every), help="(default: %(default)s); '' for moec alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no row begins after these")
    parser.add_argument("--warm", type=int, default=0, metavar="N", help="compile for small layers by N processes before")
    parser.add_argument("--json", type=pathlib.Path, help="the record, written anew behind each row")
    parser.add_argument("--resume", action="store_true", help="leave out the rows that are in the record")
    parser.add_argument("--list", action="store_true", help="print the rows and the peers of each, and end")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--commit", default="", help="recorded with the result (default: the folder's)")
    options = parser.parse_args(arguments)
    options.peers = [name for name in options.peers.split(",") if name]
    if unknown := sorted(set(options.peers) - set(every)):
        parser.error(f"--peers: '{unknown[0]}' found; there are {', '.join(every)}")
    if options.rounds < 1:
        parser.error(f"--rounds: at least 1 expected, {options.rounds} found")
    if not options.table.exists():
        options.table = ROOT / "benchmarks" / options.table
    try:
        rows, others = read_rows(options.table)
        rows = choose_rows(rows, options.rows)
    except (OSError, ValueError) as error:
        parser.error(f"--rows, --table: {error}")
    if options.list:
        for row in rows:
            print(f"{row.name:32} {row.layer.format:14} {' '.join(PEERS[row.layer.format])}")
        if others:
            print(f"without peers: {', '.join(others)}")
        parser.exit()
    return options, rows


def main(arguments: list[str]) -> int:
    start = time.monotonic()
    options, rows = parse(arguments)
    device = torch.device(options.device)
    try:
        record = Record(options.json, make_head(options, device), options.resume)
    except ValueError as error:
        print(f"--resume: {error}", file=sys.stderr)
        return 1
    left = [row for row in rows if row.name not in record.done]
    if options.warm:
        warm(options, left)
        print(f"{time.monotonic() - start:6.1f} s  compiled", flush=True)
    # Collections ahead of captures need not look at what was imported.
    gc.freeze()
    longest, run, measured = 0.0, None, []
    while left:
        row, begin = left[0], time.monotonic()
        if begin - start + longest > options.seconds:
            break
        try:
            if run is None or run.layer != row.layer:
                run = None
                gc.collect()
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                run = LayerRun(row.layer, options.peers, device,
                               max(each.tokens for each in left if each.layer == row.layer), record.find_lost(row.layer))
            found = run.measure(row.tokens, options.rounds)
        except DeviceLost as error:
            record.lose(row.layer, error.kernel, error.reason)
            print(f"{row.name}: the device is lost: {error}; run again with --resume", flush=True)
            return 3
        except Exception as error:
            found = make_failed(row, explain(error))
            check_device(device, "all", error)
        found["seconds"] = time.monotonic() - begin
        if "bytes" in found and (ceilings := record.document["ceilings"]):
            found["floor_us"] = find_floor(found, ceilings)
        record.add(found)
        measured.append(found)
        left.pop(0)
        longest = max(longest, found["seconds"])
        print(f"{time.monotonic() - start:6.1f} s  {print_row(found)}", flush=True)
    print("\n".join(summarize(measured)))
    if left:
        print(f"left: {';'.join(row.name for row in left)}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
