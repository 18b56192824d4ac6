# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a build says on a machine that lacks what it needs (cmake/MoecRequirements.cmake, scripts/setup)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRESET = {
    "name": "bare",
    "inherits": "release",
    "binaryDir": "${sourceDir}/build",
    "cacheVariables": {
        "CMAKE_C_COMPILER": "/nowhere/bin/clang", "CMAKE_CXX_COMPILER": "/nowhere/bin/clang++",
        "MLIR_DIR": "/nowhere/lib/cmake/mlir",
    },
}


def configure(folder: Path) -> str:
    """Configures a tree of links to this one with a preset of its own; returns the error."""
    for path in ROOT.iterdir():
        if path.name not in ("CMakePresets.json", ".git") and not path.name.startswith("build"):
            (folder / path.name).symlink_to(path)
    presets = json.loads((ROOT / "CMakePresets.json").read_text())
    (folder / "CMakePresets.json").write_text(
        json.dumps({"version": 6, "configurePresets": [*presets["configurePresets"], PRESET]}))
    done = subprocess.run(["cmake", "--preset=bare"], cwd=folder, text=True, capture_output=True)
    assert done.returncode == 1
    return done.stderr


def test_says_in_three_lines_what_is_missing(tmp_path: Path) -> None:
    lines = configure(tmp_path).splitlines()
    first = next(i for i, line in enumerate(lines) if "moec's build needs" in line)
    assert lines[first].strip() == (
        "moec's build needs what is not here: clang 22 (/nowhere/bin/clang++), lld 22 (/nowhere/bin/ld.lld), "
        "MLIR 22.1 (/nowhere/lib/cmake/mlir/MLIRConfig.cmake), LLVM 22.1 (/nowhere/lib/cmake/llvm/LLVMConfig.cmake).")
    assert "scripts/setup installs it" in lines[first + 1] and "wheel" in lines[first + 2]
    assert lines[first + 3].startswith("Call Stack")


def test_setup_refuses_what_it_does_not_know() -> None:
    done = subprocess.run([ROOT / "scripts/setup", "--all"], text=True, capture_output=True)
    assert done.returncode == 2 and "scripts/setup --dev" in done.stderr


def test_setup_for_users_leaves_out_what_tests_need(tmp_path: Path) -> None:
    """apt-get, dpkg-query and Python are stand-ins, which write down what would be installed."""
    copy = tmp_path / "tree"
    (copy / "scripts").mkdir(parents=True)
    (copy / "scripts/setup").write_bytes((ROOT / "scripts/setup").read_bytes())
    (copy / "python").mkdir()
    for name in ("requirements.txt", "requirements-dev.txt"):
        (copy / "python" / name).write_bytes((ROOT / "python" / name).read_bytes())
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder, name, text in [(programs, "dpkg-query", "exit 1"), (programs, "sudo", 'exec "$@"'),
                               (programs, "apt-get", f'echo apt-get "$@" >>{tmp_path}/log'),
                               (copy / ".venv/bin", "python", ""),
                               (copy / ".venv/bin", "pip", f'echo pip "$@" >>{tmp_path}/log')]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    wanted = {}
    for option in ([], ["--dev"]):
        (tmp_path / "log").unlink(missing_ok=True)
        done = subprocess.run(["bash", copy / "scripts/setup", *option], text=True, capture_output=True,
                              env={"PATH": f"{programs}:{os.environ['PATH']}"})
        assert done.returncode == 0, done.stderr
        wanted[bool(option)] = (tmp_path / "log").read_text()
    for package in ("clang-22=", "libmlir-22-dev=", "rapidjson-dev", "requirements.txt"):
        assert package in wanted[False] and (package in wanted[True]) == (package != "requirements.txt")
    for package in ("chromium", "clang-tidy-22=", "libclang-rt-22-dev=", "requirements-dev.txt"):
        assert package not in wanted[False] and package in wanted[True]
