# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From the description of a layer to one that runs, or to a package."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from . import _core
from .layer import FORMS, Layer
from .progress import Progress, Work, find_listener, say, watch

#: A model's config.json or its folder, a spec (docs/layers.md), IR (.mlir), or a spec as a dict.
Source = Union[str, "os.PathLike[str]", Mapping[str, Any]]

_devices: dict[str, _core.Device] = {}
_devices_lock = threading.Lock()


def find_device(device: Any) -> _core.Device:
    """The device that is called so: "cpu", "cuda", "cuda:N", N, or an object of a framework that
    prints as one of them (torch.device, jax.Device, cupy.cuda.Device)."""
    if isinstance(device, bool):
        raise _core.InvalidType("device: \"cuda:N\", \"cpu\" or an int expected, bool found")
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    gpu = re.fullmatch(r"(?:cuda|gpu)(?::(\d{1,9}))?|<CUDA Device (\d{1,9})>", name)
    if gpu:
        kind, number = "cuda", int(gpu[1] or gpu[2] or 0)
    elif re.fullmatch(r"cpu(:0)?|TFRT_CPU_\d+", name):
        kind, number = "cpu", 0
    else:
        raise _core.InvalidArgument(
            f"device: {name!r} found; \"cpu\", \"cuda:N\" and N are accepted"
        )
    with _devices_lock:
        found = _devices.get(f"{kind}:{number}")
        if found is None:
            try:
                found = _core.Device(kind, number)
            except _core.Unavailable as error:
                message = str(error).replace("run on the CPU", 'give device="cpu"')
                raise _core.Unavailable(message) from None
            _devices[f"{kind}:{number}"] = found
        return found


#: moejit_severity.
_PROGRESS, _WARNING, _STEP = range(3)


def _make_message(
    progress: Progress, work: Work | None = None, warn: Callable[[str], None] | None = None
) -> Callable[[int, str], None]:
    """What the library calls with a severity and a text. work: is told of steps. warn: gets warnings in place of the
    error stream."""
    listener = find_listener(progress)

    def tell(severity: int, text: str) -> None:
        if severity == _STEP:
            if work is not None:
                done, of = text.split("/")
                work.step(int(done), int(of))
        elif severity == _WARNING:
            if warn:
                warn(text)
            else:
                say(f"warning: {text}")
        elif listener:
            listener(text)

    return tell


def _print_json(name: str, value: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        raise _core.InvalidType(f"{name}: a dict expected, {type(value).__name__} found")
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise _core.InvalidArgument(f"{name}: is not JSON: {error}") from error


def _describe(
    source: Source,
    max_tokens: int | None,
    num_experts: int | None,
    entry: str | None,
    num_valid_tokens: bool,
    layer: int | None,
    parallel: Mapping[str, Any] | None = None,
) -> tuple[str, bytes | None, int, int, str | None, bool, int | None, str | None]:
    for name, value in (("max_tokens", max_tokens), ("num_experts", num_experts)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise _core.InvalidType(f"{name}: an int expected, {type(value).__name__} found")
        if not 0 < value < 2**31:
            raise _core.InvalidArgument(f"{name}: {value} found; 1 to {2**31 - 1} are accepted")
    if entry is not None and not isinstance(entry, str):
        raise _core.InvalidType(
            f'entry: "gate", "logits" or "ids" expected, {type(entry).__name__} found'
        )
    text = None
    if isinstance(source, Mapping):
        path = "layer.json"
        text = _print_json("source", source).encode()
    else:
        try:
            path = os.fspath(source)
        except TypeError:
            raise _core.InvalidType(
                f"source: a path or a dict expected, {type(source).__name__} found"
            ) from None
        if not isinstance(path, str) or "\0" in path:
            raise _core.InvalidArgument("source: a path of text without NUL expected")
        # The name of a model on the hub.
        is_name = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*(?<!\.json)(?<!\.mlir)", path)
        if is_name and not os.path.exists(path):
            raise _core.NotFound(
                f"source: there is no file or folder {path!r}; a model of the hub is fetched with "
                f"`hf download {path} --local-dir FOLDER`, whose folder is given"
            )
    ranks = None if parallel is None else _print_json("parallel", parallel)
    return (path, text, max_tokens or 0, num_experts or 0, entry, num_valid_tokens, layer, ranks)


def compile(
    source: Source,
    *,
    device: Any = "cuda:0",
    max_tokens: int | None = None,
    num_experts: int | None = None,
    entry: str | None = None,
    num_valid_tokens: bool = False,
    layer: int | None = None,
    parallel: Mapping[str, Any] | None = None,
    cache: bool = True,
    progress: Progress = None,
) -> Layer:
    """Compiles a layer for a device, or finds it in the cache (docs/jit.md), and loads it.

    source: a model's config.json or its folder, a spec (docs/layers.md), IR (.mlir), or a spec as a
        dict.
    device: "cuda:N", "cpu", N, or a framework's device that prints so.
    max_tokens: the most tokens that a call may have; by default the description's.
    num_experts: so many experts in place of the description's, to try a large model out.
    entry: what a call brings of the routing: "gate" (nothing: the layer has the router's weights),
        "logits" (router_logits) or "ids" (topk_ids and topk_weights); by default the description's.
    num_valid_tokens: a call brings the number of its valid tokens; rows beyond it are zero.
    layer: which decoder layer of a model, counted from 0; by default the first one with experts.
    parallel: the ranks of the layer (docs/parallel.md), which a model's configuration does not say:
        {"dp": 2, "experts": "linear"}.
    cache: whether the compiled layer is looked for and kept on disk. Layers for the CPU never are.
    progress: what is told of it: by default a bar on the error stream, if that is a terminal, once two
        seconds have gone by; False: nothing; True: lines on the error stream, wherever it goes, each
        stage and what it took, and every ten seconds how long it takes; a function gets the lines, some of
        them in another thread.

    Raises InvalidArgument about a description that is wrong, with file, line and column; NotFound
    where there is no such file; Unavailable without a driver or GPU. Other threads run meanwhile.
    """
    described = _describe(source, max_tokens, num_experts, entry, num_valid_tokens, layer, parallel)
    return _load(described, device, cache, progress)


def _make_compiler(cache: bool, progress: Progress, work: Work | None = None) -> _core.Compiler:
    return _core.Compiler(
        _make_message(progress, work), None, None, None, bool(cache), 0, 0, None, True, ()
    )


def _load(described: tuple[Any, ...], device: Any, cache: bool, progress: Progress) -> Layer:
    target = find_device(device)
    with watch(f"{described[0]} is compiled", progress) as work:
        compiler = _make_compiler(cache, progress, work)
        made, from_cache, seconds = compiler.load(Layer, described, target)
    made._source = described
    made.from_cache, made.compile_seconds = from_cache, seconds
    return made


def compile_text(name: str, text: str, *, device: Any) -> Layer:
    """The same as compile() of a file with this name and contents, a spec (.json) or IR (.mlir). IR may
    have any inputs and outputs: run() of the layer takes them by name."""
    return _load((name, text.encode(), 0, 0, None, False, None, None), device, True, False)


def print_text(name: str, text: str, form: str) -> str:
    """What the compiler makes of a file with this name and contents, as Layer.ir() prints it."""
    described = (name, text.encode(), 0, 0, None, False, None, None)
    return _make_compiler(False, None).print(described, find_device("cpu"), FORMS.index(form))


def compile_package(
    source: Source,
    target: str,
    *,
    device_part: str | None = None,
    max_tokens: int | None = None,
    num_experts: int | None = None,
    entry: str | None = None,
    num_valid_tokens: bool = False,
    layer: int | None = None,
    parallel: Mapping[str, Any] | None = None,
    cache: bool = True,
    cache_directory: str | os.PathLike[str] | None = None,
    cache_bytes: int = 0,
    threads: int = 0,
    use_ptxas: bool = True,
    configs: Sequence[str] = (),
    warn: Callable[[str], None] | None = None,
    progress: Progress = None,
) -> Package:
    """Compiles a layer for a GPU that need not be there: the contents of a .moepkg file, for
    Layer.from_package() or moert_package_open().

    target: "sm_80", "sm_90a", "sm_100a".
    device_part: the part that configs are chosen for, as "h100-sxm" (docs/cost-model.md).
    cache_directory, cache_bytes: the folder of compiled layers and what it may have; by default
        $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec, else ~/.cache/moec, and 1 GiB.
    threads: that compile kernels; 0: one per core that the process may use.
    use_ptxas: False leaves the PTX to the driver though there is a ptxas.
    configs: those of kernels instead of what would be chosen, as moe-compile's --config.
    warn: gets warnings in place of the error stream.

    The other arguments, and what is raised, are as for compile().
    """
    described = _describe(source, max_tokens, num_experts, entry, num_valid_tokens, layer, parallel)
    directory = None if cache_directory is None else os.fspath(cache_directory)
    with watch(f"{described[0]} is compiled", progress) as work:
        compiler = _core.Compiler(
            _make_message(progress, work, warn), target, device_part, directory, bool(cache), cache_bytes,
            threads, None, bool(use_ptxas), tuple(configs),
        )
        data, from_cache, seconds = compiler.compile(described)
    package = Package(data)
    package.from_cache, package.seconds = from_cache, seconds
    return package


class Package(bytes):
    """The contents of a .moepkg file, and how they came about."""

    #: Whether the layer was compiled before.
    from_cache: bool = False
    #: Wall-clock time until the layer was compiled.
    seconds: float = 0.0
