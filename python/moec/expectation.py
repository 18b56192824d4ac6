# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a layer is expected to take, by the compiler's cost model (docs/design/cost-model.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core
from .argument_names import arguments_of_python, name_argument
from .compiler import Source, _describe, _make_message, find_device
from .given_values import read_int


@dataclass(frozen=True)
class ExpectedStep:
    """A phase of a launch, or an exchange between ranks. Times are None if the cost model has no rates of the
    device."""

    #: The kernel ("router_logits_t8"), the result of one of its phases, or the exchange ("all_gather dp").
    name: str
    seconds: float | None
    #: The least time: necessary bytes or operations at the device's measured ceilings.
    floor_seconds: float | None
    #: "memory", "tensor cores" (on the CPU "instructions"), "L2", "power", "launch" or "link".
    bound: str | None
    #: Least bytes of memory traffic, and operations.
    bytes: float
    operations: float


@dataclass(frozen=True)
class ExpectedTime:
    """A run with some number of tokens, its steps in sequence and its experts equally likely. Times are None if the
    cost model has no rates of the device."""

    #: Tokens of all ranks along dp.
    tokens: int
    seconds: float | None
    #: The least time: necessary bytes or operations at the device's measured ceilings.
    floor_seconds: float | None
    #: The bound of the steps that take longest together, as for ExpectedStep.
    bound: str | None
    #: The part of `seconds` that the exchange between ranks takes.
    exchange_seconds: float | None
    #: Least bytes of memory traffic, and operations, of one rank.
    bytes: float
    operations: float
    #: Number of launches.
    launches: int
    #: Bytes of workspace that serve up to this many tokens.
    workspace_bytes: int
    steps: tuple[ExpectedStep, ...]


@dataclass(frozen=True)
class Expectation:
    """What a layer is expected to take, for one rank."""

    #: The layer's name.
    layer: str
    #: The target of the code: "cpu", "sm_90a", ...
    target: str
    #: The GPU that configs are chosen for ("h200"), and its memory in bytes; None for the CPU.
    gpu: str | None
    gpu_memory_bytes: int | None
    #: The device whose rates the times are by ("an H200"); None if there are no rates, and so no times.
    rates: str | None
    #: Number of ranks, and the most tokens of a call.
    ranks: int
    max_tokens: int
    #: Bytes of the weights of one rank, and of what is prepared from them in memory of its own.
    weight_bytes: int
    prepared_bytes: int
    #: Bytes of those that calls read: what a layer holds after release_weights().
    resident_bytes: int
    #: One entry per token count.
    times: tuple[ExpectedTime, ...]


def _get_seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds * 1e-6


def _read_step(step: Mapping[str, Any]) -> ExpectedStep:
    return ExpectedStep(
        step["name"], _get_seconds(step["us"]), _get_seconds(step["floor_us"]), step["bound"], step["bytes"],
        step["operations"],
    )


def _read_time(time: Mapping[str, Any]) -> ExpectedTime:
    return ExpectedTime(
        time["tokens"], _get_seconds(time["us"]), _get_seconds(time["floor_us"]), time["bound"],
        _get_seconds(time["exchange_us"]), time["bytes"], time["operations"], time["launches"],
        time["workspace_bytes"], tuple(map(_read_step, time["steps"])),
    )


def read_expectation(text: str) -> Expectation:
    """Reads the JSON object that moe-compile --explain=json and moejit_print_expectation() print."""
    fields = json.loads(text)
    times = tuple(map(_read_time, fields.pop("times")))
    return Expectation(**fields, times=times)


def check_tokens(tokens: int | Iterable[int]) -> tuple[int, ...]:
    """Returns the token counts as a tuple. Raises InvalidType if one is no int."""
    if hasattr(type(tokens), "__index__") and not getattr(tokens, "shape", ()):
        return (read_int("tokens", tokens),)
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise _core.InvalidType(f"tokens: token counts expected, as in [1, 64], {type(tokens).__name__} found")
    return tuple(read_int("tokens", count) for count in tokens)


def expect(
    source: Source,
    *,
    gpu: str | None = None,
    tokens: int | Iterable[int] = (),
    max_tokens: int | None = None,
    num_experts: int | None = None,
    entry: str | None = None,
    layer: int | None = None,
    parallel: Mapping[str, Any] | None = None,
    ignore_fields: Sequence[str] = (),
) -> Expectation:
    """Returns what a layer is expected to take: time, what bounds it, floor, bytes, operations, workspace and weights.
    No GPU is needed, and no kernel is compiled.

    gpu: "a100", "h100", "h200", "b200", another name of docs/design/cost-model.md, or "cpu" for the CPU at hand, whose
        rates the first such call of a machine measures; default: the device at hand, as for compile(). For a part
        without measured rates times are None.
    tokens: one token count or several, of all ranks along dp; default: 1, 8, 64, 1024 and 4096, as far as the layer
        takes them.

    Other arguments are those of compile(). Raises InvalidArgument for an unknown GPU, with the known ones, and for a
    token count that the layer does not take."""
    described = _describe(source, max_tokens, num_experts, entry, False, layer, parallel, ignore_fields)
    if gpu is not None and not isinstance(gpu, str):
        raise _core.InvalidType(f"gpu: a name expected, as in \"h200\", {type(gpu).__name__} found")
    if gpu == "":
        raise _core.InvalidArgument(f"{name_argument('gpu')}: a name expected, as in \"h200\", \"\" found")
    counts = check_tokens(tokens)
    device = find_device(gpu) if gpu in (None, "cpu") else None
    try:
        with arguments_of_python():
            part = gpu if device is None else None
            compiler = _core.Compiler(_make_message(False), None, part, None, False, 0, 0, None, True, ())
            return read_expectation(compiler.expect(described, device, counts))
    except _core.InvalidArgument as error:
        raise _core.InvalidArgument(re.sub(r"^((?:--device-|device_)part: part|error: )", _name_argument, str(error))) from None


def _name_argument(found: re.Match[str]) -> str:
    return "" if found[1] == "error: " else f"{name_argument('gpu')}:"


def find_layers(source: Source) -> tuple[int, ...]:
    """Returns the decoder layers of a model that have experts, counted from 0.

    source: a model's config.json, its folder or a GGUF file, or a model in the hub's cache ("org/name").

    Raises InvalidArgument if the configuration does not state the number of layers."""
    with arguments_of_python():
        return _core.find_layers(_describe(source, None, None, None, False, None))


def measure_weights(source: Source) -> tuple[int, int]:
    """Returns the bytes of a model's layers with experts in its files, and of all tensors in them.

    source: the model's folder or GGUF file."""
    with arguments_of_python():
        return _core.measure_weights(_describe(source, None, None, None, False, None))
