# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One job of SGLang in its process. SGLang's scheduler, which has the model, is a process below it."""

from __future__ import annotations

import functools
import gzip
import json
import os
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Callable

from common import Add, Kernels, Outputs, Turn, draw_prompts, measure_kernels, measure_outputs, measure_speed
from jobs import Job
from models import MODELS, make_config, write_model
from record import join_times
from summary import BATCHES, PREFILLS

MODES = ("no-compile", "eager")
PARTS = "csp"
#: Kernels of a layer whose class is this one are moec's.
_CORE = "MoecRunnerCore"
_ENTRY_POINTS = "[sglang.srt.plugins]\nmoec_benchmark = sglang_plugin:plugin\n"
#: Formats with an int4 kernel of SGLang's Triton runner.
_OF_TRITON = {"gptq": "moe_wna16", "awq": "moe_wna16"}
#: Categories of the profiler's events on the GPU.
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
#: For NCCL: engines that start together would find the same free port.
FIRST_PORT, PORTS = 20000, 20000


def find_versions() -> dict[str, str]:
    """Raises ImportError where SGLang is missing."""
    return {"engine": f"sglang {metadata.version('sglang')}", "torch": metadata.version("torch")}


def check_job(job: Job) -> None:
    """Raises ValueError for what SGLang is not measured in."""
    if job.mode not in MODES:
        raise ValueError(f"job '{job}': mode {job.mode} is vLLM's; SGLang has {' and '.join(MODES)}")
    if set(job.parts) - set(PARTS):
        raise ValueError(f"job '{job}': WHAT {job.parts} is vLLM's; SGLang has {', '.join(PARTS)}")


def describe_job(job: Job) -> dict[str, Any]:
    """Fields that all rows of a job share."""
    model = MODELS[job.model]
    return {"job": str(job), "model": job.model, "published": model.published, "format": model.format,
            "layers": job.layers or model.layers, "mode": job.mode, "experts": job.experts}


def make_arguments(job: Job, folder: Path) -> dict[str, Any]:
    """Of sglang.Engine. Attention and sampling are those that need no package beside SGLang's own kernels; moec stands
    in place of the Triton runner, so that this one is also the base."""
    method = make_config(job.model).get("quantization_config", {}).get("quant_method")
    runner = "triton" if job.experts in ("base", "moec") else job.experts
    found: dict[str, Any] = dict(
        model_path=str(write_model(folder / "model", job.model, job.layers)), load_format="dummy",
        skip_tokenizer_init=True, dtype="bfloat16", random_seed=0, context_length=20480, chunked_prefill_size=20480,
        max_prefill_tokens=20480, max_running_requests=max(BATCHES), max_total_tokens=2 * max(PREFILLS),
        mem_fraction_static=0.9,
        disable_radix_cache=True, attention_backend="triton", sampling_backend="pytorch", grammar_backend="none",
        moe_runner_backend=runner, fp8_gemm_runner_backend="triton", disable_prefill_cuda_graph=True,
        cuda_graph_bs_decode=sorted({1, 2, 4, 16, *BATCHES}), nccl_port=FIRST_PORT + os.getpid() % PORTS,
        log_level="info",
    )
    if runner == "triton" and method in _OF_TRITON:
        found["quantization"] = _OF_TRITON[method]
    if job.mode == "eager":
        found["disable_cuda_graph"] = True
    return found


def add_plugin(folder: Path, experts: str) -> None:
    """For the processes that SGLang starts."""
    about = folder / "moec_benchmark-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: moec_benchmark\nVersion: 0\n")
    (about / "entry_points.txt").write_text(_ENTRY_POINTS)
    paths = [str(folder), str(Path(__file__).resolve().parent)]
    sys.path[:0] = paths
    before = os.environ.get("PYTHONPATH")
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(paths + ([before] if before else [])), "MOEC_BENCHMARK_FOLDER": str(folder),
        "SGLANG_PLUGINS": "moec_benchmark,moec" if experts == "moec" else "moec_benchmark"}


def call(engine: Any, prompts: list[list[int]], tokens: int, **more: Any) -> tuple[float, list[dict[str, Any]]]:
    """Seconds, and SGLang's results."""
    sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
    start = time.perf_counter()
    results = engine.generate(input_ids=prompts, sampling_params=sampling, **more)
    return time.perf_counter() - start, results


def time_call(engine: Any, prompts: list[list[int]], tokens: int) -> float:
    return call(engine, prompts, tokens)[0]


def find_outputs(engine: Any) -> Outputs:
    """Log-probabilities of 1500 given tokens, and 16 greedy ones after each of four prompts."""
    _, (result,) = call(engine, draw_prompts(1, 1501), 1, return_logprob=True, logprob_start_len=0)
    given = [float(entry[0]) for entry in result["meta_info"]["input_token_logprobs"][1:]]
    _, results = call(engine, draw_prompts(4, 24), 16)
    return given, [list(each["output_ids"]) for each in results]


def read_trace(path: Path) -> tuple[Kernels, list[tuple[float, float]]]:
    """Kernels by name, and the spans in which they ran, from a trace of torch.profiler."""
    kernels: Kernels = {}
    spans = []
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    for event in events:
        if event.get("cat") in _ON_GPU and event.get("ph") == "X":
            name, us = event["name"][:120], float(event["dur"])
            count, sum_us = kernels.get(name, (0, 0.0))
            kernels[name] = (count + 1, sum_us + us)
            spans.append((float(event["ts"]), float(event["ts"]) + us))
    return kernels, spans


def profile_call(engine: Any, function: Callable[[], Any]) -> tuple[Kernels, float]:
    with tempfile.TemporaryDirectory() as folder:
        engine.start_profile(output_dir=folder, activities=["GPU"], with_stack=False, record_shapes=False)
        try:
            function()
        finally:
            engine.stop_profile()
        (path,) = Path(folder).rglob("*.trace.json.gz")
        kernels, spans = read_trace(path)
    return kernels, join_times(spans)


def run_job(job: Job, folder: Path, add: Add, compare: Callable[[list[float]], list[dict]], turn: Turn) -> None:
    check_job(job)
    start = time.monotonic()
    add_plugin(folder, job.experts)
    import sglang

    engine = sglang.Engine(**make_arguments(job, folder))
    try:
        # A first call compiles what no graph has.
        call(engine, draw_prompts(1, 16), 2)
        seconds = round(time.monotonic() - start, 2)
        turn()
        runners = json.loads((folder / "runners.json").read_text())
        log = folder / "log.txt"
        lines = list(dict.fromkeys(log.read_text().splitlines())) if log.exists() else []
        add("start", seconds=seconds, is_shared=job.is_shared, moec_layers=runners.get(_CORE, 0), log=lines,
            kernels=runners)
        if (job.experts == "moec") != (set(runners) == {_CORE}):
            raise RuntimeError(f"experts run in {runners}; the plugin's log: {lines or 'empty'}")
        if any("own experts run" in line for line in lines):
            raise RuntimeError(f"moec gave layers back to SGLang: {lines}")
        parts: dict[str, Callable[[], None]] = {
            "c": lambda: measure_outputs(functools.partial(find_outputs, engine), add, compare),
            "s": lambda: measure_speed(functools.partial(time_call, engine), add, turn),
            "p": lambda: measure_kernels(
                functools.partial(time_call, engine), functools.partial(profile_call, engine), add),
        }
        for letter in job.parts:
            parts[letter]()
            turn()
    finally:
        engine.shutdown()
