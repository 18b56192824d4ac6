# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles the description of a layer to a loaded layer or to a package."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from . import _core
from .argument_names import arguments_of_python, name_argument, name_arguments
from .given_values import print_json, read_flag, read_int, read_name, read_names, read_path
from .hub import find_model
from .layer import FORMS, Layer
from .progress import Progress, Work, find_listener, say, watch

#: Path of a model's config.json, folder or GGUF file, of a spec (docs/use/layers.md) or of IR (.mlir); the name of a
#: model in the cache of the Hugging Face hub ("org/name"); or a spec as a dict.
Source = Union[str, "os.PathLike[str]", Mapping[str, Any]]

_devices: dict[str, _core.Device] = {}
_devices_lock = threading.Lock()


def find_device(device: Any) -> _core.Device:
    """Returns the device with this name: "cpu", "cuda", "cuda:N", N, or a framework object that prints as one of them
    (torch.device, jax.Device, cupy.cuda.Device). None is the first GPU, or the CPU if there is none."""
    if device is None:
        try:
            return find_device("cuda:0")
        except (_core.Unavailable, _core.InvalidArgument):
            return find_device("cpu")
    if isinstance(device, str) and device.startswith("gpu"):
        named = device.partition(":")[2] or "0"
        raise _core.InvalidArgument(f"device: {device!r} found; give \"cuda:{named}\" for a GPU, or \"cpu\"")
    if isinstance(device, bool):
        raise _core.InvalidType(f"{name_argument('device')}: \"cuda:N\", \"cpu\" or an int expected, bool found")
    name = f"cuda:{read_int('device', device)}" if hasattr(device, "__index__") else str(device)
    gpu = re.fullmatch(r"(?:cuda|gpu)(?::(\d{1,9}))?|<CUDA Device (\d{1,9})>", name)
    if gpu:
        kind, number = "cuda", int(gpu[1] or gpu[2] or 0)
    elif re.fullmatch(r"cpu(:0)?|TFRT_CPU_\d+", name):
        kind, number = "cpu", 0
    else:
        raise _core.InvalidArgument(
            f"{name_argument('device')}: {name!r} found; \"cpu\", \"cuda:N\" and N are accepted"
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


def set_num_threads(count: int) -> None:
    """Sets the number of threads that run layers on the CPU, those that are loaded too, from their next call on. The
    thread that calls a layer is one of them. Default: the variable MOEC_NUM_THREADS, else OMP_NUM_THREADS, else one per
    core that the process may use, within the CPU quota of its control group.

    Raises InvalidType if `count` is no int, InvalidArgument if it is not from 1 to 4096."""
    count = read_int("count", count)
    if not 1 <= count <= 4096:
        raise _core.InvalidArgument(f"count: {count} found; 1 to 4096 threads are accepted")
    with _devices_lock:
        device = _devices.get("cpu:0")
        if device is None:
            _devices["cpu:0"] = _core.Device("cpu", count)
        else:
            device.set_threads(count)


def get_num_threads() -> int:
    """Returns the number of threads that run layers on the CPU. Raises InvalidArgument if a variable that
    set_num_threads() names is no number of threads."""
    return find_device("cpu").threads


#: Values of moejit_severity.
_PROGRESS, _WARNING, _STEP = range(3)


def _print_warning(text: str) -> None:
    say(f"warning: {text}")


def _make_message(
    progress: Progress, work: Work | None = None, warn: Callable[[str], None] | None = None
) -> Callable[[int, str], None]:
    """Returns a callback for the library that takes a severity and a text.

    work: receives progress steps.
    warn: receives warnings; by default they are printed on the error stream."""
    listener = find_listener(progress)

    def tell(severity: int, text: str) -> None:
        if severity == _STEP:
            if work is not None:
                done, of = text.split("/")
                work.step(int(done), int(of))
        elif severity == _WARNING:
            (warn or _print_warning)(name_arguments(text))
        elif listener:
            listener(text)

    return tell


def _read_size(name: str, value: Any) -> int:
    """Returns a size that replaces the description's; 0 for None, which is the description's."""
    if value is None:
        return 0
    size = read_int(name, value)
    if not 0 < size < 2**31:
        raise _core.InvalidArgument(f"{name}: {size} found; 1 to {2**31 - 1} are accepted")
    return size


def _describe(
    source: Source,
    max_tokens: int | None,
    num_experts: int | None,
    entry: str | None,
    num_valid_tokens: bool,
    layer: int | None,
    parallel: Mapping[str, Any] | None = None,
    ignore_fields: Sequence[str] = (),
    batch_invariant: bool = False,
    round_weights: bool = False,
    part: str | None = None,
) -> tuple[Any, ...]:
    max_tokens, num_experts = _read_size("max_tokens", max_tokens), _read_size("num_experts", num_experts)
    layer = None if layer is None else read_int("layer", layer)
    if entry is not None and not isinstance(entry, str):
        raise _core.InvalidType(
            f'entry: "gate", "logits" or "ids" expected, {type(entry).__name__} found'
        )
    text = None
    if isinstance(source, Mapping):
        path = "layer.json"
        text = print_json("source", source).encode()
    else:
        try:
            path = os.fspath(source)
        except TypeError:
            raise _core.InvalidType(
                f"source: a path or a dict expected, {type(source).__name__} found"
            ) from None
        if not isinstance(path, str) or "\0" in path:
            raise _core.InvalidArgument("source: a path of text without NUL expected")
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise _core.InvalidArgument(f"source: is not UTF-8: {error}") from error
        path = find_model(path)
    ranks = None if parallel is None else print_json("parallel", parallel)
    return (
        path, text, max_tokens, num_experts, entry, read_flag("num_valid_tokens", num_valid_tokens), layer, ranks,
        read_names("ignore_fields", ignore_fields), read_flag("batch_invariant", batch_invariant),
        read_flag("round_weights", round_weights), read_name("part", part),
    )


def compile(
    source: Source,
    *,
    device: Any = None,
    max_tokens: int | None = None,
    num_experts: int | None = None,
    entry: str | None = None,
    num_valid_tokens: bool = False,
    layer: int | None = None,
    parallel: Mapping[str, Any] | None = None,
    ignore_fields: Sequence[str] = (),
    batch_invariant: bool = False,
    round_weights: bool = False,
    part: str | None = None,
    cache: bool = True,
    progress: Progress = None,
) -> Layer:
    """Compiles a layer for a device, or takes it from the cache (docs/use/c-api.md), and loads it.

    source: a model's config.json or its folder, the name of a model in the local cache of the Hugging Face hub
        ("org/name"), a spec (docs/use/layers.md), IR (.mlir), or a spec as a dict.
    device: "cuda:N", "cpu", N, or a framework's device that prints as one of these; default: the first GPU, or the CPU
        if there is none.
    max_tokens: the largest number of tokens in a call; default: that of the description.
    num_experts: overrides the number of experts, to try out a large model.
    entry: the routing inputs of a call: "gate" (none; the layer has the router's weights), "logits" (router_logits) or
        "ids" (topk_ids and topk_weights); default: that of the description.
    num_valid_tokens: calls pass the number of valid tokens; rows beyond it are zero.
    layer: the decoder layer of a model, counted from 0; default: the first one with experts.
    parallel: the ranks of the layer (docs/use/parallel.md), which a model's configuration does not contain: {"dp": 2,
        "experts": "linear"}.
    ignore_fields: keys of a model's config.json to ignore that are refused although they do not concern the layer.
    batch_invariant: the bits of a row depend on this row and the weights alone (docs/use/layers.md).
    round_weights: weights of a checkpoint that have more digits than the layer's dtype, as f32 in a layer of bf16, are
        rounded when they are loaded; otherwise they are refused.
    part: "vision": the part of tokens of images in a model whose kinds of tokens have routers and experts of their own
        (ERNIE 4.5 VL); default: that of text.
    cache: whether to use the on-disk cache of compiled layers. Layers for the CPU are never cached.
    progress: None: a progress bar on the error stream, if that is a terminal, after two seconds. False: nothing. True:
        lines on the error stream with each stage and its time, and the elapsed time every ten seconds. A function:
        called with each line, sometimes in another thread.

    Raises InvalidArgument, with file, line and column, if the description is invalid; NotFound if a file does not
    exist; Unavailable without a driver or GPU. Releases the GIL."""
    described = _describe(
        source, max_tokens, num_experts, entry, num_valid_tokens, layer, parallel, ignore_fields, batch_invariant,
        round_weights,
        part,
    )
    return _load(described, device, cache, progress)


def _make_compiler(cache: bool, progress: Progress, work: Work | None = None) -> _core.Compiler:
    return _core.Compiler(
        _make_message(progress, work), None, None, None, bool(cache), 0, 0, None, True, ()
    )


def _load(described: tuple[Any, ...], device: Any, cache: bool, progress: Progress) -> Layer:
    target = find_device(device)
    with watch(f"{described[0]} is compiled", progress) as work, arguments_of_python():
        compiler = _make_compiler(cache, progress, work)
        made, from_cache, seconds = compiler.load(Layer, described, target)
    made._source = described
    made._compilation = from_cache, seconds
    return made


def compile_text(name: str, text: str, *, device: Any) -> Layer:
    """Compiles the text of a spec (.json) or of IR (.mlir) like compile(); `name` is its file name. IR may have any
    inputs and outputs: the layer's run() takes them by name."""
    return _load((name, text.encode(), 0, 0, None, False, None, None, (), False, False, None), device, True, False)


def print_text(name: str, text: str, form: str) -> str:
    """Returns a form of a layer, as in Layer.ir(), compiled from a text; `name` is its file name."""
    described = (name, text.encode(), 0, 0, None, False, None, None, (), False, False, None)
    return _make_compiler(False, None).print(described, find_device("cpu"), FORMS.index(form))


def print_spec(
    source: Source, *, layer: int | None = None, ignore_fields: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the spec of a layer (docs/use/layers.md) with all defaults. Arguments are those of compile()."""
    described = _describe(source, None, None, None, False, layer, None, ignore_fields)
    with arguments_of_python():
        return json.loads(_make_compiler(False, None).print(described, find_device("cpu"), FORMS.index("spec")))


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
    ignore_fields: Sequence[str] = (),
    batch_invariant: bool = False,
    round_weights: bool = False,
    part: str | None = None,
    cache: bool = True,
    cache_directory: str | os.PathLike[str] | None = None,
    cache_bytes: int = 0,
    threads: int = 0,
    use_ptxas: bool = True,
    configs: Sequence[str] = (),
    warn: Callable[[str], None] | None = None,
    progress: Progress = None,
) -> Package:
    """Compiles a layer for a GPU that need not be present. The result is the contents of a .moepkg file, for
    Layer.from_package() or moert_package_open().

    target: "sm_80", "sm_90a" or "sm_100a"; or the architecture of a GPU, for the best of these that it runs: "sm_90" is
        sm_90a; sm_86, sm_89, sm_103 and sm_120 run the code of sm_80.
    device_part: the part that configs are chosen for, e.g. "h100-sxm" (docs/design/cost-model.md).
    cache_directory, cache_bytes: the cache folder and its size limit in bytes; default: $MOEC_CACHE_DIR, else
        $XDG_CACHE_HOME/moec, else ~/.cache/moec, and 1 GiB.
    threads: the number of threads that compile kernels; 0: one per core that the process may use.
    use_ptxas: False leaves the assembly of PTX to the driver even if ptxas is available.
    configs: forced configs of kernels, as in moe-compile's --config.
    warn: called with each warning; by default warnings are printed on the error stream.

    Other arguments and exceptions are those of compile()."""
    if not isinstance(target, str):
        raise _core.InvalidType(
            f'target: one name of a target expected, as in "sm_90a", {type(target).__name__} found')
    described = _describe(
        source, max_tokens, num_experts, entry, num_valid_tokens, layer, parallel, ignore_fields, batch_invariant,
        round_weights,
        part,
    )
    directory = None if cache_directory is None else read_path("cache_directory", cache_directory)
    limits = read_int("cache_bytes", cache_bytes), read_int("threads", threads)
    for name, limit, most in zip(("cache_bytes", "threads"), limits, (2**64 - 1, 2**32 - 1)):
        if not 0 <= limit <= most:
            raise _core.InvalidArgument(f"{name}: {limit} found; 0 to {most} are accepted")
    if warn is not None and not callable(warn):
        raise _core.InvalidType(f"warn: a function or None expected, {type(warn).__name__} found")
    with watch(f"{described[0]} is compiled", progress) as work, arguments_of_python():
        compiler = _core.Compiler(
            _make_message(progress, work, warn), target, read_name("device_part", device_part), directory, bool(cache),
            *limits, None, bool(use_ptxas), read_names("configs", configs),
        )
        data, from_cache, seconds = compiler.compile(described)
    package = Package(data)
    package.target, package.from_cache, package.seconds = target, from_cache, seconds
    return package


class Package(bytes):
    """The contents of a .moepkg file, with information about its compilation."""

    #: The target of the code, for example "sm_90a".
    target: str = ""
    #: Whether the layer was in the cache.
    from_cache: bool = False
    #: Wall-clock time of the compilation or the cache lookup.
    seconds: float = 0.0

    def __repr__(self) -> str:
        return f"<moec.Package for {self.target or 'an unknown target'}, {len(self) / 2**20:.1f} MiB>"

    #: print() shows a line, too.
    __str__ = __repr__
