# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names that messages of the library give to arguments: those of the C API become keywords of Python, or options
in the commands of moec."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from . import _core

#: A field of the C API as in lib/Jit/ArgumentNames.cpp, with the value that a message gives it.
_FIELD = re.compile(r'\bmoejit_(?:source|options)\.(\w+)(?: = (\{)?("[^"\n]*"|-?\d+)\}?)?')
#: Fields that Python names in its own way.
_KEYWORDS = {"ignored_fields": "ignore_fields", "path": "source"}
_OPTIONS = {"ignored_fields": "ignore-field", "configs": "config", "num_valid_tokens": "valid-tokens"}
#: The argument of commands that is no option.
_POSITIONAL = {"source": "MODEL"}
_FLAGS = {"batch_invariant", "num_valid_tokens", "round_weights"}
#: Arguments and functions, as C, Python and the commands name them.
_WORDS = (
    ("decoder_layer", "layer", "--layer"),
    ("moejit_layer_load_weights()", "Layer.load()", "--inputs"),
    ("moert_layer_tensor()", "Layer.tensors", "--signature"),
    ("MOEJIT_FULL_EXPLANATION", "explain(full=True)", "--explain=all"),
)
_are_options = False


def name_argument(keyword: str, option: str | None = None) -> str:
    """Returns how messages call an argument: in the commands of moec, by its option.

    option: default: the keyword."""
    if not _are_options:
        return keyword
    return _POSITIONAL.get(keyword) or "--" + (option or keyword).replace("_", "-")


def _name_keyword(found: re.Match[str]) -> str:
    field, is_list, value = found.groups()
    name = _KEYWORDS.get(field, field)
    if value is None:
        return name
    if field in _FLAGS:
        return f"{name}=True"
    return f"{name}=[{value[1:-1]!r}]" if is_list else f"{name}={value}"


def _name_option(found: re.Match[str]) -> str:
    field, _, value = found.groups()
    name = name_argument(_KEYWORDS.get(field, field), _OPTIONS.get(field))
    return name if value is None or field in _FLAGS else f"{name}={value.strip(chr(34))}"


def name_arguments(text: str) -> str:
    """Returns a message of the library with the names that the caller uses."""
    text = _FIELD.sub(_name_option if _are_options else _name_keyword, text)
    for c, keyword, option in _WORDS:
        text = text.replace(c, option if _are_options else keyword)
    return text


@contextlib.contextmanager
def options_of_commands() -> Iterator[None]:
    """Messages name options of the commands, not arguments of Python."""
    global _are_options
    before, _are_options = _are_options, True
    try:
        yield
    finally:
        _are_options = before


@contextlib.contextmanager
def arguments_of_python() -> Iterator[None]:
    """Errors of the library name the arguments of Python's functions, not those of C."""
    try:
        yield
    except _core.Error as error:
        text = name_arguments(str(error))
        if text == str(error):
            raise
        named = type(error)(text)
        named.code = error.code
        raise named from None
