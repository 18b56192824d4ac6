# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recorded times of public kernels (peers.json, which scripts/peer-table writes)."""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Fields of a spec that a recorded shape is found by.
_SHAPE = ("num_experts", "top_k", "hidden_size", "intermediate_size")


@dataclass(frozen=True)
class Peer:
    """The fastest public kernel that was measured on a shape: routed experts, from hidden states, ids and weights to
    the output."""

    #: Library and variant: "vllm:tuned".
    name: str
    seconds: float
    #: The date of the record: "2026-11-21".
    date: str


@functools.cache
def _read() -> Any:
    return json.loads((pathlib.Path(__file__).parent / "peers.json").read_text())


def find_peer(spec: Mapping[str, Any], gpu: str | None, tokens: int) -> Peer | None:
    """Returns the recorded peer of a layer's shape and weights on a GPU, or None."""
    shape = [spec[name] for name in _SHAPE]
    quantization = spec.get("quantization")
    weights = quantization["weight"] if quantization else spec["dtype"]
    if quantization and set(quantization) != {"weight"}:
        return None
    for record in _read():
        if record["gpu"] == gpu and record["shape"] == shape and record["weights"] == weights:
            found = record["tokens"].get(str(tokens))
            return Peer(found[0], found[1] * 1e-6, record["date"]) if found else None
    return None
