# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""scripts/include-graph: an include that breaks a rule is named with the rule."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "scripts/include-graph"


def check(tree: Path, files: dict[str, str]) -> subprocess.CompletedProcess:
    """Runs the check in a tree with `files`, each of which has one include (empty: none)."""
    (tree / SCRIPT).parent.mkdir()
    shutil.copy(ROOT / SCRIPT, tree / SCRIPT)
    for name, included in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(f'\n#include "{included}"\n' if included else "")
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    return subprocess.run([sys.executable, SCRIPT, "--check"], cwd=tree, text=True, capture_output=True)


#: File, what it includes, where that is (empty: generated), and the rule that it breaks (empty: none).
INCLUDES = [
    ("lib/Compiler/Levels.cpp", "moec/Interpreter/Tensor.h", "include/moec/Interpreter/Tensor.h",
     "the compiler does not include verify/"),
    ("lib/Tools/Run/RunLevel.cpp", "moec/Interpreter/Tensor.h", "include/moec/Interpreter/Tensor.h", ""),
    ("verify/Interpreter/Tensor.cpp", "moec/Dialect/Names.h", "include/moec/Dialect/Names.h", ""),
    ("runtime/src/plan/Plan.cpp", "moec/Dialect/Passes.h.inc", "", "the runtime includes nothing of the compiler"),
    ("lib/KernelBuilder/Phase.cpp", "moec/Schedules/Cost.h", "include/moec/Schedules/Cost.h",
     "lib/KernelBuilder knows no schedule"),
    ("lib/KernelBuilder/Float8.cpp", "moec/Schedules/ProductTypes.h", "include/moec/Schedules/ProductTypes.h", ""),
    ("lib/Transforms/Launch/Join.cpp", "Schedules/Sm90Gemm/Join.h", "lib/Schedules/Sm90Gemm/Join.h",
     "transforms and conversions reach schedules through lib/Schedules/Interface"),
    ("lib/Conversion/TileToNVVM/Kernel.cpp", "Schedules/Interface/Emit.h", "lib/Schedules/Interface/Emit.h", ""),
    ("lib/Schedules/Interface/Device.cpp", "KernelBuilder/Phase.h", "lib/KernelBuilder/Phase.h",
     "the interface of schedules includes no schedule"),
    ("lib/Schedules/Gemv/Choice.cpp", "../Registry/List.h", "lib/Schedules/Registry/List.h",
     "schedules do not include the registry"),
    ("verify/PtxSim/Engine.cpp", "moec/Support/Json.h", "include/moec/Support/Json.h",
     "the PTX tools in verify/Ptx* include nothing of the compiler"),
    ("verify/PtxSim/Simulator.cpp", "moec/PtxSim/Simulator.h", "include/moec/PtxSim/Simulator.h", ""),
]


@pytest.mark.parametrize("is_wrong", [True, False])
def test_rules(tmp_path, is_wrong):
    chosen = [row for row in INCLUDES if bool(row[3]) == is_wrong]
    headers = {header: "" for _, _, header, _ in chosen if header}
    done = check(tmp_path, headers | {file: included for file, included, _, _ in chosen})
    assert done.returncode == (1 if is_wrong else 0), done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (2 * len(chosen) if is_wrong else 0)
    for file, included, _, rule in chosen:
        if is_wrong:
            at = lines.index(f'{file}:2: #include "{included}"')
            assert lines[at + 1].startswith(f"  {rule}")


def test_circles_are_named(tmp_path):
    done = check(tmp_path, {"lib/Support/Json.h": "Jit/Cache.h", "lib/Jit/Cache.h": "Support/Json.h"})
    assert done.returncode == 1
    assert "folders include each other in a circle: Jit -> Support -> Jit" in done.stdout
