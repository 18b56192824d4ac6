# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each place that names the inputs of a call has exactly those of src/CallInputs.def, in its order."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import moec
from moec import _core

POSITIONAL, KEYWORD = _core.POSITIONAL_INPUTS, _core.KEYWORD_INPUTS
#: Arguments of a call beside inputs.
OUTPUTS = ["expert_offsets", "out", "stream"]


def test_the_list_itself() -> None:
    assert POSITIONAL == ("hidden_states", "router_logits", "topk_ids", "topk_weights")
    assert KEYWORD == ("num_valid_tokens", "input_ids", "is_padding", "hidden_states_scale", "adapter_ids")


def test_stub_of_the_extension() -> None:
    tree = ast.parse((Path(moec.__file__).parent / "_core.pyi").read_text())
    layer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Layer")
    call = next(node for node in layer.body if isinstance(node, ast.FunctionDef) and node.name == "__call__")
    assert tuple(each.arg for each in call.args.args[1:]) == POSITIONAL
    assert [each.arg for each in call.args.kwonlyargs] == [*KEYWORD, *OUTPUTS]


def test_documented_call() -> None:
    text = moec.Layer.__doc__
    call = re.search(r"layer\((.*?)\)", text, re.S)[1]
    assert re.findall(r"\w+(?==None)", call) == [*POSITIONAL[1:], *KEYWORD, *OUTPUTS[1:]]
    described = [name for line in re.findall(r"(?m)^    ([a-z_, ]+): ", text) for name in line.split(", ")]
    assert sorted(described) == sorted([*POSITIONAL, *KEYWORD, *OUTPUTS])


def test_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")
    import moec.torch

    assert tuple(inspect.signature(moec.torch.MoE.forward).parameters)[1:] == POSITIONAL + KEYWORD
    inputs = ["hidden_states", "layer", *POSITIONAL[1:], *KEYWORD]
    for op, names in ((torch.ops.moec.forward, inputs), (torch.ops.moec.forward_out, ["out", *inputs])):
        assert [each.name for each in op.default._schema.arguments] == names
