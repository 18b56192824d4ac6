# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts gpu-test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 300
#: Whether redundant cases run too, as in the nightly run.
ALL_CASES = bool(os.environ.get("MOEC_ALL_CASES"))


def binary(name: str) -> str:
    """A tool of the build that is tested."""
    return str(Path(os.environ.get("MOEC_BIN_DIR", ROOT / "build" / "bin")) / name)


def gpu_test(*options: str) -> subprocess.CompletedProcess:
    """Runs its gpu-test."""
    return subprocess.run(
        [binary("gpu-test"), *options], capture_output=True, text=True, timeout=TIMEOUT
    )


def read(path: Path) -> dict:
    return load_file(str(path))
