# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers on JAX arrays, on the CPU and on a GPU."""

from __future__ import annotations

import pytest

import moec

jax = pytest.importorskip("jax", reason="JAX is not installed (pip install jax)")

import numpy as np  # noqa: E402
from small_layer import SPEC, Case  # noqa: E402


CPU = jax.devices("cpu")[0]


def as_jax(arrays: dict[str, np.ndarray], device: jax.Device = CPU) -> dict[str, jax.Array]:
    return {name: jax.device_put(each, device) for name, each in arrays.items()}


def test_arrays_go_in_and_out() -> None:
    case = Case()
    layer = moec.compile(SPEC, device=CPU)
    layer.bind(as_jax(case.weights))
    output = layer(**as_jax(case.arguments))
    assert isinstance(output, jax.Array)
    case.verify(np.asarray(output))


def test_results_of_jitted_functions_go_in() -> None:
    case = Case()
    layer = moec.compile(SPEC, device="cpu").bind(as_jax(case.weights))
    arguments = as_jax(case.arguments)
    halved = jax.jit(lambda x: x / 2)(arguments["hidden_states"])
    doubled = jax.jit(lambda x: x * 2)(halved)
    output = layer(**arguments | {"hidden_states": doubled})
    case.verify(np.asarray(output))


def test_arrays_are_not_written_to() -> None:
    case = Case()
    layer = moec.compile(SPEC, device="cpu").bind(as_jax(case.weights))
    arguments = as_jax(case.arguments)
    with pytest.raises(moec.InvalidArgument, match="out: the tensor is read-only"):
        layer(**arguments, out=jax.numpy.zeros_like(arguments["hidden_states"]))


def find_gpu() -> jax.Device | None:
    try:
        return jax.devices("cuda")[0]
    except RuntimeError:
        return None


def test_arrays_of_a_gpu_go_in_and_out() -> None:
    gpu = find_gpu()
    if gpu is None:
        pytest.skip("JAX has no GPU")
    case = Case()
    layer = moec.compile(SPEC, device="cuda:0").bind(as_jax(case.weights, gpu))
    arguments = as_jax(case.arguments, gpu)
    halved = jax.jit(lambda x: x / 2)(arguments["hidden_states"])
    doubled = jax.jit(lambda x: x * 2)(halved)
    output = layer(**arguments | {"hidden_states": doubled})
    # Later operations wait for the layer.
    follows = jax.jit(lambda x: x * 1)(output)
    assert output.devices() == {gpu}
    case.verify(np.asarray(follows))
