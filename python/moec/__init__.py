# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mixture-of-Experts layers, compiled for the machine that runs them (docs/use/python.md).

    import moec

    layer = moec.compile("config.json", max_tokens=4096)
    layer.bind({"gate.weight": gate, "experts.w13": w13, "experts.w2": w2})
    output = layer(hidden_states)

    layer = moec.Layer.from_pretrained("model", layer=3)

`moec.torch` has layers as PyTorch operators, `moec.transformers` as experts of Transformers' models. `moec.ranks`
connects the ranks of a layer that spans several GPUs. `moec.functions`, `moec.vllm` and `moec.sglang` are functions and
plugins for inference engines. `moec.reference` is an independent reference in float64. `import moec` needs only Python;
the compiler is loaded on first use."""

from __future__ import annotations

import importlib as _importlib
import os as _os
import pathlib as _pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import functions, layers, ranks, reference, sglang, torch, transformers, vllm
    from ._core import (
        Communicator,
        Error,
        InvalidArgument,
        InvalidType,
        NotFound,
        ResourceExhausted,
        Unavailable,
    )
    from .compiler import compile, compile_package, get_num_threads, set_num_threads
    from .expectation import Expectation, ExpectedStep, ExpectedTime, expect, find_layers
    from .layer import Benchmark, Layer, PrepareReport, TensorInfo

__version__ = "0.1.0"

#: Module that defines each public name.
_HOMES = {
    "compile": "compiler",
    "compile_package": "compiler",
    "get_num_threads": "compiler",
    "set_num_threads": "compiler",
    "Communicator": "_core",
    "expect": "expectation",
    "find_layers": "expectation",
    "Expectation": "expectation",
    "ExpectedStep": "expectation",
    "ExpectedTime": "expectation",
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
    "Expectation",
    "ExpectedStep",
    "ExpectedTime",
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
    "expect",
    "find_layers",
    "get_num_threads",
    "set_num_threads",
]

#: Modules that `moec.NAME` imports.
_MODULES = ("functions", "layers", "ranks", "reference", "sglang", "torch", "transformers", "vllm")

# Folders with _core and libmoec.so.1 other than this one: MOEC_LIBRARY_DIR for a source tree, or lib/ beside python/ in
# the bundle.
for _folder in (
    _os.environ.get("MOEC_LIBRARY_DIR"),
    _pathlib.Path(__file__).resolve().parents[2] / "lib",
):
    if _folder and _os.path.isfile(_os.path.join(_folder, "_core.abi3.so")):
        __path__.append(_os.fspath(_folder))
del _folder


def __getattr__(name: str) -> object:
    if name in _MODULES:
        try:
            return _importlib.import_module("." + name, __name__)
        except ModuleNotFoundError as error:
            if error.name != "moec.reference":
                raise
            raise ModuleNotFoundError("moec.reference is not in moec's wheel: install moec_reference-*.whl, which "
                                      "scripts/wheel makes beside it", name=error.name) from None
    if name not in _HOMES:
        raise AttributeError(f"module 'moec' has no attribute '{name}'")
    value = getattr(_importlib.import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"__doc__", "__version__", *__all__, *_MODULES})
