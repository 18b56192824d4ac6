# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles layers for a GPU, or finds them in the cache, through the C API moejit.h.

    with Compiler() as compiler, compiler.runtime.cuda(0) as device:
        with compiler.load("config.json", device) as layer:  # as in moec.runtime from here on
            ...
    Compiler(target="sm_90a").compile({"moec_spec": 1, ...}).data  # the bytes of a .moepkg

A source is the path of a model's config.json, of a spec or of IR (.mlir), or a spec as a dictionary.
Any number of threads may use one compiler. docs/jit.md says how the cache behaves.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .runtime import Device, Layer, Runtime, _Handle, find_library

API_VERSION = 3
_PROGRESS, _WARNING = 0, 1

Source = str | os.PathLike[str] | Mapping[str, Any]

_Message = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class _Options(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("target", ctypes.c_char_p),
        ("device_part", ctypes.c_char_p),
        ("cache_directory", ctypes.c_char_p),
        ("cache_bytes", ctypes.c_uint64),
        ("no_cache", ctypes.c_int),
        ("threads", ctypes.c_uint),
        ("ptxas", ctypes.c_char_p),
        ("no_ptxas", ctypes.c_int),
        ("configs", ctypes.POINTER(ctypes.c_char_p)),
        ("num_configs", ctypes.c_size_t),
        ("message", _Message),
        ("message_user", ctypes.c_void_p),
    ]


class _Source(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("text", ctypes.c_char_p),
        ("text_bytes", ctypes.c_size_t),
        ("max_tokens", ctypes.c_int64),
        ("num_experts", ctypes.c_int64),
    ]


class _Report(ctypes.Structure):
    _fields_ = [("from_cache", ctypes.c_int), ("seconds", ctypes.c_double)]


@dataclass
class Report:
    """How a layer came about."""

    from_cache: bool = False
    #: Wall-clock time until the layer was compiled.
    seconds: float = 0.0


@dataclass
class Compiled(Report):
    #: The contents of a .moepkg, for Runtime.from_memory() or a file.
    data: bytes = b""


def _encode(text: str | os.PathLike[str] | None) -> bytes | None:
    return None if text is None else os.fspath(text).encode()


def _describe(source: Source, max_tokens: int, num_experts: int) -> _Source:
    text = json.dumps(source).encode() if isinstance(source, Mapping) else None
    path = b"layer.json" if isinstance(source, Mapping) else os.fspath(source).encode()
    return _Source(
        ctypes.sizeof(_Source), path, text, len(text or b""), max_tokens, num_experts
    )


class Compiler(_Handle):
    """The compiler; its `runtime` is the same library's."""

    free = "moejit_compiler_free"

    def __init__(
        self,
        library: str | os.PathLike[str] | None = None,
        *,
        target: str | None = None,
        device_part: str | None = None,
        cache: bool = True,
        cache_directory: str | os.PathLike[str] | None = None,
        cache_bytes: int = 0,
        threads: int = 0,
        ptxas: str | os.PathLike[str] | None = None,
        use_ptxas: bool = True,
        configs: Sequence[str] = (),
        warn: Callable[[str], None] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """`library` is libmoec.so, by default $MOEC_LIBRARY. `target` ("sm_90a") is needed to
        compile without a device, for `device_part` ("h100-sxm"; by default the device's, or that
        of the target). The cache has 1 GiB if `cache_bytes` is 0; `threads` 0 means one
        per core. `configs` are those of kernels instead of what would be chosen, as moe-compile's
        --config. Warnings go to the error stream without `warn`."""
        runtime = Runtime(library or find_library("MOEC_LIBRARY", "libmoec.so.1"))
        if (version := runtime.library.moejit_api_version()) != API_VERSION:
            raise ImportError(
                f"the library has version {version} of the compiler's C API, {API_VERSION} is "
                "needed; install the library that came with this package"
            )
        runtime.library.moejit_compiler_free.argtypes = [ctypes.c_void_p]
        runtime.library.moejit_compiler_free.restype = None
        runtime.library.moejit_free.argtypes = [ctypes.c_void_p]
        runtime.library.moejit_free.restype = None
        #: Called from the library as long as the compiler lives.
        self._message = self._make_message(warn, progress)
        options = _Options(
            size=ctypes.sizeof(_Options),
            target=_encode(target),
            device_part=_encode(device_part),
            cache_directory=_encode(cache_directory),
            cache_bytes=cache_bytes,
            no_cache=not cache,
            threads=threads,
            ptxas=_encode(ptxas),
            no_ptxas=not use_ptxas,
            configs=(ctypes.c_char_p * len(configs))(*map(str.encode, configs)),
            num_configs=len(configs),
            message=self._message,
        )
        compiler = ctypes.c_void_p()
        runtime.call("moejit_compiler_create", ctypes.byref(options), ctypes.byref(compiler))
        super().__init__(runtime, compiler)
        #: The report of the latest call, from whatever thread.
        self.report = Report()

    @staticmethod
    def _make_message(warn: Callable | None, progress: Callable | None) -> Any:
        if not warn and not progress:
            return _Message()

        def tell(_user: int, severity: int, text: bytes) -> None:
            listener = warn if severity == _WARNING else progress
            if listener:
                listener(text.decode())
            elif severity == _WARNING:
                os.write(2, b"moec: warning: " + text + b"\n")

        return _Message(tell)

    def compile(self, source: Source, *, max_tokens: int = 0, num_experts: int = 0) -> Compiled:
        """The package of a layer, for the target of the compiler."""
        described = _describe(source, max_tokens, num_experts)
        data, size, report = ctypes.c_void_p(), ctypes.c_size_t(), _Report()
        self.runtime.call(
            "moejit_compile",
            self.handle,
            ctypes.byref(described),
            ctypes.byref(data),
            ctypes.byref(size),
            ctypes.byref(report),
        )
        try:
            package = ctypes.string_at(data, size.value)
        finally:
            self.runtime.library.moejit_free(data)
        self.report = Report(bool(report.from_cache), report.seconds)
        return Compiled(bool(report.from_cache), report.seconds, package)

    def load(
        self, source: Source, device: Device, *, max_tokens: int = 0, num_experts: int = 0
    ) -> Layer:
        """The layer on a device of this compiler's runtime, ready to bind and run."""
        described = _describe(source, max_tokens, num_experts)
        layer, report = ctypes.c_void_p(), _Report()
        self.runtime.call(
            "moejit_load_layer",
            self.handle,
            ctypes.byref(described),
            device.handle,
            None,
            ctypes.byref(layer),
            ctypes.byref(report),
        )
        self.report = Report(bool(report.from_cache), report.seconds)
        return Layer(self.runtime, layer)
