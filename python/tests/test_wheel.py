# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel (scripts/wheel), installed in an empty environment and used without the build tree."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["MOEC_LIBRARY_DIR"]).parent
WHEELS = sorted(BUILD.glob("moec-*.whl"))
pytestmark = pytest.mark.skipif(not WHEELS, reason="there is no wheel; scripts/wheel makes it")

#: One token, in Python alone: two experts whose matrices are multiples of the unit matrix.
PROGRAM = """
import array, math, sys
import moec
assert "site-packages" in moec.__file__, moec.__file__

class Tensor:
    # NumPy is not there, and memory of the interpreter is told of by hand.
    def __init__(self, device, shape, code, values):
        self.buffer = moec._core.Buffer(device, shape, code, 32)
        self.buffer.copy_in(array.array("if"[code == 2], values).tobytes())
        self.__dlpack__, self.__dlpack_device__ = self.buffer.__dlpack__, self.buffer.__dlpack_device__

import moec._core
from moec.compiler import find_device
size, cpu = 32, find_device("cpu")
unit = [float(i % size == i // size) for i in range(size * size)]
spec = {"moec_spec": 1, "dtype": "f32", "hidden_size": size, "num_experts": 2, "top_k": 2,
        "intermediate_size": size, "max_tokens": 4, "entry": "ids", "activation": {"kind": "silu"}}
layer = moec.compile(spec, device="cpu")
layer.bind({"experts.w13": Tensor(cpu, (2, 2 * size, size), 2, unit * 4),
            "experts.w2": Tensor(cpu, (2, size, size), 2, unit + [3 * x for x in unit])})
hidden = [i / size - 0.5 for i in range(size)]
out = Tensor(cpu, (1, size), 2, [math.nan] * size)
layer(Tensor(cpu, (1, size), 2, hidden), topk_ids=Tensor(cpu, (1, 2), 0, [1, 0]),
      topk_weights=Tensor(cpu, (1, 2), 2, [0.5, 0.25]), out=out)
found = array.array("f", out.buffer.copy_out())
for x, y in zip(hidden, found):
    assert abs(y - 1.75 * x / (1 + math.exp(-x)) * x) < 1e-6, (x, y)
libraries = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
assert not [name for name in libraries if "LLVM" in name or "MLIR" in name], libraries
assert not {"numpy", "torch", "ml_dtypes"} & set(sys.modules)
print("right")
"""


def list_pythons() -> dict[str, Path]:
    """Returns one Python of each supported version: that of the tests, those on the PATH and those of pyenv."""
    found = {f"3.{sys.version_info.minor}": Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [Path(each) for each in os.get_exec_path()] + sorted(pyenv.glob("3.*/bin"))
    for minor in range(10, 15):
        for folder in folders:
            path = folder / f"python3.{minor}"
            # A pyenv shim may be of a version that is not installed.
            if f"3.{minor}" not in found and path.is_file() and folder.name != "shims":
                found[f"3.{minor}"] = path
    return found


PYTHONS = list_pythons()


def make_environment(folder: Path, python: Path, version: str) -> Path:
    """Makes an environment with only the wheel, without pip; the tests' pip checks that the wheel fits the version."""
    subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index",
         f"--target={packages}", "--only-binary=:all:", f"--python-version={version}",
         "--implementation=cp", WHEELS[-1]],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    version = f"3.{sys.version_info.minor}"
    return make_environment(tmp_path_factory.mktemp("environment"), PYTHONS[version], version)


def run(environment: Path, code: str) -> subprocess.CompletedProcess:
    return subprocess.run([environment / "bin/python", "-c", code], env={}, cwd=environment, text=True,
                          capture_output=True)


def test_is_the_only_one() -> None:
    assert len(WHEELS) == 1
    assert WHEELS[0].name == "moec-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl"
    assert WHEELS[0].stat().st_size < 40e6


def test_contents() -> None:
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read("moec-0.1.0.dist-info/METADATA").decode()
        plugins = wheel.read("moec-0.1.0.dist-info/entry_points.txt").decode()
    assert {"moec/__init__.py", "moec/py.typed", "moec/_core.abi3.so", "moec/_core.pyi",
            "moec/libmoec.so.1", "moec/torch.py", "moec/transformers.py", "moec/module_experts.py", "moec/gates.py",
            "moec/functions/experts.py", "moec/vllm/experts.py", "moec/sglang/runner.py",
            "moec/include/moert/moert.h",
            "moec/include/moejit/moejit.h", "moec/reference/layer.py",
            "moec-0.1.0.dist-info/licenses/LICENSE"} <= names
    assert not [name for name in names if "__pycache__" in name or "/src/" in name]
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert required and all("extra ==" in each for each in required)
    assert "Requires-Python: >=3.10" in metadata
    assert "[vllm.general_plugins]\nmoec = moec.vllm:plugin" in plugins
    assert "[sglang.srt.plugins]\nmoec = moec.sglang:plugin" in plugins


def test_runs_a_layer_in_an_empty_environment(environment: Path) -> None:
    done = run(environment, PROGRAM)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(10, 15)])
def test_runs_a_layer_in_every_python(version: str, tmp_path: Path) -> None:
    if version not in PYTHONS:
        pytest.skip(f"there is no Python {version}")
    environment = make_environment(tmp_path / "environment", PYTHONS[version], version)
    assert run(environment, "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip() == version
    done = run(environment, PROGRAM)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr


def test_headers_are_c(environment: Path, tmp_path: Path) -> None:
    (folder,) = environment.glob("lib/python3*/site-packages/moec")
    source = tmp_path / "app.c"
    source.write_text('#include "moejit/moejit.h"\n'
                      "int main(void) { return moejit_api_version() != MOEJIT_API_VERSION; }\n")
    subprocess.run([shutil.which("cc"), "-Wall", "-Werror", f"-I{folder / 'include'}", source,
                    folder / "libmoec.so.1", f"-Wl,-rpath,{folder}", "-o", tmp_path / "app"], check=True)
    subprocess.run([tmp_path / "app"], check=True, env={})


def test_symbols(environment: Path) -> None:
    (folder,) = environment.glob("lib/python3*/site-packages/moec")
    loader = importlib.machinery.SourceFileLoader("bundle", str(ROOT / "scripts" / "bundle"))
    bundle = importlib.util.module_from_spec(importlib.util.spec_from_loader("bundle", loader))
    loader.exec_module(bundle)
    for name in ("_core.abi3.so", "libmoec.so.1"):
        assert bundle.check_binary(folder / name) == []
        text = bundle.output(bundle.LLVM / "llvm-nm", "-D", "--defined-only", folder / name)
        shown = {line.split()[-1].split("@")[0] for line in text.splitlines()}
        assert not [each for each in shown if re.search("llvm|LLVM|mlir", each)]
    assert shown > {"moert_api_version", "moejit_load_layer"}
    wanted = bundle.output(bundle.LLVM / "llvm-nm", "-D", "-u", folder / "_core.abi3.so").split()
    assert not [each for each in wanted if each.startswith("_Py")
                and not each.endswith("_SizeT") and each not in STABLE_PRIVATE]


#: Private names of the stable ABI that its headers' macros use.
STABLE_PRIVATE = {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct", "_Py_FalseStruct"}


def test_another_library_is_refused(environment: Path, tmp_path: Path) -> None:
    (folder,) = environment.glob("lib/python3*/site-packages/moec")
    copy = shutil.copytree(folder, tmp_path / "moec", ignore=shutil.ignore_patterns("libmoec*"))
    wanted = wanted_symbols(folder)
    names = set(re.findall(r"\b(?:moert|moejit)_\w+", wanted))
    source = "".join(f"int {name}(void) {{ return 99; }}\n" for name in sorted(names))
    script = tmp_path / "map"
    versions = set(re.findall(r"@(MOE\w+_\d+)", wanted))
    script.write_text("".join(f"{each} {{ global: {each.split('_')[0].lower()}_*; }};\n"
                              for each in sorted(versions)))
    subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-x", "c", "-", "-o",
                    copy / "libmoec.so.1", "-Wl,-soname,libmoec.so.1",
                    f"-Wl,--version-script={script}"], input=source, text=True, check=True)
    done = subprocess.run([environment / "bin/python", "-c", "import moec; moec.compile"],
                          cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, text=True,
                          capture_output=True)
    assert done.returncode == 1
    assert "ImportError: libmoec.so.1 has version 99 of moert.h, moec needs " in done.stderr


def wanted_symbols(folder: Path) -> str:
    """Returns the symbols that the module needs from the library, with versions."""
    return subprocess.run(["/usr/lib/llvm-22/bin/llvm-nm", "-D", "-u", folder / "_core.abi3.so"],
                          text=True, capture_output=True, check=True).stdout
