# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled layer on a device."""

from __future__ import annotations

import contextlib
import functools
import html
import json
import math
import os
import pathlib
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from .argument_names import arguments_of_python, name_arguments
from .given_values import read_int, read_path
from .given_weights import GivenWeights, Names
from .hints import explain_name, explain_shape
from .hub import resolve
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
    #: Shape in a call with the most tokens; its repr says T for the number of tokens.
    shape: tuple[int, ...]
    #: Whether the first dimension is the number of tokens of a call.
    depends_on_tokens: bool
    #: Required alignment of the address in bytes.
    alignment: int
    #: Whether it may be bound with gaps between its rows.
    strided: bool
    #: Whether calls read this weight. False if they read only tensors prepared from it.
    read_by_calls: bool

    def __repr__(self) -> str:
        first, *others = [str(size) for size in self.shape] or [""]
        sizes = ", ".join([f"T <= {first}" if self.depends_on_tokens else first, *others])
        return f"<moec.TensorInfo {self.name}: {self.role}, {self.dtype} [{sizes}]>"


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
        """The median, in seconds."""
        return self.seconds[len(self.seconds) // 2]

    @property
    def best(self) -> float:
        """The shortest time, in seconds."""
        return self.seconds[0]

    def __repr__(self) -> str:
        return (f"<moec.Benchmark of {len(self.seconds)} runs: median {self.median * 1e6:.1f} us, "
                f"best {self.best * 1e6:.1f} us>")


#: Methods of moec._core.Layer that methods of Layer stand for.
_INTERNALS = frozenset({
    "benchmark_runs", "bind_memory", "bind_prepared", "bind_weight", "device_object", "fill_weights", "load_tensors",
    "load_weights", "operands", "owns_weights", "plan_text", "prepare_weights", "selects", "spec_text", "time_calls",
    "verify_runs", "write_prepared",
})


#: Whether calls of this thread make no other calls.
_calls = threading.local()


@contextlib.contextmanager
def one_run() -> Iterator[None]:
    """Calls in it are one run each: they refuse leading dimensions and more than max_tokens rows, as operators do."""
    _calls.are_runs = True
    try:
        yield
    finally:
        _calls.are_runs = False


def _scales_all_rows(spec: Any) -> bool:
    """Whether a spec has activations with one dynamic scale for all rows of a run."""
    if not isinstance(spec, Mapping):
        return False
    scheme = spec.get("activation")
    if isinstance(scheme, Mapping) and scheme.get("scale") == "tensor" and not scheme.get("static"):
        return True
    return any(map(_scales_all_rows, spec.values()))


class Layer(_core.Layer):
    """A layer, compiled for a device and loaded there. moec.compile() makes it.

    Calling it runs it:

        layer(hidden_states, router_logits=None, topk_ids=None, topk_weights=None, *,
              num_valid_tokens=None, input_ids=None, is_padding=None, hidden_states_scale=None, adapter_ids=None,
              out=None, stream=None)

    Tensors may come from any framework that supports DLPack. They must be on the device of the layer and contiguous,
    and on a GPU their addresses must be multiples of 16; nothing is copied. T is the number of tokens; more than
    max_tokens are several runs. H, k and R are those of docs/use/layers.md; D is the layer's dtype.

    hidden_states: [T, H] of D, or with quantized_input of the dtype of the activations; or with more leading dimensions, as in [batch, seq, H]; other tensors then have the same
        ones or are flat, and the result has them.
    router_logits: [T, R], f32 or routing.logits_dtype; for the entry "logits".
    topk_ids, topk_weights: [T, k], i32 and f32; for the entry "ids". An id outside 0 <= id < R contributes nothing.
        With record_ids they are outputs and receive the router's choice, ids in the dtype that record_ids says.
        With replay_ids, topk_ids are what an earlier run has recorded, and the router weighs them.
    num_valid_tokens: if the layer was compiled with it: an int, or an i32 tensor [1] on the device, which a CUDA graph
        can change; default T. Rows beyond it are zero.
    is_padding: [T], i8 or bool, if the layer has a padding_mask. Rows with a value other than 0 are padding, and zero
        in the output.
    hidden_states_scale: with quantized_input, the scales of the rows: f32 [T, scales of a row], or [1] for all.
    adapter_ids: [T], i32, if the layer has `lora`: the adapter of each token; other numbers than 0 <= id < adapters
        mean none.
    expert_offsets: [experts + 1], i32, an output of layers with record_load: expert e was chosen by
        expert_offsets[e + 1] - expert_offsets[e] slots.
    input_ids: [T], i32, if experts are chosen by a hash of the token.
    out: [T, H] of D, or [T, k * H] with output "slots", receives the result; default: a new tensor like hidden_states,
        if the output is like them.
    stream: a framework's stream, or the address of a CUstream; default: the current stream of the framework of
        hidden_states. The call enqueues its work and returns; on the CPU it returns when the work is done.

    Returns `out`. The first call after weights were bound, or after PyTorch wrote to a prepared weight, prepares the
    weights and waits for that. Calls are allowed from any thread and on any stream. Calls of one layer run one after
    the other, on a GPU without blocking the host; clones run concurrently.

    Raises InvalidType if an argument is missing, is not a tensor or has another dtype, and InvalidArgument if its
    shape, strides, device or address are wrong. Both are raised before anything runs."""

    #: Source of the compilation; None for a package.
    _source: Any = None
    #: `from_cache` and `compile_seconds`.
    _compilation: tuple[bool, float] = (False, 0.0)

    @property
    def from_cache(self) -> bool:
        """Whether the layer came from the cache."""
        return self._compilation[0]

    @property
    def compile_seconds(self) -> float:
        """The wall-clock time until the layer was compiled, in seconds."""
        return self._compilation[1]

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        layer: int | None = None,
        *,
        device: Any = None,
        max_tokens: int | None = None,
        entry: str | None = None,
        num_valid_tokens: bool = False,
        parallel: Mapping[str, Any] | None = None,
        ignore_fields: Sequence[str] = (),
        batch_invariant: bool = False,
        round_weights: bool = False,
        part: str | None = None,
        rank: int | None = None,
        prepared: str | os.PathLike[str] | None = None,
        cache: bool = True,
        progress: Progress = None,
    ) -> Layer:
        """Compiles a layer of a model on disk (config.json and safetensors, or a GGUF file) and loads its weights.

        folder: the model's folder or GGUF file, or its name in the local cache of the Hugging Face hub ("org/name"),
            where `hf download org/name` puts it.
        layer: index of the decoder layer, from 0; default: the first one with experts.
        rank: with `parallel`, the rank whose weights are loaded.
        prepared: path of a file of prepared weights, one for each decoder layer. If it exists, the weights are loaded
            from it instead of the model's folder; otherwise it is written. If that fails, a warning is issued.

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
            ignore_fields=ignore_fields,
            batch_invariant=batch_invariant,
            round_weights=round_weights,
            part=part,
            cache=cache,
            progress=progress,
        )
        if prepared is not None and os.path.exists(prepared):
            return made._load_prepared(prepared, rank, True, progress, same_layer=True)
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
        device: Any = None,
        progress: Progress = None,
    ) -> Layer:
        """Loads a layer from a .moepkg file or its contents. Raises InvalidArgument if it is damaged or has no code for
        the device.

        device, progress: as in compile()."""
        from .compiler import find_device

        if not isinstance(package, bytes):
            if not isinstance(package, (str, os.PathLike)):
                raise _core.InvalidType(f"package: a path or bytes expected, {type(package).__name__} found")
            try:
                with open(package, "rb") as file:
                    package = file.read()
            except (OSError, TypeError, ValueError) as error:
                raise _core.NotFound(f"package: cannot be read: {error}") from error
        target = find_device(device)
        with watch("loading the package", progress):
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
            name = names.get(name, name)
            try:
                self.bind_weight(name, tensor)
            except _core.InvalidArgument as error:
                hint = self._explain_weight(name, tensor)
                if hint:
                    # The hint is more than the name that is alike.
                    text = re.sub(r"; did you mean '[^']*'\?$", "", str(error))
                    raise _core.InvalidArgument(text + hint) from None
                raise
        return self

    def _explain_weight(self, name: str, tensor: Any) -> str:
        shapes = {info.name: info.shape for info in self.tensors if info.role == "weight"}
        if name in shapes:
            return explain_shape(tensor, shapes[name])
        return explain_name(str(name), shapes, self.spec.get("gate_up_order", "gate_up"))

    def generate_weights(self, seed: int = 0) -> Layer:
        """Fills the weights with pseudo-random values, for benchmarks of a layer without a checkpoint, in memory owned by
        the layer. Equal seeds give equal values. Every intermediate is of the order of one.

        Raises ResourceExhausted if the machine has too little free memory for them."""
        with arguments_of_python():
            self.fill_weights(seed)
        return self

    def load(
        self,
        weights: str | os.PathLike[str] | Mapping[str, Any] | Iterable[tuple[str, Any]],
        layer: int | None = None,
        *,
        names: Names = None,
        partial: bool = False,
        rank: int | None = None,
        progress: Progress = None,
    ) -> Layer:
        """Loads the weights of a checkpoint, with the names of the model or of docs/use/layers.md, into memory owned by
        the layer; they are converted if that is exact, or if the layer was compiled with round_weights.

        weights: a model's folder or a safetensors file, which is read expert by expert; or tensors by name, contiguous,
            on the CPU or the layer's device, as a mapping or as pairs (name, tensor). Those of the rest of the model
            are ignored. From an iterable, each tensor goes to its place before the next is asked for.
        layer: index of the decoder layer, from 0; default: the one that was compiled.
        names: gives tensors the names of the checkpoint: a function, which returns None for a tensor to leave out, or a
            mapping, in which "{e}" stands for a number.
        partial: other tensors of the layer come in later calls, or have come.
        rank: for a layer of several ranks, the rank whose weights are read; default: that of its communicator.
        progress: as in compile().

        Tensors given to a layer that has loaded its weights are an update: they are written to the same memory, and
        prepared weights are prepared again, so that clones and captured CUDA graphs use them. Running calls and replays
        must be complete before. All tensors of a call are checked before the first is written. Values of tensors that
        are copied on the GPU are not checked.

        Raises NotFound or InvalidArgument, with the name of the tensor; the layer has the weights that it had then."""
        from .compiler import _PROGRESS, _make_message

        if not isinstance(weights, (str, bytes, os.PathLike)):
            given = GivenWeights(self, weights, layer, rank, names)
            with watch("weights are loaded", progress) as work, arguments_of_python():
                given.load(partial, _make_message(progress, work))
            return self
        if names is not None or partial:
            raise _core.InvalidArgument("names, partial: only for tensors in memory; leave them out for a path")
        path = read_path("weights", weights)
        if path.endswith(".json"):
            raise _core.InvalidArgument(f"weights: the description {path} has none; give its folder")
        path = resolve(path)
        with watch("weights are read", progress) as work, arguments_of_python():
            tell = _make_message(progress, work)
            tell(_PROGRESS, f"weights are read from {path}")
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

        path = read_path("path", path)
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
        return self._load_prepared(path, rank, verify, progress)

    def _load_prepared(
        self, path: str | os.PathLike[str], rank: int | None, verify: bool, progress: Progress, same_layer: bool = False
    ) -> Layer:
        """load_prepared(), which with `same_layer` refuses a file of another decoder layer than the compiled one."""
        from .compiler import _make_message

        path = read_path("path", path)
        with watch(f"{path} is read", progress) as work:
            self.bind_prepared(path, rank, verify, _make_message(progress, work), same_layer)
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
        if memory is not None and not isinstance(memory, Mapping):
            raise _core.InvalidType(f"memory: a mapping expected, {type(memory).__name__} found")
        for name, tensor in (memory or {}).items():
            self.bind_memory(name, tensor)
        return PrepareReport(*self.prepare_weights(again))

    def _call_flat(self, hidden_states: Any, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Runs a call whose tensors have several leading dimensions, with one row per token. NotImplemented for tensors
        that cannot be reshaped."""
        if not hasattr(hidden_states, "reshape") or getattr(_calls, "are_runs", False):
            return NotImplemented
        leading = tuple(hidden_states.shape[:-1])

        call: Callable[..., Any] = self
        capacity = self.spec.get("expert_capacity")
        if capacity is not None and leading[-1] <= capacity and math.prod(leading) > self.max_tokens:
            # An expert has all tokens of a sequence, so sequences may be in any call.
            call = functools.partial(self._call_in_parts, are_sequences=True)

        ranks = {info.name: len(info.shape) for info in self.tensors}

        def flatten(name: str, tensor: Any) -> Any:
            shape = tuple(getattr(tensor, "shape", None) or ())
            # [8, 1] beside hidden states [8, 1, H] may be flat: the ids of 8 tokens with one expert each.
            if shape[: len(leading)] != leading or len(shape) != len(leading) + ranks.get(name, 1) - 1:
                return tensor
            return tensor.reshape(-1, *shape[len(leading):])

        flat = call(
            flatten("hidden_states", hidden_states), *map(flatten, _core.POSITIONAL_INPUTS[1:], arguments),
            out=flatten("output", out), **{name: flatten(name, value) for name, value in named.items()},
        )
        return flat.reshape(*leading, flat.shape[-1]) if out is None else out

    def _call_in_parts(
        self, hidden_states: Any, *arguments: Any, out: Any = None, are_sequences: bool = False, **named: Any
    ) -> Any:
        """Runs a call of more than max_tokens rows as several calls. NotImplemented for tensors that cannot be sliced and
        copied.

        are_sequences: no sequence has more tokens than an expert may have."""
        if not hasattr(hidden_states, "__getitem__") or getattr(_calls, "are_runs", False):
            return NotImplemented
        tokens, valid = hidden_states.shape[0], named.get("num_valid_tokens")
        if valid is not None and not hasattr(valid, "__dlpack__"):
            valid = read_int("num_valid_tokens", valid)
        self._check_parts(valid, named, are_sequences)
        if out is None and not self.output_is_like_input:
            raise _core.InvalidArgument("out: is missing; the layer's output is not like hidden_states, so give it")
        if out is None:
            copy = getattr(hidden_states, "new_empty", None)
            out = copy(tuple(hidden_states.shape)) if copy else hidden_states.copy()
        # On a GPU the parts of tensors then begin at multiples of 16 bytes.
        most = max(self.max_tokens // 16 * 16, min(self.max_tokens, 16))
        for begin in range(0, tokens, most):
            end = min(begin + most, tokens)

            def cut(tensor: Any, begin: int = begin, end: int = end) -> Any:
                shape = getattr(tensor, "shape", None)
                return tensor if not shape or shape[0] != tokens else tensor[begin:end]

            part = {name: cut(value) for name, value in named.items()}
            if valid is not None:
                part["num_valid_tokens"] = min(max(valid - begin, 0), end - begin)
            self(cut(hidden_states), *map(cut, arguments), out=cut(out), **part)
        return out

    def _check_parts(self, valid: Any, named: Mapping[str, Any], are_sequences: bool) -> None:
        """Raises InvalidArgument for a call whose result is not that of its parts."""
        capacity = self.spec.get("expert_capacity")
        if capacity is not None and not are_sequences:
            raise _core.InvalidArgument(
                f"hidden_states: more than max_tokens = {self.max_tokens} rows, and the model leaves out tokens of a "
                f"sequence that an expert has beyond expert_capacity = {capacity}, which the layer does not; give "
                f"sequences of at most {capacity} tokens, several as [sequences, tokens, hidden_size]"
            )
        reason = None
        if valid is not None and not isinstance(valid, int):
            reason = "num_valid_tokens in a tensor counts the rows of all parts; pass an int"
        elif "expert_offsets" in named:
            reason = "expert_offsets counts the rows of one run"
        elif _scales_all_rows(self.spec):
            reason = "activations have one scale for all rows of a run"
        if reason:
            raise _core.InvalidArgument(
                f"hidden_states: more than max_tokens = {self.max_tokens} rows, and {reason}; compile the layer for more "
                "tokens, or split the call"
            )

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
    def output_is_like_input(self) -> bool:
        """Whether a call without `out` can make it."""
        forms = [(info.dtype, info.shape) for info in self.tensors if info.name in ("hidden_states", "output")]
        return len(forms) == 2 and forms[0] == forms[1]

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
            source = ("layer.json", text.encode(), 0, 0, None, False, None, None, (), False, False, None)
        return source

    def _print(self, form: int) -> str:
        from .compiler import _make_compiler

        return _make_compiler(False, None).print(self._description(), self.device_object, form)

    def explain(self, full: bool = False) -> str:
        """Returns text about the chosen configs and expected times, at most 40 lines. With `full` it also lists the
        alternatives."""
        return name_arguments(self._print(_FULL_EXPLANATION if full else _EXPLANATION))

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

    def verify(
        self,
        every: int = 0,
        *,
        rows: int = 1,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        in_graphs: str = "refuse",
    ) -> Layer:
        """Compares `rows` rows of each `every`-th call with the float64 reference over the bound weights
        (docs/howto/debug.md). A wrong row is logged on stderr, and raised as Error by the next synchronize(). From here
        on weights cannot be released. Clones made afterwards are compared too.

        every: 0 takes it from MOEC_VERIFY, which by itself applies to every layer; unset, no call is compared.
        seed: decides which rows are compared.
        folder: where files that reproduce a wrong row are written; default: MOEC_VERIFY_DIR, else moec-verify in the
            folder of temporary files.
        in_graphs: calls that are captured into CUDA graphs are not compared: "refuse" raises InvalidArgument for them,
            "skip" leaves them out.

        Raises Unavailable for a layer that cannot be compared."""
        if in_graphs not in ("refuse", "skip"):
            raise _core.InvalidArgument(f"in_graphs: {in_graphs!r} found; \"refuse\" and \"skip\" are accepted")
        path = None if folder is None else read_path("folder", folder)
        self.verify_runs(every, rows, seed, path, in_graphs == "skip")
        return self

    def benchmark(self, tokens: int, *, repeat: int = 20, seed: int = 0) -> Benchmark:
        """Times `repeat` runs on `tokens` pseudo-random tokens with the bound weights, after one warm-up run. On a GPU
        each run is a replay of a CUDA graph, back to back, timed by the GPU's clock; on the CPU each run is timed
        separately. Caches are not flushed between runs. Times are in seconds."""
        return Benchmark(tuple(self.benchmark_runs(tokens, repeat, seed)))

    def tune(
        self, output: str | os.PathLike[str], *, tokens: Sequence[int] | None = None, seconds: int = 60
    ) -> pathlib.Path | None:
        """Measures other configs of the layer's gemms on the first GPU with the bundle's moe-bench, and writes the faster
        ones to the file `output`, for moe-compile --tuned.

        tokens: token counts that are measured; default: 1 to 4096.
        seconds: about how long to measure.

        Returns the file; None if no config was faster, and so none is written. Raises Unavailable without a GPU,
        NotFound without moe-bench."""
        from .commands.tune import TOKENS, tune

        return tune(self.spec, output, tokens=TOKENS if tokens is None else tokens, seconds=seconds)

    def clone(self) -> Layer:
        """Returns a second layer with the same weights and its own workspace, so that calls of both can overlap."""
        other = super().clone()
        other.__dict__.update(self.__dict__)
        return other

    def __copy__(self) -> Layer:
        """Returns clone(), which shares the weights."""
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """Returns clone(), which shares the weights."""
        return self.clone()

    def __reduce__(self) -> Any:
        raise _core.InvalidType(
            "a layer is on a device and cannot be pickled; carry a package (moec.compile_package) and the weights "
            "(save_prepared()), and make the layer of them there"
        )

    @property
    def dtype(self) -> str:
        """The dtype of hidden states and output: "bf16", "f16" or "f32"."""
        return next(info.dtype for info in self.tensors if info.name == "hidden_states")

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that are bound, without those that the layer prepares from them."""
        return sum(
            math.prod(info.shape) * int(re.sub(r"\D*(\d+).*", r"\1", info.dtype)) // 8
            for info in self.tensors
            if info.role == "weight"
        )

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) - _INTERNALS)

    def _repr_html_(self) -> str:
        """The report in a frame, for notebooks."""
        if self.closed:
            return html.escape(repr(self))
        page = html.escape(self.report(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="600" style="border: 0"></iframe>'

    def __enter__(self) -> Layer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "<moec.Layer, closed>"
        name = self.spec.get("name", "layer")
        return f"<moec.Layer {name!r} on {self.device}, up to {self.max_tokens} tokens>"
