# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adds the helpers of this folder, and the extension of the build, to the import path."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
BINARIES = Path(os.environ.get("MOEC_BIN_DIR", HERE.parents[1] / "build-release" / "bin"))
os.environ.setdefault("MOEC_LIBRARY_DIR", str(BINARIES.parent / "lib"))
