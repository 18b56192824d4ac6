# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec bench: a model's layers on the CPU, beside implementations that are installed."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from moec.commands import bench, chart, main, model, rivals

CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": 64, "moe_intermediate_size": 64, "num_experts": 4,
    "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [0],
    "num_hidden_layers": 3, "hidden_act": "silu", "torch_dtype": "float32",
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


def make_rival(tokens: int):
    """A rival whose runs take no time."""
    return lambda: None


def make_unfit():
    raise rivals.Unfit("it is not installed")


@pytest.fixture
def others(monkeypatch) -> None:
    """One implementation that is there, and one that is not."""
    monkeypatch.setattr(bench, "list_rivals", lambda *_: {"other": lambda: make_rival, "absent": make_unfit})


def test_the_table(config, others, capsys, tmp_path) -> None:
    chart_file = tmp_path / "chart.svg"
    words = ["bench", str(config), "--device=cpu", "--tokens=1,4", "--repeat=2", f"--svg={chart_file}"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[2] == "layer 1, as 2 of the model, random weights, median us (times of moec's)"
    assert lines[3].split() == ["tokens", "moec", "other"]
    assert [line.split()[0] for line in lines[4:6]] == ["1", "4"]
    assert lines[6] == "without absent: it is not installed"
    assert err.splitlines() == [f"moec bench: layer 1: {name}" for name in ("moec", "other", "absent")]
    texts = [each.text for each in ElementTree.fromstring(chart_file.read_text()).iter() if each.text]
    assert {"moec", "other", "tokens"} <= set(texts)


def test_json_has_seconds(config, others, capsys) -> None:
    assert main(["bench", str(config), "--device=cpu", "--tokens=2", "--repeat=3", "--layer=2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (layer,) = result["layers"]
    assert (layer["layer"], layer["like"], layer["weights"]) == (2, 2, "random")
    assert 0 < layer["seconds"]["moec"]["2"] < 60 and layer["left_out"] == {"absent": "it is not installed"}
    assert re.fullmatch(r"\d+\.\d+\.\d+( \(commit [0-9a-f]{12}\))?", result["version"])


def test_weights_of_the_checkpoint(config, others, capsys) -> None:
    """Weights beside the config.json are those that are timed; a wrong file is an error and no table."""
    (config.parent / "model.safetensors").write_bytes(b"no checkpoint")
    assert main(["bench", str(config), "--device=cpu", "--tokens=1", "--repeat=1"]) == 1
    out, err = capsys.readouterr()
    assert not out and "model.safetensors" in err


@pytest.mark.parametrize(("words", "message"), [
    (["--layer=0"], "--layer: 0 has no experts; layers from 1 to 2 have some"),
    (["--repeat=0"], "--repeat: 0 found; 1 or more is accepted"),
    (["--device=tpu"], "--device: 'tpu' found"),
    (["--svg=", "--device=cpu"], "--svg: . is a folder; give a file name"),
    (["--svg=/no/folder/x.svg", "--tokens=1", "--repeat=1", "--device=cpu"], "/no/folder/x.svg"),
])
def test_bad_input_is_named(config, others, capsys, words, message) -> None:
    assert main(["bench", str(config), *words]) == 1
    out, err = capsys.readouterr()
    assert not out and message in err.splitlines()[-1]


def test_implementations_that_are_not_installed(config, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    read = model.read_model(str(config))
    spec = read.kinds[0].spec
    made = rivals.list_rivals(read, spec, 1, "cpu")
    assert list(made) == ["eager", "grouped_mm", "vllm experts"]
    for name, message in (("eager", "torch is not installed"), ("vllm experts", "vLLM's kernels need a GPU")):
        with pytest.raises(rivals.Unfit, match=message):
            made[name]()
    with pytest.raises(rivals.Unfit, match="the weights are quantized"):
        rivals.make_transformers(read, {**spec, "quantization": {"weight": "mxfp4"}}, 1, "cpu", "eager")
    with pytest.raises(rivals.Unfit, match="only 16-bit weights with silu"):
        rivals.make_vllm(read, {**spec, "quantization": {"weight": "mxfp4"}}, 1, "cuda:0 (NVIDIA H200)")


@pytest.mark.parametrize("implementation", ["eager", "grouped_mm"])
def test_the_block_of_transformers(config, implementation) -> None:
    pytest.importorskip("transformers", reason="Transformers is not installed (pip install transformers)")
    read = model.read_model(str(config))
    run_on = rivals.make_transformers(read, read.kinds[0].spec, 1, "cpu", implementation)
    out = run_on(3)()
    assert tuple((out[0] if isinstance(out, tuple) else out).shape) == (1, 3, 64)
    assert rivals.time_runs(run_on(3), "cpu", 2) > 0


def test_a_chart_of_one_point() -> None:
    text = chart.draw_chart("a & b", [8], {"moec": {8: 12.5}})
    assert ElementTree.fromstring(text).tag.endswith("svg") and "a &amp; b" in text
