# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/engine --engine=sglang without SGLang: jobs, arguments, the plugin's entry point, and what a stand-in of
sglang.Engine returns."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/engine"))

import common  # noqa: E402
import jobs  # noqa: E402
import measure_sglang  # noqa: E402
import models  # noqa: E402


def parse(text: str) -> jobs.Job:
    return jobs.parse_job(text, tuple(models.MODELS))


@pytest.mark.parametrize("text, message", [
    ("q3:moec:8:cs:60", "mode compile is vLLM's; SGLang has no-compile and eager"),
    ("q3:moec-eager:8:cv:60", "WHAT cv is vLLM's; SGLang has c, s, p"),
])
def test_what_only_vllm_has(text: str, message: str) -> None:
    measure_sglang.check_job(parse("q3:moec-eager:8:csp:60"))
    with pytest.raises(ValueError, match=message):
        measure_sglang.check_job(parse(text))


@pytest.mark.parametrize("text, expected", [
    ("q3:moec-no-compile:8:c:60", {"moe_runner_backend": "triton"}),
    ("q3fp8:base-eager:8:c:60", {"moe_runner_backend": "triton", "disable_cuda_graph": True}),
    ("q3gptq:base-no-compile:8:c:60", {"moe_runner_backend": "triton", "quantization": "moe_wna16"}),
    ("q3awq:marlin-no-compile:8:c:60", {"moe_runner_backend": "marlin"}),
])
def test_arguments(tmp_path: Path, text: str, expected: dict) -> None:
    found = measure_sglang.make_arguments(parse(text), tmp_path)
    names = ("moe_runner_backend", "quantization", "disable_cuda_graph")
    assert {name: found[name] for name in names if name in found} == expected
    assert json.loads((Path(found["model_path"]) / "config.json").read_text())["num_hidden_layers"] == 8
    # All requests of a batch, and the longest prompt in one piece.
    assert found["max_total_tokens"] >= max(common.BATCHES) * (16 + common.MANY)
    assert found["chunked_prefill_size"] > max(common.PREFILLS)


@pytest.mark.parametrize("experts, plugins", [("moec", "moec_benchmark,moec"), ("base", "moec_benchmark")])
def test_processes_find_the_plugin(tmp_path: Path, experts: str, plugins: str) -> None:
    code = """
import importlib.metadata, measure_sglang, os, subprocess, sys
from pathlib import Path
measure_sglang.add_plugin(Path(sys.argv[1]), sys.argv[2])
show = "from importlib.metadata import entry_points as e; print(*(p.value for p in e(group='sglang.srt.plugins')))"
print(os.environ["SGLANG_PLUGINS"], subprocess.check_output([sys.executable, "-c", show], text=True))
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), experts], text=True, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "benchmarks/engine")})
    assert found.stdout.split()[0] == plugins and "sglang_plugin:plugin" in found.stdout, found.stderr


class Engine:
    """Returns results in SGLang's form; start_profile and stop_profile write a trace."""

    def generate(self, input_ids, sampling_params, **more) -> list[dict]:
        assert sampling_params["ignore_eos"] and sampling_params["temperature"] == 0
        given = [[None if index == 0 else -index / 1000, token, None] for index, token in enumerate(input_ids[0])]
        meta = {"input_token_logprobs": given} if more.get("return_logprob") else {}
        return [{"output_ids": [5] * sampling_params["max_new_tokens"], "meta_info": meta} for _ in input_ids]

    def start_profile(self, output_dir: str, **_) -> None:
        self.folder = Path(output_dir)

    def stop_profile(self) -> None:
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm"}
        events = [kernel | {"ts": 1.0, "dur": 2.0}, kernel | {"ts": 2.0, "dur": 2.0},
                  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 9.0}]
        with gzip.open(self.folder / "1-TP-0.trace.json.gz", "wt") as file:
            json.dump({"traceEvents": events}, file)


def test_outputs_and_kernels() -> None:
    given, greedy = measure_sglang.find_outputs(Engine())
    assert given == [-index / 1000 for index in range(1, 1501)] and greedy == [[5] * 16] * 4
    kernels, busy_us = measure_sglang.profile_call(Engine(), lambda: None)
    assert kernels == {"gemm": (2, 4.0)} and busy_us == 3.0


def test_speed() -> None:
    rows = []
    common.measure_speed(lambda prompts, tokens: tokens * len(prompts) / 1e3,
                         lambda what, **row: rows.append((what, row)), lambda: None)
    assert [(what, row["size"]) for what, row in rows] == [
        *(("decode", size) for size in common.BATCHES), *(("prefill", size) for size in common.PREFILLS)]
    assert all(row["ms"] == pytest.approx(row["size"]) for what, row in rows if what == "decode")
