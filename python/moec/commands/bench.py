# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec bench: a model's own layers on the device at hand, beside other implementations."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _core
from ..compiler import compile, find_device
from ..layer import Layer
from ..report import check_output
from .chart import draw_chart
from .fit import add_model, parse_tokens
from .model import Model, read_model
from .rivals import Unfit, list_rivals, time_runs
from .table import print_table

#: Token counts by default.
TOKENS = (1, 16, 256)


@dataclass
class LayerTimes:
    """Times of one layer."""

    #: The decoder layer, and how many of the model are like it.
    layer: int
    like: int
    #: "checkpoint" or "random".
    weights: str
    #: By implementation and token count, the median seconds of a run.
    seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    #: By implementation, why it was not measured.
    left_out: dict[str, str] = field(default_factory=dict)


def _make_layer(model: Model, number: int, device: Any, tokens: Sequence[int]) -> tuple[Layer, str]:
    layer = compile(model.config, layer=number, device=device, max_tokens=max(tokens))
    if model.is_gguf:
        return layer.load(model.config, number), "checkpoint"
    folder = model.config.parent
    if model.config.name == "config.json" and any(folder.glob("*.safetensors")):
        return layer.load(folder, number), "checkpoint"
    return layer.generate_weights(), "random"


def measure(
    model: Model, layers: Sequence[int], device: Any, tokens: Sequence[int], repeat: int, tell: Callable[[str], None]
) -> list[LayerTimes]:
    """Times layers of a model: moec's by Layer.benchmark(), others by their own runs, one implementation after the
    other, so that no two hold their weights at once.

    tell: called with a line before each measurement."""
    found = []
    for number in layers:
        (kind,) = (each for each in model.kinds if number in each.layers)
        tell(f"layer {number}: moec")
        made, weights = _make_layer(model, number, device, tokens)
        with made as layer:
            times = LayerTimes(number, len(kind.layers), weights)
            times.seconds["moec"] = {count: layer.benchmark(count, repeat=repeat).median for count in tokens}
            name = layer.device
        for rival, make in list_rivals(model, kind.spec, number, name).items():
            tell(f"layer {number}: {rival}")
            try:
                run_on = make()
                times.seconds[rival] = {count: time_runs(run_on(count), name, repeat) for count in tokens}
            except Unfit as error:
                times.left_out[rival] = str(error)
        found.append(times)
    return found


def _print(times: LayerTimes, tokens: Sequence[int]) -> None:
    many = f", as {times.like} of the model" if times.like > 1 else ""
    print(f"\nlayer {times.layer}{many}, {times.weights} weights, median us (times of moec's)")
    names = list(times.seconds)
    rows = []
    for count in tokens:
        own = times.seconds["moec"][count]
        rows.append([str(count), *(
            f"{times.seconds[name][count] * 1e6:.1f}"
            + ("" if name == "moec" else f" ({times.seconds[name][count] / own:.2f})")
            for name in names
        )])
    print_table(["tokens", *names], rows, right=range(len(names) + 1))
    for name, why in times.left_out.items():
        print(f"without {name}: {why}")


def _say(text: str) -> None:
    print(f"moec bench: {text}", file=sys.stderr, flush=True)


def _choose_layers(model: Model, asked: int | None) -> list[int]:
    if asked is None:
        return [kind.layers[0] for kind in model.kinds]
    if not any(asked in kind.layers for kind in model.kinds):
        having = sorted(number for kind in model.kinds for number in kind.layers)
        raise _core.InvalidArgument(f"--layer: {asked} has no experts; layers from {having[0]} to {having[-1]} have some")
    return [asked]


def _run(options: argparse.Namespace) -> int:
    model = read_model(options.model, options.ignore_field)
    layers = _choose_layers(model, options.layer)
    if options.repeat < 1:
        raise _core.InvalidArgument(f"--repeat: {options.repeat} found; 1 or more is accepted")
    if options.svg:
        check_output("--svg", options.svg)
    device = find_device(options.device)
    found = measure(model, layers, options.device, options.tokens, options.repeat, _say)
    if options.svg:
        us = {name: {count: value * 1e6 for count, value in line.items()} for name, line in found[0].seconds.items()}
        title = f"{model.name}, layer {found[0].layer}, on {device.name}"
        options.svg.write_text(draw_chart(title, sorted(options.tokens), us))
    if options.json:
        print(json.dumps({
            "model": model.name, "device": device.name, "version": _core.version,
            "layers": [dataclasses.asdict(times) for times in found],
        }, indent=2))
        return 0
    print(f"{model.name} on {device.name}, moec {_core.version}")
    for times in found:
        _print(times, options.tokens)
    return 0


def add_parser(commands: Any) -> None:
    """Adds `moec bench` to the commands."""
    parser = commands.add_parser(
        "bench", help="times of a model's layers on the device at hand, beside other implementations",
        description="Times one layer of each kind of the model, with its weights, or random ones where only a "
                    "config.json is there, beside Transformers' block and, on a GPU, vLLM's kernels where these are "
                    "installed.",
    )
    add_model(parser)
    parser.add_argument("--device", help='"cuda:N" or "cpu" (default: the first GPU, or the CPU)')
    parser.add_argument("--layer", type=int, metavar="N", help="one decoder layer (default: one of each kind)")
    parser.add_argument(
        "--tokens", type=parse_tokens, default=TOKENS, metavar="T,...", help="tokens of a call (default: 1,16,256)"
    )
    parser.add_argument("--repeat", type=int, default=10, metavar="N", help="runs of each (default: 10)")
    parser.add_argument("--svg", type=pathlib.Path, metavar="FILE", help="write a chart of the first layer")
    parser.add_argument("--json", action="store_true", help="print JSON: seconds")
    parser.set_defaults(run=_run)
