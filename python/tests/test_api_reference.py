# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/api-reference: its pages describe everything that the libraries export, and a declaration without a comment
is an error."""

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


def run(root: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, root / "scripts" / "api-reference", *options], text=True,
                          capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The script with what it reads and writes."""
    for name in (*HEADERS, "scripts/api-reference"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_check_writes_nothing(tree: Path) -> None:
    done = run(tree, "--check")
    assert done.returncode == 0 and not (tree / "docs").exists(), done.stderr


def test_pages_have_what_the_library_exports(tmp_path: Path) -> None:
    done = run(ROOT, f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(
        ["/usr/lib/llvm-22/bin/llvm-nm", "-D", "--defined-only", BINARIES.parent / "lib/libmoec.so.1"],
        text=True, capture_output=True, check=True).stdout
    symbols = set(re.findall(r" T ((?:moert|moejit)_\w+)", shown))
    described = set(re.findall(r"(?m)^#### `(\w+)`", (tmp_path / "c.md").read_text()))
    assert len(symbols) > 40 and symbols <= described
    # C++ wraps most of them; the others are for C alone.
    wrapped = set(re.findall(r"`(\w+)\(\)`", (tmp_path / "cpp.md").read_text()))
    assert wrapped <= symbols and len(wrapped) > 20


def comment_above(declaration: str) -> str:
    """An expression for the comment directly above a declaration."""
    return r"(?: */\*(?:[^*]|\*(?!/))*\*/\n|(?: *///.*\n)+)(?=" + re.escape(declaration) + ")"


#: Per header: the text to remove, its replacement, and the expected error.
CHANGES = [
    (0, comment_above("MOERT_API void moert_status_free("), "", "moert.h: moert_status_free"),
    (0, comment_above("#define MOERT_API_VERSION"), "", "moert.h: MOERT_API_VERSION"),
    (0, comment_above("  int rank;"), "", "moert.h: moert_tensor_info: int rank;"),
    (0, comment_above("  MOERT_OUTPUT = 2"), "", "moert.h: moert_role: MOERT_OUTPUT = 2"),
    (1, comment_above("class Layer : "), "", "moert.hpp: Layer"),
    (1, comment_above("  void reset()"), "", "moert.hpp: Handle: void reset()"),
    (1, r"  int64_t maxTokens\(\) const \{ .* \}\n", "  int more() { return 1; }\n",
     "moert.hpp: Layer: int more()"),
    (2, comment_above("typedef struct moejit_report {"), "", "moejit.h: moejit_report"),
    (3, comment_above("  Error load(const char *path,"), "", "moejit.hpp: Compiler: Error load(const char *path"),
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


def test_pages_follow_the_headers(tree: Path) -> None:
    page, header = tree / "docs/reference/c.md", tree / HEADERS[0]
    assert run(tree).returncode == 0
    before = page.read_text()
    header.write_text(header.read_text().replace("MOERT_OK for NULL.", "MOERT_OK of NULL."))
    assert run(tree).returncode == 0
    assert page.read_text() == before.replace("MOERT_OK for NULL.", "MOERT_OK of NULL.") != before


def test_headers_without_declarations_are_an_error(tree: Path) -> None:
    for name in HEADERS[::2]:
        (tree / name).write_text("")
    done = run(tree)
    assert done.returncode == 1 and "the headers declare nothing for c.md" in done.stderr
