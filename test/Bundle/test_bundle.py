# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The bundle (docs/use/c-api.md), unpacked elsewhere and run with an empty environment."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build-release" / "bin")).parent


def load_script():
    loader = importlib.machinery.SourceFileLoader("bundle", str(ROOT / "scripts" / "bundle"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bundle", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
bundle = load_script()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = BUILD.glob("moec-*-linux-x86_64.tar.xz")
    target = tmp_path_factory.mktemp("elsewhere")
    with tarfile.open(path) as tar:
        tar.extractall(target)  # made by this build; Debian 12 lacks filter="data"
    (unpacked,) = target.iterdir()
    return unpacked


def run(folder: Path, *command: object, code: int = 0, env: dict | None = None) -> str:
    """Runs with an environment without variables of the build or the caller."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env or {}, cwd=folder.parent, text=True, capture_output=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_lists_what_it_promises(folder: Path) -> None:
    assert sorted(path.name for path in (folder / "bin").iterdir()) == sorted(bundle.programs())
    for path in ("lib/libmoec.so", "lib/libmoert.so", "include/moert/moert.h", "README.md", "LICENSE",
                 "include/moejit/moejit.h", "python/moec/layer.py", "lib/_core.abi3.so", "benchmarks/plot.py",
                 "share/moec/cases.json", "share/moec/models/qwen3-30b-a3b.json"):
        assert (folder / path).is_file(), path
    assert not list(folder.rglob("__pycache__"))
    assert '"CycloneDX"' in (folder / "share/sboms/moec.cdx.json").read_text()
    assert "Henry Spencer" in (folder / "share/licenses/llvm-22-dev/copyright").read_text()


def test_compiles_for_gpus(folder: Path, tmp_path: Path) -> None:
    model = folder / "share/moec/models/qwen3-30b-a3b.json"
    ptx = run(folder, folder / "bin/moe-compile", model, "--target=sm_90a", "--emit=ptx")
    assert ".target sm_90a" in ptx
    package = tmp_path / "layer.moepkg"
    run(folder, folder / "bin/moe-compile", model, "--target=sm_80", "-o", package)
    assert "experts.w13" in run(folder, folder / "bin/moe-run", package, "--signature")


def test_runs_on_the_cpu(folder: Path, tmp_path: Path) -> None:
    model = folder / "share/moec/models/olmoe-1b-7b.json"
    outputs = tmp_path / "out.safetensors"
    text = run(folder, folder / "bin/moe-run", model, "--num-experts=8", "--tokens=4",
               f"--outputs={outputs}")
    assert outputs.stat().st_size > 4 * 2048 * 2, text


def test_runs_passes(folder: Path, tmp_path: Path) -> None:
    model = folder / "share/moec/models/olmoe-1b-7b.json"
    layer = tmp_path / "layer.mlir"
    run(folder, folder / "bin/moe-compile", model, "--emit=moe", "-o", layer)
    assert "moe.route" in run(folder, folder / "bin/moe-opt", layer, "--moe-decompose")


def test_finds_the_cases_of_the_gpu_suite(folder: Path) -> None:
    assert len(run(folder, folder / "bin/gpu-test", "--list").splitlines()) > 100
    assert len(run(folder, folder / "bin/moe-bench", "--list").splitlines()) == 60
    assert (folder / "share/moec/yardstick.py").is_file()
    text = run(folder, folder / "bin/gpu-test", "--device=host", "--filter=generator/*")
    assert "6 passed, 0 failed" in text


def test_compares_the_simulator_with_the_record(folder: Path) -> None:
    text = run(folder, folder / "bin/ptx-conform", "--device=sim", "--forms=shf.l.wrap.b32",
               f"--compare={folder / 'share/ptx-conform/h200.tsv'}")
    assert text.endswith(" 0 failed\n"), text


def test_is_used_from_python_and_c(folder: Path, tmp_path: Path) -> None:
    code = ("import moec; print(len(moec.compile_package("
            "'share/moec/models/olmoe-1b-7b.json', 'sm_90a', cache_directory='cache')))")
    env = {"PYTHONPATH": str(folder / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env, text=True,
                          capture_output=True)
    assert done.returncode == 0 and int(done.stdout) > 10000, done.stderr
    source = tmp_path / "app.c"
    source.write_text('#include "moejit/moejit.h"\n#include "moert/moert.h"\n'
                      "int main(void) { return moert_api_version() < 1; }\n")
    run(folder, shutil.which("cc"), source, "-Wall", "-Werror", f"-I{folder / 'include'}",
        f"-L{folder / 'lib'}", "-lmoec", f"-Wl,-rpath,{folder / 'lib'}", "-o", tmp_path / "app",
        env={"PATH": os.environ["PATH"]})
    run(folder, tmp_path / "app")


def test_says_which_library_is_missing(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copy(folder / "bin/moe-run", tmp_path / "moe-run")
    run(tmp_path, copy, code=127)


def test_is_the_same_each_time(folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle.pack(folder / "share", tmp_path / name, 1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("int moert_x;", [], None),
        ("int moert_x; int other;", [], "shows other"),
        ("int other __attribute__((weak));", [], "shows other"),
        ("static int hidden;", [], "shows nothing"),
        ("int moert_x;", ["-Wl,--no-as-needed", "-lstdc++"], "needs libstdc++.so.6"),
        ("int moert_x;", ["-Wl,-rpath,/opt/lib"], "looks for libraries in /opt/lib"),
        ("char moert_x[3000000] = {1};", [], "bytes"),
        ("int moert_x;", ["-Wl,-z,lazy"], "link it with -z now"),
        ("int moert_x;", ["-Wl,-z,norelro"], "link it with -z now and -z relro"),
        ("int moert_x;", ["-Wl,-z,execstack"], "has an executable stack"),
        ("int stat(); int moert_x() { return stat(); }", [], "needs stat of glibc 2.33, above 2.28"),
    ],
)
def test_checks_find_what_they_look_for(
    tmp_path: Path, source: str, options: list[str], message: str | None
) -> None:
    library = tmp_path / "libmoert.so.1"
    compiler = [shutil.which("cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-Wl,-z,now"]
    subprocess.run([*compiler, *options], input=source, text=True, check=True)
    found = bundle.check_binary(library)
    assert not found if message is None else any(message in line for line in found), found
