# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixture-of-Experts layers, compiled for the machine that runs them (docs/python.md).

    import moec

    layer = moec.compile("config.json", device="cuda:0", max_tokens=4096)
    layer.bind({"gate.weight": gate, "experts.w13": w13, "experts.w2": w2})
    output = layer(hidden_states)

    layer = moec.Layer.from_pretrained("model", layer=3)

`moec.torch` has the same as PyTorch operators, `moec.transformers` as experts of Transformers' models,
`moec.ranks` connects the ranks of a layer over several GPUs; `moec.functions`, `moec.vllm` and `moec.sglang` as functions and plugins of engines, `moec.reference` an
independent reference in float64.
`import moec` needs Python alone; the compiler is loaded with the first name of it that is used.
"""

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

#: Which module has a name.
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

# Where _core and libmoec.so.1 are, if not in this folder: what the variable says, for a tree of
# sources, or lib/ beside python/, as in the bundle.
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
