# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/peers.py without a GPU: vLLM constructs each peer of the layers of asked.json and rows.json, and its layers
get the same weights as moec in each format, whose float64 results they have. Kernels are not run, moec's on the CPU
apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from vllm.config import VllmConfig

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import peer_kernels  # noqa: E402
import peer_weights  # noqa: E402
import peers  # noqa: E402
from peer_rows import PEERS, Layer  # noqa: E402

CPU = torch.device("cpu")

#: Constructs the peers in a process without moec's plugin. argv: a folder of conftest.py, and one of benchmarks.
CONSTRUCT = """
import inspect, json, os, pathlib, sys
sys.path[:0] = sys.argv[1:3]
import conftest
os.environ |= {"VLLM_PLUGINS": "", "VLLM_USE_DEEP_GEMM": "1"}
import torch, peer_kernels, peer_rows
peer_kernels.start_vllm(torch.device("cpu"))
found = {}
tables = [peer_rows.read_rows(pathlib.Path(sys.argv[2]) / name)[0] for name in ("asked.json", "rows.json")]
for row in (row for rows in tables for row in rows):
    for name in peer_rows.PEERS[row.layer.format]:
        if (key := f"{row.layer.name} {name}") in found:
            continue
        try:
            config, experts = peer_kernels.make_vllm_layer(row.layer, name)
        except ValueError as error:
            found[key] = str(error)
            continue
        method = experts.quant_method
        inspect.signature(method.apply).bind(experts, None, None, None, None, None)
        inspect.signature(method.process_weights_after_loading).bind(experts)
        assert (experts.expert_map is not None) == (row.layer.local_experts < row.layer.num_experts)
        assert experts.local_num_experts == row.layer.local_experts
        found[key] = method.experts_cls.__name__
print("FOUND", json.dumps(found))
"""


@pytest.fixture(scope="module")
def constructed() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", CONSTRUCT, Path(__file__).parent, BENCHMARKS], text=True,
                          capture_output=True, env=os.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.split("FOUND ")[1])


CLASSES = {
    "triton": {"TritonExperts", "TritonWNA16Experts"}, "triton_unfused": {"UnfusedOAITritonExperts"},
    "deep_gemm": {"TritonOrDeepGemmExperts"}, "cutlass": {"TritonOrCutlassExperts"}, "marlin": {"MarlinExperts"},
    # vLLM takes the second if the experts are on several GPUs.
    "humming": {"HummingIndexedExperts", "HummingGroupedExperts"},
}


def test_vllm_makes_the_peers(constructed: dict[str, str]) -> None:
    wrong = {key: found for key, found in constructed.items() if found not in CLASSES[key.split()[1]]}
    # 2880 columns.
    assert set(wrong) == {"gptoss120b_int4 marlin"}
    assert {key.split()[1] for key in constructed} == set(CLASSES)


def make_layer(format: str, local: int = 8) -> Layer:
    return Layer("small", 8, local, 2, 256, 128, format)


@pytest.mark.parametrize("local", [8, 2])
@pytest.mark.parametrize("format", list(PEERS))
def test_same_weights(engine: VllmConfig, monkeypatch: pytest.MonkeyPatch, format: str, local: int) -> None:
    """moec directly, and behind vLLM's parameters."""
    monkeypatch.setenv("MOEC_VLLM_ROUTER", "0")
    weights = peer_weights.Weights(make_layer(format, local), CPU)
    calls = peer_weights.draw_calls(weights.layer, 5, 2, CPU)
    index, rows = peer_weights.choose_checked(weights, calls)
    wanted = peer_weights.compute(weights, calls[index], rows)
    assert 0.05 < float(wanted.std()) < 5
    before = {name: tensor.clone() for name, tensor in weights.tensors.items()}
    # vLLM's description of fp8 rounds activations, which its Marlin and Humming leave out.
    rounded = "fp8_block128" if format == "fp8_weights" else format
    for kernel, bound in ((peer_kernels.MoecKernel(weights, 5), weights.format.bound),
                          (peer_kernels.VllmKernel(weights, "auto"), peer_weights.FORMATS[rounded].bound)):
        found = kernel.run(calls[index])[rows]
        assert peer_weights.find_error(found, wanted) < bound
        assert peer_weights.find_error(1.1 * found, wanted) > bound
    assert all(torch.equal(tensor.view(torch.uint8), weights.tensors[name].view(torch.uint8))
               for name, tensor in before.items())


def test_padded_parameters() -> None:
    """Gate and up are padded apart."""
    tensor = torch.arange(1, 17).view(1, 4, 4)
    padded = peer_kernels.fit("w13_weight", tensor, torch.Size((1, 8, 5)))
    assert torch.equal(padded[0, :2, :4], tensor[0, :2]) and torch.equal(padded[0, 4:6, :4], tensor[0, 2:])
    assert int(padded.sum()) == int(tensor.sum())
    padded = peer_kernels.fit("w2_weight", tensor, torch.Size((1, 8, 5)))
    assert torch.equal(padded[0, :4, :4], tensor[0]) and int(padded.sum()) == int(tensor.sum())
    same = peer_kernels.fit("w2_weight", tensor, tensor.shape)
    assert torch.equal(same, tensor) and same.data_ptr() != tensor.data_ptr()


TABLE = {
    "layers": [
        {"name": "small", "num_experts": 8, "top_k": 2, "hidden_size": 256, "intermediate_size": 128, "dtype": "bf16"},
        {"name": "part", "num_experts": 8, "local_experts": 2, "top_k": 2, "hidden_size": 256,
         "intermediate_size": 128, "dtype": "mxfp4"},
    ],
    "rows": [{"layer": "small", "tokens": [1, 5]}, {"layer": "part", "tokens": [5]}],
}


def run_peers(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    (folder / "table.json").write_text(json.dumps(TABLE))
    return subprocess.run(
        [sys.executable, BENCHMARKS / "peers.py", "--device=cpu", f"--table={folder / 'table.json'}", "--commit=abc",
         f"--json={folder / 'record.json'}", "--rounds=2", *arguments], text=True, capture_output=True)


def test_record_and_resume(tmp_path: Path) -> None:
    """moec alone; a run without time for a row; the rest of it."""
    done = run_peers(tmp_path, "--peers=", "--rows=small:1;small:5", "--seconds=1e-9")
    assert done.returncode == 2 and "left: small:1;small:5" in done.stdout, done.stderr
    assert run_peers(tmp_path, "--peers=", "--rows=small:5").returncode == 0
    first = json.loads((tmp_path / "record.json").read_text())["rows"]
    done = run_peers(tmp_path, "--peers=", "--resume")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["rows"][:1] == first and record["commit"] == "abc"
    assert [(row["layer"], row["tokens"]) for row in record["rows"]] == [("small", 5), ("small", 1), ("part", 5)]
    for row in record["rows"]:
        assert row["us"]["moec"] > 0 and row["error"]["moec"] < 1e-2 and not row["refused"]
        low, high = row["spread"]["moec"]
        assert low <= row["us"]["moec"] <= high
    done = run_peers(tmp_path, "--peers=", "--resume", "--commit=def")
    assert done.returncode == 1 and "commit 'abc' found" in done.stderr


def test_peers_that_do_not_start(tmp_path: Path) -> None:
    """vLLM needs a GPU; the record says so, and has moec."""
    done = run_peers(tmp_path, "--rows=part")
    assert done.returncode == 0, done.stderr
    row, = json.loads((tmp_path / "record.json").read_text())["rows"]
    assert set(row["us"]) == {"moec"} and set(row["refused"]) == set(PEERS["mxfp4"]) and "ratio" not in row


class Kernel:
    what = "a kernel"

    def __init__(self, good: peer_kernels.MoecKernel, factor: float, reason: str = "") -> None:
        self.good, self.factor, self.reason = good, factor, reason

    def describe(self, call: peer_weights.Call) -> str:
        if self.reason:
            raise peer_kernels.Refused(self.reason)
        return "tuned"

    def run(self, call: peer_weights.Call) -> torch.Tensor:
        return self.factor * self.good.run(call)


def test_floor() -> None:
    """Of the bytes or of the operations, at the rate of the format."""
    row = {"format": "fp8_channel", "bytes": 4e9, "operations": 1e12}
    ceilings = {"bandwidth": 4e12, "bf16": 0.5e15, "fp8": 1e15}
    assert peers.find_floor(row, ceilings) == pytest.approx(1000)
    assert peers.find_floor(row | {"format": "mxfp4"}, ceilings) == pytest.approx(2000)
    assert peers.find_floor(row | {"bytes": 9e9}, ceilings) == pytest.approx(2250)


def test_wrong_kernels_are_named_and_not_timed() -> None:
    run = peers.LayerRun(make_layer("nvfp4"), [], CPU, 5)
    good = run.kernels["moec"]
    run.kernels |= {"right": Kernel(good, 1), "wrong": Kernel(good, 1.1), "none": Kernel(good, float("nan")),
                    "refuses": Kernel(good, 1, "too wide")}
    row = run.measure(5, 3)
    assert set(row["us"]) == {"moec", "right"} and row["best"] == "right"
    assert row["ratio"] == row["us"]["right"] / row["us"]["moec"]
    assert row["operations"] == 6 * 256 * 128 * 10 and row["bytes"] > row["experts_touched"] * 256 * 3 * 128 / 2
    assert row["refused"]["refuses"] == "too wide" and row["tables"]["right"] == "tuned"
    assert all(row["refused"][name].startswith("wrong: error") for name in ("wrong", "none"))


def test_layers_are_compiled_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each small layer by one process, with rows that the program takes; a large one by none."""
    commands = []

    class Child:
        def __init__(self, command: list[str], **options: object) -> None:
            commands.append(command)

        def wait(self) -> None:
            pass

    monkeypatch.setattr(peers.subprocess, "Popen", Child)
    options, rows = peers.parse(["--warm=3", "--rows=llada;e60;qwen35*;kimi_k3:1", "--seconds=100"])
    peers.warm(options, rows)
    assert len(commands) == 3
    warmed = [row.name for command in commands for row in peers.parse(command[2:])[1]]
    assert sorted(warmed) == sorted(row.name for row in rows if row.layer.name != "kimi_k3")
    assert all(peers.parse(command[2:])[0].seconds == 50 for command in commands)


@pytest.mark.parametrize("arguments, message", [
    (["--peers=foo"], "'foo' found; there are cutlass, deep_gemm"), (["--rounds=0"], "at least 1 expected"),
    (["--rows=foo"], "no layer with peers"), (["--table=foo.json"], "No such file"),
])
def test_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        peers.parse(arguments)
    assert message in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        peers.parse(["--list", "--rows=kimi_k3:1"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == ["kimi_k3:1", "mxfp4", "triton_unfused", "marlin", "humming"]
