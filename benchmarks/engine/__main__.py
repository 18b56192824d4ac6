# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM or SGLang with its own experts and with moec's, on one GPU: outputs, speed, memory, serving load.

    python3 benchmarks/engine [--engine=sglang] [--commit=HASH] OUT.json JOB[+JOB...]...

JOB is MODEL:VARIANT:LAYERS:WHAT:SECONDS. Jobs joined by + have their engines on the GPU at the same time: these start
together, and then measure in turn, one repetition each, while the others are idle.

    MODEL     of models.py: published models, with random weights
    VARIANT   who runs the experts, and the mode: base-compile, moec-no-compile, marlin-eager. base is what vLLM
              chooses by itself, other words are its --moe-backend. Without a mode: compile. no-compile: full CUDA
              graphs for decode alone. piecewise: as compile, with graphs of the parts between attentions alone. The
              same as no-compile with a prefix cache and prompts in chunks of 512 tokens: chunked.
              The same with drafts from n-grams: speculative
              The same on two GPUs: tp2 shares each layer, dp2 has requests of its own and whole experts on each GPU
              (speed: the requests of one GPU; memory, outputs and kernels: those of the first)
    LAYERS    a number, or all
    WHAT      m memory, c outputs (log-probabilities of 1500 given tokens, greedy tokens, the same twice), s speed,
              p GPU kernels (torch.profiler), v serving load, w sleep, wake and reload of weights,
              f 2 to 12 new tokens of a request (chunked: behind a prefix in the cache; speculative: drafts),
              i whether a request has the same tokens and log-probabilities alone and in batches; run all jobs with
              VLLM_BATCH_INVARIANT=1 in the environment to measure vLLM's batch-invariant mode
    SECONDS   after which the job is killed if its engine has not started, and as many again for what it measures; the
              record keeps what there is

For example, vLLM's default and moec, one after the other, and both at once:

    python3 benchmarks/engine q3.json q3:base:all:mcsp:240 q3:moec:all:mcsp:240
    python3 benchmarks/engine q3.json q3int4:base:all:csp:240+q3int4:moec:all:csp:240

SGLang (the parts c, s and p in the modes no-compile and eager) has other names for --moe-runner-backend; base is its
Triton runner, in whose place moec stands:

    python3 benchmarks/engine --engine=sglang q3.json q3:base-no-compile:24:csp:240+q3:moec-no-compile:24:csp:240

SGLang 0.5.23 is made for PyTorch 2.14. With PyTorch 2.11, sglang-kernel 0.4.6 does, and
SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK=1 in the environment.

vLLM is imported once, and each job is a process that is forked from there; SGLang is imported by each job. Each result
is in OUT.json as soon as it is known; a file that is there is gone on with. The engine's output is in OUT.json.log. The
exit code is 0 where each job measured all of its parts."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))

from jobs import FORM, Job, parse_group  # noqa: E402
from models import MODELS  # noqa: E402
from record import Record  # noqa: E402
from summary import make_tables  # noqa: E402

#: Modules with run_job and describe_job.
ENGINES = {"vllm": "measure", "sglang": "measure_sglang"}
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
}
#: Defaults for a machine without the packages behind them; the environment takes precedence.
DEFAULTS = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
#: Of jobs on several GPUs. NVLink multicast stays off; ranks are on one host.
OF_RANKS = {
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0", "NCCL_NVLS_ENABLE": "0", "VLLM_HOST_IP": "127.0.0.1",
    "MASTER_ADDR": "127.0.0.1", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo",
}
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
        "engine": versions["engine"], "device": device, "driver": driver, "torch": versions["torch"],
        "python": sys.version.split()[0],
        "commit": commit or run_quietly("git", "-C", str(root), "rev-parse", "--short=12", "HEAD") or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def find_nccl() -> dict[str, str]:
    """vLLM calls NCCL beside PyTorch, and finds PyTorch's only where the loader does."""
    found = importlib.util.find_spec("nvidia.nccl")
    libraries = [Path(folder) / "lib" / "libnccl.so.2" for folder in (found.submodule_search_locations if found else ())]
    return {"VLLM_NCCL_SO_PATH": str(library) for library in libraries if library.exists()}


def die_with_parent() -> None:
    """If the run is killed, no job keeps a GPU."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def start_ranks(ranks: int) -> int:
    """Forks the other ranks of a job. Returns the rank of the process."""
    if ranks == 1:
        return 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rank = 0
    for other in range(1, ranks):
        if not os.fork():
            die_with_parent()
            rank = other
            break
    for name, value in find_nccl().items():
        os.environ.setdefault(name, value)
    os.environ.update(OF_RANKS | {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": str(port)})
    return rank


def import_vllm() -> dict[str, str]:
    """Versions. Raises ImportError, and RuntimeError where no job could be forked."""
    import measure  # noqa: F401
    import torch
    import vllm
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.gpu_worker  # noqa: F401

    if torch.cuda.is_initialized():
        raise RuntimeError("importing vLLM started CUDA, so that no job can be forked")
    return {"engine": f"vllm {vllm.__version__}", "torch": torch.__version__}


def run_child(job: Job, measure: ModuleType, record: Record, log: Path, turn: Callable[[], None]) -> int:
    """In the forked process."""
    progress = os.fdopen(os.dup(1), "w")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    print(f"\n######## {job}", flush=True)
    os.environ["VLLM_PLUGINS"] = "moec" if job.experts == "moec" else ""
    fields = measure.describe_job(job)
    rank = start_ranks(job.ranks)

    def add(what: str, **found: Any) -> None:
        if rank and what != "failed":
            return
        record.add(**fields, what=what, **found)
        short = {name: value for name, value in found.items() if name not in ("all_ms", "kernels", "greedy")}
        print(f"{job} {what} {json.dumps(short)[:300]}", file=progress, flush=True)

    def compare(values: list[float]) -> list[dict]:
        return [] if rank else record.compare(fields["job"], job.model, fields["layers"], values)

    try:
        with tempfile.TemporaryDirectory() as folder:
            measure.run_job(job, Path(folder), add, compare, (lambda: None) if rank else turn)
        return 0
    except BaseException as error:
        traceback.print_exc()
        add("failed", error=f"{type(error).__name__}: {error}"[:500])
        return 1


class Child:
    """A job in a separate process, isolated from other jobs' errors and memory. It waits until it may measure."""

    def __init__(self, job: Job, measure: ModuleType, record: Record, log: Path) -> None:
        self.job, self._measure = job, measure
        self.start, self._left, self._status = time.monotonic(), job.seconds, None
        told, self._tell = os.pipe()
        self._asked, ask = os.pipe()
        self._id = os.fork()
        if self._id:
            os.close(told)
            os.close(ask)
            return
        code = 1
        try:
            os.setpgid(0, 0)
            die_with_parent()

            def turn() -> None:
                os.write(ask, b".")
                os.read(told, 1)

            code = run_child(job, measure, record, log, turn)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _has_ended(self) -> bool:
        if self._status is None:
            done, code = os.waitpid(self._id, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(code) if done else None
        return self._status is not None

    def asks(self, until: float) -> bool:
        """Waits until the job asks to measure. False: it has ended, or is late."""
        while not self._has_ended() and time.monotonic() < until:
            is_ready, _, _ = select.select([self._asked], [], [], 0.1)
            if is_ready and os.read(self._asked, 1):
                return True
        return False

    def take_turn(self) -> bool:
        """Lets the job measure until it asks again. False: it has ended, or exceeded its time, without that of other
        jobs."""
        start = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._tell, b".")
        asks = self.asks(start + self._left)
        self._left -= time.monotonic() - start
        return asks

    def end(self, record: Record) -> bool:
        """Whether the job has measured all of its parts. One that still runs is killed."""
        seconds = time.monotonic() - self.start
        if not self._has_ended():
            # A job has its own group, since vLLM's compiler has processes below it.
            os.killpg(self._id, signal.SIGKILL)
            os.waitpid(self._id, 0)
            record.add(**self._measure.describe_job(self.job), what="time limit", error=f"killed after {seconds:.1f} s")
        elif self._status < 0:
            record.add(**self._measure.describe_job(self.job), what="failed", error=f"ended by signal {-self._status}")
        print(f"{self.job}: {'done' if self._status == 0 else 'FAILED'} in {seconds:.0f} s", flush=True)
        os.close(self._tell)
        os.close(self._asked)
        return self._status == 0


def run_group(jobs: list[Job], measure: ModuleType, record: Record, log: Path) -> bool:
    """Whether all jobs have measured all of their parts."""
    children = [Child(job, measure, record, log) for job in jobs]
    is_started = [child.asks(child.start + child.job.seconds) for child in children]
    are_done = [child.end(record) for child, is_there in zip(children, is_started) if not is_there]
    measuring = [child for child, is_there in zip(children, is_started) if is_there]
    while measuring:
        for child in list(measuring):
            if not child.take_turn():
                measuring.remove(child)
                are_done.append(child.end(record))
    record.reload()
    return all(are_done)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=list(ENGINES), default="vllm", help="(default: vllm)")
    parser.add_argument("--commit", default="", help="of moec, for the record (default: the folder's)")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("groups", nargs="+", metavar="JOB", help=FORM)
    options = parser.parse_args(arguments)
    try:
        groups = [parse_group(text, tuple(MODELS)) for text in options.groups]
    except ValueError as error:
        parser.error(str(error))
    os.environ.update(ENVIRONMENT)
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        if options.engine == "vllm":
            versions = import_vllm()
        measure = importlib.import_module(ENGINES[options.engine])
        if options.engine == "sglang":
            versions = measure.find_versions()
            for job in (job for group in groups for job in group):
                measure.check_job(job)
    except ImportError as error:
        parser.error(f"{options.engine} cannot be imported: {error}")
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    try:
        record = Record(options.out, make_head(options.commit, versions))
    except ValueError as error:
        parser.error(str(error))
    log = options.out.with_name(options.out.name + ".log")
    before = len(record.rows)
    are_done = [run_group(group, measure, record, log) for group in groups]
    print("\n".join(make_tables(record.rows[before:])))
    return 0 if all(are_done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
