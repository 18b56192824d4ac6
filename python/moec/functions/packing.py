# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Integers in words, as checkpoints and engines pack them, as the bytes that a layer takes (docs/formats.md)."""

from __future__ import annotations

import torch

#: Where element i of AWQ's eight stands in a word.
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def split_pairs(pairs: torch.Tensor) -> torch.Tensor:
    """[..., n] of uint8 with two elements of 4 bits each, the first in the low half, as [..., 2 n] of uint8."""
    return torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)


def join_pairs(elements: torch.Tensor) -> torch.Tensor:
    """The reverse of split_pairs()."""
    return elements[..., ::2] | elements[..., 1::2] << 4


def split_words(words: torch.Tensor, bits: int) -> torch.Tensor:
    """[..., n] of int32 with 32 / bits elements each, the first in the lowest bits, as uint8. bits: 4 or 8."""
    as_bytes = words.contiguous().view(torch.uint8)
    return split_pairs(as_bytes) if bits == 4 else as_bytes


def _split_awq(words: torch.Tensor) -> torch.Tensor:
    """Words of AWQ's, whose elements of 4 bits are interleaved."""
    eights = split_words(words, 4).unflatten(-1, (-1, 8))
    return eights[..., list(_AWQ_ORDER)].flatten(-2)


def read_gptq_weights(words: torch.Tensor) -> torch.Tensor:
    """[E, K * bits / 32, N] of int32, packed along K, as [E, N, K * bits / 8] of uint8."""
    return torch.stack([each.t().contiguous().view(torch.uint8) for each in words])


def read_awq_weights(words: torch.Tensor) -> torch.Tensor:
    """[E, K, N / 8] of int32, packed along N, as [E, N, K / 2] of uint8."""
    return torch.stack([join_pairs(_split_awq(each).t().contiguous()) for each in words])


def read_awq_zero_points(words: torch.Tensor) -> torch.Tensor:
    """[E, groups, N / 8] of int32 as [E, N, groups] of uint8."""
    return _split_awq(words).transpose(1, 2).contiguous()


def read_zero_points(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Packed along N, [E, N * bits / 32, groups] of int32 or [E, N * bits / 8, groups] of uint8, as [E, N, groups]
    of uint8."""
    along = packed.transpose(1, 2).contiguous()
    if packed.dtype == torch.int32:
        elements = split_words(along, bits)
    else:
        elements = split_pairs(along) if bits == 4 else along
    return elements.transpose(1, 2).contiguous()
