# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command line: python -m moec.reference check|generate."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from . import signature
from .check import check
from .fields import SpecError
from .files import InputError, TensorFile, write_tensors
from .generate import HARD_INPUTS, generate
from .layer import decide, evaluate, expert_counts, expert_offsets
from .numerics import NUMPY_DTYPES
from .spec import ENTRIES, LayerSpec

#: Number of failures listed after the summary.
_LISTED = 5


def _spec(options: argparse.Namespace) -> LayerSpec:
    spec = LayerSpec.from_file(options.spec)
    try:
        return spec.with_overrides(
            num_experts=options.num_experts,
            entry=options.entry,
            num_valid_tokens=options.num_valid_tokens or None,
        )
    except SpecError as error:
        raise SpecError(f"{options.spec}: {error}") from None


def _check(options: argparse.Namespace) -> int:
    spec = _spec(options)
    inputs = TensorFile(options.inputs)
    tokens = inputs.require(signature.inputs(spec))
    outputs = TensorFile(options.outputs)
    outputs.require(signature.outputs(spec), tokens, optional=True)
    report = check(spec, inputs, outputs, options.first_token)
    print(report.summary())
    for failure in report.failures[:_LISTED]:
        print(f"  {failure}")
    return 0 if report.ok else 1


def _generate(options: argparse.Namespace) -> int:
    spec = _spec(options)
    write_tensors(
        options.output, generate(spec, options.tokens, options.seed, options.hard)
    )
    return 0


def _run(options: argparse.Namespace) -> int:
    spec = _spec(options)
    inputs = TensorFile(options.inputs)
    inputs.require(signature.inputs(spec))
    decision = decide(spec, inputs)
    counts = expert_counts(spec, decision)
    results = {
        "output": evaluate(spec, inputs, decision),
        "topk_ids": decision.ids,
        "topk_weights": decision.weights,
        "expert_counts": counts,
        "expert_offsets": expert_offsets(counts),
    }
    with np.errstate(over="ignore"):
        write_tensors(
            options.output,
            {
                tensor.name: results[tensor.name].astype(NUMPY_DTYPES[tensor.dtype])
                for tensor in signature.outputs(spec)
            },
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m moec.reference", description="float64 reference of a layer"
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--spec", required=True, help="JSON spec or config.json")
        sub.add_argument("--num-experts", type=int, help="reduce the layer to this many experts")
        sub.add_argument("--entry", choices=ENTRIES, help="another entry")
        sub.add_argument(
            "--num-valid-tokens",
            action="store_true",
            help="add the operand num_valid_tokens",
        )
        return sub

    sub = command("check", _check, "compare the results of a run with the reference")
    sub.add_argument("--inputs", required=True, help="safetensors file of all inputs")
    sub.add_argument("--outputs", required=True, help="safetensors file of the results")
    sub.add_argument("--first-token", type=int, default=0, help="index of the first row among the rows of all ranks")

    sub = command("generate", _generate, "write random or hard inputs")
    sub.add_argument("--tokens", type=int, required=True)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--hard", choices=sorted(HARD_INPUTS))
    sub.add_argument("-o", "--output", required=True)

    sub = command("run", _run, "write the results of the reference")
    sub.add_argument("--inputs", required=True)
    sub.add_argument("-o", "--output", required=True)
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (SpecError, InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
