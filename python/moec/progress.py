# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Progress of long work: a bar on a terminal, or lines."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Union

from . import _core

#: None: a bar on the error stream, if that is a terminal, or in the notebook (by tqdm, where it is installed). False: nothing. True: lines on the error stream. A function:
#: called with each line, possibly from another thread.
Progress = Union[None, bool, Callable[[str], None]]

#: Seconds until the first report, between lines, and between frames of the bar.
PATIENCE, PERIOD, FRAME = 2.0, 10.0, 0.1
_WIDTH, _BLOCK = 24, 6


def say(text: str) -> None:
    """Prints a line on the error stream, which a program without a console lacks."""
    if sys.stderr is not None:
        print(f"moec: {text}", file=sys.stderr, flush=True)


def find_listener(progress: Progress) -> Callable[[str], None] | None:
    """Returns the receiver of lines; None for nothing."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise _core.InvalidType(f"progress: True, False or a function expected, {type(progress).__name__} found")
    return say if progress is True else progress or None


class Work:
    """Work in progress: its start and the finished fraction."""

    def __init__(self, what: str) -> None:
        self.what, self.begin = what, time.monotonic()
        #: From 0 to 1; None if the amount of work is unknown.
        self.fraction: float | None = None
        self.is_done = threading.Event()

    def step(self, done: int, of: int) -> None:
        """Records progress. Threads may report their parts in any order."""
        self.fraction = max(self.fraction or 0.0, done / of if of else 0.0)

    def describe(self) -> str:
        """Returns "42 %, 3 s", or only the time."""
        known = "" if self.fraction is None else f"{100 * self.fraction:.0f} %, "
        return f"{known}{time.monotonic() - self.begin:.0f} s"


def draw(work: Work) -> str:
    """Returns a bar as long as the finished fraction; a moving block if the fraction is unknown."""
    if work.fraction is not None:
        bar = "#" * int(_WIDTH * work.fraction)
    else:
        way = _WIDTH - _BLOCK
        at = int((time.monotonic() - work.begin) / FRAME) % (2 * way)
        bar = " " * min(at, 2 * way - at) + "#" * _BLOCK
    return f"moec: {work.what} [{bar:{_WIDTH}}] {work.describe()}"


def _show_bar(work: Work) -> None:
    stream = sys.stderr
    while not work.is_done.wait(FRAME):
        # Erases the rest of a longer previous line.
        stream.write("\r" + draw(work) + "\033[K")
        stream.flush()
    # Returns to the beginning of the line and erases it.
    stream.write("\r\033[K")
    stream.flush()


def _is_notebook() -> bool:
    """Whether the process is the kernel of a notebook. Its error stream is no terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _find_tqdm() -> Any:
    """Returns tqdm's bar for terminals and notebooks; None if tqdm is not installed."""
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped]
    except ImportError:
        return None
    return tqdm


def _show_tqdm(tqdm: Any, work: Work) -> None:
    bar = tqdm(total=100, desc=f"moec: {work.what}", leave=False, file=sys.stderr, bar_format="{l_bar}{bar}| {elapsed}")
    while not work.is_done.wait(FRAME):
        bar.n = int(100 * (work.fraction or 0.0))
        bar.refresh()
    bar.close()


def _tell(listener: Callable[[str], None], work: Work) -> None:
    while True:
        listener(f"{work.what} ... {work.describe()}")
        if work.is_done.wait(PERIOD):
            return


@contextlib.contextmanager
def watch(what: str, progress: Progress) -> Iterator[Work]:
    """Reports on the work inside once it has taken two seconds: a bar, or a line every ten seconds. The work may report
    its finished fraction with step()."""
    work = Work(what)
    listener = find_listener(progress)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    tqdm = _find_tqdm() if progress is None and (is_terminal or _is_notebook()) else None
    is_bar = progress is None and (is_terminal or tqdm is not None)
    if not listener and not is_bar:
        yield work
        return

    def wait() -> None:
        if work.is_done.wait(PATIENCE):
            return
        if listener:
            _tell(listener, work)
        elif tqdm:
            _show_tqdm(tqdm, work)
        else:
            _show_bar(work)

    thread = threading.Thread(target=wait, name="moec progress", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # No thread can be started (process limit): report nothing.
        yield work
        return
    try:
        yield work
    finally:
        work.is_done.set()
        thread.join()
