# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The notebooks of examples/notebooks, executed from the first cell to the last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")

FOLDER = Path(__file__).resolve().parents[2] / "examples/notebooks"
#: Left out unless MOEC_ALL_CASES is set, since they compile for most of a minute.
SLOW = {"package-for-a-gpu", "whole-model"}
#: What a notebook imports beside moec and NumPy, and a text of its output.
NOTEBOOKS = {
    "layer-on-the-cpu": ([], "relative error"),
    "package-for-a-gpu": ([], "layer.html"),
    "whole-model": (["torch", "transformers"], "largest difference of logits"),
}


def test_all_are_executed() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed, printed = NOTEBOOKS[name]
    if name in SLOW and "MOEC_ALL_CASES" not in os.environ:
        pytest.skip("left out for time; set MOEC_ALL_CASES=1")
    for module in needed:
        pytest.importorskip(module)
    for variable in ("JUPYTER_DATA_DIR", "IPYTHONDIR", "MOEC_CACHE_DIR", "TMPDIR"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, os.fspath(tmp_path / variable))
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=tmp_path)
    text = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert printed in text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_kept_without_results(name: str) -> None:
    """Results differ by machine, and would change with every execution."""
    for cell in nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None
