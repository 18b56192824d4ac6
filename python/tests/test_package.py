# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.compile_package and its cache."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_layer import SPEC

import moec


def compile_into(folder: Path, source: object = SPEC, target: str = "sm_80", **options):
    return moec.compile_package(
        source, target, cache_directory=folder / "cache", use_ptxas=False, **options
    )


def test_compiles_once(tmp_path: Path) -> None:
    told: list[str] = []
    first = compile_into(tmp_path, progress=told.append)
    assert not first.from_cache and first.seconds > 0
    assert any("experts_hidden: PTX" in line for line in told)
    again = compile_into(tmp_path, dict(reversed(SPEC.items())))
    assert again.from_cache and again == first
    assert not compile_into(tmp_path, max_tokens=8).from_cache
    entries = list((tmp_path / "cache").glob("*.moepkg"))
    assert len(entries) == 2
    entries[0].write_bytes(entries[0].read_bytes()[:100])
    entries[1].write_bytes(b"")
    warned: list[str] = []
    rebuilt = compile_into(tmp_path, warn=warned.append)
    assert not rebuilt.from_cache and rebuilt == first
    assert len(warned) == 1 and "is damaged" in warned[0]


def test_takes_configs(tmp_path: Path) -> None:
    chosen = compile_into(tmp_path, target="sm_90a")
    configs = ["experts_out:block_m=48 block_n=64 stages=4"]
    given = compile_into(tmp_path, target="sm_90a", configs=configs)
    assert not given.from_cache and given != chosen


def test_takes_a_part(tmp_path: Path) -> None:
    for part, is_known in ((None, False), ("h200", True), ("h100-sxm", False)):
        made = compile_into(tmp_path, target="sm_90a", device_part=part)
        assert made.from_cache == is_known
    with pytest.raises(moec.Error, match="device_part: part 'h300' is unknown; accepted are a100"):
        compile_into(tmp_path, device_part="h300")


def test_goes_on_without_a_cache(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache").chmod(0o777)
    assert not compile_into(tmp_path).from_cache
    assert "moec: warning: " in (text := capfd.readouterr().err)
    assert "may be written by others (mode 0777)" in text
    assert not list((tmp_path / "cache").iterdir())
    assert not compile_into(tmp_path, cache=False).from_cache
    assert capfd.readouterr().err == ""


def test_serves_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda tokens: compile_into(tmp_path, target="sm_90a",
                                                         max_tokens=tokens), [8, 9] * 4))
    assert len(set(made)) == 2
    assert sum(not package.from_cache for package in made) == 2


def test_listeners_that_fail_keep_nothing_from_being_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_value))

    def fail(_: str) -> None:
        raise RuntimeError("not now")

    assert compile_into(tmp_path, progress=fail)
    assert told and all(isinstance(each, RuntimeError) for each in told)


def test_failures_are_exceptions(tmp_path: Path) -> None:
    with pytest.raises(moec.InvalidArgument, match="target 'cpu' cannot be compiled into"):
        compile_into(tmp_path, target="cpu")
    with pytest.raises(moec.InvalidArgument, match="target 'sm_1' is unknown"):
        compile_into(tmp_path, target="sm_1")
    with pytest.raises(moec.InvalidArgument) as failure:
        compile_into(tmp_path, SPEC | {"top_k": 9})
    lines = str(failure.value).split("\n")
    assert "layer.json:1:" in lines[0] and "'top_k'" in lines[0]
    assert lines[2].strip().startswith("^")
    with pytest.raises(moec.NotFound, match="cannot be read") as failure:
        compile_into(tmp_path, tmp_path / "none.json")
    assert failure.value.code == "not_found"
