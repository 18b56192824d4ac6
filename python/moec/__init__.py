# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixture-of-Experts layers, compiled for the machine that runs them (docs/use/python.md).

    import moec

    layer = moec.compile("config.json", device="cuda:0", max_tokens=4096)
    layer.bind({"gate.weight": gate, "experts.w13": w13, "experts.w2": w2})
    output = layer(hidden_states)

    layer = moec.Layer.from_pretrained("model", layer=3)

`moec.torch` has layers as PyTorch operators, `moec.transformers` as experts of Transformers' models. `moec.ranks`
connects the ranks of a layer that spans several GPUs. `moec.functions`, `moec.vllm` and `moec.sglang` are functions and
plugins for inference engines. `moec.reference` is an independent reference in float64. `import moec` needs only Python;
the compiler is loaded on first use."""

from __future__ import annotations

import importlib
import os
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import (
        Communicator,
        Error,
        InvalidArgument,
        InvalidType,
        NotFound,
        ResourceExhausted,
        Unavailable,
    )
    from .compiler import compile, compile_package
    from .layer import Benchmark, Layer, PrepareReport, TensorInfo

__version__ = "0.1.0"

#: Module that defines each public name.
_HOMES = {
    "compile": "compiler",
    "compile_package": "compiler",
    "Communicator": "_core",
    "Benchmark": "layer",
    "Layer": "layer",
    "PrepareReport": "layer",
    "TensorInfo": "layer",
    "Error": "_core",
    "InvalidArgument": "_core",
    "InvalidType": "_core",
    "NotFound": "_core",
    "ResourceExhausted": "_core",
    "Unavailable": "_core",
}

__all__ = [
    "Benchmark",
    "Communicator",
    "Error",
    "InvalidArgument",
    "InvalidType",
    "Layer",
    "NotFound",
    "PrepareReport",
    "ResourceExhausted",
    "TensorInfo",
    "Unavailable",
    "compile",
    "compile_package",
]

# Folders with _core and libmoec.so.1 other than this one: MOEC_LIBRARY_DIR for a source tree, or lib/ beside python/ in
# the bundle.
for _folder in (
    os.environ.get("MOEC_LIBRARY_DIR"),
    pathlib.Path(__file__).resolve().parents[2] / "lib",
):
    if _folder and os.path.isfile(os.path.join(_folder, "_core.abi3.so")):
        __path__.append(os.fspath(_folder))
del _folder


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'moec' has no attribute '{name}'")
    value = getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
