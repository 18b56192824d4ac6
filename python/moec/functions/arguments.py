# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of what callers pass, ahead of arithmetic on it: kind, rank, device and range.

Without them PyTorch's own errors name no argument, and shapes that broadcast give wrong numbers."""

from __future__ import annotations

import operator
from typing import Any, Optional

import torch

from .. import InvalidArgument, InvalidType

#: The largest size of a dimension, or number of experts.
_MOST = 2**31 - 1


def check_tensor(
    value: Any, argument: str, rank: Optional[int] = None, like: Optional[torch.Tensor] = None
) -> None:
    """Raises InvalidType unless the value is a tensor, and InvalidArgument unless it is strided, has this rank and is
    on the device of `like`."""
    if not isinstance(value, torch.Tensor):
        raise InvalidType(f"{argument}: a tensor of PyTorch expected, {type(value).__name__} found")
    if value.layout is not torch.strided:
        raise InvalidArgument(f"{argument}: a strided tensor expected, one of layout {value.layout} found")
    if rank is not None and value.dim() != rank:
        raise InvalidArgument(f"{argument}: rank {rank} expected, shape {list(value.shape)} found")
    if like is not None and value.device != like.device:
        raise InvalidArgument(
            f"{argument}: a tensor on {like.device} expected, as other arguments are, one on {value.device} found")


def check_integers(value: Any, argument: str, rank: Optional[int] = None, like: Optional[torch.Tensor] = None) -> None:
    """Raises the exceptions of check_tensor(), and InvalidArgument unless the elements are integers."""
    check_tensor(value, argument, rank, like)
    if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
        raise InvalidArgument(f"{argument}: integers expected, {value.dtype} found")


def check_numbers(value: torch.Tensor, argument: str) -> None:
    """Raises InvalidArgument for complex elements, whose imaginary part f32 would lose."""
    if value.is_complex():
        raise InvalidArgument(f"{argument}: real numbers expected, {value.dtype} found")


def check_count(value: Any, argument: str, least: int = 1, most: int = _MOST) -> int:
    """Returns the value as an int. Raises InvalidType unless it is an integer, and InvalidArgument unless it is in
    least .. most."""
    try:
        count = int(operator.index(value))
    except TypeError:
        raise InvalidType(f"{argument}: an integer expected, {value!r} found") from None
    if count < least:
        raise InvalidArgument(f"{argument}: {count} found, at least {least} expected")
    if count > most:
        raise InvalidArgument(f"{argument}: {count} found, at most {most} expected")
    return count


def check_expert_map(expert_map: Any, like: torch.Tensor, num_experts: Optional[int] = None) -> None:
    """Raises the exceptions of check_integers(), and InvalidArgument for a map that is shorter than the experts: ids
    beyond its end would name none."""
    check_integers(expert_map, "expert_map", 1, like)
    length = expert_map.shape[0]
    if length < max(num_experts or 0, 1):
        raise InvalidArgument(
            f"expert_map: {max(num_experts or 0, 1)} entries expected, one for each expert, {length} found")
