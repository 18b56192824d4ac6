# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec installed under a prefix: the examples, built by find_package and by pkg-config, compute what the reference
does; a program of another version of the API does not start."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from moec.reference import LayerSpec, decide, evaluate, generate

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build-release" / "bin")).parent
EXAMPLES = ROOT / "examples"
TOKENS = 5
SPEC = {
    "moec_spec": 1, "dtype": "f32", "entry": "gate", "hidden_size": 24, "num_experts": 6, "top_k": 2,
    "intermediate_size": 20, "routing": {"renormalize": True}, "activation": {"kind": "silu"},
}


def run(*command: object, code: int = 0, **more) -> subprocess.CompletedProcess:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Moved after the installation, since no file may depend on the original location."""
    folder = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--component", "development", "--prefix", folder / "first")
    return (folder / "first").rename(folder / "moec")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(SPEC))
    return path


def fill(state: int, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers of the examples."""
    numbers = []
    for _ in range(math.prod(shape)):
        state = (state * 1664525 + 1013904223) % 2**32
        numbers.append((state >> 16) / 65536 - 0.5)
    return np.array(numbers, np.float32).reshape(shape)


def check(printed: str) -> None:
    spec = LayerSpec.from_json(SPEC)
    compare(printed, spec, {name: fill(len(name), each.shape) for name, each in generate(spec, TOKENS, 1, None).items()})


def compare(printed: str, spec: LayerSpec, tensors: dict[str, np.ndarray]) -> None:
    wanted = np.asarray(evaluate(spec, tensors, decide(spec, tensors)), np.float64)
    found = np.array([line.split() for line in printed.splitlines()], np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


@pytest.fixture(scope="module")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the examples, built by CMake."""
    folder = tmp_path_factory.mktemp("examples")
    run("cmake", "-S", EXAMPLES, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder)
    return folder


def test_examples_by_cmake(programs: Path, model: Path, tmp_path: Path) -> None:
    for program in ("run_layer", "run_layer_cpp"):
        check(run(programs / program, model, TOKENS).stdout)
        done = run(programs / program, tmp_path / "none.json", TOKENS, code=1)
        assert "none.json" in done.stderr
        assert "usage" in run(programs / program, model, code=2).stderr
        other = tmp_path / "bf16.json"
        other.write_text(json.dumps(SPEC | {"dtype": "bf16"}))
        done = run(programs / program, other, TOKENS, code=1)
        assert "dtype bf16 expected, f32 found" in done.stderr


@pytest.mark.parametrize("program", ["run_parts", "run_parts_cpp"])
def test_parts_of_two_ranks(programs: Path, tmp_path: Path, program: str) -> None:
    """Prepare, experts and finalize alone: both ranks' rows of the layer of all experts."""
    parts = EXAMPLES / "parts"
    described = json.loads((parts / "experts-0.json").read_text())
    del described["placement"]
    spec, most = LayerSpec.from_json(described), described["max_tokens"] // 2
    hidden, width = described["hidden_size"], described["intermediate_size"]

    def join(seed: int, shape: tuple[int, ...], count: int) -> np.ndarray:
        return np.concatenate([fill(seed + rank, shape)[:count] for rank in range(2)])

    ids = [(np.arange(most * 2) * 3 + rank).reshape(most, 2)[:TOKENS] % 4 for rank in range(2)]
    compare(run(programs / program, parts, TOKENS, env={}).stdout, spec, {
        "hidden_states": join(10, (most, hidden), TOKENS), "topk_weights": join(20, (most, 2), TOKENS),
        "topk_ids": np.concatenate(ids).astype(np.int32), "experts.w13": join(30, (2, 2 * width, hidden), 2),
        "experts.w2": join(40, (2, hidden, width), 2)})
    assert "max_tokens = 16" in run(programs / program, parts, most + 1, code=1).stderr
    assert "prepare.mlir" in run(programs / program, tmp_path, TOKENS, code=1).stderr
    assert "usage" in run(programs / program, parts, code=2).stderr
    # An output that does not fit the input of the next part.
    shutil.copytree(parts, tmp_path / "parts")
    other = tmp_path / "parts" / "finalize.mlir"
    other.write_text(other.read_text().replace("24xf32", "24xbf16"))
    stderr = run(programs / program, tmp_path / "parts", TOKENS, code=1).stderr
    assert "'partial'" in stderr and "dtype bf16 expected, f32 found" in stderr


@pytest.mark.parametrize(("compiler", "source"), [("cc", "c/run_layer.c"), ("c++", "cpp/run_layer.cpp")])
def test_examples_by_pkg_config(compiler: str, source: str, prefix: Path, model: Path, tmp_path: Path) -> None:
    """The commands of docs/use/c-api.md, with ~/moec as the prefix."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/use/c-api.md").read_text(), re.DOTALL)
    (lines,) = (block for block in blocks if "pkg-config" in block)
    shutil.copy(EXAMPLES / source, tmp_path)
    lines = re.sub(r"^cc run_layer\.c", f"{compiler} {Path(source).name}", lines, flags=re.MULTILINE)
    environment = {"HOME": str(prefix.parent), "PATH": os.environ["PATH"]}
    run("sh", "-e", "-c", lines, cwd=tmp_path, env=environment)
    check(run(tmp_path / "a.out", model, TOKENS, env={}).stdout)


def test_examples_are_short() -> None:
    for source in ("c/run_layer.c", "cpp/run_layer.cpp"):
        assert len((EXAMPLES / source).read_text().splitlines()) <= 60


def test_commands_are_installed(prefix: Path) -> None:
    """Commands that read data find it under the prefix."""
    assert "USAGE" in run(prefix / "bin/moe-compile", "--help", env={}).stdout
    assert len(run(prefix / "bin/moe-bench", "--list", env={}).stdout.splitlines()) == 60
    assert len(run(prefix / "bin/gpu-test", "--list", env={}).stdout.splitlines()) > 100


def test_another_version_does_not_start(prefix: Path, tmp_path: Path) -> None:
    """A program records the version of the library it was linked with; at its start another version is refused."""
    source = tmp_path / "main.c"
    source.write_text('#include "moert/moert.h"\nint main(void) { return moert_api_version() != MOERT_API_VERSION; }\n')
    header = (prefix / "include/moert/moert.h").read_text()
    version = int(re.search(r"#define MOERT_API_VERSION (\d+)", header)[1])
    program = tmp_path / "program"
    flags = (f"-I{prefix / 'include'}", f"-L{prefix / 'lib'}", "-lmoert")
    run(shutil.which("cc"), source, *flags, "-o", program)
    run(program, env={"LD_LIBRARY_PATH": str(prefix / "lib")})
    script = tmp_path / "map"
    script.write_text(f"MOERT_{version + 1} {{ global: moert_*; }};")
    run(shutil.which("cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", tmp_path / "libmoert.so.1",
        f"-Wl,--version-script={script}", "-Wl,-soname,libmoert.so.1",
        input="int moert_api_version(void) { return 0; }\n")
    done = run(program, code=1, env={"LD_LIBRARY_PATH": str(tmp_path)})
    assert f"version `MOERT_{version}' not found" in done.stderr
