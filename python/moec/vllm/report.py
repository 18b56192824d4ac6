# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The plugin's lines in vLLM's log.

There is one line per kind of layer that runs in moec, and one per reason that a kind does not. The logger is below
vLLM's own, which is the only one with a handler."""

from __future__ import annotations

import collections
import logging
from typing import Optional

logger = logging.getLogger("vllm.moec")

#: Layers of the model being created, by kind, and those among them without weights yet.
_taken: collections.Counter[str] = collections.Counter()
_waiting: collections.Counter[str] = collections.Counter()
#: Layers that select experts themselves.
_selecting: collections.Counter[str] = collections.Counter()
#: Lines already logged.
_told: set[str] = set()


def count_taken(kind: str) -> None:
    """Records the creation of a layer with moec's experts."""
    _taken[kind] += 1
    _waiting[kind] += 1


def count_loaded(kind: str, is_kept: bool = False, selects: bool = False) -> None:
    """Records that the weights of a layer are loaded. The line is logged for the last layer of a model, and not for
    reloaded weights.

    is_kept: vLLM's kernel runs the layer after all.
    selects: moec selects the experts."""
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
    """Logs that a layer keeps vLLM's kernel."""
    _tell(logging.WARNING, kind, "keep vLLM's kernel", reason)


def tell_modular(kind: str, reason: str) -> None:
    """Logs that a layer uses ids selected by vLLM."""
    _tell(logging.DEBUG, kind, "take ids from vLLM's selection", reason)


def tell_exchange(reason: Optional[str]) -> None:
    """Logs whether moec's exchange of rows replaces vLLM's, or why it does not."""
    line = "moec exchanges the rows of data-parallel ranks"
    if reason is not None:
        line = f"moec: rows of data-parallel ranks keep vLLM's exchange: {reason}"
    if line not in _told:
        _told.add(line)
        logger.log(logging.INFO if reason is None else logging.WARNING, line)


def _tell(level: int, kind: str, what: str, reason: str) -> None:
    line = f"moec: {kind} experts {what}: {reason}"
    if line not in _told:
        _told.add(line)
        logger.log(level, line)
