# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads numbers and dicts of a caller, whose numbers may be those of NumPy or PyTorch."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from typing import Any

from . import _core


def read_int(name: str, value: Any) -> int:
    """Returns an int from any integer; bools and floats are refused."""
    return _core.read_int(name, value)


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
