# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is told of work that takes long: a bar on a terminal, or lines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Union

#: None: a bar on the error stream, if that is a terminal; False: nothing; True: lines on the error stream,
#: wherever it goes; else called with each line, also from another thread.
Progress = Union[None, bool, Callable[[str], None]]

#: Seconds until something is told of work that goes on, between lines about it, and between two pictures of a bar.
PATIENCE, PERIOD, FRAME = 2.0, 10.0, 0.1
_WIDTH, _BLOCK = 24, 6


def say(text: str) -> None:
    """A line on the error stream, which a program without a console does not have."""
    if sys.stderr is not None:
        print(f"moec: {text}", file=sys.stderr, flush=True)


def find_listener(progress: Progress) -> Callable[[str], None] | None:
    """What lines go to; None for nothing."""
    return say if progress is True else progress or None


def draw(what: str, seconds: float) -> str:
    """A bar whose block goes to and fro: how much is left to do nobody knows."""
    way = _WIDTH - _BLOCK
    at = int(seconds / FRAME) % (2 * way)
    left = min(at, 2 * way - at)
    return f"moec: {what} [{' ' * left}{'#' * _BLOCK}{' ' * (way - left)}] {seconds:.0f} s"


def _show_bar(what: str, is_done: threading.Event, begin: float) -> None:
    stream = sys.stderr
    while not is_done.wait(FRAME):
        stream.write("\r" + draw(what, time.monotonic() - begin))
        stream.flush()
    # Back to the beginning of the line, which is erased.
    stream.write("\r\033[K")
    stream.flush()


def _tell(listener: Callable[[str], None], what: str, is_done: threading.Event, begin: float) -> None:
    while True:
        listener(f"{what} ... {time.monotonic() - begin:.0f} s")
        if is_done.wait(PERIOD):
            return


@contextlib.contextmanager
def watch(what: str, progress: Progress) -> Iterator[None]:
    """Tells of the work inside once it has taken two seconds: with a bar while it goes on, or with a line
    every ten seconds."""
    listener = find_listener(progress)
    is_bar = progress is None and sys.stderr is not None and sys.stderr.isatty()
    if not listener and not is_bar:
        yield
        return
    is_done, begin = threading.Event(), time.monotonic()

    def wait() -> None:
        if is_done.wait(PATIENCE):
            return
        if listener:
            _tell(listener, what, is_done, begin)
        else:
            _show_bar(what, is_done, begin)

    thread = threading.Thread(target=wait, name="moec progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
