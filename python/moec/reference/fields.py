# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Typed access to the fields of a JSON object, with errors that name them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Iterable

_INT_MAX = 2**31 - 1
_F32_MAX = (2 - 2**-23) * 2.0**127
_F32_LEAST = 2.0**-149


class SpecError(ValueError):
    """Raised for a spec or model configuration that does not describe a layer."""


def _is_f32(value: int | float) -> bool:
    """Whether f32 can represent a number: finite, and not rounded to 0."""
    return abs(value) <= _F32_MAX and (value == 0 or abs(value) > _F32_LEAST / 2)


class Fields:
    """Reads the fields of a JSON object and remembers which fields were read.

    Model configurations use null for absent fields; a spec must not."""

    def __init__(self, value: Any, path: str = "", *, nulls: bool = False):
        if not isinstance(value, dict):
            raise SpecError(f"{path or 'the file'}: expected a JSON object")
        self._value = value
        self._path = path
        self._nulls = nulls
        self._known: set[str] = set()

    def name(self, field: str) -> str:
        return f"{self._path}.{field}" if self._path else field

    def has(self, field: str) -> bool:
        """Whether the field is present."""
        self._known.add(field)
        if field in self._value and self._value[field] is None and not self._nulls:
            raise SpecError(f"field '{self.name(field)}' is null")
        return self._value.get(field) is not None

    def raw(self, field: str) -> Any:
        self._known.add(field)
        return self._value.get(field)

    def _get(self, field: str, default: Any, required: bool) -> Any:
        if not self.has(field):
            if required:
                raise SpecError(f"field '{self.name(field)}' is missing")
            return default
        return self._value[field]

    def integer(self, field, default=None, *, minimum=1, required=False):
        value = self._get(field, default, required)
        if value is default and not required:
            return default
        if type(value) is not int or not minimum <= value <= _INT_MAX:
            raise SpecError(
                f"field '{self.name(field)}' is {value!r}: expected an integer "
                f"from {minimum} to {_INT_MAX}"
            )
        return value

    def number(self, field, default=None, *, minimum=-math.inf):
        value = self._get(field, default, False)
        if value is default:
            return default
        if type(value) not in (int, float) or not minimum <= value or not _is_f32(value):
            raise SpecError(
                f"field '{self.name(field)}' is {value!r}: expected a number that f32 can hold"
                + (f", not below {minimum}" if minimum > -math.inf else "")
            )
        return float(value)

    def boolean(self, field, default=False):
        value = self._get(field, default, False)
        if type(value) is not bool:
            raise SpecError(
                f"field '{self.name(field)}' is {value!r}: expected true or false"
            )
        return value

    def choice(self, field, choices: Iterable[str], default=None, *, required=False):
        value = self._get(field, default, required)
        if value is default and not required:
            return default
        choices = list(choices)
        if value not in choices:
            raise SpecError(
                f"field '{self.name(field)}' is {value!r}: expected one of "
                + ", ".join(choices)
            )
        return value

    def object(self, field) -> "Fields | None":
        if not self.has(field):
            return None
        return Fields(self._value[field], self.name(field), nulls=self._nulls)

    def given(self) -> set[str]:
        return set(self._value)

    def finish(self) -> None:
        """Refuses fields that were not read."""
        for field in self._value:
            if field not in self._known:
                raise SpecError(f"unknown field '{self.name(field)}'")


def _unique(pairs: list[tuple[str, Any]]) -> dict:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise SpecError(f"field '{key}' is given twice")
        out[key] = value
    return out


def _constant(text: str):
    raise SpecError(f"{text} is not a JSON number")


def read_json(path: str | Path) -> Any:
    """Reads a JSON file; every failure is a SpecError that names the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text") from None
    except RecursionError:
        raise SpecError(f"{path}: brackets are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise SpecError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
