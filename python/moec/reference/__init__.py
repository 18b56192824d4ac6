# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Independent float64 reference of an MoE layer.

Written from the formulas of docs/layers.md; shares nothing with the compiler.
"""

from .check import Report, check
from .compare import BOUNDS, ROW_FACTOR, Comparison, compare
from .fields import SpecError
from .files import InputError, TensorFile, write_tensors
from .generate import HARD_INPUTS, generate
from .layer import Decision, decide, evaluate, expert_counts, expert_offsets
from .spec import LayerSpec

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
