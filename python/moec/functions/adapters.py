# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LoRA adapters of experts, as engines hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .. import InvalidArgument


@dataclass(frozen=True)
class Adapters:
    """Stacked adapters of one rank, vLLM's `w13_lora_a_stacked` and the others. They are read in place and may change
    between calls. Those of a lower rank end in zeros, and B includes the factor alpha / r."""

    #: [A, E, r, H] each, of gate and up, or of the only first product.
    w13_a: tuple[torch.Tensor, ...]
    #: [A, E, I, r] each.
    w13_b: tuple[torch.Tensor, ...]
    #: [A, E, r, I].
    w2_a: torch.Tensor
    #: [A, E, H, r].
    w2_b: torch.Tensor

    @classmethod
    def make_empty(
        cls, adapters: int, rank: int, experts: int, hidden: int, width: int, is_gated: bool, dtype: torch.dtype,
        device: torch.device,
    ) -> Adapters:
        """Returns memory of these sizes with undefined values, for calls whose tokens have no adapter."""
        def make(before: int, after: int) -> tuple[torch.Tensor, torch.Tensor]:
            sizes = (rank, before), (after, rank)
            a, b = (torch.empty((adapters, experts, *size), dtype=dtype, device=device) for size in sizes)
            return a, b

        first = [make(hidden, width) for _ in range(2 if is_gated else 1)]
        return cls(*zip(*first), *make(width, hidden))

    def list(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors by their names in a layer."""
        names = ("gate", "up")[-len(self.w13_a):]
        for name, a, b in zip(names, self.w13_a, self.w13_b):
            yield f"lora.{name}_a", a
            yield f"lora.{name}_b", b
        yield "lora.down_a", self.w2_a
        yield "lora.down_b", self.w2_b

    def describe(self, experts: int, hidden: int, width: int, dtype: torch.dtype, is_gated: bool) -> dict[str, Any]:
        """Returns `lora` of a spec. Raises InvalidArgument for tensors that a layer of these sizes cannot read."""
        matrices = 2 if is_gated else 1
        if len(self.w13_a) != matrices or len(self.w13_b) != matrices:
            raise InvalidArgument(
                f"adapters: {matrices} tensors expected of w13_a and w13_b each, {len(self.w13_a)} and "
                f"{len(self.w13_b)} found")
        adapters, _, rank = self.w2_a.shape[:3]
        for name, tensor in self.list():
            size, other = (width, hidden) if name.startswith("lora.down") else (hidden, width)
            shape = (adapters, experts, rank, size) if name.endswith("_a") else (adapters, experts, other, rank)
            if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
                gaps = "" if tensor.is_contiguous() else " with gaps"
                raise InvalidArgument(
                    f"adapters: {name} is {list(tensor.shape)} of {tensor.dtype}{gaps}; {list(shape)} of {dtype}, "
                    "contiguous, expected")
        return {"lora": {"adapters": adapters, "rank": rank}}
