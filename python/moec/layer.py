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

#: Textual forms of a layer, in the order of moejit.h.
FORMS = ("spec", "moe", "plan", "tile", "llvm", "ptx")
_EXPLANATION, _FULL_EXPLANATION = 6, 7


@dataclass(frozen=True)
class TensorInfo:
    """An input, weight, output or prepared tensor of a layer."""

    #: Name in docs/use/layers.md: "experts.w13".
    name: str
    #: "bf16", "f32", "i32", "f8e4m3", ...
    dtype: str
    #: "input", "weight", "output" or "prepared".
    role: str
    #: Shape in a call with the most tokens.
    shape: tuple[int, ...]
    #: Whether the first dimension is the number of tokens of a call.
    depends_on_tokens: bool
    #: Required alignment of the address in bytes.
    alignment: int
    #: Whether it may be bound with gaps between its rows.
    strided: bool
    #: Whether calls read this weight. False if they read only tensors prepared from it.
    read_by_calls: bool


@dataclass(frozen=True)
class PrepareReport:
    """Memory and time spent on preparing weights."""

    #: Bytes of allocated memory, and of weights that were overwritten.
    bytes: int
    in_place_bytes: int
    seconds: float


@dataclass(frozen=True)
class Benchmark:
    """Run times of a layer."""

    #: Time of each run, ascending.
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
              num_valid_tokens=None, input_ids=None, is_padding=None, out=None, stream=None)

    Tensors may come from any framework that supports DLPack. They must be on the device of the layer and contiguous,
    and on a GPU their addresses must be multiples of 16; nothing is copied. T is the number of tokens, at most
    max_tokens. H, k and R are those of docs/use/layers.md; D is the layer's dtype.

    hidden_states: [T, H] of D.
    router_logits: [T, R], f32 or routing.logits_dtype; for the entry "logits".
    topk_ids, topk_weights: [T, k], i32 and f32; for the entry "ids". An id outside 0 <= id < R contributes nothing.
        With record_ids they are outputs and receive the router's choice.
    num_valid_tokens: if the layer was compiled with it: an int, or an i32 tensor [1] on the device, which a CUDA graph
        can change; default T. Rows beyond it are zero.
    is_padding: [T], i8 or bool, if the layer has a padding_mask. Rows with a value other than 0 are padding, and zero
        in the output.
    expert_offsets: [experts + 1], i32, an output of layers with record_load: expert e was chosen by
        expert_offsets[e + 1] - expert_offsets[e] slots.
    input_ids: [T], i32, if experts are chosen by a hash of the token.
    out: [T, H] of D, receives the result; default: a new tensor of the framework of hidden_states.
    stream: a framework's stream, or the address of a CUstream; default: the current stream of the framework of
        hidden_states. The call enqueues its work and returns; on the CPU it returns when the work is done.

    Returns `out`. The first call after weights were bound, or after PyTorch wrote to a prepared weight, prepares the
    weights and waits for that. Calls are allowed from any thread and on any stream. Calls of one layer run one after
    the other, on a GPU without blocking the host; clones run concurrently.

    Raises InvalidType if an argument is missing, is not a tensor or has another dtype, and InvalidArgument if its
    shape, strides, device or address are wrong. Both are raised before anything runs."""

    #: Source of the compilation; None for a package.
    _source: Any = None
    #: Whether it came from the cache, and the wall-clock time until it was compiled.
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
        """Compiles a layer of a model on disk (config.json and safetensors) and loads its weights.

        layer: index of the decoder layer, from 0; default: the first one with experts.
        rank: with `parallel`, the rank whose weights are loaded.
        prepared: path of a file of prepared weights. If it exists, the weights are loaded from it instead of the
            model's folder; otherwise it is written. If that fails, a warning is issued.

        Other arguments are those of compile()."""
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
                # The layer is usable without its file: another process may be writing it, or the disk is full.
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
        """Loads a layer from a .moepkg file or its contents. Raises InvalidArgument if it is damaged or has no code for
        the device.

        progress: as in compile()."""
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
        """Binds weights by the names in `tensors`, or as keywords with `_` in place of `.` (`experts_w13`). The memory
        stays the caller's. It is kept alive, by captured CUDA graphs too, and later writes to it take effect; for
        prepared weights see prepare(). Bytes (uint8) are accepted for float8 elements.

        Some layers prepare weights in place (prepare().in_place_bytes), which overwrites the bound memory. Such a
        weight must be bound again, with its original values, before it is prepared again.

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
        """Loads the weights of a checkpoint: a model's folder or a safetensors file, with the names of the model or of
        docs/use/layers.md. They are read expert by expert into memory owned by the layer, and converted if that is exact.

        layer: index of the decoder layer, from 0; default: the one that was compiled.
        rank: for a layer of several ranks, the rank whose weights are read; default: that of its communicator.
        progress: as in compile().

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
        """Atomically writes the weights that the kernels read, in prepared form, to a file for load_prepared()
        (docs/design/runtime.md).

        rank: for a layer of several ranks, the rank of these weights; default: that of load(), or of its communicator.

        Raises InvalidArgument if weights are not bound, Unavailable if the file cannot be written."""
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
        """Loads weights from a file that save_prepared() wrote for the same layer, into memory owned by the layer.
        Replaces binding and preparing.

        rank: for a layer of several ranks, this rank; default: that of its communicator, or of the file.
        verify: whether to compare digests; sizes, dtypes and names are always checked.

        Raises NotFound, or InvalidArgument for a damaged file and for a file of another layer, target, version or rank.
        The layer is unchanged then."""
        from .compiler import _make_message

        path = _get_path(path, "path")
        with watch(f"{path} is read", progress) as work:
            self.bind_prepared(path, rank, verify, _make_message(progress, work))
        return self

    def prepare(
        self, *, memory: Mapping[str, Any] | None = None, again: bool = False
    ) -> PrepareReport:
        """Prepares the weights for the kernels, if they are not up to date, and waits for that. The first call of the
        layer does this by itself, and so does a call after PyTorch wrote to a prepared weight. PyTorch counts writes,
        except those through `.data` or NumPy and those to tensors created in inference mode.

        memory: tensors for prepared weights, by the names of prepared_tensors, on the device of the layer. They are
            written, and kept alive like bound weights; tensors not given are allocated by the layer. The memory is used
            for the weights bound now: if others are bound later, the layer allocates its own memory unless it is given
            some again, possibly the same.
        again: prepares the current contents of the bound weights even if no write was counted. The memory of prepared
            weights stays the same, so that clones and captured CUDA graphs use the new values; their running calls and
            replays must be complete before. Weights prepared in place (in_place_bytes) must be bound again instead.
            Without prepared weights nothing is done, since kernels read the bound memory.

        Returns sizes in bytes and the time in seconds."""
        for name, tensor in (memory or {}).items():
            self.bind_memory(name, tensor)
        return PrepareReport(*self.prepare_weights(again))

    # Information about the layer.

    @functools.cached_property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Tensors to bind (weights), inputs of a call, and its output."""
        return tuple(info for info in self._operands if info.role != "prepared")

    @functools.cached_property
    def prepared_tensors(self) -> tuple[TensorInfo, ...]:
        """Tensors that the layer prepares from its weights, except weights prepared in place."""
        return tuple(info for info in self._operands if info.role == "prepared")

    @functools.cached_property
    def _operands(self) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(*operand) for operand in self.operands())

    @functools.cached_property
    def plan(self) -> dict[str, Any]:
        """The launches of a call (moert_layer_plan() of moert.h): `target`, `max_tokens`, `streams`, `variants` by
        ranges of token counts with their `steps`, `prepare`, `kernels`, `tensors`."""
        return json.loads(self.plan_text)

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """The spec of the layer (docs/use/layers.md); empty if it was compiled from IR."""
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
        """Returns text about the chosen configs and expected times, at most 40 lines. With `full` it also lists the
        alternatives."""
        return self._print(_FULL_EXPLANATION if full else _EXPLANATION)

    def ir(self, level: str = "moe") -> str:
        """Returns the layer as text: "spec" (JSON with all defaults), IR of level "moe" (what), "plan" (when and where)
        or "tile" (how), or the code of the kernels, "llvm" or "ptx"."""
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
        """Returns a self-contained HTML page: the layer as a drawing, its times, a roofline, the plan with streams and
        workspace, kernels, rejected alternatives with reasons, and all levels of IR. Also writes it to `path`, if
        given.

        measured: times to show beside the expected ones, by token count: seconds, or results of benchmark(); or a file
            with rows of this layer, as written by moe-bench --json.

        Raises InvalidArgument if `measured` is neither, NotFound if a file cannot be read or written."""
        from .compiler import _make_compiler

        page = _make_compiler(False, None).print_report(
            self._description(), self.device_object, read_measured(measured, self.device)
        )
        if path is not None:
            write_page(path, page)
        return page

    def benchmark(self, tokens: int, *, repeat: int = 20, seed: int = 0) -> Benchmark:
        """Times `repeat` runs on `tokens` pseudo-random tokens with the bound weights, after one warm-up run. On a GPU
        each run is a replay of a CUDA graph, back to back, timed by the GPU's clock; on the CPU each run is timed
        separately. Caches are not flushed between runs. Times are in seconds."""
        return Benchmark(tuple(self.benchmark_runs(tokens, repeat, seed)))

    def clone(self) -> Layer:
        """Returns a second layer with the same weights and its own workspace, so that calls of both can overlap."""
        other = super().clone()
        other.__dict__.update(self.__dict__)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """Returns clone(), which shares the weights."""
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
