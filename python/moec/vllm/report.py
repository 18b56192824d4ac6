# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What vLLM's log says of the plugin.

There is a line for each kind of layers that runs in moec, and one for each reason that a kind does not. Lines come
from a logger below vLLM's own, which is the only one that vLLM gives a handler."""

from __future__ import annotations

import collections
import logging

logger = logging.getLogger("vllm.moec")

#: Layers by their kind: those of the model that is being made, and how many of them have no weights yet.
_taken: collections.Counter[str] = collections.Counter()
_waiting: collections.Counter[str] = collections.Counter()
#: Layers that select experts themselves.
_selecting: collections.Counter[str] = collections.Counter()
#: Lines that the log has once.
_told: set[str] = set()


def count_taken(kind: str) -> None:
    """A layer is made, whose experts are moec's."""
    _taken[kind] += 1
    _waiting[kind] += 1


def count_loaded(kind: str, is_kept: bool = False, selects: bool = False) -> None:
    """Its weights are there; is_kept: and vLLM's kernel runs them after all; selects: moec selects the experts. The last one of a model's writes the
    line; weights that are loaded again write none."""
    if not _waiting[kind]:
        return
    _waiting[kind] -= 1
    _taken[kind] -= is_kept
    _selecting[kind] += selects
    if _waiting[kind]:
        return
    count, selecting = _taken.pop(kind), _selecting.pop(kind)
    if count:
        part = {count: ", with selection", 0: ""}.get(selecting, f", {selecting} of them with selection")
        logger.info("moec runs the experts of %d layers (%s)%s", count, kind, part)


def tell_kept(kind: str, reason: str) -> None:
    """A layer keeps vLLM's kernel."""
    _tell(logging.WARNING, kind, "keep vLLM's kernel", reason)


def tell_modular(kind: str, reason: str) -> None:
    """A layer takes the ids that vLLM selects."""
    _tell(logging.DEBUG, kind, "take ids from vLLM's selection", reason)


def _tell(level: int, kind: str, what: str, reason: str) -> None:
    line = f"moec: {kind} experts {what}: {reason}"
    if line not in _told:
        _told.add(line)
        logger.log(level, line)
