#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec on the CPU against NumPy (OpenBLAS) doing the same layer, all cores each.

NumPy gets its weights converted to f32 beforehand and loops over experts with gathered rows; moec
reads the bf16 weights. Both start from hidden states, experts and weights (the router is in neither
column). Runs of the two alternate; the table shows the best and the median of each.

    benchmarks/cpu_vs_numpy.py --model test/models/qwen3-30b-a3b.json --tokens 1 16 128
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from ml_dtypes import bfloat16
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent


def make_inputs(config: dict, tokens: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    experts, top_k = config["num_experts"], config["num_experts_per_tok"]
    hidden, inter = config["hidden_size"], config["moe_intermediate_size"]

    def weights(*shape: int) -> np.ndarray:
        out = np.empty(shape, bfloat16)
        for e in range(shape[0]):
            out[e] = (rng.standard_normal(shape[1:], np.float32) * shape[-1] ** -0.5).astype(bfloat16)
        return out

    ids = np.stack([rng.permutation(experts)[:top_k] for _ in range(tokens)]).astype(np.int32)
    scale = rng.random((tokens, top_k), np.float32) + 0.5
    return {
        "hidden_states": rng.standard_normal((tokens, hidden), np.float32).astype(bfloat16),
        "topk_ids": ids,
        "topk_weights": scale / scale.sum(1, keepdims=True),
        "experts.w13": weights(experts, 2 * inter, hidden),
        "experts.w2": weights(experts, hidden, inter),
    }


def numpy_layer(x, ids, weights, w13, w2):
    """The layer in f32, experts looped over their gathered rows."""
    out = np.zeros_like(x)
    inter = w2.shape[2]
    order = np.argsort(ids, axis=None, kind="stable")
    flat = ids.reshape(-1)[order]
    bounds = np.searchsorted(flat, np.arange(w13.shape[0] + 1))
    for e in np.unique(flat):
        slots = order[bounds[e] : bounds[e + 1]]
        rows = slots // ids.shape[1]
        both = x[rows] @ w13[e].T
        gate, up = both[:, :inter], both[:, inter:]
        y = (gate / (1 + np.exp(-gate)) * up) @ w2[e].T
        np.add.at(out, rows, y * weights.reshape(-1)[slots, None])
    return out


def time_numpy(args: tuple, repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        numpy_layer(*args)
        times.append(time.perf_counter() - begin)
    return times


def time_moec(options, model: str, inputs: str, tokens: int) -> tuple[float, float]:
    run = subprocess.run(
        [options.moe_run, model, "--entry=ids", f"--tokens={tokens}", f"--inputs={inputs}",
         f"--repeat={options.repeat}"],
        text=True, capture_output=True, check=True)
    best, median = re.search(r"best ([\d.]+) ms, median ([\d.]+) ms", run.stdout).groups()
    return float(best) / 1e3, float(median) / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(ROOT / "test/models/qwen3-30b-a3b.json"))
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="alternations of the two")
    parser.add_argument("--moe-run", default=str(ROOT / "build-release/bin/moe-run"))
    parser.add_argument("--json", help="where to record the result")
    options = parser.parse_args()

    config = json.loads(pathlib.Path(options.model).read_text())
    rows = []
    print(f"{'tokens':>6} {'moec best':>10} {'median':>8} {'NumPy best':>10} {'median':>8}   ratio")
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(7)
        tensors = make_inputs(config, max(options.tokens), rng)
        w13, w2 = (tensors[name].astype(np.float32) for name in ("experts.w13", "experts.w2"))
        for tokens in options.tokens:
            case = {name: value[:tokens] if name[:2] in ("hi", "to") else value
                    for name, value in tensors.items()}
            path = os.path.join(folder, "inputs.safetensors")
            save_file(case, path)
            args = (case["hidden_states"].astype(np.float32), case["topk_ids"],
                    case["topk_weights"], w13, w2)
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(time_moec(options, options.model, path, tokens))
                theirs += time_numpy(args, options.repeat)
            row = {
                "tokens": tokens,
                "moec_best_ms": min(best for best, _ in ours) * 1e3,
                "moec_median_ms": statistics.median(median for _, median in ours) * 1e3,
                "numpy_best_ms": min(theirs) * 1e3,
                "numpy_median_ms": statistics.median(theirs) * 1e3,
            }
            row["ratio"] = row["numpy_median_ms"] / row["moec_median_ms"]
            rows.append(row)
            print(f"{tokens:6} {row['moec_best_ms']:10.2f} {row['moec_median_ms']:8.2f} "
                  f"{row['numpy_best_ms']:10.2f} {row['numpy_median_ms']:8.2f}   {row['ratio']:.2f}x",
                  flush=True)
    if options.json:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True,
                                capture_output=True).stdout.strip()
        record = {
            "benchmark": "cpu_vs_numpy", "model": pathlib.Path(options.model).stem,
            "date": datetime.date.today().isoformat(), "commit": commit,
            "cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(),
            "numpy": np.__version__, "rows": rows,
        }
        pathlib.Path(options.json).write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
