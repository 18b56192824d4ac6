# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with adapters: calls, adapters that change between calls, and wrong inputs."""

import numpy as np
import pytest
from small_layer import Case

import moec

LORA = {"lora": {"adapters": 2, "rank": 8}}


def test_adapters_change_in_place():
    case = Case(tokens=9, **LORA)
    layer = case.compile()
    case.verify(layer(**case.arguments))
    for name, tensor in case.tensors.items():
        if name.startswith("lora."):
            tensor[1] = np.roll(tensor[1], 1, axis=-1)
    case.verify(layer(**case.arguments))
    case.tensors["adapter_ids"][:] = np.arange(9) % 4 - 1
    case.verify(layer(**case.arguments))


def test_wrong_inputs():
    case = Case(**LORA)
    layer = case.compile()
    arguments = case.arguments
    ids = arguments.pop("adapter_ids")
    with pytest.raises(moec.Error, match="adapter_ids"):
        layer(**arguments)
    with pytest.raises(moec.InvalidType, match="adapter_ids"):
        layer(**arguments, adapter_ids=ids.astype(np.int64))
    with pytest.raises(moec.InvalidArgument, match="adapter_ids"):
        layer(**arguments, adapter_ids=ids[:-1])
    plain = Case()
    with pytest.raises(moec.InvalidArgument, match='adapter_ids: the layer takes none; give its description "lora"'):
        plain.compile()(**plain.arguments, adapter_ids=ids)
    del case.tensors["lora.down_b"]
    with pytest.raises(moec.Error, match="lora.down_b"):
        case.compile()(**case.arguments)


def test_parts_of_a_call():
    """A call of more tokens than max_tokens is several runs, each with its own adapters."""
    case = Case(tokens=150, max_tokens=150, **LORA)
    layer = moec.compile(case.source | {"max_tokens": 64}, device="cpu").bind(case.weights)
    case.verify(layer(**case.arguments))
