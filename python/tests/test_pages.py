# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All commands and snippets of the tutorial and of the how-to pages run as printed: `sh` and `python` blocks, in order,
in a separate folder."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import stat
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import BINARIES

import moec
from moec.reference import LayerSpec, generate, write_tensors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WHEELS = sorted(BINARIES.parent.glob("moec-*.whl"))

#: The pages' config.json, reduced to few kernels.
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 128, "intermediate_size": 64, "num_experts": 16,
    "top_k": 4, "max_tokens": 128, "routing": {"renormalize": True}, "activation": {"kind": "silu"},
}
#: The model in MODEL-FOLDER, and the layer that moe-bench measures instead of its own.
CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": 128, "moe_intermediate_size": 64, "num_experts": 16,
    "num_experts_per_tok": 4, "norm_topk_prob": True, "hidden_act": "silu", "num_hidden_layers": 4,
    "torch_dtype": "bfloat16",
}
ROWS = {
    "layers": [{"name": "qwen3_30b", "num_experts": 4, "top_k": 2, "hidden_size": 64,
                "intermediate_size": 64, "dtype": "bf16",
                "routing": {"score": "softmax", "renormalize": True}}],
    "rows": [{"layer": "qwen3_30b", "tokens": [1, 64]}],
}


def list_blocks(page: str, kinds: str = "sh|python") -> list[tuple[str, str]]:
    return re.findall(rf"```({kinds})\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def run_shell(text: str, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], cwd=folder, text=True, capture_output=True,
        timeout=500, stdin=subprocess.DEVNULL,
        env={**os.environ, "MOEC_CACHE_DIR": str(folder / "cache"), **environment})
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the pages use: config.json, a model's folder, moe-bench on the simulated device."""
    (tmp_path / "config.json").write_text(json.dumps(SPEC))
    model = tmp_path / "MODEL-FOLDER"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    tensors = generate(LayerSpec.from_json(CONFIG), tokens=1, seed=1)
    names = {"gate.weight": "gate.weight", "experts.w13": "experts.gate_up_proj",
             "experts.w2": "experts.down_proj"}
    write_tensors(model / "model.safetensors", {
        f"model.layers.{layer}.mlp.{there}": tensors[name] for layer in range(4)
        for name, there in names.items()})
    write_tensors(tmp_path / "x.safetensors", {"hidden_states": tensors["hidden_states"]})
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.json").write_text(json.dumps(ROWS))
    (data / "peers_h200.json").write_text((ROOT / "benchmarks/peers_h200.json").read_text())
    stand_in = tmp_path / "bin" / "moe-bench"
    stand_in.parent.mkdir()
    stand_in.write_text(f"""#!/bin/bash
case "$*" in *--tune=*) set -- --candidates=1 "$@" ;; esac
{shlex.quote(str(BINARIES / "moe-bench"))} --device=sim --data={shlex.quote(str(data))} --no-cache "$@" || exit
# The simulated device has no clock.
case "$*" in *--profile*) sed -i 's/"floor_us"/"graph_us": 50, "floor_us"/' results.json ;; esac
""")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    return tmp_path


@pytest.mark.parametrize("page", [
    "add-an-op.md", "add-a-format.md", "add-a-schedule.md", "debug.md"])
def test_commands_of(page: str, folder: Path) -> None:
    blocks = list_blocks(f"howto/{page}")
    assert blocks
    path = f"{folder / 'bin'}:{BINARIES}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    for _, text in blocks:
        run_shell(text, folder, PATH=path)


def test_format_of_the_page_is_that_of_the_example() -> None:
    ((_, text),) = list_blocks("howto/add-a-format.md", "mlir")
    example = " ".join((ROOT / "examples/own/weight_format.mlir").read_text().split())
    parts = text.split("...")
    assert len(parts) == 2 and all(" ".join(part.split()) in example for part in parts)


def test_report_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    _, _, (shell, commands), (python, code) = list_blocks("commands.md")
    assert (shell, python) == ("sh", "python")
    (folder / "results.json").write_text(
        json.dumps({"rows": [{"layer": "qwen3_30b", "tokens": 4, "us": 10}]}))
    layer = moec.compile("config.json", device="cpu")
    tensors = generate(LayerSpec.from_json(SPEC), tokens=4, seed=1)
    layer.bind({name: value for name, value in tensors.items() if name != "hidden_states"})
    run_shell(commands, folder, PATH=f"{BINARIES}:{os.environ['PATH']}")
    exec(code, {"layer": layer})
    assert "measured" in (folder / "layer.html").read_text()


def test_whole_models_page(folder: Path) -> None:
    """Runs the commands on the CPU; moec tune, which needs a GPU, has its own tests."""
    _, (shell, commands), *_ = list_blocks("commands.md")
    lines = [line for line in commands.splitlines() if not line.startswith("moec tune ")]
    assert shell == "sh" and len(lines) == 4 and all(line.startswith("moec ") for line in lines)
    out = run_shell("\n".join(f"{sys.executable} -m {line}" for line in lines), folder)
    assert "MODEL-FOLDER: 4 layers with experts on 2 x h200, tp 2, ep 1" in out
    assert "layer 0, as 4 of the model, checkpoint weights" in out and "<svg" in (folder / "times.svg").read_text()


def split_tutorial() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns the blocks before the section about a whole model, and the blocks in it."""
    blocks = list_blocks("use/tutorial.md", "sh|python|json")
    at = next(i for i, (_, text) in enumerate(blocks) if "pip install torch" in text)
    return blocks[:at], blocks[at:]


@pytest.mark.skipif(not WHEELS, reason="there is no wheel; scripts/wheel makes it")
def test_tutorial_with_the_wheel(tmp_path: Path) -> None:
    """Runs the tutorial in an environment with NumPy and the wheel, as one program, since later blocks use earlier
    names."""
    blocks, _ = split_tutorial()
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # NumPy is taken from this environment, not from the network.
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"))
    (tmp_path / WHEELS[-1].name).symlink_to(WHEELS[-1])
    program = []
    for kind, text in blocks:
        if kind == "sh":
            run_shell(text, tmp_path, PATH=f"{environment / 'bin'}:/usr/bin:/bin", PIP_NO_INDEX="1")
        elif kind == "json":
            (tmp_path / "config.json").write_text(text)
        else:
            program.append(text)
    program.append("print(moec.__file__, layer.report() == open('layer.html').read())")
    done = subprocess.run([environment / "bin/python", "-c", "\n".join(program)], cwd=tmp_path,
                          env={"HOME": str(tmp_path)}, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert str(environment) in done.stdout and "experts_hidden" in done.stdout
    assert (tmp_path / "layer.moepkg").stat().st_size > 10000


def test_tutorial_of_a_model() -> None:
    pytest.importorskip("transformers", reason="Transformers is not installed")
    _, blocks = split_tutorial()
    assert [kind for kind, _ in blocks] == ["sh", "python"]
    with contextlib.redirect_stdout(io.StringIO()):
        exec(blocks[1][1], {})


#: Commands without a stand-in here; test_pages_of_gpus.py covers them.
SKIPPED = ("gpu-test", "moe-bench")


def test_commands_page(folder: Path) -> None:
    block = next(text for _, text in list_blocks("commands.md", "sh"))
    inputs = generate(LayerSpec.from_json(SPEC), tokens=128, seed=1)
    write_tensors(folder / "layer.safetensors", inputs)
    for name in ("spec.json", "model.gguf"):
        (folder / name).symlink_to(ROOT / "test/Tools/Inputs/checkpoints/gguf-q4_0" / name)
    (folder / "parallel.json").write_text(
        json.dumps(SPEC | {"parallel": {"dp": 2, "experts": "linear"}}))
    (folder / "layer.mlir").write_text(
        run_shell(f"{BINARIES}/moe-compile config.json --emit=moe", folder))
    commands = [re.split(r"  +#", line)[0].strip() for line in block.splitlines()
                if line.strip() and not line.startswith(SKIPPED)]
    assert len(commands) > 20
    for command in commands:
        command = command.replace("--device=cuda", "--device=sim --target=sm_80")
        command = command.replace("moe-run layer.moepkg --tokens=64 --repeat=20 --graph",
                                  "moe-run layer.moepkg --device=sim --tokens=4 --repeat=2 --graph")
        run_shell(command, folder, PATH=f"{BINARIES}:{os.environ['PATH']}")


def test_python_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the first lines of the page on the CPU with a local model; moec.torch and moec.transformers have their own
    tests."""
    monkeypatch.chdir(folder)
    _, code = list_blocks("use/python.md", "python")[0]
    code = code.replace('"cuda:0"', '"cpu"').replace('"Qwen/Qwen3-30B-A3B", layer=3', '"MODEL-FOLDER", layer=3, device="cpu"')
    assert code.count("MODEL-FOLDER") == code.count("max_tokens=4096") == 1
    tensors = generate(LayerSpec.from_json(SPEC), tokens=3, seed=1)
    names = {"gate": tensors["gate.weight"], "w13": tensors["experts.w13"], "w2": tensors["experts.w2"],
             "hidden_states": tensors["hidden_states"]}
    exec(code, names)
    assert names["output"].shape == (3, 128)
    assert names["layer"](tensors["hidden_states"]).shape == (3, 128)
