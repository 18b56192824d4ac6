# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts of a described layer as PyTorch tensors, with a check of outputs by the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from moec.functions import fused_experts
from moec.reference.check import check
from moec.reference.generate import generate
from moec.reference.spec import LayerSpec

STORED = {"bfloat16": (np.uint16, torch.bfloat16), "float8_e4m3fn": (np.uint8, torch.float8_e4m3fn),
          "float8_e8m0fnu": (np.uint8, torch.uint8)}
SIZES = {"hidden_size": 64, "num_experts": 8, "top_k": 2, "intermediate_size": 32}


def to_torch(array: np.ndarray) -> torch.Tensor:
    stored, dtype = STORED.get(array.dtype.name, (None, None))
    if stored is None:
        return torch.from_numpy(array.copy())
    return torch.from_numpy(array.view(stored).copy()).view(dtype)


class Case:
    """Arguments of fused_experts(), and a check of its result by the reference."""

    def __init__(self, tokens: int = 5, seed: int = 1, **changes: Any) -> None:
        self.spec = LayerSpec.from_json({
            "moec_spec": 1, "dtype": "bf16", "entry": "ids", "activation": {"kind": "silu"},
            **SIZES, **changes,
        })
        self.tensors = generate(self.spec, tokens, seed)
        self.made = {name: to_torch(each) for name, each in self.tensors.items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.made[name]

    def run(self, *options: Any, **named: Any) -> torch.Tensor:
        return fused_experts(
            *(self[name] for name in ("hidden_states", "experts.w13", "experts.w2",
                                      "topk_weights", "topk_ids")),
            *options, **named,
        )

    def verify(self, output: torch.Tensor) -> None:
        found = output.view(torch.uint16).numpy().view(self.tensors["hidden_states"].dtype) if (
            output.dtype == torch.bfloat16
        ) else output.numpy()
        report = check(self.spec, self.tensors, {"output": found})
        assert report.ok, report.summary()
