# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of safetensors files, read in chunks and checked by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Iterator, Mapping, Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .numerics import NUMPY_DTYPES
from .signature import Tensor

#: safetensors names of each dtype.
_FILE_DTYPES = {
    "f32": ("F32",), "f16": ("F16",), "bf16": ("BF16",), "f8e4m3": ("F8_E4M3",),
    "f8e8m0": ("F8_E8M0", "U8"), "i8": ("I8", "U8"), "i16": ("I16",), "i32": ("I32",),
}
#: dtypes whose bits are mapped directly.
_MAPPED = ("f8e4m3", "f8e8m0", "i8")


class InputError(ValueError):
    """Raised for a tensor file with wrong contents."""


class FileTensor:
    """A tensor in a file; indexing reads only the requested part."""

    def __init__(self, part, dtype: str):
        self._part = part
        self.shape = tuple(part.get_shape())
        self.dtype = NUMPY_DTYPES[dtype]

    def __getitem__(self, index) -> np.ndarray:
        if 0 in self.shape:
            return np.zeros(self.shape, self.dtype)[index]
        return self._part[index]


def _map(path: str, name: str, dtype: str) -> np.ndarray:
    """Maps a tensor by its bits, since safetensors may convert or reject its dtype."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(size))[name]
    begin, end = entry["data_offsets"]
    kind = NUMPY_DTYPES[dtype]
    if begin == end:
        return np.zeros(entry["shape"], kind)
    data = np.memmap(path, np.uint8, "r", 8 + size + begin, (end - begin,))
    return data.view(kind).reshape(entry["shape"])


class TensorFile(Mapping[str, "FileTensor | np.ndarray"]):
    """The tensors of a file by name."""

    def __init__(self, path: str | Path):
        self.path = str(path)
        try:
            self._file = safe_open(self.path, framework="np")
            self._names = list(self._file.keys())
        except (OSError, SafetensorError) as error:
            raise InputError(f"{self.path}: {error}") from None
        self._tensors: dict[str, FileTensor | np.ndarray] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> FileTensor | np.ndarray:
        return self._tensors[name]

    def require(
        self,
        expected: Sequence[Tensor],
        num_tokens: int | None = None,
        optional: bool = False,
    ) -> int:
        """Checks names, shapes and dtypes and returns the token count.

        The first tensor is required. It gives the token count unless that is known. With `optional` the others may be
        absent."""
        known = {tensor.name for tensor in expected}
        for name in self._names:
            if name not in known:
                raise InputError(
                    f"{self.path}: tensor '{name}' is not in the signature; known "
                    "are " + ", ".join(tensor.name for tensor in expected)
                )
        for position, tensor in enumerate(expected):
            if tensor.name not in self._names:
                if optional and position > 0:
                    continue
                raise InputError(f"{self.path}: tensor '{tensor.name}' is missing")
            part = self._file.get_slice(tensor.name)
            dtype, shape = part.get_dtype(), tuple(part.get_shape())
            if dtype not in _FILE_DTYPES[tensor.dtype]:
                raise InputError(
                    f"{self.path}: tensor '{tensor.name}' has dtype {dtype}, "
                    f"expected {' or '.join(_FILE_DTYPES[tensor.dtype])}"
                )
            if num_tokens is None and len(shape) == len(tensor.shape) + 1:
                num_tokens = shape[0]
            if num_tokens is None or shape != tensor.shape_for(num_tokens):
                wanted = ["T"] * tensor.tokens + [str(size) for size in tensor.shape]
                if tensor.tokens and num_tokens is not None:
                    wanted[0] = str(num_tokens)
                raise InputError(
                    f"{self.path}: tensor '{tensor.name}' has shape {list(shape)}, "
                    f"expected [{', '.join(wanted)}]"
                )
            self._tensors[tensor.name] = (
                _map(self.path, tensor.name, tensor.dtype)
                if tensor.dtype in _MAPPED
                else FileTensor(part, tensor.dtype)
            )
        return num_tokens


def write_tensors(path: str | Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a safetensors file."""
    dense = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    try:
        save_file(dense, str(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: {error}") from None
