# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of output tensors passed by a caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch

from .. import InvalidArgument
from .arguments import check_tensor


def check_output(
    tensor: Optional[torch.Tensor], argument: str, shape: Sequence[int], like: torch.Tensor
) -> None:
    """Raises InvalidArgument unless an output tensor has the shape, and the dtype and device of `like`. Outputs are
    never resized or converted, and elements do not share memory."""
    if tensor is not None:
        check_tensor(tensor, argument)
    found = None if tensor is None else (tuple(tensor.shape), tensor.dtype, tensor.device)
    if found in (None, (tuple(shape), like.dtype, like.device)):
        if tensor is not None and any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride())):
            raise InvalidArgument(
                f"{argument}: elements share memory (strides {list(tensor.stride())}); give memory to each")
        return
    raise InvalidArgument(
        f"{argument}: {list(shape)} of {like.dtype} on {like.device} expected, {list(tensor.shape)} of "
        f"{tensor.dtype} on {tensor.device} found; give such a tensor, or leave it out"
    )
