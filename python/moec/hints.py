# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What to do about a weight that a layer does not take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_HALVES = {"experts.w1": "experts.w13", "experts.w3": "experts.w13"}


def explain_name(name: str, known: Iterable[str], order: str) -> str:
    """Returns how the rows of w1 and w3 are stored in w13, if the layer has w13 and `name` is one of its halves; else
    an empty text.

    order: the spec's gate_up_order."""
    whole = _HALVES.get(name.replace("_", "."))
    if whole is None or whole not in known:
        return ""
    rows = {
        "gate_up": "those of w1 (gate) over those of w3 (up), as by torch.cat([w1, w3], dim=1)",
        "up_gate": "those of w3 (up) over those of w1 (gate), as by torch.cat([w3, w1], dim=1)",
        "interleaved": "those of w1 (gate) and w3 (up) in turn, as by torch.stack([w1, w3], dim=2).flatten(1, 2)",
    }[order]
    return f"; {whole} has the rows of both: {rows}"


def explain_shape(tensor: Any, expected: tuple[int, ...]) -> str:
    """Returns how to transpose a tensor whose last two dimensions are exchanged; else an empty text."""
    try:
        shape = tuple(int(size) for size in tensor.shape)
    except (AttributeError, TypeError, ValueError):
        return ""
    if len(shape) < 2 or shape == expected or (*shape[:-2], shape[-1], shape[-2]) != expected:
        return ""
    return "; its last two dimensions are exchanged: pass its transpose, made contiguous"
