# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model on disk, as the commands that take one see it: its layers with experts and the bytes of its weights."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..compiler import print_spec
from ..expectation import find_layers, measure_weights
from ..hub import find_model


@dataclass(frozen=True)
class LayerKind:
    """Decoder layers with equal specs."""

    #: The spec (docs/use/layers.md), without a name.
    spec: Mapping[str, Any]
    #: Decoder layers, counted from 0.
    layers: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A model's config.json and what lies beside it, or its GGUF file."""

    #: The folder, the file, or the name that was given.
    name: str
    config: pathlib.Path
    kinds: tuple[LayerKind, ...]
    #: Bytes of all weights; None if no checkpoint lies beside the config.json.
    weight_bytes: int | None
    #: Bytes of the layers with experts among them; None if they are as many as in memory. Blocks of GGUF are not.
    layer_bytes: int | None = None

    @property
    def is_gguf(self) -> bool:
        """Whether the model is a GGUF file, or the folder of one."""
        return self.config.suffix == ".gguf" or self.config.is_dir()

    @property
    def num_layers(self) -> int:
        """Number of decoder layers with experts."""
        return sum(len(kind.layers) for kind in self.kinds)


def _find_config(path: str) -> pathlib.Path:
    """Returns the config.json, the GGUF file, or the folder of one."""
    found = pathlib.Path(find_model(path))
    if found.is_dir() and ((found / "config.json").exists() or not any(found.glob("*.gguf"))):
        found = found / "config.json"
    if not found.exists():
        raise _core.NotFound(
            f"MODEL: there is no file {os.fspath(found)!r}; give a model's folder, its config.json, a GGUF file, or the "
            'name of a model in the cache of the Hugging Face hub ("org/name")'
        )
    return found


def _read_total_size(index: pathlib.Path) -> int | None:
    try:
        size = json.loads(index.read_text())["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) and size > 0 else None


def _measure_weights(folder: pathlib.Path) -> int | None:
    """Returns the total_size of the index, or the bytes of the only file of weights."""
    total = _read_total_size(folder / "model.safetensors.index.json")
    if total is None:
        try:
            total = (folder / "model.safetensors").stat().st_size
        except OSError:
            return None
    return total


def read_model(path: str, ignore_fields: Sequence[str] = ()) -> Model:
    """Reads a model's folder, config.json or GGUF file, or a model in the hub's cache. Raises NotFound or
    InvalidArgument."""
    config = _find_config(path)
    layers = find_layers(config)
    if not layers:
        raise _core.InvalidArgument(f"MODEL: no decoder layer of {config} has experts")
    kinds: dict[str, tuple[dict[str, Any], list[int]]] = {}
    for layer in layers:
        spec = print_spec(config, layer=layer, ignore_fields=ignore_fields)
        spec.pop("name", None)
        kinds.setdefault(json.dumps(spec, sort_keys=True), (spec, []))[1].append(layer)
    found = tuple(LayerKind(spec, tuple(numbers)) for spec, numbers in kinds.values())
    model = Model(path, config, found, None)
    if model.is_gguf:
        layer_bytes, all_bytes = measure_weights(config)
        return Model(path, config, found, all_bytes, layer_bytes)
    return Model(path, config, found, _measure_weights(config.parent))


def get_experts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the spec of the routed experts alone: from hidden states, ids and weights to the output."""
    experts = {name: value for name, value in spec.items() if name not in ("shared_experts", "routing")}
    routing = {name: value for name, value in spec.get("routing", {}).items() if name == "weight_on_input"}
    return {**experts, **({"routing": routing} if routing else {}), "entry": "ids"}
