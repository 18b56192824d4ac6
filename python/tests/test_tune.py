# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec tune: what it gives moe-bench, and what it does with the answer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from small_layer import SPEC

import moec
from moec.commands import main, tune

ROOT = Path(__file__).resolve().parents[2]
BINARIES = Path(os.environ["MOEC_BIN_DIR"])
LAYER = {
    "moec_spec": 1, "num_experts": 4, "top_k": 2, "hidden_size": 128, "intermediate_size": 128, "dtype": "bf16",
    "activation": {"kind": "silu"},
}
FOUND = {"target": "sm_90a", "configs": [
    {"kernel": "experts_hidden", "tokens": [1, 64], "config": "sm90.gemm block_m=16 block_n=64 stages=12"},
]}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A function that puts a script in the place of moe-bench, with the data beside it; a GPU is said to be there."""
    folder = tmp_path / "bundle" / "bin"
    folder.mkdir(parents=True)
    (tmp_path / "bundle" / "share").mkdir()
    (tmp_path / "bundle" / "share" / "moec").symlink_to(BINARIES.parent / "share" / "moec")
    monkeypatch.setenv("MOEC_BIN_DIR", str(folder))
    monkeypatch.setattr(tune, "find_device", lambda number: None)

    def make(script: str) -> None:
        path = folder / "moe-bench"
        path.write_text("#!/bin/bash\n" + script)
        path.chmod(0o755)

    return make


def test_faster_configs_are_written(bench, tmp_path, capfd) -> None:
    bench(f"""for word in "$@"; do case $word in --tune=*) out=${{word#*=}};; --data=*) data=${{word#*=}};; esac; done
cat "$data/rows.json" > {tmp_path / 'rows.json'}
test -f "$data/peers_h200.json" || exit 3
mkdir "$out"; echo '{json.dumps(FOUND)}' > "$out/layer.json"; echo progress""")
    layer, output = tmp_path / "layer.json", tmp_path / "tuned.json"
    layer.write_text(json.dumps({**LAYER, "quantization": {"weight": "mxfp4"}}))
    assert main(["tune", str(layer), "-o", str(output), "--tokens=1,64", "--seconds=5"]) == 0
    out, err = capfd.readouterr()
    assert out == f"{output}: use it by moe-compile --tuned={output}\n" and err == "progress\n"
    assert json.loads(output.read_text()) == FOUND
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert rows["rows"] == [{"layer": "layer", "tokens": [1, 64]}]
    assert rows["layers"][0]["dtype"] == "mxfp4" and rows["layers"][0]["hidden_size"] == 128


def test_moe_bench_takes_the_row(bench, tmp_path) -> None:
    """The real one, on a simulated GPU, which has no clock, so that no config is faster."""
    bench(f'exec {BINARIES}/moe-bench --device=sim --no-cache --candidates=1 "$@"')
    assert tune.tune(LAYER, tmp_path / "tuned.json", tokens=[1], seconds=200) is None
    assert not (tmp_path / "tuned.json").exists()


@pytest.mark.parametrize(("script", "message"), [
    ("exit 7", "ended with status 7; its messages are on the error stream"),
])
def test_a_failure_of_moe_bench_is_an_error(bench, tmp_path, script, message) -> None:
    bench(script)
    with pytest.raises(moec.Error, match=message):
        tune.tune(LAYER, tmp_path / "tuned.json")
    assert not (tmp_path / "tuned.json").exists()


def test_bad_input_is_named(bench, tmp_path) -> None:
    bench("exit 7")
    with pytest.raises(moec.InvalidArgument, match="LAYER: weights of format None and dtype 'f32' have no row"):
        tune.tune({**LAYER, "dtype": "f32"}, tmp_path / "tuned.json")
    with pytest.raises(moec.NotFound, match="output: there is no folder /no/folder"):
        tune.tune(LAYER, "/no/folder/tuned.json")
    with pytest.raises(moec.NotFound, match="output: .* is a folder; give a file name"):
        tune.tune(LAYER, tmp_path)
    assert main(["tune", str(ROOT / "test" / "models" / "olmoe-1b-7b.json"), "--seconds=0"]) == 1


def test_the_wheel_has_no_moe_bench(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tune, "find_device", lambda number: None)
    monkeypatch.setenv("MOEC_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(moec.NotFound, match="moe-bench, which measures configs, is in the bundle and not in the wheel"):
        tune.tune(LAYER, tmp_path / "tuned.json")


def test_without_a_gpu(tmp_path, monkeypatch, capsys) -> None:
    from moec import compiler

    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/no/libcuda.so")
    monkeypatch.setattr(compiler, "_devices", {})
    path = tmp_path / "layer.json"
    path.write_text(json.dumps(SPEC))
    assert main(["tune", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("moec tune: error: tuning measures configs on a GPU, and none is at hand (")
    assert "/no/libcuda.so" in err and "device=" not in err
