# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Independent float64 reference of an MoE layer.

Written from the formulas of docs/use/layers.md; shares no code with the compiler."""

import os

# Must be set before NumPy is loaded. Threads of OpenBLAS busy-wait, which makes small products twenty times slower than
# one thread on a machine that also builds or runs tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

try:
    import ml_dtypes as _ml_dtypes  # noqa: F401
    import numpy as _numpy  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"moec.reference needs NumPy and ml_dtypes; install them, as with pip install numpy ml_dtypes ({error})"
    ) from error

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
