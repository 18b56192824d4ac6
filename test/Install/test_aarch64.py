# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel for aarch64 (scripts/sysroot, the preset aarch64), used in an emulator with the sysroot's Python."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

import moec

ROOT = Path(__file__).resolve().parents[2]
WHEELS = sorted((ROOT / "build-aarch64").glob("moec-*_aarch64.whl"))
SYSROOT = ROOT / ".sysroot-aarch64"
QEMU = shutil.which("qemu-aarch64-static")
pytestmark = [
    pytest.mark.skipif(not WHEELS, reason="there is no wheel for aarch64; scripts/sysroot says how to make it"),
    pytest.mark.skipif(not QEMU, reason="there is no qemu-aarch64-static; the package qemu-user-static has it"),
]
SPEC = {
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 256, "num_experts": 8, "top_k": 2, "intermediate_size": 128,
    "max_tokens": 64, "routing": {"renormalize": True}, "activation": {"kind": "silu"},
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    with zipfile.ZipFile(WHEELS[-1]) as wheel:
        wheel.extractall(folder)
    return folder


def run(packages: Path, code: str) -> subprocess.CompletedProcess:
    return subprocess.run([QEMU, "-L", SYSROOT, SYSROOT / "usr/bin/python3.11", "-c", code], text=True,
                          capture_output=True, cwd=packages,
                          env={"PYTHONPATH": str(packages), "PYTHONHOME": str(SYSROOT / "usr"),
                               "HOME": str(packages), "PYTHONDONTWRITEBYTECODE": "1"})


def test_packages_are_those_of_x86(packages: Path) -> None:
    """A package without machine code is the one that this machine makes, byte for byte."""
    done = run(packages, f"""
import moec, platform
open("layer.moepkg", "wb").write(moec.compile_package({SPEC}, "sm_90a", cache=False, use_ptxas=False))
print(moec.__version__, platform.machine())
""")
    assert (done.returncode, done.stdout) == (0, f"{moec.__version__} aarch64\n"), done.stderr
    wanted = moec.compile_package(SPEC, "sm_90a", cache=False, use_ptxas=False)
    assert b".target sm_90a" in wanted
    assert (packages / "layer.moepkg").read_bytes() == wanted


def test_cpu_is_refused(packages: Path) -> None:
    done = run(packages, f"import moec; moec.compile({SPEC}, device='cpu')")
    assert done.returncode == 1
    assert "target cpu: its kernels are x86-64 code, and this process is aarch64; compile for a GPU" in done.stderr
