# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects whose __dlpack__ returns arbitrary contents, valid or not."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


def address_of(tensor: Any) -> int:
    """The address of a tensor that exports unversioned capsules unless asked for versioned ones."""
    capsule = tensor.__dlpack__()
    return Managed.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor")).tensor.data


class Told:
    """A tensor whose DLPack fields are given one by one. `freed` counts calls of the deleter."""

    def __init__(
        self,
        array: np.ndarray,
        *,
        dtype: tuple[int, int, int] = (4, 16, 1),
        device: tuple[int, int] = (1, 0),
        shape: Any = None,
        strides: Any = "of the array",
        rank: int | None = None,
        data: int | None = None,
        offset: int = 0,
        versioned: bool = True,
        major: int = 1,
        flags: int = 0,
        name: bytes | None = None,
    ) -> None:
        self.freed = self.taken = 0
        self.array, self.device, self.versioned = array, device, versioned
        shape = array.shape if shape is None else shape
        if strides == "of the array":
            strides = [each // array.itemsize for each in array.strides]
        sizes = ctypes.c_int64 * max(len(shape), 1)
        self._shape = sizes(*shape)
        self._strides = None if strides is None else sizes(*strides)
        tensor = DLTensor(
            array.ctypes.data if data is None else data,
            *device,
            len(shape) if rank is None else rank,
            *dtype,
            self._shape,
            self._strides,
            offset,
        )
        self._deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._free)
        address = ctypes.cast(self._deleter, ctypes.c_void_p)
        self.structure = (
            Versioned(major, 3, None, address, flags, tensor)
            if versioned
            else Managed(tensor, None, address)
        )
        self.name = name or (b"dltensor_versioned" if versioned else b"dltensor")

    def _free(self, _: int) -> None:
        self.freed += 1

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked = asked
        if not self.versioned and "max_version" in asked:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.taken += 1
        return _api.PyCapsule_New(ctypes.addressof(self.structure), self.name, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device
