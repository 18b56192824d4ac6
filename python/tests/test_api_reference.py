# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/api-reference: the pages match the headers and cover all exported functions; a missing comment is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BINARIES

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ("runtime/include/moert/moert.h", "runtime/include/moert/moert.hpp",
           "include/moejit/moejit.h", "include/moejit/moejit.hpp")
PAGES = ("docs/reference/c.md", "docs/reference/cpp.md")


def run(root: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, root / "scripts" / "api-reference", *options], text=True,
                          capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The script with its inputs and outputs."""
    for name in (*HEADERS, *PAGES, "scripts/api-reference"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_pages_are_up_to_date() -> None:
    done = run(ROOT, "--check")
    assert done.returncode == 0, done.stderr


def test_pages_have_what_the_library_shows() -> None:
    shown = subprocess.run(
        ["/usr/lib/llvm-22/bin/llvm-nm", "-D", "--defined-only", BINARIES.parent / "lib/libmoec.so.1"],
        text=True, capture_output=True, check=True).stdout
    symbols = set(re.findall(r" T ((?:moert|moejit)_\w+)", shown))
    described = set(re.findall(r"(?m)^#### `(\w+)`", (ROOT / PAGES[0]).read_text()))
    assert len(symbols) > 40 and symbols <= described
    # Each function has a C++ wrapper or is C only.
    wrapped = set(re.findall(r"`(\w+)\(\)`", (ROOT / PAGES[1]).read_text()))
    assert wrapped <= symbols and len(wrapped) > 20


#: Per header: the text to remove, its replacement, and the expected error.
CHANGES = [
    (0, r"/\* NULL is accepted, here and by all that frees. \*/\n", "", "moert.h: moert_status_free"),
    (0, r"/\* Raised whenever a call or a structure changes. \*/\n", "", "moert.h: MOERT_API_VERSION"),
    (0, r"  /\* The number of dimensions. \*/\n", "", "moert.h: moert_tensor_info: int rank;"),
    (0, r"  /\* Written by every run. \*/\n", "", "moert.h: moert_role: MOERT_OUTPUT = 2"),
    (1, r"/// A layer on a device.\n", "", "moert.hpp: Layer"),
    (1, r"  /// Frees it.\n", "", "moert.hpp: Handle: void reset()"),
    (1, r"  int64_t maxTokens\(\) const \{ .* \}\n", "  int more() { return 1; }\n",
     "moert.hpp: Layer: int more()"),
    (2, r"/\* How a layer came about. \*/\n", "", "moejit.h: moejit_report"),
    (3, r"  /// The same of a file or folder.*\n  ///.*\n", "", "moejit.hpp: Compiler: Error load(const char *path"),
]


@pytest.mark.parametrize("header, what, instead, message", CHANGES, ids=[each[3] for each in CHANGES])
def test_what_has_no_comment_is_an_error(
    tree: Path, header: int, what: str, instead: str, message: str
) -> None:
    assert run(tree, "--check").returncode == 0
    path = tree / HEADERS[header]
    text, count = re.subn(what, instead, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    done = run(tree)
    assert done.returncode == 1 and "write a comment above each:\n  " in done.stderr
    assert message in done.stderr


def test_old_pages_are_named_and_written_anew(tree: Path) -> None:
    page, header = tree / PAGES[0], tree / HEADERS[0]
    wanted = page.read_text()
    header.write_text(header.read_text().replace("MOERT_OK for NULL.", "MOERT_OK of NULL."))
    done = run(tree, "--check")
    assert done.returncode == 1 and "not up to date: docs/reference/c.md; run scripts/" in done.stderr
    assert page.read_text() == wanted
    assert run(tree).returncode == 0
    assert page.read_text() == wanted.replace("MOERT_OK for NULL.", "MOERT_OK of NULL.")
