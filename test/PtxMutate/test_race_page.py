# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of docs/howto/debug.md; with --write, puts what they print into the page."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "howto" / "debug.md"
BIN = Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin"))


def run_page(page: str, folder: Path) -> str:
    """The page with the current output of its commands, run in one shell in `folder`."""
    layer = re.search(r"```json\n(.*?)```", page, re.DOTALL).group(1)
    (folder / "layer.json").write_text(layer)
    mark = "-- end of a command --"
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    commands = [[line[2:] for line in block.splitlines() if line.startswith("$ ")]
                for block in blocks]
    script = "exec 2>&1\n" + "".join(f"{command}\necho '{mark}'\n" for block in commands
                                     for command in block)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}",
                                "MOEC_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    # On a slow machine moe-run prints progress.
    printed = re.sub(r"^moe-run: .* \.\.\. \d+ s\n", "", done.stdout, flags=re.MULTILINE)
    outputs = iter(printed.split(mark + "\n"))
    for block, of_block in zip(blocks, commands):
        text = "".join(f"$ {command}\n{next(outputs)}" for command in of_block)
        page = page.replace(f"```console\n{block}```", f"```console\n{text}```", 1)
    return page


def without_numbers(page: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"\b[0-9a-f]{16}\b", "N", page))


def test_page(tmp_path):
    page = PAGE.read_text()
    assert without_numbers(page) == without_numbers(run_page(page, tmp_path))
    # Events that the page must show.
    assert "gives different bits from seed 0" in page
    assert "race: a write that nothing orders after the read" in page
    assert "(layer.tile.mlir:" in page
    assert "deadlock: no thread can continue" in page


def test_source():
    """The lines of the compiler that the page shows are there."""
    shown = re.search(r"```c\+\+\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    source = ROOT / "lib" / "Schedules" / "Sm80Gemm" / "Products.cpp"
    assert shown in source.read_text()


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    with tempfile.TemporaryDirectory() as temporary:
        PAGE.write_text(run_page(PAGE.read_text(), Path(temporary)))
