# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command `moec`, `python -m moec`, and the scripts of the compiler's commands."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from small_layer import SPEC

import moec
from moec.commands import TOOLS, cache, info, main

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moec", *words], text=True, capture_output=True, env={**os.environ, **variables},
        timeout=120,
    )


def test_info_describes_the_machine() -> None:
    done = run("info", "--json", MOEC_CACHE_DIR="/nowhere", MOEC_PTXAS="/no/ptxas", MOERT_NCCL_LIBRARY="libno.so")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(re.escape(moec.__version__) + r" \(commit [0-9a-f]{12}\)", report["moec"])
    library = Path(report["library"].split(" (")[0])
    assert library.is_file() and library.name == "libmoec.so.1"
    assert f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores" in report["CPU"]
    assert report["cache"] == "/nowhere, 0 layers, 0.0 MiB"
    assert report["ptxas"].startswith("/no/ptxas does not run: ")
    assert report["NCCL"].startswith("none: libno.so")
    assert "MOEC_CACHE_DIR=/nowhere" in report["variables"]
    assert {"GPUs", "driver", "vllm", "sglang", "torch"} <= report.keys()


def test_info_is_text() -> None:
    lines = run("info").stdout.splitlines()
    assert lines[0].split()[:3] == ["moec", moec.__version__, "(commit"]
    assert all(re.match(r"\S| {4}", line) for line in lines)


@pytest.mark.parametrize(("installed", "expected"), [
    ("0.33.0", "0.33.0, which the plugin supports"),
    ("0.33.1+cu130", "0.33.1+cu130, which the plugin supports"),
    ("0.34.0", "0.34.0; the plugin supports 0.33, and leaves others as they are"),
    (None, "not installed"),
])
def test_info_says_whether_the_plugin_takes_an_engine(installed, expected, monkeypatch) -> None:
    monkeypatch.setattr(info, "_find_version", lambda package: installed)
    assert info.collect()["vllm"] == expected


def test_the_cache_is_listed_and_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    package = moec.compile_package(SPEC, "sm_80", cache_directory=folder, use_ptxas=False)
    other = folder / "notes.txt"
    other.write_text("stays")
    size = f"{os.stat(next(folder.glob('*.moepkg'))).st_size / 2**20:.1f} MiB"
    assert package
    total = f"{folder}: 1 layers, {size}\n"
    assert run("cache", MOEC_CACHE_DIR=str(folder)).stdout == total
    listed = run("cache", "list", MOEC_CACHE_DIR=str(folder)).stdout
    assert listed.endswith(total) and next(folder.glob("*.moepkg")).name in listed
    assert run("cache", "clear", MOEC_CACHE_DIR=str(folder)).stdout == f"1 layers removed, {size}\n"
    assert run("cache", MOEC_CACHE_DIR=str(folder)).stdout == f"{folder}: 0 layers, 0.0 MiB\n"
    assert other.read_text() == "stays"
    assert not moec.compile_package(SPEC, "sm_80", cache_directory=folder, use_ptxas=False).from_cache


def test_measured_rates_are_told_and_cleared(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert "CPU's rates" in run("info", MOEC_CACHE_DIR=folder).stdout
    assert json.loads(run("info", "--json", MOEC_CACHE_DIR=folder).stdout)["CPU's rates"] == \
        "not measured yet; moec fit MODEL --gpu=cpu measures them"
    rates = {"cpu": "a CPU, 2 threads", "reads": [[4e6, 4e10], [8e8, 2.5e10]], "fma": 2.2e11, "bf16_pairs": 0,
             "bf16_tiles": 3.1e12, "int8_quads": 0, "int8_tiles": 0}
    (tmp_path / cache.RATES).write_text(json.dumps(rates))
    assert json.loads(run("info", "--json", MOEC_CACHE_DIR=folder).stdout)["CPU's rates"] == \
        "25.0 GB/s, f32 0.22 T/s, bf16 3.10 T/s (a CPU, 2 threads)"
    run("cache", "clear", MOEC_CACHE_DIR=folder)
    assert not list(tmp_path.iterdir())


def test_the_cache_folder_is_that_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variables, expected in (
        ({"MOEC_CACHE_DIR": str(tmp_path / "own")}, tmp_path / "own"),
        ({"XDG_CACHE_HOME": str(tmp_path / "xdg")}, tmp_path / "xdg" / "moec"),
        ({"XDG_CACHE_HOME": "relative", "HOME": str(tmp_path / "home")}, tmp_path / "home" / ".cache" / "moec"),
    ):
        for name in ("MOEC_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cache.find_folder() == expected
        moec.compile_package(SPEC, "sm_80", use_ptxas=False)
        assert len(cache.list_entries()) == 1


def test_runs_the_compilers_commands(tmp_path: Path) -> None:
    layer = tmp_path / "layer.json"
    layer.write_text(json.dumps(SPEC))
    done = run("compile", str(layer), "--emit=moe")
    assert done.returncode == 0 and "moe.layer" in done.stdout
    done = run("compile", str(tmp_path / "no.json"))
    assert done.returncode == 1 and "no.json: error: cannot be read" in done.stderr
    assert run("run", "--version").stdout.startswith(f"moec {moec.__version__}")


def test_refuses_other_commands() -> None:
    for words in ((), ("copmile",), ("cache", "drop")):
        done = run(*words)
        assert done.returncode == 2 and "usage: moec" in done.stderr


def test_an_interrupt_ends_a_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("moec.commands.info._run", interrupt)
    assert main(["info"]) == 130
    assert capsys.readouterr() == ("", "")


def test_scripts_exist() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    scripts = dict(re.findall(r'(?m)^(moec|moe-\w+) = "([\w.:]+)"$', text.split("[project.scripts]")[1]))
    assert scripts.keys() == {"moec", *TOOLS.values()}
    tools = (ROOT / "include" / "moec" / "Tools" / "Tools.def").read_text()
    assert set(re.findall(r'(?m)^MOEC_TOOL\("([\w-]+)"', tools)) == set(TOOLS.values())
    for place in scripts.values():
        module, function = place.split(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_a_package_and_a_benchmark_print_in_a_line() -> None:
    package = moec.compile_package(SPEC, "sm_80", use_ptxas=False)
    assert re.fullmatch(r"<moec\.Package for sm_80, \d+\.\d MiB>", repr(package))
    assert str(package) == f"{package}" == repr(package)
    times = moec.Benchmark((1e-6, 2e-6, 4e-6))
    assert repr(times) == "<moec.Benchmark of 3 runs: median 2.0 us, best 1.0 us>"


def test_modules_are_found_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import moec, sys; moec.ranks; print(dir(moec)); moec.nothing"],
        text=True, capture_output=True,
    )
    assert "'compile'" in done.stdout and "'torch'" in done.stdout
    assert not {"'os'", "'_importlib'", "'Any'"} & set(re.findall(r"'\w+'", done.stdout))
    assert "module 'moec' has no attribute 'nothing'" in done.stderr


def test_the_default_device_is_the_cpu_without_a_gpu() -> None:
    program = "import moec, json, sys; print(moec.compile(json.loads(sys.argv[1])).device)"
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(SPEC)], text=True, capture_output=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.stdout == "cpu\n", done.stderr
