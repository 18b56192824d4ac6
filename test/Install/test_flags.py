# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The flags of what is shipped (cmake/MoecHarden.cmake)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LLVM = Path("/usr/lib/llvm-22/bin")
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(probe CXX)
include({ROOT}/cmake/MoecHarden.cmake)
file(WRITE ${{CMAKE_BINARY_DIR}}/made.h "inline const char *getHeader() {{ return __FILE__; }}")
include_directories(${{CMAKE_BINARY_DIR}})
add_library(probe SHARED ${{CMAKE_SOURCE_DIR}}/probe.cpp)
"""
# A copy that overflows as soon as its size is known, an array on the stack, and paths of a source and a made file.
SOURCE = """
#include "made.h"
#include <cstring>
const char *getPaths(char *text, const char *from, unsigned long size) {
  char room[16];
  memcpy(room, from, size);
  text[0] = room[size % 16];
  return size ? __FILE__ : getHeader();
}
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The same library, built in two folders whose build folders have other names."""
    made = []
    for name in ("one", "another/one"):
        folder = tmp_path_factory.mktemp("probe") / name
        folder.mkdir(parents=True)
        (folder / "CMakeLists.txt").write_text(PROJECT)
        (folder / "probe.cpp").write_text(SOURCE)
        build = folder / f"build-{len(name)}"
        for command in (["-G", "Ninja", "-DMOEC_HARDEN=ON", "-DCMAKE_CXX_FLAGS=-O2", "-S", folder, "-B", build,
                         f"-DCMAKE_CXX_COMPILER={LLVM / 'clang++'}", "-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld"],
                        ["--build", build]):
            done = subprocess.run(["cmake", *map(str, command)], text=True, capture_output=True)
            assert done.returncode == 0, done.stdout + done.stderr
        made.append((build / "libprobe.so").read_bytes())
    return made


def test_another_folder_gives_the_same_bytes(builds: list[bytes]) -> None:
    assert builds[0] == builds[1]
    assert b"\0probe.cpp\0" in builds[0] and b"\0build/made.h\0" in builds[0]


def test_checks_are_compiled_in(builds: list[bytes]) -> None:
    assert b"__stack_chk_fail" in builds[0] and b"__memcpy_chk" in builds[0]


def test_libraries_have_no_path_of_the_build() -> None:
    library = Path(os.environ["MOEC_LIBRARY_DIR"]) / "libmoec.so.1"
    assert str(ROOT).encode() not in library.read_bytes()
