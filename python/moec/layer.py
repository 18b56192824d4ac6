# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled layer on a device."""

from __future__ import annotations

import functools
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _core
from .progress import Progress, watch
from .report import Measured, read_measured, write_page

#: Forms of a layer as text, in the order of moejit.h.
FORMS = ("spec", "moe", "plan", "tile", "llvm", "ptx")
_EXPLANATION, _FULL_EXPLANATION = 6, 7


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that a layer takes, gives or prepares."""

    #: As in docs/layers.md: "experts.w13".
    name: str
    #: "bf16", "f32", "i32", "f8e4m3", ...
    dtype: str
    #: "input", "weight", "output" or "prepared".
    role: str
    #: In a call with the most tokens.
    shape: tuple[int, ...]
    #: Whether the first dimension is smaller with fewer tokens.
    depends_on_tokens: bool
    #: Bytes that the address is a multiple of.
    alignment: int
    #: Whether it may be bound with gaps between its rows.
    strided: bool
    #: Whether calls read a weight. They do not where they read only what was prepared from it.
    read_by_calls: bool


@dataclass(frozen=True)
class PrepareReport:
    """What preparing the weights took."""

    #: Bytes of memory that was allocated, and of weights that were overwritten.
    bytes: int
    in_place_bytes: int
    seconds: float


@dataclass(frozen=True)
class Benchmark:
    """Times of runs."""

    #: Of each run, ascending.
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.seconds[len(self.seconds) // 2]

    @property
    def best(self) -> float:
        return self.seconds[0]


def _get_path(path: Any, argument: str) -> Any:
    try:
        return os.fspath(path)
    except TypeError:
        remedy = "; bind() takes tensors" if isinstance(path, Mapping) else ""
        raise _core.InvalidType(
            f"{argument}: a path expected, {type(path).__name__} found{remedy}"
        ) from None


class Layer(_core.Layer):
    """A layer, compiled for a device and loaded there. moec.compile() makes it.

    Calling it runs it:

        layer(hidden_states, router_logits=None, topk_ids=None, topk_weights=None, *,
              num_valid_tokens=None, is_padding=None, input_ids=None, out=None, stream=None)

    Tensors are of any framework that knows DLPack, on the device of the layer, contiguous, on a GPU
    at addresses that are multiples of 16; nothing is copied. T is the number of tokens, at most
    max_tokens; H, k and R are docs/layers.md's, D is the layer's dtype.

    hidden_states: [T, H] of D.
    router_logits: [T, R] of f32, or of routing.logits_dtype, where the entry is "logits".
    topk_ids, topk_weights: [T, k] of i32 and f32, where the entry is "ids". An id that is not
        0 <= id < R contributes nothing.
    num_valid_tokens: where the layer was compiled with it: an int, or a tensor [1] of i32 on the
        device, which a CUDA graph can change; by default T. Rows beyond it are zero.
    is_padding: [T] of i8 or bool, where the layer has a padding_mask: rows that are not 0 there are padding,
        and zero.
    topk_ids, topk_weights, of a layer with record_ids: what the router chose is written to them.
    expert_offsets, of a layer with record_load: [experts + 1] of i32, written: expert e was chosen by
        expert_offsets[e + 1] - expert_offsets[e] slots.
    input_ids: [T] of i32, where experts are chosen by a hash of the token.
    out: [T, H] of D, which the result is written to; by default a new tensor of the framework of
        hidden_states.
    stream: a stream of a framework, or the address of a CUstream; by default the current one of the
        framework of hidden_states. The call gives its work to the stream and returns; on the CPU
        it returns when the work is done.

    Returns `out`. The weights are prepared with the first call after they were bound, or after PyTorch
    wrote to one that is prepared, which waits. Calls come from any threads and on any streams: one waits
    for the one before, on a GPU without the host; clones run side by side.

    Raises InvalidType where an argument is no tensor, has another dtype or is missing,
    InvalidArgument where its shape, strides, device or address are wrong, all before anything runs.
    """

    #: What it was compiled from; None for a package.
    _source: Any = None
    #: Whether it was found in the cache, and what it took until it was compiled.
    from_cache: bool = False
    compile_seconds: float = 0.0

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        layer: int | None = None,
        *,
        device: Any = "cuda:0",
        max_tokens: int | None = None,
        entry: str | None = None,
        num_valid_tokens: bool = False,
        parallel: Mapping[str, Any] | None = None,
        rank: int | None = None,
        prepared: str | os.PathLike[str] | None = None,
        cache: bool = True,
        progress: Progress = None,
    ) -> Layer:
        """A layer of a model on disk (config.json and safetensors), with its weights.

        layer: counted from 0; by default the first one with experts.
        rank: with `parallel`, whose part of the weights is read.
        prepared: a file of the weights as the kernels read them: where it is there, they are from it and not
            from the folder; else it is written. Where it cannot be written, that is a warning.

        The others are compile()'s."""
        from .compiler import compile

        made = compile(
            folder,
            device=device,
            max_tokens=max_tokens,
            entry=entry,
            num_valid_tokens=num_valid_tokens,
            layer=layer,
            parallel=parallel,
            cache=cache,
            progress=progress,
        )
        if prepared is not None and os.path.exists(prepared):
            return made.load_prepared(prepared, rank=rank, progress=progress)
        made.load(folder, layer, rank=rank, progress=progress)
        if prepared is not None:
            try:
                made.save_prepared(prepared, progress=progress)
            except _core.Unavailable as error:
                # The layer is good without its file: another process may be about to write it, or the disk is full.
                warnings.warn(f"prepared: {error}", RuntimeWarning, stacklevel=2)
        return made

    @classmethod
    def from_package(
        cls,
        package: str | os.PathLike[str] | bytes,
        *,
        device: Any = "cuda:0",
        progress: Progress = None,
    ) -> Layer:
        """A layer from a .moepkg file or its contents. Raises InvalidArgument where it is damaged
        or has no code for the device. progress: as compile()'s."""
        from .compiler import find_device

        if not isinstance(package, bytes):
            try:
                with open(package, "rb") as file:
                    package = file.read()
            except (OSError, TypeError, ValueError) as error:
                raise _core.NotFound(f"package: cannot be read: {error}") from error
        target = find_device(device)
        with watch("the package is loaded", progress):
            return _core.load_package(cls, package, target)

    # Weights.

    def bind(self, tensors: Mapping[str, Any] | None = None, /, **named: Any) -> Layer:
        """Binds weights, by the names of `tensors` or as keywords with `_` in place of `.`
        (`experts_w13`). The memory stays the caller's: it is kept alive, by captured CUDA graphs too, and
        what is written to it counts; where weights are prepared, see prepare(). Bytes (uint8) are taken for
        elements of float8.

        Some layers prepare weights in their own memory (prepare().in_place_bytes), which has other
        contents then and is bound anew with its values before it is prepared again.

        Raises InvalidArgument for a name that the layer does not have."""
        if tensors is not None and not isinstance(tensors, Mapping):
            raise _core.InvalidType(
                f"tensors: a mapping expected, {type(tensors).__name__} found"
            )
        names = {info.name.replace(".", "_"): info.name for info in self.tensors}
        for name, tensor in {**(tensors or {}), **named}.items():
            self.bind_weight(names.get(name, name), tensor)
        return self

    def load(
        self,
        folder: str | os.PathLike[str],
        layer: int | None = None,
        *,
        rank: int | None = None,
        progress: Progress = None,
    ) -> Layer:
        """Binds the weights of a checkpoint: a model's folder, or a file of safetensors, under the
        names of the model or those of docs/layers.md. They are read into memory of the layer's own, one
        expert after the other, and converted where that is exact.

        layer: which decoder layer, counted from 0; by default the one that was compiled.
        rank: of a layer of several ranks, whose part is read; by default that of its communicator.
        progress: as compile()'s.

        Raises NotFound or InvalidArgument, with the name of the tensor."""
        from .compiler import _PROGRESS, _make_message

        path = _get_path(folder, "folder")
        with watch("weights are read", progress) as work:
            tell = _make_message(progress, work)
            tell(_PROGRESS, f"weights are read from {folder}")
            self.load_weights(path, layer, rank, tell)
        tell(_PROGRESS, "weights are loaded")
        return self

    def save_prepared(
        self,
        path: str | os.PathLike[str],
        *,
        rank: int | None = None,
        progress: Progress = None,
    ) -> None:
        """Writes what the kernels read of the weights, prepared where they are prepared, to a file that
        load_prepared() takes (docs/runtime.md): whole or not at all.

        rank: of a layer of several ranks, whose weights these are; by default that of load(), or of its
            communicator.

        Raises InvalidArgument where weights are not bound, Unavailable where the file cannot be
        written."""
        from .compiler import _make_message

        path = _get_path(path, "path")
        with watch(f"{path} is written", progress) as work:
            self.write_prepared(path, rank, True, _make_message(progress, work))

    def load_prepared(
        self,
        path: str | os.PathLike[str],
        *,
        rank: int | None = None,
        verify: bool = True,
        progress: Progress = None,
    ) -> Layer:
        """Takes the weights from a file of save_prepared() of the same layer, in place of binding and
        preparing them, into memory of the layer's own.

        rank: of a layer of several ranks, which one this is; by default that of its communicator, or the
            file's.
        verify: whether digests are compared; sizes, types and names always are.

        Raises NotFound, or InvalidArgument for a file of another layer, target, version or rank and for one
        that is damaged: then all is as before."""
        from .compiler import _make_message

        path = _get_path(path, "path")
        with watch(f"{path} is read", progress) as work:
            self.bind_prepared(path, rank, verify, _make_message(progress, work))
        return self

    def prepare(
        self, *, memory: Mapping[str, Any] | None = None, again: bool = False
    ) -> PrepareReport:
        """Prepares the weights as the kernels want them, where that is due, and waits. The first
        call of the layer does it by itself, and so does a call after PyTorch wrote to a weight that is
        prepared: PyTorch counts writes, but for those through `.data` or NumPy and those to tensors made in
        inference mode.

        memory: tensors for what is prepared, by the names of prepared_tensors, on the device of the layer: they
            are written, and kept alive as bound weights are. What is not named is in memory of the layer's own.
            The memory serves the weights that are bound now. With others bound the layer takes memory of its own,
            unless it is given some again, which may be the same.
        again: prepares what the bound weights hold now, whatever was counted. The memory of prepared weights
            stays the same, so that clones and captured CUDA graphs use the new values: their calls and replays
            are complete before. A layer with weights prepared in place (in_place_bytes) is bound anew instead.
            A layer that prepares nothing has nothing to do: its kernels see what is written."""
        for name, tensor in (memory or {}).items():
            self.bind_memory(name, tensor)
        return PrepareReport(*self.prepare_weights(again))

    # What it is.

    @functools.cached_property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """What is bound (weights), what a call takes (inputs) and gives (output)."""
        return tuple(info for info in self._operands if info.role != "prepared")

    @functools.cached_property
    def prepared_tensors(self) -> tuple[TensorInfo, ...]:
        """What the layer prepares from its weights, but for weights that are prepared where they are."""
        return tuple(info for info in self._operands if info.role == "prepared")

    @functools.cached_property
    def _operands(self) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(*operand) for operand in self.operands())

    @functools.cached_property
    def plan(self) -> dict[str, Any]:
        """What a call runs (moert_layer_plan() of moert.h): `target`, `max_tokens`, `streams`,
        `variants` by ranges of tokens with their `steps`, `prepare`, `kernels`, `tensors`."""
        return json.loads(self.plan_text)

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """The layer as docs/layers.md describes it; empty where it came from IR."""
        text = self.spec_text
        return json.loads(text) if text else {}

    def _description(self) -> tuple[Any, ...]:
        source = self._source
        if source is None:
            text = self.spec_text
            if not text:
                raise _core.Error("the package has no description of the layer")
            source = ("layer.json", text.encode(), 0, 0, None, False, None, None)
        return source

    def _print(self, form: int) -> str:
        from .compiler import _make_compiler

        return _make_compiler(False, None).print(self._description(), self.device_object, form)

    def explain(self, full: bool = False) -> str:
        """What was chosen for the layer and what it is expected to take, in at most 40 lines; or
        all of it, with what was not chosen."""
        return self._print(_FULL_EXPLANATION if full else _EXPLANATION)

    def ir(self, level: str = "moe") -> str:
        """The layer as text: "spec" (JSON, all defaults resolved), IR of level "moe" (what),
        "plan" (when and where) or "tile" (how), or the kernels' code, "llvm" or "ptx"."""
        if level not in FORMS:
            raise _core.InvalidArgument(
                f"level: {level!r} found; {', '.join(FORMS)} are accepted"
            )
        return self._print(FORMS.index(level))

    def report(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        measured: Measured = None,
    ) -> str:
        """A page in HTML that needs nothing else: the layer drawn, its times, a roofline, the plan with
        streams and workspace, kernels, what was not chosen and why, and every level of IR. It is
        written to `path`, if that is given, and returned.

        measured: what is shown beside the expected times: seconds, or what benchmark() gives, by
            tokens; or a file of this layer's rows, as moe-bench --json writes it.

        Raises InvalidArgument where `measured` is neither, NotFound where a file cannot be read or
        written."""
        from .compiler import _make_compiler

        page = _make_compiler(False, None).print_report(
            self._description(), self.device_object, read_measured(measured, self.device)
        )
        if path is not None:
            write_page(path, page)
        return page

    def benchmark(self, tokens: int, *, repeat: int = 20, seed: int = 0) -> Benchmark:
        """Times runs on `tokens` pseudo-random tokens, with the weights that are bound, after one
        that is not timed. On a GPU each run is a replay of a CUDA graph, one behind the other, by
        the GPU's clock; on the CPU each is timed by itself. Weights stay as warm as they are."""
        return Benchmark(tuple(self.benchmark_runs(tokens, repeat, seed)))

    def clone(self) -> Layer:
        """A second layer with the same weights, for calls that overlap with those of the first: it
        has a workspace of its own."""
        other = super().clone()
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """clone(): the weights are those of the first."""
        return self.clone()

    def __reduce__(self) -> Any:
        raise _core.InvalidType(
            "a layer is on a device and cannot be pickled; carry a package (moec.compile_package) and the weights "
            "(save_prepared()), and make the layer of them there"
        )

    def __enter__(self) -> Layer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<moec.Layer, closed>"
        name = self.spec.get("name", "layer")
        return f"<moec.Layer {name!r} on {self.device}, up to {self.max_tokens} tokens>"
