#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers on a GPU against the floor, replayed as a CUDA graph.

The floor of a row is max(operations / matrix rate, bytes / bandwidth). Rate and bandwidth are
measured with PyTorch in the same run: a bf16 product of 8192^3 and a sum over 8 GiB (bytes read).
Bytes are the weights of the experts that random routing reaches on average. Runs start from hidden
states, expert ids and weights. Weights stay where they are between runs, so that a layer smaller
than the second-level cache may be read from there: such rows are marked.

    benchmarks/gpu_layer.py --models qwen3-30b-a3b mixtral-8x7b --tokens 1 64 1024 4096
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE_BYTES = 60 << 20


def measure_ceilings() -> tuple[str, float, float]:
    """Name of the device, bytes read per second, bf16 operations per second."""
    import torch

    def seconds(work, repeat: int) -> float:
        work()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for _ in range(repeat):
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return min(times)

    data = torch.ones(8 << 28, dtype=torch.float32, device="cuda")
    bandwidth = data.numel() * 4 / seconds(data.sum, 10)
    del data
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * n**3 / seconds(lambda: a @ b.T, 20)
    return torch.cuda.get_device_name(), bandwidth, rate


def sizes(config: dict) -> tuple[int, int, int, int]:
    """Experts, k, elements of an expert, hidden size."""
    config = config | config.get("text_config", {})
    first = lambda *names: next(config[name] for name in names if name in config)  # noqa: E731
    experts = first("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    top_k = first("num_experts_per_tok", "moe_k")
    inter = first("moe_intermediate_size", "intermediate_size")
    hidden = config["hidden_size"]
    products = 2 if config.get("mlp_hidden_act") == "relu2" else 3
    return experts, top_k, products * inter * hidden, hidden


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=["qwen3-30b-a3b", "mixtral-8x7b"])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 64, 1024, 4096])
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--moe-run", default=str(ROOT / "build-release/bin/moe-run"))
    parser.add_argument("--model-dir", default=str(ROOT / "test/models"))
    parser.add_argument("--commit", default="", help="recorded with the result")
    parser.add_argument("--json", help="where to record the result")
    options = parser.parse_args()

    device, bandwidth, rate = measure_ceilings()
    print(f"{device}: reads {bandwidth / 1e12:.2f} TB/s, bf16 {rate / 1e12:.0f} TFLOP/s")
    print(f"{'model':24} {'tokens':>6} {'median us':>10} {'floor us':>9} {'of floor':>8}")
    rows = []
    for model in options.models:
        path = pathlib.Path(options.model_dir) / f"{model}.json"
        experts, top_k, elements, hidden = sizes(json.loads(path.read_text()))
        for tokens in options.tokens:
            run = subprocess.run(
                [options.moe_run, path, "--entry=ids", "--device=cuda", "--graph",
                 f"--tokens={tokens}", f"--repeat={options.repeat}"],
                text=True, capture_output=True)
            if run.returncode:
                print(f"{model:24} {tokens:6} {run.stderr.strip().splitlines()[-1]}")
                continue
            best, median = (float(x) * 1e3 for x in
                            re.search(r"best ([\d.]+) ms, median ([\d.]+) ms", run.stdout).groups())
            active = experts * (1 - (1 - top_k / experts) ** tokens)
            weight_bytes = active * elements * 2
            floor = max(2 * elements * tokens * top_k / rate,
                        (weight_bytes + 4 * tokens * hidden) / bandwidth) * 1e6
            cached = weight_bytes < CACHE_BYTES
            rows.append({"model": model, "tokens": tokens, "best_us": best, "median_us": median,
                         "floor_us": floor, "fraction": floor / median, "in_cache": cached})
            print(f"{model:24} {tokens:6} {median:10.1f} {floor:9.1f} {floor / median:8.3f}"
                  f"{'  (weights may stay in L2)' if cached else ''}", flush=True)
    if options.json:
        record = {"benchmark": "gpu_layer", "device": device, "commit": options.commit,
                  "date": datetime.date.today().isoformat(), "bandwidth": bandwidth,
                  "bf16_rate": rate, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
