# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Unpacks integer words of checkpoints and engines to the bytes of a layer (docs/use/importing.md)."""

from __future__ import annotations

import torch

#: Position in a word of each of AWQ's eight elements.
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def split_pairs(pairs: torch.Tensor) -> torch.Tensor:
    """Unpacks uint8 [..., n] with two 4-bit elements per byte, the first in the low half, to uint8 [..., 2 n]."""
    return torch.stack((pairs & 15, pairs >> 4), -1).flatten(-2)


def join_pairs(elements: torch.Tensor) -> torch.Tensor:
    """Inverse of split_pairs()."""
    return elements[..., ::2] | elements[..., 1::2] << 4


def split_words(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpacks int32 [..., n] with 32 / bits elements per word, the first in the lowest bits, to uint8. bits: 4 or 8."""
    as_bytes = words.contiguous().view(torch.uint8)
    return split_pairs(as_bytes) if bits == 4 else as_bytes


def _split_awq(words: torch.Tensor) -> torch.Tensor:
    """Unpacks AWQ words, which interleave their 4-bit elements."""
    eights = split_words(words, 4).unflatten(-1, (-1, 8))
    return eights[..., list(_AWQ_ORDER)].flatten(-2)


def read_gptq_weights(words: torch.Tensor) -> torch.Tensor:
    """Converts int32 [E, K * bits / 32, N], packed along K, to uint8 [E, N, K * bits / 8]."""
    return torch.stack([each.t().contiguous().view(torch.uint8) for each in words])


def read_awq_weights(words: torch.Tensor) -> torch.Tensor:
    """Converts int32 [E, K, N / 8], packed along N, to uint8 [E, N, K / 2]."""
    return torch.stack([join_pairs(_split_awq(each).t().contiguous()) for each in words])


def read_awq_zero_points(words: torch.Tensor) -> torch.Tensor:
    """Converts int32 [E, groups, N / 8] to uint8 [E, N, groups]."""
    return _split_awq(words).transpose(1, 2).contiguous()


def read_zero_points(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Converts int32 [E, N * bits / 32, groups] or uint8 [E, N * bits / 8, groups], packed along N, to uint8 [E, N,
    groups]."""
    along = packed.transpose(1, 2).contiguous()
    if packed.dtype == torch.int32:
        elements = split_words(along, bits)
    else:
        elements = split_pairs(along) if bits == 4 else along
    return elements.transpose(1, 2).contiguous()
