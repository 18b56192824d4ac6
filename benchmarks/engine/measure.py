# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One job in its process: the engine is made, and each of the job's parts is measured in it."""

from __future__ import annotations

import collections
import functools
import os
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import torch
from common import Add, Kernels, Outputs, Turn, draw_prompts, measure_kernels, measure_outputs, measure_speed
from jobs import RANKS, Job
from models import MODELS, write_model
from plugin_log import PluginLog
from record import join_times
from summary import BATCHES
from torch.profiler import ProfilerActivity, profile
from vllm import LLM, SamplingParams, envs
from weights import LOAD_FORMAT, list_experts, reload_experts

REQUESTS_AT_ONCE = (1, 16, 64)
#: The first call includes vLLM's compilation of kernels for new sizes.
SERVING_PASSES = 2
_GIB = 2**30
#: KV cache of a layer of an engine that shares the GPU: 64 requests of 640 tokens of Qwen3-30B-A3B take 80 MiB.
SHARED_KV_BYTES = _GIB // 12
#: For modes with another schedule.
CHUNK, DRAFT, PREFIX = 512, 5, 512


def make_arguments(job: Job, folder: Path) -> dict[str, Any]:
    """Of vLLM's engine."""
    sizes = sorted({1, 2, 4, 16, *BATCHES})
    found: dict[str, Any] = dict(
        model=str(write_model(folder / "model", job.model, job.layers)), load_format=LOAD_FORMAT,
        skip_tokenizer_init=True, dtype="bfloat16", seed=0, max_model_len=20480, max_num_batched_tokens=16384,
        max_num_seqs=max(BATCHES), gpu_memory_utilization=0.9, enable_prefix_caching=False,
    )
    if job.is_shared:
        # vLLM asks for this share of free memory before it loads, and then for the cache.
        layers = job.layers or MODELS[job.model].layers
        found |= {"gpu_memory_utilization": 0.02, "kv_cache_memory_bytes": layers * SHARED_KV_BYTES}
    if job.mode == "eager":
        found["enforce_eager"] = True
    elif job.mode == "compile":
        found["compilation_config"] = {"cudagraph_capture_sizes": sizes}
    elif job.mode == "piecewise":
        found["compilation_config"] = {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": sizes}
    else:
        found["compilation_config"] = {
            "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": sizes}
    if job.mode in RANKS:
        tp, dp = RANKS[job.mode]
        # All ranks run this program, each with an engine of its own and the same requests.
        found |= {"distributed_executor_backend": "external_launcher", "tensor_parallel_size": tp,
                  "data_parallel_size": dp, "enable_expert_parallel": dp > 1}
    if job.mode == "chunked":
        found |= {"max_num_batched_tokens": CHUNK, "enable_prefix_caching": True}
    elif job.mode == "speculative":
        found |= {"disable_log_stats": False, "speculative_config": {
            "method": "ngram", "num_speculative_tokens": DRAFT, "prompt_lookup_min": 1, "prompt_lookup_max": 3}}
    if job.experts not in ("base", "moec"):
        found["moe_backend"] = job.experts
    if "w" in job.parts:
        found["enable_sleep_mode"] = True
    return found


def find_worker(llm: LLM) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker


def count_kernels(model: torch.nn.Module) -> dict[str, int]:
    """Layers of experts by the class that runs them."""
    counts: collections.Counter[str] = collections.Counter()
    for _, layer in list_experts(model):
        method = layer.quant_method
        kernel = getattr(method, "moe_kernel", None)
        counts[type(getattr(kernel, "fused_experts", None) or method).__name__] += 1
    return dict(counts)


def generate(llm: LLM, prompts: list[list[int]], tokens: int, **sampling: Any) -> tuple[float, list[Any]]:
    """Seconds, and vLLM's results."""
    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, **sampling)
    torch.cuda.synchronize()
    start = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": each} for each in prompts], parameters, use_tqdm=False)
    torch.cuda.synchronize()
    return time.perf_counter() - start, outputs


def time_call(llm: LLM, prompts: list[list[int]], tokens: int) -> float:
    return generate(llm, prompts, tokens)[0]


def find_outputs(llm: LLM) -> Outputs:
    """Log-probabilities of 1500 given tokens, and 16 greedy ones after each of four prompts."""
    # Tokens behind a prefix in the cache are computed in other launches, with other rounding.
    llm.reset_prefix_cache()
    (prompt,) = draw_prompts(1, 1501)
    _, (output,) = generate(llm, [prompt], 1, prompt_logprobs=0)
    given = [float(entry[token].logprob) for token, entry in zip(prompt[1:], output.prompt_logprobs[1:])]
    _, outputs = generate(llm, draw_prompts(4, 24), 16)
    return given, [list(each.outputs[0].token_ids) for each in outputs]


def list_sizes(module: torch.nn.Module) -> dict[str, int]:
    """Bytes of parameters and buffers by name, each memory once."""
    named = [*module.named_parameters(), *module.named_buffers()]
    found = {tensor.untyped_storage().data_ptr(): (name, tensor.untyped_storage().nbytes()) for name, tensor in named}
    return {name: size for name, size in found.values() if size}


def measure_memory(llm: LLM, add: Add, is_shared: bool) -> None:
    worker = find_worker(llm)
    model = worker.model_runner.get_model()
    experts = next((layer for _, layer in list_experts(model)))
    free, total = torch.cuda.mem_get_info()
    found = {} if is_shared else {
        "kv_cache_gib": worker.available_kv_cache_memory_bytes / _GIB, "free_gib": free / _GIB,
        "kv_blocks": llm.llm_engine.vllm_config.cache_config.num_gpu_blocks}
    add("memory", **found, model_gib=worker.model_runner.model_memory_usage / _GIB, total_gib=total / _GIB,
        peak_gib=torch.cuda.max_memory_allocated() / _GIB, allocated_gib=torch.cuda.memory_allocated() / _GIB,
        weights_gib=sum(list_sizes(model).values()) / _GIB,
        layer_mib={name: round(size / 2**20, 3) for name, size in list_sizes(experts).items()})


def profile_call(call: Callable[[], Any]) -> tuple[Kernels, float]:
    """Kernels by name: how often, and microseconds in all. And the microseconds in which at least one of them ran."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
    kernels: Kernels = {}
    events = [event for event in found.events() if str(event.device_type).endswith("CUDA")]
    for event in events:
        count, us = kernels.get(event.name[:120], (0, 0.0))
        kernels[event.name[:120]] = (count + 1, us + event.time_range.elapsed_us())
    return kernels, join_times([(event.time_range.start, event.time_range.end) for event in events])


def describe_percentiles(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(np.array(seconds) * 1e3, (50, 99))
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3)}


def serve(llm: LLM, at_once: int, requests: int, prompt_tokens: int, tokens: int) -> dict[str, Any]:
    """A new request starts when one ends, so that their number is constant."""
    engine = llm.llm_engine
    parameters = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
    prompts: Iterator[list[int]] = iter(draw_prompts(requests, prompt_tokens))
    starts: dict[str, float] = {}
    latest: dict[str, tuple[float, int]] = {}
    first, gaps, whole = [], [], []

    def start() -> None:
        prompt = next(prompts, None)
        if prompt is not None:
            name = f"request-{at_once}-{len(starts)}"
            starts[name] = time.perf_counter()
            engine.add_request(name, {"prompt_token_ids": prompt}, parameters)

    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(at_once):
        start()
    while engine.has_unfinished_requests():
        outputs = engine.step()
        now = time.perf_counter()
        for output in outputs:
            name, count = output.request_id, len(output.outputs[0].token_ids)
            if name not in latest:
                first.append(now - starts[name])
            elif count > latest[name][1]:
                then, before = latest[name]
                gaps += [(now - then) / (count - before)] * (count - before)
            latest[name] = (now, count)
            if output.finished:
                whole.append(now - starts[name])
                start()
    seconds = time.perf_counter() - begin
    return {
        "requests": requests, "prompt_tokens": prompt_tokens, "tokens": tokens, "seconds": round(seconds, 3),
        "tokens_per_second": round(requests * tokens / seconds, 1), "first_token_ms": describe_percentiles(first),
        "next_token_ms": describe_percentiles(gaps), "request_ms": describe_percentiles(whole),
    }


def measure_serving(llm: LLM, add: Add, turn: Turn) -> None:
    for _ in range(SERVING_PASSES):
        for at_once in REQUESTS_AT_ONCE:
            serve(llm, at_once, at_once, 64, 8)
            add("serving", size=at_once, **serve(llm, at_once, max(3 * at_once, 8), 512, 128))
            turn()


def measure_sleep(llm: LLM, add: Add) -> None:
    before = find_outputs(llm)
    used = [torch.cuda.mem_get_info()[0]]
    llm.sleep(level=1)
    used.append(torch.cuda.mem_get_info()[0])
    llm.wake_up()
    add("sleep", is_same=find_outputs(llm) == before, freed_gib=(used[1] - used[0]) / _GIB)
    worker, config = find_worker(llm), llm.llm_engine.vllm_config
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    outputs = []
    for seed in (1, 0):
        reload_experts(config, worker.model_runner.get_model(), seed)
        outputs.append(find_outputs(llm))
    torch.cuda.empty_cache()
    add("reload", is_same=outputs[1] == before, is_other_between=outputs[0] != before,
        lost_gib=(free - torch.cuda.mem_get_info()[0]) / _GIB)


def measure_few_tokens(llm: LLM, add: Add) -> None:
    """The same requests twice: the second time all but 2 to 12 tokens of each are in the cache."""
    prompts = [draw_prompts(1, PREFIX + new, seed=new)[0] for new in range(2, 13)]
    cold, warm = (generate(llm, prompts, 1, logprobs=5)[1] for _ in range(2))
    differences = []
    for one, other in zip(cold, warm):
        first, second = one.outputs[0].logprobs[0], other.outputs[0].logprobs[0]
        differences += [abs(first[token].logprob - second[token].logprob) for token in first.keys() & second.keys()]
    add("few tokens", new=[len(prompt) - each.num_cached_tokens for prompt, each in zip(prompts, warm)],
        tokens=len(differences), mean=round(statistics.fmean(differences), 6), max=round(max(differences), 6))


def measure_drafts(llm: LLM, add: Add) -> None:
    """Tokens that verified drafts gave, and how many of them the same model ranks first without drafts."""
    def count() -> dict[str, int]:
        return {metric.name.removeprefix("vllm:spec_decode_num_"): metric.value for metric in llm.get_metrics()
                if metric.name.startswith("vllm:spec_decode_num_") and hasattr(metric, "value")}

    prompts = [prompt * 16 for prompt in draw_prompts(8, 8)]
    before = count()
    _, outputs = generate(llm, prompts, 64)
    counts = {name: value - before.get(name, 0) for name, value in count().items()}
    tokens = [list(each.outputs[0].token_ids) for each in outputs]
    _, scored = generate(llm, [[*prompt, *more] for prompt, more in zip(prompts, tokens)], 1, prompt_logprobs=0)
    ranks = [entry[token].rank for each, more in zip(scored, tokens)
             for token, entry in zip(more, each.prompt_logprobs[-len(more):])]
    add("drafts", **counts, tokens=len(ranks), first=sum(rank == 1 for rank in ranks), worst=max(ranks))


def measure_invariance(llm: LLM, add: Add) -> None:
    """Requests of 1 to 600 tokens, each alone, among 16 and among 64."""
    lengths = np.random.default_rng(5).integers(1, 600, 64)
    prompts = [draw_prompts(1, int(length), seed=100 + index)[0] for index, length in enumerate(lengths)]

    def run(chosen: list[list[int]]) -> list[tuple[list[int], list[float]]]:
        _, outputs = generate(llm, chosen, 24, logprobs=0)
        found = []
        for (output,) in (each.outputs for each in outputs):
            tokens = list(output.token_ids)
            found.append((tokens, [step[token].logprob for step, token in zip(output.logprobs, tokens)]))
        return found

    whole = run(prompts)
    several = [each for begin in range(0, 64, 16) for each in run(prompts[begin:begin + 16])]
    alone = [run([prompt])[0] for prompt in prompts[:16]]
    for size, found in ((1, alone), (16, several)):
        pairs = list(zip(found, whole))
        add("invariance", size=size, requests=len(pairs), is_asked=envs.VLLM_BATCH_INVARIANT,
            other_tokens=sum(one[0] != other[0] for one, other in pairs),
            other_logprobs=sum(one[1] != other[1] for one, other in pairs))


def run_job(job: Job, folder: Path, add: Add, compare: Callable[[list[float]], list[dict]], turn: Turn) -> None:
    log, start = PluginLog(), time.monotonic()
    llm = LLM(**make_arguments(job, folder))
    layers, seconds = log.count_layers(), round(time.monotonic() - start, 2)
    turn()
    add("start", seconds=seconds, is_shared=job.is_shared, moec_layers=layers, log=log.lines,
        kernels=count_kernels(find_worker(llm).model_runner.get_model()))
    if job.experts == "moec" and not layers:
        raise RuntimeError(f"no layer runs in moec; the plugin's log: {log.lines or 'empty'}")
    if job.experts != "moec" and log.lines:
        raise RuntimeError(f"moec is loaded in a job without it: {log.lines}")
    parts: dict[str, Callable[[LLM, Add], None]] = {
        "m": functools.partial(measure_memory, is_shared=job.is_shared),
        "c": lambda llm, add: measure_outputs(functools.partial(find_outputs, llm), add, compare),
        "s": lambda llm, add: measure_speed(functools.partial(time_call, llm), add, turn),
        "p": lambda llm, add: measure_kernels(functools.partial(time_call, llm), profile_call, add),
        "v": functools.partial(measure_serving, turn=turn), "w": measure_sleep,
        "i": measure_invariance,
        "f": measure_drafts if job.mode == "speculative" else measure_few_tokens,
    }
    for letter in job.parts:
        parts[letter](llm, add)
        turn()


def describe_job(job: Job) -> dict[str, Any]:
    """Fields that all rows of a job share."""
    model = MODELS[job.model]
    mode = f"{job.mode}, batch-invariant" if envs.VLLM_BATCH_INVARIANT else job.mode
    if os.environ.get("MOEC_EXCHANGE", "0") not in ("", "0"):
        mode += ", rows exchanged by moec"
    return {"job": str(job), "model": job.model, "published": model.published, "format": model.format,
            "layers": job.layers or model.layers, "mode": mode, "experts": job.experts}
