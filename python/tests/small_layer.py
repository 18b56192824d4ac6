# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small layer for the CPU, with a check of outputs by the reference."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import moec
from moec.reference.check import check
from moec.reference.generate import generate
from moec.reference.spec import LayerSpec

SPEC = {
    "moec_spec": 1,
    "name": "small",
    "dtype": "bf16",
    "hidden_size": 64,
    "num_experts": 4,
    "top_k": 2,
    "intermediate_size": 32,
    "max_tokens": 64,
    "routing": {"renormalize": True},
    "activation": {"kind": "silu"},
}
#: Inputs of a call, by entry.
CALLS = {
    "gate": ("hidden_states",),
    "logits": ("hidden_states", "router_logits"),
    "ids": ("hidden_states", "topk_ids", "topk_weights"),
}


class Case:
    """A layer, its tensors and a check of its output."""

    def __init__(self, tokens: int = 5, seed: int = 1, entry: str = "gate", **changes: Any) -> None:
        self.source = SPEC | changes
        self.spec = LayerSpec.from_json(self.source).with_overrides(entry=entry)
        self.tensors = generate(self.spec, tokens, seed)
        self.entry = entry

    @property
    def weights(self) -> dict[str, np.ndarray]:
        return {name: each for name, each in self.tensors.items() if "." in name}

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        """Returns the arguments of a call."""
        return {name: each for name, each in self.tensors.items() if "." not in name}

    def compile(self, **options: Any) -> moec.Layer:
        layer = moec.compile(self.source, device="cpu", entry=self.entry, **options)
        return layer.bind(self.weights)

    def verify(self, output: np.ndarray) -> None:
        report = check(self.spec, self.tensors, {"output": np.asarray(output)})
        assert report.ok, report.summary()


@functools.cache
def shared_case(entry: str = "gate") -> tuple[Case, moec.Layer]:
    """Returns a case that tests share, since none of them changes it."""
    case = Case(entry=entry)
    return case, case.compile()
