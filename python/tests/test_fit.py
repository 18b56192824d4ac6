# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec fit: memory and expected times of whole models."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import moec
from moec.commands import fit, main, model, peers

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "test" / "models").glob("*.json"))
RESULTS = ROOT / "benchmarks" / "results"
#: Records of moe-bench with equally likely experts, and the GPU that they were measured on.
RECORDS = (
    ("moe_bench_h200.json", "h200"), ("h200/moe_bench_formats.json", "h200"), ("h100/moe_bench_layers.json", "h100"),
)
#: Formats of moe-bench's rows as specs name them; others have no model in test/models.
WEIGHTS = {"bf16": None, "fp8_block128": "fp8_block128", "mxfp4": "mxfp4"}
SHAPE = ("num_experts", "top_k", "hidden_size", "intermediate_size")


def find_shape(spec) -> tuple:
    return (*(spec[name] for name in SHAPE), spec.get("quantization", {}).get("weight"))


@functools.cache
def read_kinds(path: Path) -> tuple:
    return model.read_model(str(path)).kinds


def read_records() -> list[tuple[str, tuple, int, float]]:
    """The GPU, shape, tokens and microseconds of each measured row."""
    layers = {layer["name"]: layer for layer in json.loads((ROOT / "benchmarks" / "rows.json").read_text())["layers"]}
    found = []
    for name, gpu in RECORDS:
        for row in json.loads((RESULTS / name).read_text())["rows"]:
            layer, tokens = row["row"].split(":")
            known = layers.get(layer)
            if known is None or "local_experts" in known or known["dtype"] not in WEIGHTS:
                continue
            # The record of a fit has the chosen config first.
            us = row["us"] if "us" in row else row["fit_runs"][0]["us"]
            found.append((gpu, (*(known[key] for key in SHAPE), WEIGHTS[known["dtype"]]), int(tokens), us))
    return found


def test_expected_times_are_near_measured_ones(capsys) -> None:
    """Of all models of test/models: the time of the routed experts against moe-bench's records of that shape."""
    records = read_records()
    compared: dict[str, list[float]] = {}
    wrong = []
    for path in MODELS:
        (kind,) = read_kinds(path)
        for gpu in dict.fromkeys(gpu for _, gpu in RECORDS):
            mine = [(tokens, us) for on, shape, tokens, us in records if (on, shape) == (gpu, find_shape(kind.spec))]
            if not mine:
                continue
            counts = sorted({tokens for tokens, _ in mine})
            expected = moec.expect(model.get_experts(kind.spec), gpu=gpu, tokens=counts)
            expected_us = {time.tokens: time.seconds * 1e6 for time in expected.times}
            for tokens, us in mine:
                ratio = expected_us[tokens] / us
                compared.setdefault(path.stem, []).append(ratio)
                if not 0.85 <= ratio <= 1.15:
                    wrong.append(f"{path.stem} on {gpu}, {tokens} tokens: expected {expected_us[tokens]:.1f} us, "
                                 f"measured {us} us: {ratio:.2f}")
    with capsys.disabled():
        print()
        for path in MODELS:
            ratios = compared.get(path.stem)
            told = f"{min(ratios):.2f} to {max(ratios):.2f} of {len(ratios)} records" if ratios else "no record"
            print(f"{path.stem:26} expected / measured: {told}")
    assert not wrong, "\n".join(wrong)
    assert len(MODELS) == 21 and compared.keys() == {
        "deepseek-v3", "gpt-oss-120b", "llama-4-maverick", "mixtral-8x7b", "qwen3-235b-a22b", "qwen3-30b-a3b",
        "qwen3-30b-a3b-fp8", "qwen3-next-80b-a3b",
    }
    assert sum(map(len, compared.values())) == 108


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model(path) -> None:
    """Memory of all layers, and the layer's times add up."""
    read = model.read_model(str(path))
    result = fit.fit(read, "h200", tokens=(1, 64))
    (kind,) = read.kinds
    spec = kind.spec
    elements = spec["num_experts"] * 3 * spec["hidden_size"] * spec["intermediate_size"]
    if spec["activation"]["kind"].endswith("no_mul"):
        elements = elements * 2 // 3
    shared = spec.get("shared_experts", {}).get("intermediate_size", 0)
    elements += 3 * spec["hidden_size"] * shared
    bits = {"fp8_block128": 8, "mxfp4": 4.25}.get(spec.get("quantization", {}).get("weight"), 16)
    # Routers, scales, biases and shared experts in another format are the rest.
    assert elements * bits / 8 <= result.layer_bytes * 1.15 and result.layer_bytes <= elements * bits / 8 * 1.15
    # Prepared weights are padded, and the bound ones are held until they are released.
    assert 1 <= result.memory.experts / (result.layers * result.layer_bytes) < 1.01
    assert (result.memory.released > 0) == ("mxfp4" in str(spec))
    assert result.memory.room == result.memory.total - result.memory.experts - result.memory.workspace
    for time in result.times:
        assert time.layer_seconds >= time.experts_seconds > 0
        assert time.model_seconds == pytest.approx(result.layers * time.layer_seconds)
        assert time.bound in ("memory", "tensor cores", "L2", "power", "launch")


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moec", "fit", *words], text=True, capture_output=True, timeout=120,
        env={**os.environ, **variables},
    )


def test_the_table() -> None:
    done = run(str(ROOT / "test" / "models" / "qwen3-30b-a3b.json"), "--gpu=h200")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith("qwen3-30b-a3b.json: 48 layers with experts on 1 x h200")
    assert lines[3].split() == ["experts", "54.02", "48", "layers", "of", "1.13"]
    assert lines[5].split()[:3] == ["other", "weights", "unknown"]
    assert [line.split()[0] for line in lines[-5:]] == ["1", "8", "64", "1024", "4096"]
    assert lines[-5].endswith("31.0  vllm:tuned, 2026-11-21")


def test_a_model_in_the_hub_s_cache(tmp_path) -> None:
    """With the size of the checkpoint; the name alone is given."""
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    shutil.copy(ROOT / "test" / "models" / "qwen3-30b-a3b.json", snapshot / "config.json")
    (snapshot / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 61064245248}}')
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc")
    done = run("org/name", "--gpu=h200", "--tp=2", "--json", HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["gpus"], result["tp"], result["ep"], result["layers"]) == (2, 2, 1, 48)
    memory = result["memory"]
    assert memory["other"] == (61064245248 - 48 * result["layer_bytes"]) // 2
    assert memory["room"] == memory["total"] - memory["experts"] - memory["workspace"] - memory["other"]
    assert 0.49 < memory["experts"] / (48 * result["layer_bytes"]) < 0.51
    assert all(time["peer"] is None for time in result["times"])


def test_layers_that_differ(tmp_path) -> None:
    config = json.loads((ROOT / "test" / "models" / "deepseek-v3.json").read_text())
    config["num_hidden_layers"] = 5
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    read = model.read_model(str(path))
    (kind,) = read.kinds
    assert kind.layers == (3, 4)
    small = model.LayerKind({**kind.spec, "intermediate_size": 1024}, (1,))
    both = fit.fit(model.Model("both", path, (kind, small), None), "h200", tokens=[8])
    apart = [fit.fit(model.Model("one", path, (each,), None), "h200", tokens=[8]) for each in (kind, small)]
    assert both.layers == 3 and both.memory.experts == sum(each.memory.experts for each in apart)
    assert both.times[0].model_seconds == pytest.approx(sum(each.times[0].model_seconds for each in apart))


def test_whole_experts_on_ranks() -> None:
    path = ROOT / "test" / "models" / "deepseek-v3.json"
    result = fit.fit(model.read_model(str(path)), "h200", tp=2, ep=8, tokens=(1, 8, 65))
    assert (result.gpus, [time.tokens for time in result.times]) == (8, [4, 8, 68])
    assert result.memory.experts < 58 * result.layer_bytes / 7 and result.memory.room > 0


@pytest.mark.parametrize(("words", "message"), [
    (["Qwen/Nothing"], "MODEL: there is no file or folder 'Qwen/Nothing', and no such model in /nowhere; `hf download "
                       "Qwen/Nothing` puts it there"),
    (["/no/model"], "MODEL: there is no file or folder '/no/model'; give a model's folder, its config.json, the name"),
    (["/no/config.json"], "MODEL: there is no file '/no/config.json'; give a model's folder, its config.json, a GGUF"),
    (["/etc/passwd"], "/etc/passwd: MODEL ends with neither .json"),
    (["MIXTRAL", "--gpu=h999"], "--gpu: 'h999' is unknown; accepted are a100-sxm, sm_80, h100-sxm, h200"),
    (["MIXTRAL", "--gpu="], '--gpu: a name expected, as in "h200", "" found'),
    (["MIXTRAL", "--gpu=h200", "--tp=3"], "MODEL: 'intermediate_size' is split over 3 ranks and must be a multiple of 3"),
    (["MIXTRAL", "--tp=0"], "--tp: 0 found; 1 or more is accepted"),
    (["MIXTRAL", "--tp=2", "--ep=3"], "--ep: 3 found; a multiple of --tp=2 is accepted"),
    (["MIXTRAL", "--tokens=1,x"], "argument --tokens: '1,x' found; token counts from 1 to 16777216 are accepted, as"),
    (["MIXTRAL", "--tokens=99999999"], "argument --tokens: '99999999' found; token counts from 1 to 16777216 are"),
    (["DENSE"], 'model_type "llama"'),
])
def test_bad_input_is_named(words, message, tmp_path) -> None:
    dense = tmp_path / "dense.json"
    dense.write_text('{"model_type": "llama", "num_hidden_layers": 2}')
    paths = {"MIXTRAL": str(ROOT / "test" / "models" / "mixtral-8x7b.json"), "DENSE": str(dense)}
    done = run(*(paths.get(word, word) for word in words), HF_HUB_CACHE="/nowhere")
    assert done.returncode != 0 and not done.stdout
    assert "Traceback" not in done.stderr and message in done.stderr, done.stderr


def test_without_rates_there_is_memory_and_no_time(capsys) -> None:
    assert main(["fit", str(ROOT / "test" / "models" / "gpt-oss-20b.json"), "--gpu=a100"]) == 0
    text = capsys.readouterr().out
    assert "No expected times: the cost model has no measured rates of a100-sxm." in text
    assert "24 layers with experts on 1 x a100-sxm" in text and "GiB" in text


def test_a_gpu_may_be_in_capitals() -> None:
    path = str(ROOT / "test" / "models" / "mixtral-8x7b.json")
    assert run(path, "--gpu=H200", "--json").stdout == run(path, "--gpu=h200", "--json").stdout != ""


def test_on_the_cpu() -> None:
    """By rates of this machine, which the first call measures."""
    done = run(str(ROOT / "test" / "models" / "qwen3-30b-a3b.json"), "--gpu=cpu", "--tokens=1,64", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["gpu"] == "cpu" and "thread" in result["rates"] and result["layers"] == 48
    assert result["memory"]["total"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for time in result["times"]:
        assert time["layer_seconds"] > time["experts_seconds"] > 0 and time["peer"] is None
        assert time["bound"] in ("memory", "instructions", "launch")
    done = run(str(ROOT / "test" / "models" / "mixtral-8x7b.json"), "--gpu=cpu", "--tp=2")
    assert done.returncode == 1 and "--gpu: cpu found with --tp or --ep; leave them out" in done.stderr


def test_recorded_peers_are_those_of_the_benchmark(tmp_path) -> None:
    """The file in the package is what scripts/peer-table writes."""
    written = tmp_path / "peers.json"
    subprocess.run([ROOT / "scripts" / "peer-table", f"--output={written}"], check=True)
    assert written.read_text() == Path(peers.__file__).with_name("peers.json").read_text()
    spec = read_kinds(ROOT / "test" / "models" / "deepseek-v3.json")[0].spec
    assert peers.find_peer(spec, "h200", 1) == peers.Peer("vllm:E256N512", 98.6 * 1e-6, "2026-11-21")
    assert peers.find_peer(spec, "h200", 2) is None and peers.find_peer(spec, "h100-sxm", 1) is None
    assert peers.find_peer({**spec, "top_k": 4}, "h200", 1) is None
