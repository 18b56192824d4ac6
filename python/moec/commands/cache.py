# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec cache: the folder of compiled layers (docs/use/c-api.md)."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
from dataclasses import dataclass
from typing import Any

#: Suffix of a cached layer.
SUFFIX = ".moepkg"
#: The measured rates of this CPU (lib/Tools/Host/HostRates.h), which are measured again if the file is not there.
RATES = "cpu-rates.json"


def find_folder() -> pathlib.Path | None:
    """Returns the cache folder: $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec if that is absolute, else ~/.cache/moec;
    None without a home folder. The library has the same rule (include/moec/Jit/Cache.h)."""
    named = os.environ.get("MOEC_CACHE_DIR")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return pathlib.Path(base) / "moec"
    try:
        return pathlib.Path.home() / ".cache" / "moec"
    except RuntimeError:
        return None


@dataclass(frozen=True)
class Entry:
    """A compiled layer in the cache."""

    path: pathlib.Path
    bytes: int
    #: Time of the last use, in seconds since the epoch.
    used: float


def list_entries() -> list[Entry]:
    """Returns the compiled layers, the last used one first. Files that vanish meanwhile are left out."""
    folder = find_folder()
    entries = []
    if folder is not None and folder.is_dir():
        for path in folder.glob(f"*{SUFFIX}"):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append(Entry(path, status.st_size, status.st_mtime))
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def read_rates() -> dict[str, Any] | None:
    """Returns the contents of the file of rates, or None if there is none that can be read."""
    folder = find_folder()
    try:
        return json.loads((folder / RATES).read_text()) if folder is not None else None
    except (OSError, ValueError):
        return None


def _run(options: argparse.Namespace) -> int:
    entries = list_entries()
    total = sum(entry.bytes for entry in entries) / 2**20
    if options.action == "clear":
        failed = 0
        folder = find_folder()
        rates = [folder / RATES] if folder is not None else []
        for path in [entry.path for entry in entries] + rates:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failed = 1
                print(f"moec cache: {error}", file=sys.stderr)
        if not failed:
            print(f"{len(entries)} layers removed, {total:.1f} MiB")
        return failed
    if options.action == "list":
        for entry in entries:
            day = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
            print(f"{day}  {entry.bytes / 2**20:8.1f} MiB  {entry.path.name}")
    print(f"{find_folder() or 'no home folder'}: {len(entries)} layers, {total:.1f} MiB")
    return 0


def add_parser(commands: Any) -> None:
    """Adds `moec cache` to the commands."""
    parser = commands.add_parser(
        "cache", help="size and contents of the cache of compiled layers",
        description="Shows or clears the cache of compiled layers. Running programs keep the layers that they loaded.",
    )
    parser.add_argument(
        "action", nargs="?", choices=("size", "list", "clear"), default="size",
        help="size (default): the folder, its layers and bytes; list: each layer with its last use; clear: remove them, and "
             "the measured rates of this CPU",
    )
    parser.set_defaults(run=_run)
