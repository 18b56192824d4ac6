# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM with its own experts and with moec's, on one GPU: outputs, speed, memory, serving load.

    python3 benchmarks/engine [--commit=HASH] OUT.json JOB...

JOB is MODEL:VARIANT:LAYERS:WHAT:SECONDS.

    MODEL     of models.py: published models, with random weights
    VARIANT   who runs the experts, and the mode: base-compile, moec-no-compile, marlin-eager. base is what vLLM
              chooses by itself, other words are its --moe-backend. Without a mode: compile. no-compile: full CUDA
              graphs for decode alone. The same with a prefix cache and prompts in chunks of 512 tokens: chunked.
              The same with drafts from n-grams: speculative
    LAYERS    a number, or all
    WHAT      m memory, c outputs (log-probabilities of 1500 given tokens, greedy tokens, the same twice), s speed,
              p GPU kernels (torch.profiler), v serving load, w sleep, wake and reload of weights,
              f 2 to 12 new tokens of a request (chunked: behind a prefix in the cache; speculative: drafts)
    SECONDS   after which the job is killed, the next one starts, and the record keeps what there is

For example, vLLM's default and moec, one after the other:

    python3 benchmarks/engine q3.json q3:base:all:mcsp:240 q3:moec:all:mcsp:240

vLLM is imported once, and each job is a process that is forked from there. Each result is in OUT.json as soon as it
is known; a file that is there is gone on with. vLLM's output is in OUT.json.log. The exit code is 0 where each job
measured all of its parts."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from jobs import FORM, Job, parse_job  # noqa: E402
from models import MODELS  # noqa: E402
from record import Record  # noqa: E402
from summary import make_tables  # noqa: E402

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
#: What a machine without the packages behind them needs; the environment may say otherwise.
DEFAULTS = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
#: PR_SET_PDEATHSIG of <sys/prctl.h>.
_DEATH_SIGNAL = 1


def run_quietly(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()
    except OSError:
        return ""


def make_head(commit: str, versions: dict[str, str]) -> dict[str, Any]:
    """nvidia-smi says what the GPU is, since CUDA does not survive a fork."""
    found = run_quietly("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    device, driver = (found[0].split(", ") if found else ("none", "none"))
    root = Path(__file__).resolve().parents[2]
    return {
        "engine": f"vllm {versions['vllm']}", "device": device, "driver": driver, "torch": versions["torch"],
        "python": sys.version.split()[0],
        "commit": commit or run_quietly("git", "-C", str(root), "rev-parse", "--short=12", "HEAD") or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def run_child(job: Job, record: Record, log: Path) -> int:
    """In the forked process."""
    progress = os.fdopen(os.dup(1), "w")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    print(f"\n######## {job}", flush=True)
    os.environ["VLLM_PLUGINS"] = "moec" if job.experts == "moec" else ""
    import measure

    fields = measure.describe_job(job)

    def add(what: str, **found: Any) -> None:
        record.add(**fields, what=what, **found)
        short = {name: value for name, value in found.items() if name not in ("all_ms", "kernels", "greedy")}
        print(f"{job} {what} {json.dumps(short)[:300]}", file=progress, flush=True)

    def compare(values: list[float]) -> list[dict]:
        return record.compare(fields["job"], job.model, fields["layers"], values)

    try:
        with tempfile.TemporaryDirectory() as folder:
            measure.run_job(job, Path(folder), add, compare)
        return 0
    except BaseException as error:
        traceback.print_exc()
        add("failed", error=f"{type(error).__name__}: {error}"[:500])
        return 1


def run_job(job: Job, record: Record, log: Path) -> bool:
    """In a process of its own, which no other job's errors or memory reach."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        # A run that is killed leaves no job behind that holds the GPU.
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        code = 1
        try:
            code = run_child(job, record, log)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = None
    while status is None and time.monotonic() - start < job.seconds:
        done, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        time.sleep(0.1)
    is_late = status is None
    if is_late:
        # Its own group: vLLM's compiler has processes below it.
        os.killpg(child, signal.SIGKILL)
        _, code = os.waitpid(child, 0)
        status = os.waitstatus_to_exitcode(code)
    record.reload()
    from measure import describe_job

    if is_late:
        record.add(**describe_job(job), what="time limit", error=f"killed after {job.seconds:g} s")
    elif status < 0:
        record.add(**describe_job(job), what="failed", error=f"ended by signal {-status}")
    print(f"{job}: {'done' if status == 0 else 'FAILED'} in {time.monotonic() - start:.0f} s", flush=True)
    return status == 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="", help="of moec, for the record (default: the folder's)")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("jobs", nargs="+", metavar="JOB", help=FORM)
    options = parser.parse_args(arguments)
    try:
        jobs = [parse_job(text, tuple(MODELS)) for text in options.jobs]
    except ValueError as error:
        parser.error(str(error))
    os.environ.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import measure  # noqa: F401
        import torch
        import vllm
        import vllm.v1.engine.llm_engine
        import vllm.v1.worker.gpu_worker  # noqa: F401
    except ImportError as error:
        parser.error(f"vLLM 0.33 cannot be imported: {error}")
    if torch.cuda.is_initialized():
        parser.error("importing vLLM started CUDA, so that no job can be forked")
    try:
        record = Record(options.out, make_head(options.commit, {"vllm": vllm.__version__, "torch": torch.__version__}))
    except ValueError as error:
        parser.error(str(error))
    log = options.out.with_name(options.out.name + ".log")
    before = len(record.rows)
    are_done = [run_job(job, record, log) for job in jobs]
    print("\n".join(make_tables(record.rows[before:])))
    return 0 if all(are_done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
