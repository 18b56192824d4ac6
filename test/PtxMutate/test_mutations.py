# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The simulator detects mutants of the compiler's kernels: a sample of those of ptx-mutations."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 600


def test_sample():
    command = [sys.executable, str(ROOT / "scripts" / "ptx-mutations"), "--sample=3", "--seed=1",
               "--seeds=3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "indices and masks: " in done.stdout
