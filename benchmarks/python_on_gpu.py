# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All that the Python package has to show on a GPU, in one run and one record.

    python benchmarks/python_on_gpu.py --output=FOLDER [--device=cuda:0] [--commit=HASH]
        [--steps=tests,overhead,forwards,serve,report] [--seconds=570] [--quick]

Needs PyTorch, Transformers, pytest and moec (installed, or this tree with MOEC_LIBRARY_DIR). By step:

- `tests`: the tests of moec.torch and moec.transformers that have a GPU: seven families of models, their
  logits and 64 tokens of greedy decoding against eager; CUDA graphs; streams; mxfp4 of gpt-oss; several streams,
  threads and graphs of one layer, and weights that are written to;
- `overhead`: call_overhead.py for the entries "ids" and "gate";
- `forwards`: transformers_forward.py at 1, 64 and 4096 tokens, of each family's block with the sizes of a real
  model, and of the first one as CUDA graphs too;
- `serve`: examples/serve.py with a whole model, and its trace (serve_trace.json);
- `report`: a layer's page (layer.html) with measured times beside those that are expected.

FOLDER gets python_on_gpu.json, written anew behind each step. A step that fails has its last lines under
`error`, also one that --seconds leaves no time for, and makes the exit code 1. --quick is for
tests of this program: sizes of toys, on any device.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import xml.etree.ElementTree
from typing import Any

import torch
import transformers

import moec

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKENS = (1, 8, 64, 512, 4096)
FAMILIES = ("qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss", "olmoe", "glm4_moe", "llama4_text")
#: A layer of rows.json.
LAYER = "qwen3_30b"
#: Sizes of the layer with --quick.
TOY = {"num_experts": 8, "top_k": 2, "hidden_size": 64, "intermediate_size": 32}


class StepError(Exception):
    """The reason why a step has no result."""


class Run:
    """State shared by the steps."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = pathlib.Path(options.output)
        self.deadline = time.monotonic() + options.seconds

    def call(self, *command: Any) -> str:
        """Runs a program of this tree until the deadline at most; returns its output."""
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        try:
            done = subprocess.run(
                [sys.executable, *map(str, command)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=max(self.deadline - time.monotonic(), 1),
                env={**os.environ, "PYTHONPATH": path})
        except subprocess.TimeoutExpired as error:
            raise StepError(f"no time left for {command[0]}") from error
        if done.returncode:
            raise StepError("\n".join(done.stdout.splitlines()[-30:]))
        return done.stdout

    def read(self, *command: Any, option: str) -> dict[str, Any]:
        """Runs a program; returns the contents of the file that `option` names."""
        part = self.folder / "part.json"
        try:
            self.call(*command, f"{option}={part}")
            return json.loads(part.read_text())
        finally:
            part.unlink(missing_ok=True)


def run_tests(run: Run) -> dict[str, Any]:
    results = run.folder / "tests.xml"
    wanted = "opcheck" if run.options.quick else "cuda or stream"
    workers = ["-n", min(os.cpu_count() or 1, 8)] if importlib.util.find_spec("xdist") else []
    try:
        run.call("-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "-k", wanted,
                 f"--junit-xml={results}", "python/tests/test_torch.py", "python/tests/test_transformers.py",
                 "python/tests/test_transformers_mxfp4.py", "python/tests/test_cupy.py",
                 "python/tests/test_cuda_callers.py")
    finally:
        cases = list(xml.etree.ElementTree.parse(results).iter("testcase")) if results.exists() else []
        results.unlink(missing_ok=True)
    passed = [case.get("name") for case in cases if case.find("skipped") is None]
    return {"passed": passed, "skipped": len(cases) - len(passed)}


def run_overhead(run: Run) -> dict[str, Any]:
    calls = 100 if run.options.quick else 20000
    return {entry: run.read("benchmarks/call_overhead.py", f"--device={run.options.device}",
                            f"--entry={entry}", f"--calls={calls}", option="--output")
            for entry in ("ids", "gate")}


def run_forwards(run: Run) -> dict[str, Any]:
    found = {}
    families = FAMILIES[:1] if run.options.quick else FAMILIES
    toy = ["--tokens=1,16", "--repeat=2",
           "--config=num_experts=8,hidden_size=64,moe_intermediate_size=32"] * run.options.quick
    is_gpu = run.options.device.startswith("cuda")
    for family, *graph in [[each] for each in families] + [[families[0], "--graph"]] * is_gpu:
        try:
            result = run.read("benchmarks/transformers_forward.py", f"--device={run.options.device}",
                              f"--model={family}", *graph, *toy, option="--output")
        except StepError as error:
            result = {"error": str(error)}
        found[" ".join([family, *graph])] = result
    return found


def run_serve(run: Run) -> dict[str, Any]:
    sizes = ["--size=tiny", "--tokens=4", "--prompt=4"] if run.options.quick else ["--size=full"]
    return run.read("examples/serve.py", "--model=olmoe", f"--device={run.options.device}", *sizes,
                    f"--trace={run.folder / 'serve_trace.json'}", option="--json")


def run_report(run: Run) -> dict[str, Any]:
    rows = json.loads((ROOT / "benchmarks/rows.json").read_text())
    row = next(each for each in rows["layers"] if each["name"] == LAYER)
    row |= TOY if run.options.quick else {}
    spec = {"moec_spec": 1, "activation": {"kind": "silu"}, "max_tokens": max(TOKENS), **row}
    layer = moec.compile(spec, device=run.options.device)
    generator = torch.Generator(run.options.device).manual_seed(1)
    weights = {
        info.name: torch.randn(
            info.shape, generator=generator, device=run.options.device, dtype=torch.bfloat16
        ) * info.shape[-1] ** -0.5
        for info in layer.tensors if info.role == "weight"}
    layer.bind(weights)
    measured = {tokens: layer.benchmark(tokens, repeat=3 if run.options.quick else 50)
                for tokens in TOKENS}
    layer.report(run.folder / "layer.html", measured=measured)
    return {"layer": row["name"], "sizes": {name: row[name] for name in TOY},
            "median_us": {tokens: 1e6 * each.median for tokens, each in measured.items()}}


STEPS = {"tests": run_tests, "overhead": run_overhead, "forwards": run_forwards, "serve": run_serve,
         "report": run_report}


def has_failed(step: dict[str, Any]) -> bool:
    """Whether the result is missing, or a part of it."""
    return "error" in step or any("error" in part for part in step.values() if isinstance(part, dict))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, metavar="FOLDER")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--commit", default="", help="recorded with the result")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.steps = options.steps.split(",")
    if unknown := [each for each in options.steps if each not in STEPS]:
        parser.error(f"--steps: {unknown[0]!r} found; {', '.join(STEPS)} are accepted")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", options.device):
        parser.error(f"--device: {options.device!r} found; cpu, cuda and cuda:N are accepted")
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device: PyTorch {torch.__version__} sees no GPU")
    return options


def main() -> int:
    options = parse()
    run = Run(options)
    run.folder.mkdir(parents=True, exist_ok=True)
    is_cpu = options.device == "cpu"
    record: dict[str, Any] = {
        "benchmark": "python_on_gpu",
        "commit": options.commit,
        "date": datetime.date.today().isoformat(),
        "device": "cpu" if is_cpu else torch.cuda.get_device_name(options.device),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "steps": {},
    }
    for name in options.steps:
        begin = time.monotonic()
        try:
            if begin > run.deadline:
                raise StepError("no time left")
            result = STEPS[name](run)
        except (StepError, moec.Error, RuntimeError, OSError) as error:
            result = {"error": str(error)}
        record["steps"][name] = result | {"seconds": round(time.monotonic() - begin, 1)}
        (run.folder / "python_on_gpu.json").write_text(json.dumps(record, indent=1) + "\n")
        verdict = "failed" if has_failed(result) else "done"
        print(f"{name:10} {record['steps'][name]['seconds']:7.1f} s  {verdict}", flush=True)
    return 1 if any(map(has_failed, record["steps"].values())) else 0


if __name__ == "__main__":
    sys.exit(main())
