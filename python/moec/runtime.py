# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs compiled layers through the C API of the runtime (moert.h).

    runtime = Runtime()                      # $MOERT_LIBRARY, or libmoert.so
    with runtime.open("layer.moepkg") as package, runtime.cuda(0) as device:
        with device.load(package) as layer:
            layer.bind("experts.w13", tensor)  # anything with __dlpack__
            layer.prepare_weights()
            layer.run(tokens, stream)

Threads, lifetimes and contexts are those of moert.h. A layer keeps the tensors that it was given.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

API_VERSION = 2
#: The stream of the layer itself.
LAYER_STREAM = -1


def find_library(variable: str, name: str) -> str:
    """What the environment variable says, else the library beside this package, as in the bundle,
    else whatever the loader finds."""
    beside = pathlib.Path(__file__).resolve().parents[2] / "lib" / name
    return os.environ.get(variable) or (str(beside) if beside.is_file() else name)


class MoertError(Exception):
    """A call that failed; the message says what to change."""

    CODES = (
        "ok",
        "invalid_argument",
        "not_found",
        "out_of_range",
        "resource_exhausted",
        "unavailable",
        "internal",
    )

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = self.CODES[code]


class _TensorInfo(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("role", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("depends_on_tokens", ctypes.c_int),
        ("alignment", ctypes.c_int64),
        ("strided", ctypes.c_int),
    ]


class _PrepareReport(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_int64),
        ("in_place_bytes", ctypes.c_int64),
        ("seconds", ctypes.c_double),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class _DLTensor(ctypes.Structure):
    """The beginning of DLPack's DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DL_CODES = {0: "i", 1: "u", 2: "f", 4: "bf"}
#: Those whose size is in their name.
_DL_FLOAT8 = {10: "f8e4m3", 12: "f8e5m2", 14: "f8e8m0"}


@dataclass
class Memory:
    """A tensor at an address of the device. Strides are in elements."""

    address: int
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int] | None = None
    #: What owns the memory.
    owner: Any = None

    @staticmethod
    def of(tensor: Any) -> Memory:
        """The memory of a tensor that knows DLPack."""
        capsule = tensor.__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        found = _DLTensor.from_address(get(capsule, b"dltensor"))
        dtype = _DL_FLOAT8.get(found.code)
        if found.code in _DL_CODES:
            dtype = f"{_DL_CODES[found.code]}{found.bits}"
        if dtype is None or found.lanes != 1:
            raise TypeError(
                f"DLPack type code {found.code} with {found.lanes} lanes is not known here; "
                "view the tensor as another type, or pass Memory(address, dtype, shape)"
            )
        return Memory(
            address=(found.data or 0) + found.byte_offset,
            dtype=dtype,
            shape=found.shape[: found.ndim],
            strides=found.strides[: found.ndim] if found.strides else None,
            owner=(tensor, capsule),
        )


@dataclass
class TensorInfo:
    """What there is to bind."""

    name: str
    dtype: str
    role: str
    #: The shape in a call with the most tokens.
    shape: tuple[int, ...]
    depends_on_tokens: bool
    alignment: int
    #: May be bound with gaps between its rows.
    strided: bool


@dataclass
class PrepareReport:
    """What preparing the weights took."""

    #: Bytes of memory that was allocated, and of weights that were overwritten.
    bytes: int
    in_place_bytes: int
    seconds: float


class _Handle:
    """A handle of the C API, freed once."""

    free = ""

    def __init__(self, runtime: Runtime, handle: ctypes.c_void_p) -> None:
        self.runtime = runtime
        self.handle = handle

    def close(self) -> None:
        handle, self.handle = self.handle, ctypes.c_void_p()
        getattr(self.runtime.library, self.free)(handle)

    def __enter__(self):  # noqa: ANN204
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Package(_Handle):
    free = "moert_package_free"

    @property
    def spec(self) -> str:
        return self.runtime.library.moert_package_spec(self.handle).decode()


class Device(_Handle):
    free = "moert_device_free"

    @property
    def name(self) -> str:
        return self.runtime.library.moert_device_name(self.handle).decode()

    def load(self, package: Package) -> Layer:
        layer = ctypes.c_void_p()
        self.runtime.call(
            "moert_layer_create", package.handle, self.handle, None, ctypes.byref(layer)
        )
        return Layer(self.runtime, layer)

    def workspace(self, size: int) -> Workspace:
        """A workspace of `size` bytes per slot."""
        workspace = ctypes.c_void_p()
        self.runtime.call(
            "moert_workspace_create",
            self.handle,
            ctypes.c_int64(size),
            ctypes.byref(workspace),
        )
        return Workspace(self.runtime, workspace)

    def allocate(self, size: int) -> int:
        memory = ctypes.c_void_p()
        self.runtime.call(
            "moert_device_allocate", self.handle, ctypes.c_size_t(size), ctypes.byref(memory)
        )
        return memory.value or 0

    def release(self, address: int) -> None:
        self.runtime.library.moert_device_release(self.handle, ctypes.c_void_p(address))

    def copy_in(self, address: int, data: bytes) -> None:
        self.runtime.call(
            "moert_device_copy_in",
            self.handle,
            ctypes.c_void_p(address),
            data,
            ctypes.c_size_t(len(data)),
        )

    def copy_out(self, address: int, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.runtime.call(
            "moert_device_copy_out",
            self.handle,
            data,
            ctypes.c_void_p(address),
            ctypes.c_size_t(size),
        )
        return data.raw


class Workspace(_Handle):
    """Two slots of memory that layers share."""

    free = "moert_workspace_free"


class Layer(_Handle):
    free = "moert_layer_free"

    def __init__(self, runtime: Runtime, handle: ctypes.c_void_p) -> None:
        super().__init__(runtime, handle)
        self._bound: dict[str, Memory] = {}

    @property
    def max_tokens(self) -> int:
        return self.runtime.library.moert_layer_max_tokens(self.handle)

    @property
    def tensors(self) -> list[TensorInfo]:
        library, infos = self.runtime.library, []
        for i in range(library.moert_layer_num_tensors(self.handle)):
            info = library.moert_layer_tensor(self.handle, i).contents
            infos.append(
                TensorInfo(
                    name=info.name.decode(),
                    dtype=info.dtype.decode(),
                    role=("input", "weight", "output")[info.role],
                    shape=tuple(info.shape[: info.rank]),
                    depends_on_tokens=bool(info.depends_on_tokens),
                    alignment=info.alignment,
                    strided=bool(info.strided),
                )
            )
        return infos

    def clone(self) -> Layer:
        clone = ctypes.c_void_p()
        self.runtime.call("moert_layer_clone", self.handle, ctypes.byref(clone))
        layer = Layer(self.runtime, clone)
        layer._bound = dict(self._bound)
        return layer

    def bind(self, name: str, tensor: Any) -> None:
        """Binds a Memory, or anything with __dlpack__."""
        memory = tensor if isinstance(tensor, Memory) else Memory.of(tensor)
        sizes = ctypes.c_int64 * len(memory.shape)
        described = _Tensor(
            name.encode(),
            memory.dtype.encode(),
            memory.address,
            len(memory.shape),
            sizes(*memory.shape),
            sizes(*memory.strides) if memory.strides is not None else None,
        )
        self.runtime.call("moert_layer_bind", self.handle, ctypes.byref(described))
        self._bound[name] = memory

    def prepare_weights(self) -> PrepareReport:
        report = _PrepareReport()
        self.runtime.call(
            "moert_layer_prepare_weights", self.handle, ctypes.byref(report)
        )
        return PrepareReport(report.bytes, report.in_place_bytes, report.seconds)

    def workspace_bytes(self, tokens: int) -> int:
        size = ctypes.c_int64()
        self.runtime.call(
            "moert_layer_workspace_bytes",
            self.handle,
            ctypes.c_int64(tokens),
            ctypes.byref(size),
        )
        return size.value

    def use_workspace(self, workspace: Workspace | None, slot: int = 0) -> None:
        """Runs without a workspace take this slot, or for None memory of their own."""
        self.runtime.call(
            "moert_layer_use_workspace",
            self.handle,
            workspace.handle if workspace else None,
            ctypes.c_int(slot),
        )

    def run(
        self, tokens: int, stream: int = LAYER_STREAM, workspace: int = 0, size: int = 0
    ) -> None:
        """Gives a run to `stream`, a CUstream as a number; 0 is the default stream."""
        self.runtime.call(
            "moert_layer_run",
            self.handle,
            ctypes.c_int64(tokens),
            ctypes.c_void_p(stream),
            ctypes.c_void_p(workspace),
            ctypes.c_int64(size),
        )

    def synchronize(self) -> None:
        self.runtime.call("moert_layer_synchronize", self.handle)


class Runtime:
    """The library libmoert.so."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        chosen = path or find_library("MOERT_LIBRARY", "libmoert.so.1")
        self.library = library = ctypes.CDLL(os.fspath(chosen))
        version = library.moert_api_version()
        if version != API_VERSION:
            raise ImportError(
                f"{chosen} has version {version} of the C API, {API_VERSION} is needed; "
                "install the library that came with this package"
            )
        for name in ("moert_status_message", "moert_package_spec", "moert_device_name"):
            getattr(library, name).restype = ctypes.c_char_p
            getattr(library, name).argtypes = [ctypes.c_void_p]
        for name in ("moert_status_free", "moert_package_free", "moert_device_free"):
            getattr(library, name).argtypes = [ctypes.c_void_p]
            getattr(library, name).restype = None
        for name in ("moert_layer_free", "moert_workspace_free"):
            getattr(library, name).argtypes = [ctypes.c_void_p]
            getattr(library, name).restype = None
        library.moert_status_code.argtypes = [ctypes.c_void_p]
        library.moert_layer_max_tokens.restype = ctypes.c_int64
        library.moert_layer_tensor.restype = ctypes.POINTER(_TensorInfo)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that answers a status."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p
        status = function(*arguments)
        if status is None:
            return
        code = self.library.moert_status_code(status)
        message = self.library.moert_status_message(status).decode()
        self.library.moert_status_free(status)
        raise MoertError(code, message)

    def open(self, path: str | os.PathLike[str]) -> Package:
        package = ctypes.c_void_p()
        self.call("moert_package_open", os.fspath(path).encode(), ctypes.byref(package))
        return Package(self, package)

    def from_memory(self, data: bytes) -> Package:
        package = ctypes.c_void_p()
        self.call(
            "moert_package_from_memory",
            data,
            ctypes.c_size_t(len(data)),
            ctypes.byref(package),
        )
        return Package(self, package)

    def cuda(self, ordinal: int = 0) -> Device:
        device = ctypes.c_void_p()
        self.call("moert_device_create_cuda", ctypes.c_int(ordinal), ctypes.byref(device))
        return Device(self, device)
