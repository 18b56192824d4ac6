# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiler through its C API, on an emulated GPU."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from moec.jit import Compiler
from moec.runtime import MoertError

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin")).parent
LIBRARY = BUILD / "lib" / "libmoec.so.1"
SPEC = {
    "moec_spec": 1,
    "name": "small",
    "dtype": "bf16",
    "hidden_size": 64,
    "num_experts": 4,
    "top_k": 2,
    "intermediate_size": 32,
    "max_tokens": 64,
    "routing": {"renormalize": True},
    "activation": {"kind": "silu"},
}


def make_compiler(folder: Path, **options) -> Compiler:  # noqa: ANN003
    return Compiler(LIBRARY, cache_directory=folder / "cache", use_ptxas=False, **options)


def test_compiles_once(tmp_path: Path) -> None:
    told: list[str] = []
    with make_compiler(tmp_path, target="sm_80", progress=told.append) as compiler:
        first = compiler.compile(SPEC)
        assert not first.from_cache
        assert any("experts_hidden: PTX" in line for line in told)
        again = compiler.compile(dict(reversed(SPEC.items())))
        assert again.from_cache
        assert again.data == first.data
        assert not compiler.compile(SPEC, max_tokens=8).from_cache
        with compiler.runtime.from_memory(first.data) as package:
            assert '"hidden_size": 64' in package.spec
    entries = list((tmp_path / "cache").glob("*.moepkg"))
    assert len(entries) == 2
    entries[0].write_bytes(entries[0].read_bytes()[:100])
    entries[1].write_bytes(b"")
    warned: list[str] = []
    with make_compiler(tmp_path, target="sm_80", warn=warned.append) as compiler:
        rebuilt = compiler.compile(SPEC)
        assert not rebuilt.from_cache
        assert rebuilt.data == first.data
    assert len(warned) == 1
    assert "is damaged" in warned[0]


def test_takes_configs(tmp_path: Path) -> None:
    with make_compiler(tmp_path, target="sm_90a") as compiler:
        chosen = compiler.compile(SPEC)
    configs = ["experts_out:tile_rows=48 tile_columns=64 stages=4"]
    with make_compiler(tmp_path, target="sm_90a", configs=configs) as compiler:
        given = compiler.compile(SPEC)
        assert not given.from_cache
        assert given.data != chosen.data


def test_takes_a_part(tmp_path: Path) -> None:
    for part, is_known in ((None, False), ("h200", True), ("h100-sxm", False)):
        with make_compiler(tmp_path, target="sm_90a", device_part=part) as compiler:
            assert compiler.compile(SPEC).from_cache == is_known
    with pytest.raises(MoertError, match="device_part: part 'h300' is unknown; accepted are a100"):
        make_compiler(tmp_path, device_part="h300")


def test_goes_on_without_a_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache").chmod(0o777)
    warned: list[str] = []
    with make_compiler(tmp_path, target="sm_80", warn=warned.append) as compiler:
        for _ in range(2):
            assert not compiler.compile(SPEC).from_cache
    assert len(warned) == 1
    assert "may be written by others (mode 0777)" in warned[0]
    assert not list((tmp_path / "cache").iterdir())
    with make_compiler(tmp_path, target="sm_80", cache=False) as compiler:
        assert not compiler.compile(SPEC).from_cache


def test_loads_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", str(BUILD / "unittests" / "libfakecuda.so"))
    with make_compiler(tmp_path) as compiler, compiler.runtime.cuda(0) as device:
        for expected in (False, True):
            with compiler.load(ROOT / "test/models/olmoe-1b-7b.json", device) as layer:
                assert "experts.w13" in [tensor.name for tensor in layer.tensors]
                assert layer.workspace_bytes(8) > 0
            assert compiler.report.from_cache == expected
            assert compiler.report.seconds > 0


def test_serves_threads(tmp_path: Path) -> None:
    with make_compiler(tmp_path, target="sm_90a") as compiler, ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda tokens: compiler.compile(SPEC, max_tokens=tokens), [8, 9] * 4))
    assert len({compiled.data for compiled in made}) == 2
    assert sum(not compiled.from_cache for compiled in made) == 2


def test_failures_are_exceptions(tmp_path: Path) -> None:
    with make_compiler(tmp_path) as compiler:
        with pytest.raises(MoertError, match="there is no target; set moejit_options.target"):
            compiler.compile(SPEC)
    with pytest.raises(MoertError, match="target 'cpu' cannot be compiled into a package"):
        make_compiler(tmp_path, target="cpu")
    with make_compiler(tmp_path, target="sm_80") as compiler:
        with pytest.raises(MoertError) as failure:
            compiler.compile(SPEC | {"top_k": 9})
        lines = str(failure.value).split("\n")
        assert "layer.json:1:" in lines[0]
        assert "'top_k'" in lines[0]
        assert lines[2].strip().startswith("^")
        assert failure.value.code == "invalid_argument"
        with pytest.raises(MoertError, match="cannot be read") as failure:
            compiler.compile(tmp_path / "none.json")
        assert failure.value.code == "not_found"
        with pytest.raises(MoertError, match="ends with neither"):
            compiler.compile(tmp_path / "none.txt")
