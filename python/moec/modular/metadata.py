# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the halves of a kernel hand to each other beside rows: counts of rows, and memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Optional

import torch

from .. import InvalidArgument


@dataclasses.dataclass
class ExpertTokensMetadata:
    """The number of rows of each local expert, on the device and, where known, on the host."""

    #: i32 [E] on the device of the rows; None if it is not known.
    expert_num_tokens: Optional[torch.Tensor]
    #: The same on the host; None if only the device knows.
    expert_num_tokens_cpu: Optional[torch.Tensor]

    @staticmethod
    def make_from_list(expert_num_tokens_list: Sequence[int], device: Any) -> ExpertTokensMetadata:
        """Returns counts that the host has, and their copy, which the current stream makes."""
        counts = torch.tensor(list(expert_num_tokens_list), dtype=torch.int32)
        if torch.device(device).type == "cuda":
            counts = counts.pin_memory()
        return ExpertTokensMetadata(counts.to(device, non_blocking=True), counts)


class SharedResizableBuffer:
    """Memory that grows to the largest tensor asked for, shared by those that are not used at the same time."""

    def __init__(self) -> None:
        self.buffer: Optional[torch.Tensor] = None

    def get(self, shape: Sequence[int], device: Any, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor in the memory, with undefined values. Earlier ones may share it. Raises InvalidArgument for
        an empty shape."""
        if not shape:
            raise InvalidArgument("shape: one or more sizes expected, () found")
        count, device = math.prod(shape), torch.device(device)
        held = self.buffer
        if held is None or held.numel() < count or held.dtype != dtype or held.device != device:
            held = self.buffer = torch.empty(count, dtype=dtype, device=device)
        return held[:count].view(*shape)
