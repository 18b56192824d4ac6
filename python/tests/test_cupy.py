# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers on CuPy arrays, on a GPU."""

from __future__ import annotations

import pytest

import moec

cupy = pytest.importorskip("cupy", reason="CuPy is not installed (pip install cupy-cuda13x)")

import numpy as np  # noqa: E402
from small_layer import Case  # noqa: E402

try:
    GPUS = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    GPUS = 0
pytestmark = pytest.mark.skipif(not GPUS, reason="there is no GPU")


def as_cupy(arrays: dict[str, np.ndarray]) -> dict[str, cupy.ndarray]:
    return {name: cupy.asarray(each) for name, each in arrays.items()}


def test_cuda_arrays_go_in_and_out() -> None:
    # CuPy has no bf16.
    case = Case(dtype="f16")
    layer = moec.compile(case.source, device=cupy.cuda.Device(0))
    layer.bind(as_cupy(case.weights))
    output = layer(**as_cupy(case.arguments))
    assert isinstance(output, cupy.ndarray)
    case.verify(cupy.asnumpy(output))


def test_cuda_runs_behind_what_its_stream_has() -> None:
    case = Case(dtype="f16")
    layer = moec.compile(case.source, device="cuda:0").bind(as_cupy(case.weights))
    arguments = as_cupy(case.arguments)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        halved = arguments["hidden_states"] / 2
        output = layer(**arguments | {"hidden_states": halved * 2})
        stream.synchronize()
    case.verify(cupy.asnumpy(output))
