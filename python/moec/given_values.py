# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads numbers and dicts of a caller, whose numbers may be those of NumPy or PyTorch."""

from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core


def read_int(name: str, value: Any) -> int:
    """Returns an int from any integer; bools and floats are refused."""
    return _core.read_int(name, value)


def read_flag(name: str, value: Any) -> bool:
    """Returns a bool, also of NumPy or PyTorch; other objects are refused: "no" and a number of tokens are true."""
    if isinstance(value, bool) or (getattr(value, "shape", None) == () and "bool" in str(value.dtype)):
        return bool(value)
    raise _core.InvalidType(f"{name}: True or False expected, {type(value).__name__} found")


def read_path(name: str, value: Any) -> str:
    """Returns a path as text; numbers, which open() takes for descriptors, are refused."""
    try:
        return os.fsdecode(os.fspath(value))
    except TypeError:
        raise _core.InvalidType(f"{name}: a path expected, {type(value).__name__} found") from None


def read_name(name: str, value: Any) -> str | None:
    """Returns a text that is not empty, or None."""
    if value is None or (isinstance(value, str) and value):
        return value
    found = '""' if isinstance(value, str) else type(value).__name__
    raise _core.InvalidType(f"{name}: a name or None expected, {found} found")


def read_names(name: str, values: Any) -> tuple[Any, ...]:
    """Returns several texts; one text is none."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise _core.InvalidType(f"{name}: a list of names expected, {type(values).__name__} found")
    return tuple(values)


def print_json(name: str, value: Mapping[str, Any]) -> str:
    """Returns a dict as JSON. Numbers and arrays of other libraries become those of Python."""
    if not isinstance(value, Mapping):
        raise _core.InvalidType(f"{name}: a dict expected, {type(value).__name__} found")
    try:
        return json.dumps(_simplify(name, "", value))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, _core.Error):
            raise
        raise _core.InvalidArgument(f"{name}: is not JSON: {error}") from error


def _simplify(name: str, field: str, value: Any) -> Any:
    """Returns `value`, which is `field` of the argument `name`, as the types that JSON has."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _core.InvalidArgument(f"{_show(name, field)}: {value} found; JSON has only finite numbers")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _core.InvalidType(
                    f"{_show(name, field)}: the key {key!r} is no text; the names of fields are text")
        return {key: _simplify(name, f"{field}.{key}" if field else key, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_simplify(name, f"{field}[{index}]", inner) for index, inner in enumerate(value)]
    # Scalars and arrays of NumPy, PyTorch and the like.
    if hasattr(type(value), "tolist"):
        simple = value.tolist()
        if simple is None or isinstance(simple, (bool, int, float, str, list)):
            return _simplify(name, field, simple)
    for convert in (operator.index, float):
        if hasattr(type(value), "__index__" if convert is operator.index else "__float__"):
            return _simplify(name, field, convert(value))
    raise _core.InvalidType(
        f"{_show(name, field)}: {type(value).__name__} found; text, a number, a bool, None, a list or a dict is accepted")


def _show(name: str, field: str) -> str:
    return f"{name}: '{field}'" if field else name
