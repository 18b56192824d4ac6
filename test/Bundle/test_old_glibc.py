# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""cmake/OldGlibc.cpp: a library with its definitions loads with the promised glibc, and they behave as glibc's do."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from pathlib import Path

import pytest
from test_bundle import bundle

CLANG = Path("/usr/lib/llvm-22/bin/clang++")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The probe, under the name of a library of the bundle and linked like it."""
    path = tmp_path_factory.mktemp("probe") / "libmoert.so.1"
    source = Path(__file__).parent / "Inputs" / "old-glibc.cpp"
    subprocess.run([CLANG, "-std=c++17", "-O1", "-fno-builtin", "-Wall", "-Werror", "-shared", "-fPIC", "-s", source,
                    "-o", path, "-fuse-ld=lld", "-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections",
                    "-Wl,--exclude-libs,ALL", "-Wl,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2"], check=True)
    return path


def test_needs_the_promised_glibc_alone(path: Path) -> None:
    assert [each for each in bundle.check_binary(path) if "glibc" in each or "needs" in each] == []


@pytest.mark.parametrize("name", ["exceptions", "memory_and_random", "threads", "waits", "libraries"])
def test_does_what_glibc_does(path: Path, name: str) -> None:
    # An uncaught exception ends the process.
    code = f"import ctypes; print(ctypes.CDLL('{path}').moert_{name}())"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_files(path: Path, tmp_path: Path) -> None:
    assert ctypes.CDLL(str(path)).moert_files(str(tmp_path).encode()) == 0


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "pow", "hypot"])
def test_numbers_are_those_of_the_newest_version(path: Path, name: str) -> None:
    found, wanted = ctypes.CDLL(str(path))[f"moert_{name}"], ctypes.CDLL("libm.so.6")[name]
    count = 2 if name in ("pow", "hypot") else 1
    for function in (found, wanted):
        function.argtypes, function.restype = [ctypes.c_double] * count, ctypes.c_double
    generator = random.Random(46)
    values = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 5e-324, 1e308, -1e308]
    values += [generator.uniform(-1, 1) * 10.0 ** generator.randrange(-20, 20) for _ in range(2000)]
    for x in values:
        arguments = (x, generator.choice(values))[:count]
        # repr distinguishes the signs of zeros and is equal for every NaN.
        assert repr(found(*arguments)) == repr(wanted(*arguments)), arguments
