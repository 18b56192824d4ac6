# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheels (scripts/wheel), installed in an empty environment and used without the build tree."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import moec

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["MOEC_LIBRARY_DIR"]).parent
WHEELS = sorted(BUILD.glob("moec-*.whl"))
REFERENCES = sorted(BUILD.glob("moec_reference-*.whl"))
INFO = f"moec-{moec.__version__}.dist-info"
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
    """Returns one Python of each supported version: that of the tests, those on the PATH, of pyenv and of
    scripts/pythons."""
    found = {f"3.{sys.version_info.minor}": Path(sys.executable)}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*map(Path, os.get_exec_path()), *sorted(pyenv.glob("3.*/bin")), *ROOT.glob(".pythons/*/usr/bin")]
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
    assert WHEELS[0].name == f"moec-{moec.__version__}-cp310-abi3-manylinux_2_28_x86_64.whl"
    assert [each.name for each in REFERENCES] == [f"moec_reference-{moec.__version__}-py3-none-any.whl"]
    assert WHEELS[0].stat().st_size < 40e6


def read(name: str) -> str:
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        return wheel.read(f"{INFO}/{name}").decode()


def test_contents() -> None:
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        names = set(wheel.namelist())
    assert {"moec/__init__.py", "moec/py.typed", "moec/_core.abi3.so", "moec/_core.pyi",
            "moec/libmoec.so.1", "moec/torch.py", "moec/transformers.py", "moec/module_experts.py", "moec/gates.py",
            "moec/commands/info.py", "moec/__main__.py", "moec/functions/experts.py", "moec/vllm/experts.py",
            "moec/sglang/runner.py", "moec/include/moert/moert.h", "moec/include/moejit/moejit.h",
            f"{INFO}/licenses/LICENSE"} <= names
    assert not [name for name in names if "__pycache__" in name or "/src/" in name or "/reference/" in name]
    plugins = read("entry_points.txt")
    assert "[vllm.general_plugins]\nmoec = moec.vllm:plugin" in plugins
    assert "moec = moec.commands:main" in plugins and "moe-compile = moec.commands:moe_compile" in plugins
    assert "[sglang.srt.plugins]\nmoec = moec.sglang:plugin" in plugins


def test_metadata() -> None:
    metadata, page = read("METADATA").split("\n\n", 1)
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert required and all("extra ==" in each for each in required)
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE)) == {"torch", "transformers", "vllm"}
    assert f"\nVersion: {moec.__version__}\n" in metadata and "Requires-Python: >=3.10" in metadata
    urls = dict(re.findall(r"^Project-URL: (\w+), (\S+)$", metadata, re.MULTILINE))
    assert {"Documentation", "Source", "Changelog", "Issues"} <= set(urls)
    # An index shows the page without the folders around it.
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert links and all(link.startswith("https://") for link in links)


def test_tells_what_is_linked_in() -> None:
    """Each component of the bill of materials has its licence in the wheel."""
    bill = json.loads(read("sboms/moec.cdx.json"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", moec.__version__)
    versions = {each["name"]: each.get("version", "") for each in bill["components"]}
    assert versions["llvm"].startswith("22.1.") and {"mlir", "zlib", "zstd", "blake3", "libstdc++"} <= set(versions)
    for each in bill["components"]:
        assert each["licenses"][0]["expression"], each
        if "purl" in each:
            debian = re.match(r"pkg:deb/debian/([^@]+)@", each["purl"])[1].replace("%2B", "+")
            assert "opyright" in read(f"licenses/{debian}/copyright")
    assert "Yann Collet" in read("licenses/llvm-22-dev/xxhash.txt")
    assert "Henry Spencer" in read("licenses/llvm-22-dev/copyright")
    assert "The ggml authors" in read("licenses/ggml-grids.txt")


def load_script(name: str):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def test_is_the_same_from_another_folder(tmp_path: Path) -> None:
    """The wheel without libraries; test/Install/test_flags.py compiles in two folders."""
    for name in ("python/reference", "python/moec/reference"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "python/moec/__init__.py", tmp_path / "python/moec")
    build_wheel = load_script("wheel").build_wheel
    made = [build_wheel(folder / "python/reference", tmp_path / f"made{i}") for i, folder in enumerate((ROOT, tmp_path))]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_a_file_that_git_does_not_know_is_refused(tmp_path: Path) -> None:
    shutil.copy(WHEELS[0], tmp_path)
    with zipfile.ZipFile(tmp_path / WHEELS[0].name, "a") as wheel:
        wheel.writestr("moec/scratch.py", "")
    found = load_script("wheel").check_contents(tmp_path / WHEELS[0].name)
    assert found == ["has moec/scratch.py, which is no file of git's: add or remove it"]


def test_runs_a_layer_in_an_empty_environment(environment: Path) -> None:
    done = run(environment, PROGRAM)
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr


def test_reference_is_a_distribution_of_its_own(environment: Path, tmp_path: Path) -> None:
    """The reference is imported beside the wheel, and without it."""
    done = run(environment, "import moec.reference")
    assert done.returncode == 1 and "No module named 'moec.reference'" in done.stderr
    done = run(environment, "import moec; moec.reference")
    assert done.returncode == 1 and "install moec_reference-*.whl" in done.stderr
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index",
                    "--no-deps", f"--target={tmp_path}", REFERENCES[0]], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    code = "from moec.reference import LayerSpec; import moec; print(moec.__name__)"
    here = os.path.dirname(os.path.dirname(__import__("numpy").__file__))
    for beside in ([], [packages]):
        merged = tmp_path / f"merged{len(beside)}"
        for folder in (*beside, tmp_path):
            shutil.copytree(folder / "moec", merged / "moec", dirs_exist_ok=True)
        done = subprocess.run([environment / "bin/python", "-S", "-c", code], text=True, capture_output=True,
                              env={"PYTHONPATH": f"{merged}:{here}"})
        assert (done.returncode, done.stdout) == (0, "moec\n"), done.stderr


def test_describes_the_machine(environment: Path) -> None:
    """pip with --target makes no scripts: the command runs as a module."""
    done = subprocess.run([environment / "bin/python", "-m", "moec", "info"], env={}, cwd=environment, text=True,
                          capture_output=True)
    (folder,) = environment.glob("lib/python3*/site-packages/moec")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("moec ") and f"library       {folder / 'libmoec.so.1'} (SHA-256 " in done.stdout


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
    bundle = load_script("bundle")
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
STABLE_PRIVATE = {"_Py_Dealloc", "_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct", "_Py_FalseStruct"}


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
