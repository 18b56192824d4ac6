# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Independent float64 reference of an MoE layer.

Written from the formulas of docs/layers.md; shares nothing with the compiler.
"""

import os

# Before NumPy loads: threads of OpenBLAS wait spinning, which on a machine that
# also builds or runs tests makes small products twenty times slower than one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from .check import Report, check  # noqa: E402
from .compare import BOUNDS, ROW_FACTOR, Comparison, compare  # noqa: E402
from .fields import SpecError  # noqa: E402
from .files import InputError, TensorFile, write_tensors  # noqa: E402
from .generate import HARD_INPUTS, generate  # noqa: E402
from .layer import Decision, decide, evaluate, expert_counts, expert_offsets  # noqa: E402
from .spec import LayerSpec  # noqa: E402

__all__ = [
    "BOUNDS",
    "Comparison",
    "Decision",
    "HARD_INPUTS",
    "InputError",
    "LayerSpec",
    "ROW_FACTOR",
    "Report",
    "SpecError",
    "TensorFile",
    "check",
    "compare",
    "decide",
    "evaluate",
    "expert_counts",
    "expert_offsets",
    "generate",
    "write_tensors",
]
