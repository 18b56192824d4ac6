#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation with a model of Transformers whose experts run by moec, against Transformers' own.

    python examples/serve.py [--model=qwen3_moe|mixtral|olmoe|FOLDER] [--size=tiny|small|full]
        [--device=cuda:0] [--batch=1] [--prompt=64] [--tokens=64]
        [--implementations=moec,eager,batched_mm,grouped_mm] [--no-graph]
        [--trace=out.json] [--json=out.json]

A family has random weights of a real model's shapes (--size=full), or of fewer and smaller layers; a folder
is loaded with its own. Each implementation gets the same prompt of random tokens and generates greedily
into a static cache. On a GPU one step of decoding is captured as a CUDA graph and replayed, unless the
implementation cannot be captured, which is said; on the CPU steps run one by one. Reported are tokens per
second of decoding (all sequences of the batch) and the time of the prompt, after runs that are not timed,
and how many of the tokens are those of eager.

--trace writes a Chrome trace (chrome://tracing, ui.perfetto.dev) of some steps with moec. On a GPU the profiler
tells each launch by its kernel's name, in graphs too. On the CPU a layer's launches are functions that no
profiler sees: each call of a layer is a range that names them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from typing import Any

import torch
import transformers

import moec.transformers

#: Config changes per family for each size. Defaults are those of the family's best known model.
COMMON = {
    "tiny": {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 32},
    "small": {"num_hidden_layers": 4},
    "full": {},
}
FAMILIES = {
    "qwen3_moe": {"tiny": {"moe_intermediate_size": 64, "num_experts": 16, "num_experts_per_tok": 4}},
    "mixtral": {"tiny": {"intermediate_size": 128, "num_local_experts": 8}},
    "olmoe": {"tiny": {"intermediate_size": 64, "num_experts": 16, "num_experts_per_tok": 4}},
}
IMPLEMENTATIONS = ("moec", "eager", "batched_mm", "grouped_mm")
#: Steps that are not timed, and those of a trace.
WARM_UP, TRACED = 3, 4


def make_model(options: argparse.Namespace) -> Any:
    dtype = torch.bfloat16 if options.device.startswith("cuda") else torch.float32
    if os.path.isdir(options.model):
        return transformers.AutoModelForCausalLM.from_pretrained(
            options.model, dtype=dtype).to(options.device).eval()
    if options.model not in FAMILIES:
        sys.exit(f"--model: {options.model} found; {', '.join(FAMILIES)} or a folder are accepted")
    config = transformers.AutoConfig.for_model(
        options.model, **COMMON[options.size], **FAMILIES[options.model].get(options.size, {}))
    config.max_position_embeddings = max(config.max_position_embeddings,
                                         options.prompt + options.tokens)
    config.eos_token_id = None
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    model = model.to_empty(device=options.device).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
            else:
                parameter.fill_(1.0)
    # Buffers that meta tensors left without values: the frequencies of position embeddings.
    for module in model.modules():
        if hasattr(module, "inv_freq"):
            fresh = type(module)(config)
            for name, buffer in fresh.named_buffers(recurse=False):
                module.register_buffer(name, buffer.to(options.device), persistent=False)
            module.original_inv_freq = module.inv_freq
    return model


class Decoder:
    """A static KV cache and one decoding step that uses it."""

    def __init__(self, model: Any, options: argparse.Namespace) -> None:
        self.model = model
        self.cache = transformers.StaticCache(
            config=model.config, max_cache_len=options.prompt + options.tokens)
        self.token = torch.zeros(options.batch, 1, dtype=torch.long, device=options.device)
        self.position = torch.zeros(1, 1, dtype=torch.long, device=options.device)
        self.graph: torch.cuda.CUDAGraph | None = None
        #: Why there is none.
        self.why_no_graph = ""

    def prefill(self, prompt: torch.Tensor) -> None:
        self.cache.reset()
        positions = torch.arange(prompt.shape[1], device=prompt.device)[None]
        logits = self.model(prompt, past_key_values=self.cache, position_ids=positions,
                            use_cache=True, logits_to_keep=1).logits
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.fill_(prompt.shape[1])

    def step(self) -> None:
        logits = self.model(self.token, past_key_values=self.cache, position_ids=self.position,
                            use_cache=True).logits
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def capture(self) -> None:
        """Captures a step as a CUDA graph, if that is possible."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    self.step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.step()
        except Exception as error:
            torch.cuda.synchronize()
            self.why_no_graph = str(error).splitlines()[0]
            return
        self.graph = graph

    def decode(self) -> None:
        self.graph.replay() if self.graph else self.step()


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def generate(decoder: Decoder, prompt: torch.Tensor, tokens: int, device: str) -> dict[str, Any]:
    """Returns the generated tokens and the times of prompt and steps."""
    synchronize(device)
    begin = time.perf_counter()
    decoder.prefill(prompt)
    synchronize(device)
    middle = time.perf_counter()
    found = [decoder.token.clone()]
    for _ in range(tokens - 1):
        decoder.decode()
        found.append(decoder.token.clone())
    synchronize(device)
    end = time.perf_counter()
    return {
        "tokens": torch.cat(found, 1).tolist(),
        "prompt_ms": 1e3 * (middle - begin),
        "tokens_per_second": prompt.shape[0] * (tokens - 1) / (end - middle),
    }


def measure(model: Any, name: str, prompt: torch.Tensor, options: argparse.Namespace) -> dict[str, Any]:
    model.set_experts_implementation(name)
    decoder = Decoder(model, options)
    decoder.prefill(prompt)
    for _ in range(min(WARM_UP, options.tokens - 1)):
        decoder.step()
    if options.device.startswith("cuda") and options.graph:
        decoder.prefill(prompt)
        decoder.capture()
    generate(decoder, prompt, min(options.tokens, 8), options.device)
    result = generate(decoder, prompt, options.tokens, options.device)
    result["graph"] = decoder.graph is not None
    if decoder.why_no_graph:
        result["why_no_graph"] = decoder.why_no_graph
    if name == "moec" and options.trace:
        trace(decoder, prompt, options)
    return result


@contextlib.contextmanager
def named_layers(is_wanted: bool):
    """Wraps calls of layers in profiler ranges that name the launches for their token counts."""
    from moec.layer_pool import PooledLayer

    plain = PooledLayer.run

    def run(self: Any, hidden_states: torch.Tensor, *arguments: Any, **more: Any) -> torch.Tensor:
        plan = self.layer.plan
        tokens = hidden_states.shape[0]
        steps = next((variant["steps"] for variant in plan["variants"]
                      if variant["min_tokens"] <= tokens <= variant["max_tokens"]), [])
        names = [step["kernel"] for step in steps if "kernel" in step]
        with torch.profiler.record_function(f"moec, T={tokens}: {', '.join(names)}"):
            return plain(self, hidden_states, *arguments, **more)

    if is_wanted:
        PooledLayer.run = run
    try:
        yield
    finally:
        PooledLayer.run = plain


def trace(decoder: Decoder, prompt: torch.Tensor, options: argparse.Namespace) -> None:
    is_gpu = options.device.startswith("cuda")
    decoder.prefill(prompt)
    synchronize(options.device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] * is_gpu
    with named_layers(decoder.graph is None), torch.profiler.profile(activities=activities) as profile:
        for _ in range(min(TRACED, options.tokens - 1)):
            decoder.decode()
        synchronize(options.device)
    profile.export_chrome_trace(options.trace)


def count_alike(found: list[list[int]], wanted: list[list[int]]) -> str:
    """Returns text with the fewest tokens before the first difference, over all sequences."""
    counts = [next((i for i, pair in enumerate(zip(*rows)) if pair[0] != pair[1]), len(rows[0]))
              for rows in zip(found, wanted)]
    return f"{min(counts)} of {len(found[0])}"


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3_moe")
    parser.add_argument("--size", choices=list(COMMON), default="small")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--implementations", default=",".join(IMPLEMENTATIONS))
    parser.add_argument("--no-graph", dest="graph", action="store_false")
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args(arguments)
    options.implementations = options.implementations.split(",")
    if unknown := [each for each in options.implementations if each not in IMPLEMENTATIONS]:
        parser.error(f"--implementations: {unknown[0]} found; {', '.join(IMPLEMENTATIONS)} are accepted")
    for name in ("batch", "prompt"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: {getattr(options, name)} found, 1 or more is accepted")
    if options.tokens < 2:
        parser.error(f"--tokens: {options.tokens} found, 2 or more are accepted")
    if options.trace and "moec" not in options.implementations:
        parser.error("--trace is of moec; add it to --implementations")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    moec.transformers.register(max_tokens=max(options.batch * options.prompt, 16))
    results: dict[str, dict[str, Any]] = {}
    with torch.inference_mode():
        model = make_model(options)
        prompt = torch.randint(
            0, model.config.vocab_size, (options.batch, options.prompt), device=options.device,
            generator=torch.Generator(options.device).manual_seed(2))
        for name in options.implementations:
            try:
                results[name] = measure(model, name, prompt, options)
            except (RuntimeError, NotImplementedError, ValueError, ImportError) as error:
                results[name] = {"error": str(error).splitlines()[0]}
    where = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else "CPU"
    print(f"{options.model} ({options.size}) on {where}, torch {torch.__version__}, transformers "
          f"{transformers.__version__}: batch {options.batch}, prompt {options.prompt}, "
          f"{options.tokens} tokens")
    print(f"{'experts':12} {'tokens/s':>10} {'prompt ms':>10}  graph  {'as eager':>10}")
    eager = results.get("eager", {}).get("tokens")
    for name, result in results.items():
        if "error" in result:
            print(f"{name:12} {result['error']}")
            continue
        alike = count_alike(result["tokens"], eager) if eager else ""
        print(f"{name:12} {result['tokens_per_second']:10.1f} {result['prompt_ms']:10.2f}  "
              f"{'yes' if result['graph'] else 'no':5}  {alike:>10}")
        if "why_no_graph" in result:
            print(f"{'':12} no graph: {result['why_no_graph']}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"model": options.model, "size": options.size, "device": where,
                       "batch": options.batch, "prompt": options.prompt, "results": results}, file, indent=1)
    return 1 if "error" in results.get("moec", {}) else 0


if __name__ == "__main__":
    sys.exit(main())
