# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The caller's rounding mode and flush-to-zero do not change any bit of a layer's result."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

import numpy as np
import pytest
from small_layer import Case

import moec

UPWARD = 0x800  # FE_UPWARD of x86


@contextmanager
def rounding_upward():
    """Sets this thread's rounding mode, as a numeric library may leave it."""
    libm = ctypes.CDLL("libm.so.6")
    before = libm.fegetround()
    if libm.fesetround(UPWARD) != 0:
        pytest.skip("the number of this rounding is that of x86")
    try:
        yield
    finally:
        libm.fesetround(before)


# field-bug: HMMER#106, OpenBLAS#1237
def test_callers_rounding_changes_no_bit():
    case = Case(tokens=64, dtype="f32", routing={"score": "sigmoid", "renormalize": True, "scale": 2.3})
    layer = case.compile()
    usual = np.asarray(layer(**case.arguments)).tobytes()
    with rounding_upward():
        assert len({np.asarray(layer(**case.arguments)).tobytes() for _ in range(8)} | {usual}) == 1
        # A layer compiled, and its threads started, in that state.
        again = moec.compile(case.source | {"name": "again"}, device="cpu", entry=case.entry)
        again.bind(case.weights)
        assert np.asarray(again(**case.arguments)).tobytes() == usual
