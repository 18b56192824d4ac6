# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec fit: whether a model's layers with experts fit on GPUs or the CPU, and how long they are expected to take."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..compiler import find_device
from ..expectation import Expectation, ExpectedTime, expect
from .model import LayerKind, Model, get_experts, read_model
from .peers import Peer, find_peer
from .table import print_table

#: Token counts by default.
TOKENS = (1, 8, 64, 1024, 4096)
#: The most tokens of a call (docs/use/layers.md).
_MOST_TOKENS = 2**24
#: Without a GPU at hand and without --gpu.
_DEFAULT_GPU = "h200"


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU, or of the CPU. None: unknown, since no checkpoint lies beside the config.json."""

    #: What calls read of the layers with experts, and what else they hold until release_weights().
    experts: int
    released: int
    #: One workspace, which layers may share, for the most tokens.
    workspace: int
    #: All other weights, divided by tp.
    other: int | None
    #: The rest of `total`.
    room: int
    total: int


@dataclass(frozen=True)
class Time:
    """Expected seconds for some number of tokens; None where the cost model has no rates."""

    tokens: int
    #: One layer (the mean, if layers differ), and all layers with experts.
    layer_seconds: float | None
    model_seconds: float | None
    floor_seconds: float | None
    #: The bound of the layer: "memory", "tensor cores", "instructions", "L2", "power", "launch" or "link".
    bound: str | None
    #: The routed experts of a layer, from hidden states, ids and weights to the output: what peers are measured on.
    experts_seconds: float | None
    peer: Peer | None


@dataclass(frozen=True)
class Fit:
    """What `moec fit` prints."""

    model: str
    #: The GPU, or "cpu".
    gpu: str
    #: The device whose rates the times are by; None if there are none.
    rates: str | None
    tp: int
    ep: int
    gpus: int
    #: Decoder layers with experts, and bytes of the weights of one of them on all GPUs (the mean, if layers differ).
    layers: int
    layer_bytes: int
    memory: Memory
    times: tuple[Time, ...]


def make_mesh(tp: int, ep: int) -> Mapping[str, Any] | None:
    """Returns the object `parallel` (docs/use/parallel.md) of `tp` ranks that share each expert, or of `ep` ranks with
    whole experts of which `tp` share the tokens; None for one rank."""
    for name, value in (("tp", tp), ("ep", ep)):
        if value < 1:
            raise _core.InvalidArgument(f"--{name}: {value} found; 1 or more is accepted")
    if ep == 1:
        return {"tp": tp} if tp > 1 else None
    if ep % tp:
        raise _core.InvalidArgument(
            f"--ep: {ep} found; a multiple of --tp={tp} is accepted, since the GPUs of a tp group are part of ep"
        )
    return {"dp": ep // tp, "tp": tp, "experts": "linear"}


def choose_gpu() -> str | None:
    """Returns None if a GPU is at hand, else the name of the default one."""
    try:
        find_device(0)
    except _core.Error:
        return _DEFAULT_GPU
    return None


@dataclass(frozen=True)
class _Expected:
    kind: LayerKind
    layer: Expectation
    experts: Expectation


def _expect_kind(
    kind: LayerKind, gpu: str | None, tokens: Sequence[int], parallel: Mapping[str, Any] | None
) -> _Expected:
    def run(spec: Mapping[str, Any]) -> Expectation:
        most = max(spec.get("max_tokens", 16384), *tokens)
        try:
            return expect(dict(spec), gpu=gpu, tokens=tokens, max_tokens=most, parallel=parallel)
        except _core.InvalidArgument as error:
            # Its place is in the text of a spec that the caller has not seen.
            place, _, message = str(error).partition(" error: ")
            if not place.startswith("layer.json:"):
                raise
            raise _core.InvalidArgument("MODEL: " + message.partition("\n")[0]) from None

    return _Expected(kind, run(kind.spec), run(get_experts(kind.spec)))


def _add(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _make_time(found: Sequence[_Expected], index: int, ranks: int) -> Time:
    """Adds up the layers of all kinds for one token count."""
    num_layers = sum(len(each.kind.layers) for each in found)

    def add_up(get_seconds: Any) -> float | None:
        return _add([
            None if get_seconds(each) is None else len(each.kind.layers) * get_seconds(each) for each in found
        ])

    def get_layer(each: _Expected) -> ExpectedTime:
        return each.layer.times[index]

    longest = max(found, key=lambda each: len(each.kind.layers) * (get_layer(each).seconds or 0))
    model = add_up(lambda each: get_layer(each).seconds)
    experts = add_up(lambda each: each.experts.times[index].seconds)
    tokens = get_layer(longest).tokens
    return Time(
        tokens, None if model is None else model / num_layers, model,
        add_up(lambda each: get_layer(each).floor_seconds), get_layer(longest).bound,
        None if experts is None else experts / num_layers,
        find_peer(longest.kind.spec, longest.layer.gpu, tokens) if ranks == 1 else None,
    )


def _make_memory(model: Model, found: Sequence[_Expected], all_bytes: int, tp: int) -> Memory:
    def add_up(get_bytes: Any) -> int:
        return sum(len(each.kind.layers) * get_bytes(each.layer) for each in found)

    resident = add_up(lambda layer: layer.resident_bytes)
    held = add_up(lambda layer: layer.weight_bytes + layer.prepared_bytes)
    workspace = max(time.workspace_bytes for each in found for time in each.layer.times)
    own = all_bytes if model.layer_bytes is None else model.layer_bytes
    rest = None if model.weight_bytes is None else model.weight_bytes - own
    # A checkpoint in another format than the config.json says gives no difference that means anything.
    other = rest // tp if rest is not None and rest >= 0 else None
    total = found[0].layer.gpu_memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Memory(
        resident, held - resident, workspace, other, total - resident - workspace - (other or 0), total
    )


def fit(
    model: Model, gpu: str | None = None, *, tp: int = 1, ep: int = 1, tokens: Sequence[int] = TOKENS
) -> Fit:
    """Returns memory and expected times of a model's layers with experts.

    gpu: as for moec.expect(), "cpu" too; None: the GPU at hand.
    tp: GPUs that share each expert, or with `ep` the tokens.
    ep: GPUs with whole experts; 1: each GPU has a part of every expert.
    tokens: token counts of a step, over all GPUs; rounded up to a multiple of ep / tp."""
    parallel = make_mesh(tp, ep)
    if gpu == "cpu" and parallel:
        raise _core.InvalidArgument("--gpu: cpu found with --tp or --ep; leave them out, the CPU is one rank")
    ranks = max(tp, ep)
    step = ranks // tp
    counts = sorted({-(-count // step) * step for count in tokens})
    found = [_expect_kind(kind, gpu, counts, parallel) for kind in model.kinds]
    whole = found if ranks == 1 else [_expect_kind(kind, gpu, [1], None) for kind in model.kinds]
    all_bytes = sum(len(each.kind.layers) * each.layer.weight_bytes for each in whole)
    first = found[0].layer
    return Fit(
        model.name, first.gpu or first.target, first.rates, tp, ep, ranks, model.num_layers, all_bytes // model.num_layers,
        _make_memory(model, found, all_bytes, tp),
        tuple(_make_time(found, index, ranks) for index in range(len(counts))),
    )


def _show_gib(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.2f}"


def _print_memory(result: Fit, model: Model) -> None:
    memory = result.memory
    rows = [
        ["experts", _show_gib(memory.experts),
         f"{result.layers} layers of {_show_gib(result.layer_bytes)}" + (" on all GPUs" if result.gpus > 1 else "")],
        ["workspace", _show_gib(memory.workspace), f"up to {max(time.tokens for time in result.times)} tokens"],
        ["other weights", _show_gib(memory.other),
         ("of the checkpoint" + (f", divided by tp {result.tp}" if result.tp > 1 else ""))
         if memory.other is not None else f"no checkpoint beside {model.config.name}"],
        ["room", _show_gib(memory.room),
         f"of {_show_gib(memory.total)}, for the KV cache, activations and the driver"
         + ("" if memory.other is not None else ", less other weights")],
    ]
    if memory.released:
        rows.insert(1, ["until prepared", _show_gib(memory.released), "weights that Layer.release_weights() frees"])
    print_table(["memory" if result.gpu == "cpu" else "memory of a GPU", "GiB", ""], rows, right=(1,))
    if memory.room < 0 and result.gpu == "cpu":
        print("It does not fit in the memory of this machine.")
    elif memory.room < 0:
        print("It does not fit: give more GPUs by --tp or --ep.")


def _show(seconds: float | None, scale: float) -> str:
    return "-" if seconds is None else f"{seconds * scale:.1f}"


def _print_times(result: Fit, model: Model) -> None:
    if result.rates is None:
        print("No expected times: " + (
            "rates are measured on x86-64 CPUs with AVX2." if result.gpu == "cpu"
            else f"the cost model has no measured rates of {result.gpu}."
        ))
        return
    one = "the mean layer" if len(model.kinds) > 1 else "one layer"
    print(f"Expected on {result.rates}, launches in sequence, experts equally likely. layer: {one}, with router and\n"
          "shared experts; model: all layers with experts; experts: from ids and weights to output, as for the peer.")
    rows = [
        [str(time.tokens), _show(time.layer_seconds, 1e6), _show(time.model_seconds, 1e3),
         f"{100 * (time.floor_seconds or 0) / (time.model_seconds or 1):.0f} %", time.bound or "-",
         _show(time.experts_seconds, 1e6), _show(time.peer.seconds if time.peer else None, 1e6),
         f"{time.peer.name}, {time.peer.date}" if time.peer else "-"]
        for time in result.times
    ]
    print_table(
        ["tokens", "layer us", "model ms", "of floor", "bound by", "experts us", "peer us", "recorded peer"], rows,
        right=(0, 1, 2, 3, 5, 6),
    )


def _run(options: argparse.Namespace) -> int:
    model = read_model(options.model, options.ignore_field)
    result = fit(
        model, choose_gpu() if options.gpu is None else options.gpu, tp=options.tp, ep=options.ep, tokens=options.tokens
    )
    if options.json:
        print(json.dumps(dataclasses.asdict(result), indent=2))
        return 0
    mesh = f", tp {result.tp}, ep {result.ep}" if result.gpus > 1 else ""
    print(f"{model.name}: {result.layers} layers with experts on {result.gpus} x {result.gpu}{mesh}\n")
    _print_memory(result, model)
    print()
    _print_times(result, model)
    return 0


def parse_tokens(text: str) -> tuple[int, ...]:
    """Reads "1,8,64"."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1 or max(counts) > _MOST_TOKENS:
        raise argparse.ArgumentTypeError(
            f"{text!r} found; token counts from 1 to {_MOST_TOKENS} are accepted, as in 1,8,64")
    return counts


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that read_model() takes."""
    parser.add_argument(
        "model", metavar="MODEL",
        help='a model\'s folder, its config.json, a GGUF file, or a model in the cache of the Hugging Face hub '
             '("org/name")',
    )
    parser.add_argument(
        "--ignore-field", metavar="KEY", action="append", default=[],
        help="ignore a key of config.json that is refused although it does not concern the layers; may be repeated",
    )


def add_parser(commands: Any) -> None:
    """Adds `moec fit` to the commands."""
    parser = commands.add_parser(
        "fit", help="memory and expected times of a model's layers with experts on a GPU or the CPU",
        description="Says from a model's config.json or GGUF file how much memory its layers with experts take on a GPU, "
                    "how long they are expected to take, what bounds them, and what the fastest public kernel took on that "
                    "shape where that was recorded. No GPU is needed. With --gpu=cpu the first call measures the "
                    "rates of this CPU, in a second.",
    )
    add_model(parser)
    parser.add_argument("--gpu", metavar="NAME", help="a100, h100, h200, b200, ..., or cpu (default: the GPU at hand, or h200)")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="GPUs of a tensor-parallel group (default: 1)")
    parser.add_argument(
        "--ep", type=int, default=1, metavar="N",
        help="GPUs that share the experts, each with whole ones (default: 1, each GPU has a part of every expert)",
    )
    parser.add_argument(
        "--tokens", type=parse_tokens, default=TOKENS, metavar="T,...",
        help="tokens of a step, over all GPUs (default: 1,8,64,1024,4096)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: bytes and seconds")
    parser.set_defaults(run=_run)
