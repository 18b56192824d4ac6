# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the PTX of compiled layers without a GPU, to test what it computes."""

from .layer import SimulatedLayer
from .machine import Machine, SimulationError
from .program import Program

__all__ = ["Machine", "Program", "SimulatedLayer", "SimulationError"]
