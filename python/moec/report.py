# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs and output of a layer's report."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Union

from . import _core
from .given_values import read_int, read_path

if TYPE_CHECKING:
    from .layer import Benchmark

#: Seconds or results of Layer.benchmark(), by token count; or a file of moe-bench --json.
Measured = Union[Mapping[int, "Benchmark | float"], str, "os.PathLike[str]", None]


def read_measured(measured: Measured, device: str) -> bytes | None:
    """Returns times in the format of moe-bench --json."""
    if measured is None:
        return None
    if isinstance(measured, Mapping):
        rows: list[dict[str, Any]] = []
        for tokens, seconds in measured.items():
            seconds = getattr(seconds, "median", seconds)
            if read_int("measured", tokens) < 1:
                raise _core.InvalidArgument(f"measured: token counts from 1 on expected, {tokens} found")
            rows.append({"tokens": read_int("measured", tokens), "us": _read_seconds(tokens, seconds) * 1e6})
        if not rows:
            raise _core.InvalidArgument("measured: no token count found; give at least one, or None")
        return json.dumps({"device": device, "rows": rows}).encode()
    measured = read_path("measured", measured)
    try:
        with open(measured, "rb") as file:
            return file.read()
    except (OSError, TypeError, ValueError) as error:
        raise _core.NotFound(f"measured: cannot be read: {error}") from error


def _read_seconds(tokens: object, seconds: Any) -> float:
    try:
        if not isinstance(seconds, (bool, str)) and 0 <= float(seconds) < math.inf:
            return float(seconds)
    except (TypeError, ValueError):
        pass
    raise _core.InvalidArgument(f"measured: seconds or a Benchmark expected at {tokens} tokens, {seconds!r} found")


def check_output(argument: str, path: pathlib.Path) -> None:
    """Raises NotFound unless a file of that path can be made. Long work checks its output before it begins."""
    if path.is_dir():
        raise _core.NotFound(f"{argument}: {path} is a folder; give a file name")
    if not path.parent.is_dir():
        raise _core.NotFound(f"{argument}: there is no folder {path.parent} for {path}")


def write_page(path: str | os.PathLike[str], page: str) -> None:
    path = read_path("path", path)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except (OSError, TypeError, ValueError) as error:
        raise _core.NotFound(f"path: cannot be written: {error}") from error
