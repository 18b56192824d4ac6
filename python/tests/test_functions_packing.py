# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec.functions.packing compared with values packed here bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec.functions import packing  # noqa: E402


def pack(elements: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> torch.Tensor:
    """Packs the last dimension into words; position i of a word holds element order[i]."""
    each = 32 // bits
    groups = elements.reshape(*elements.shape[:-1], -1, each).astype(np.uint32)
    words = np.zeros(groups.shape[:-1], np.uint32)
    for place, element in enumerate(order or range(each)):
        words |= groups[..., element] << np.uint32(place * bits)
    return torch.from_numpy(words.view(np.int32))


def make(*shape: int, bits: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 1 << bits, shape)


def as_pairs(elements: np.ndarray) -> np.ndarray:
    return elements[..., ::2] + 16 * elements[..., 1::2]


#: Element order in AWQ words.
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@pytest.mark.parametrize("bits", [4, 8])
def test_words(bits: int) -> None:
    elements = make(3, 5, 16, bits=bits)
    words = pack(elements, bits)
    assert np.array_equal(packing.split_words(words, bits), elements)
    stored = as_pairs(elements) if bits == 4 else elements
    assert np.array_equal(words.view(torch.uint8), stored)


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq(bits: int) -> None:
    weights = make(2, 24, 16, bits=bits)
    words = pack(weights, bits).transpose(1, 2).contiguous()
    assert words.shape == (2, 16 * bits // 32, 24)
    wanted = as_pairs(weights) if bits == 4 else weights
    assert np.array_equal(packing.read_gptq_weights(words), wanted)


def test_awq() -> None:
    weights = make(2, 24, 16, bits=4)
    words = pack(weights.swapaxes(1, 2), 4, AWQ)
    assert words.shape == (2, 16, 3)
    assert np.array_equal(packing.read_awq_weights(words), as_pairs(weights))
    assert np.array_equal(packing.read_awq_zero_points(words), weights)


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points(bits: int) -> None:
    points = make(2, 24, 3, bits=bits)
    along = points.swapaxes(1, 2)
    words = pack(along, bits).transpose(1, 2).contiguous()
    assert np.array_equal(packing.read_zero_points(words, bits), points)
    stored = as_pairs(along) if bits == 4 else along
    in_bytes = torch.from_numpy(np.ascontiguousarray(stored.swapaxes(1, 2)).astype(np.uint8))
    assert np.array_equal(packing.read_zero_points(in_bytes, bits), points)


def test_pairs() -> None:
    elements = torch.from_numpy(make(5, 8, bits=4)).to(torch.uint8)
    pairs = packing.join_pairs(elements)
    assert pairs.shape == (5, 4) and torch.equal(packing.split_pairs(pairs), elements)
