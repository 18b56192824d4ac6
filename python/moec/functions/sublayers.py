# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of a layer, compiled from the text of IR at level `moe`."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Mapping
from typing import Any

import torch

from .. import InvalidArgument
from ..compiler import compile_text, print_text
from ..layer_pool import LayerInWorkspace, check_device

#: Number of compiled parts to keep; the least recently used is dropped.
_MOST_PARTS = 128
#: Smallest number of tokens that a part is compiled for.
_LEAST_TOKENS = 16384

_ELEMENTS = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int32: "i32",
}


def round_tokens(tokens: int) -> int:
    """Returns the number of tokens to compile a part for: a power of two, which bounds the number of variants."""
    return max(_LEAST_TOKENS, 1 << (tokens - 1).bit_length() if tokens else 1)


def element(dtype: torch.dtype, argument: str) -> str:
    """Returns the name of a dtype in IR. Raises InvalidArgument for dtypes that layer parts do not support."""
    if dtype not in _ELEMENTS:
        raise InvalidArgument(
            f"{argument}: {dtype} is not supported; convert the tensor to float32, bfloat16 or float16"
        )
    return _ELEMENTS[dtype]


def declare(name: str, type: str) -> str:
    """Returns the declaration of an input of a part."""
    return f'%{name}: {type} {{moe.name = "{name}", moe.role = "input"}}'


def write_function(
    inputs: Mapping[str, str], outputs: Mapping[str, str], body: str, max_tokens: int
) -> str:
    """Returns an IR function. Inputs are values with their names; `body` defines values named like the outputs."""
    arguments = ", ".join(declare(name, type) for name, type in inputs.items())
    results = ", ".join(f'{type} {{moe.name = "{name}"}}' for name, type in outputs.items())
    values = ", ".join(f"%{name}" for name in outputs)
    return (
        f"func.func @part({arguments}) -> ({results}) "
        f"attributes {{moe.max_tokens = {max_tokens} : i64}} {{\n{body}\n"
        f"  return {values} : {', '.join(outputs.values())}\n}}\n"
    )


class _Part(LayerInWorkspace):
    def __init__(self, text: str, device: str) -> None:
        super().__init__(compile_text("part.mlir", text, device=device))
        self.lock = threading.Lock()


@functools.lru_cache(_MOST_PARTS)
def _compile_part(text: str, device: str) -> _Part:
    return _Part(text, device)


def run(text: str, tokens: int, tensors: Mapping[str, torch.Tensor], argument: str) -> None:
    """Runs the part on its inputs and outputs, all on one device; does nothing with 0 tokens.

    argument: the name of the tensors in messages."""
    device = next(iter(tensors.values())).device
    part = _compile_part(text, check_device(device, argument))
    if not tokens:
        return
    with part.lock:
        if device.type == "cuda":
            part.share_workspace(device)
        part.layer.run(tokens, dict(tensors))


def _take_braces(text: str, begin: int) -> str:
    """Returns the text from the brace at `begin` to the matching one."""
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin : at + 1]
    raise AssertionError("IR without a closing brace")


@functools.lru_cache(_MOST_PARTS)
def _describe_routing(options: str) -> tuple[str, str]:
    spec = json.loads(options)
    whole = print_text("layer.json", json.dumps(spec), "moe")
    regions = []
    for name in ("score", "weight"):
        found = re.search(rf"\) {name} {{|}} {name} {{", whole)
        if found:
            regions.append(f"{name} {_take_braces(whole, found.end() - 1)}")
    routing = re.search(r"routing = #moe\.routing(<[^>]*>)", whole)
    return routing[1], " ".join(regions)


def describe_routing(
    num_experts: int, top_k: int, routing: Mapping[str, Any]
) -> tuple[str, str]:
    """Returns the attribute and the regions of moe.route for `routing` of a spec (docs/use/layers.md). Raises
    InvalidArgument for routing that a layer cannot express."""
    spec = {
        "moec_spec": 1,
        "dtype": "f32",
        "entry": "logits",
        "hidden_size": 16,
        "num_experts": num_experts,
        "top_k": top_k,
        "intermediate_size": 16,
        "activation": {"kind": "silu"},
        "routing": dict(routing),
    }
    return _describe_routing(json.dumps(spec))
