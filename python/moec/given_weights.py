# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Weights of a layer from tensors in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Union

from . import _core

#: A function from a name to that of a checkpoint, or to None for a tensor to leave out; or a mapping of names, in which
#: "{e}" stands for a number that both names share. Names that the mapping lacks stay.
Names = Union[None, Callable[[str], "str | None"], Mapping[str, str]]
Message = Callable[[int, str], None]
Pair = "tuple[str, Any]"

#: moejit_tensor_set of moejit.h.
_ALL, _SOME, _LAST, _NONE = range(4)
_FIELD = re.compile(r"\\\{(\w+)\\\}")


def _compile_pattern(name: str) -> re.Pattern[str]:
    """Returns an expression for a name with fields such as {e}, each a number."""
    seen: set[str] = set()

    def replace(field: re.Match[str]) -> str:
        known = field[1] in seen
        seen.add(field[1])
        return f"(?P={field[1]})" if known else rf"(?P<{field[1]}>\d+)"

    return re.compile(_FIELD.sub(replace, re.escape(name)))


def _make_renamer(names: Names) -> Callable[[str], str | None]:
    """Returns a function of names. Raises InvalidType."""
    if names is None:
        return lambda name: name
    if not isinstance(names, Mapping):
        if not callable(names):
            raise _core.InvalidType(
                f"names: a function or a mapping of names expected, {type(names).__name__} found"
            )
        return names
    for key, value in names.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _core.InvalidType(f"names: names expected as keys and values, {key!r}: {value!r} found")
        if unknown := set(re.findall(r"\{(\w+)\}", value)) - set(re.findall(r"\{(\w+)\}", key)):
            raise _core.InvalidArgument(f"names: {value!r} has the field {{{min(unknown)}}}, which {key!r} lacks")
    patterns = [(_compile_pattern(key), value) for key, value in names.items() if "{" in key]

    def rename(name: str) -> str:
        if name in names:
            return names[name]
        for pattern, value in patterns:
            if match := pattern.fullmatch(name):
                return value.format(**match.groupdict())
        return name

    return rename


class GivenWeights:
    """Tensors for one layer, under the names of a checkpoint.

    source: a mapping of names to tensors, or an iterable of pairs.
    layer: index of the decoder layer; None: the one that was compiled.

    Raises InvalidType for other sources."""

    def __init__(self, owner: _core.Layer, source: Any, layer: int | None, rank: int | None, names: Names) -> None:
        if not isinstance(source, (Mapping, Iterable)):
            raise _core.InvalidType(
                "weights: a path, a mapping of names to tensors, or an iterable of (name, tensor) expected, "
                f"{type(source).__name__} found"
            )
        self.owner, self.layer, self.rank = owner, layer, rank
        self.is_stream = not isinstance(source, Mapping)
        self.source: Iterable[Any] = source.items() if isinstance(source, Mapping) else source
        self.rename = _make_renamer(names)

    def _iterate(self) -> Iterator[tuple[str, Any]]:
        """Yields the pairs that may concern the layer, with new names."""
        seen: set[str] = set()
        for pair in self.source:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
                raise _core.InvalidType(f"weights: pairs (name, tensor) expected, {type(pair).__name__} found")
            name = self.rename(pair[0])
            if name is None:
                continue
            if not isinstance(name, str):
                raise _core.InvalidType(f"names: a name expected for {pair[0]!r}, {type(name).__name__} found")
            # The weights of a module inside an adapter of PEFT.
            name = name.replace(".base_layer.", ".")
            if self.owner.selects(name, self.layer):
                if name in seen:
                    raise _core.InvalidArgument(f"weights: tensor {name!r} is given twice; give it once")
                seen.add(name)
                yield name, pair[1]

    def _give(self, pairs: list[tuple[str, Any]], which: int, message: Message) -> None:
        self.owner.load_tensors(pairs, self.layer, self.rank, which, message)

    def load(self, partial: bool, message: Message) -> None:
        """Gives the tensors to the layer. The iterator may reuse a tensor's memory for the next, if the layer has no
        weights of its own.

        partial: whether others come later, or came before."""
        if self.owner.owns_weights() or not (partial or self.is_stream):
            self._give(list(self._iterate()), _SOME if partial else _ALL, message)
        elif partial:
            self._give_each(message)
        else:
            self._give([], _NONE, message)
            try:
                self._give_each(message)
                self._give([], _LAST, message)
            except BaseException:
                self._give([], _NONE, message)
                raise

    def _give_each(self, message: Message) -> None:
        for pair in self._iterate():
            self._give([pair], _SOME, message)
