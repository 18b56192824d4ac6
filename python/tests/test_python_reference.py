# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/python-reference: the page has every public name with its docstring, and a name without one is an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import moec

ROOT = Path(__file__).resolve().parents[2]


def run(root: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "scripts" / "python-reference", *options], text=True, capture_output=True
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The script with what it reads."""
    shutil.copytree(ROOT / "python" / "moec", tmp_path / "python" / "moec")
    shutil.copytree(ROOT / "python" / "src", tmp_path / "python" / "src")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "python-reference", tmp_path / "scripts")
    return tmp_path


def test_the_page_has_every_public_name(tmp_path: Path) -> None:
    done = run(ROOT, f"--output={tmp_path}")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "python.md").read_text().replace("\\_", "_")
    heads = re.findall(r"^#+ (.*)$", page, re.M)
    assert set(moec.__all__) <= set(heads)
    # Members of the C++ class, and of the Python class above it; internals are left out.
    assert {"Layer.workspace_bytes", "Layer.bind", "MoE.forward", "fused_experts", "register"} <= set(heads)
    assert "- `max_tokens: int`: " in page and "Layer.bind_weight" not in heads
    text = " ".join(page.split())
    assert " ".join(moec.Layer.workspace_bytes.__doc__.split()) in text
    for name in ("compile", "expect"):
        assert getattr(moec, name).__doc__.split("\n")[0] in text


def test_check_writes_nothing(tree: Path) -> None:
    done = run(tree, "--check")
    assert done.returncode == 0 and not (tree / "docs").exists(), done.stderr


@pytest.mark.parametrize(("file", "before", "after", "missing"), [
    ("python/moec/layer.py", '        """Returns a second layer', '        x = """', "layer.py: Layer.clone"),
    ("python/moec/layer.py", "    #: Time of each run, ascending.\n", "", "layer.py: Benchmark.seconds"),
    ("python/moec/ranks.py", '    """Connects the ranks', '    x = """', "ranks.py: connect"),
    ("python/src/Layer.cpp", '"Waits for the stream of the latest call."', '""', "_core.pyi: Layer.synchronize"),
])
def test_a_name_without_a_docstring_is_an_error(tree: Path, file, before, after, missing) -> None:
    path = tree / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    done = run(tree, "--check")
    assert done.returncode == 1 and missing in done.stderr, done.stderr
