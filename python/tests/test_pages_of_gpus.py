# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All commands of moe-bench, gpu-test and the scripts of benchmarks/ that a page shows. Most measure a GPU: with --list
they parse all options, find the selected rows or cases, and stop."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BINARIES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[dhu]*/*.md"), ROOT / "README.md",
                ROOT / "python" / "README.md"])
PROGRAM = re.compile(
    r"(?:^|[;&] *)[^;&]*?((?:bin/)?(?:moe-bench|gpu-test) [^;&|]*|benchmarks/(?:counters|plot)\.py [^;&|]*)")
#: Commands that need no GPU and no --list.
WITHOUT_A_GPU = ("--list", "--spec", "--compare", "--table", "plot.py")


def list_blocks(text: str) -> list[str]:
    """Returns the blocks of commands."""
    blocks = re.findall(r"(?m)^```([\w+]*)\n((?:(?!```).*\n)*)```$", text)
    return [block for kind, block in blocks if kind in ("", "sh", "console")]


def list_commands() -> list[tuple[str, str]]:
    """Returns pages and commands, one line each, without comments."""
    found = []
    for page in PAGES:
        for block in list_blocks(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.split(r"  +#", line.removeprefix("$ "))[0]
                found += [(page.name, each.strip().removeprefix("bin/")) for each in PROGRAM.findall(line)]
    return found


COMMANDS = list_commands()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that the commands use."""
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    for name, record in (("old.json", "moe_bench_h200.json"), ("new.json", "moe_bench_h200.json"),
                         ("results.json", "moe_bench_h200.json"), ("r.json", "gpu_suite_h200.json"),
                         ("counters_h200.json", "counters_h200.json")):
        shutil.copy(RESULTS / record, tmp_path / name)
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess:
    path = f"{BINARIES}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path})


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 30
    assert {"test-and-measure.md", "commands.md", "c-api.md"} <= {
        page for page, _ in COMMANDS}


@pytest.mark.parametrize("command", sorted({command for _, command in COMMANDS}))
def test_commands(command: str, folder: Path) -> None:
    if config := re.search(r" --config=\S+", command):
        # A config is checked when the layer is compiled with it.
        row = command.replace(config[0], "")
        command = f"{row} --spec >spec.json; moe-compile spec.json --target=sm_90a --emit=tile{config[0]}"
    elif not any(each in command for each in WITHOUT_A_GPU):
        command += " --list"
    before = set(folder.iterdir())
    done = run(command, folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    made = set(folder.iterdir()) - before
    assert done.stdout.strip() or any(path.stat().st_size for path in made)


@pytest.mark.parametrize("command", [
    "moe-bench --rowz=dsv3:1", "moe-bench --rows=dsv4", "gpu-test --filter='smal/*'", "gpu-test --shards=1/2",
    "benchmarks/counters.py --rowz=dsv3:1"])
def test_misspelt_ones_fail(command: str, folder: Path) -> None:
    assert run(f"{command} --list", folder).returncode != 0
