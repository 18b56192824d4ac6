# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays as arguments of a layer: byte order, and memory that is written while also bound to something else."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from small_layer import Case

import moec


def aligned(size: int, alignment: int = 256) -> np.ndarray:
    memory = np.zeros(size + alignment, np.uint8)
    begin = -memory.ctypes.data % alignment
    return memory[begin : begin + size]


def swap(array: np.ndarray) -> np.ndarray:
    """Returns the same values in the other byte order."""
    swapped = array.astype(array.dtype.newbyteorder())
    assert np.array_equal(swapped, array) and not swapped.dtype.isnative
    return swapped


# field-bug: xgboost#12433, orjson#472, pecos#463
@pytest.mark.parametrize("entry", ["gate", "logits", "ids"])
def test_other_byte_orders_are_refused(entry: str) -> None:
    case = Case(entry=entry, dtype="f32")
    layer = case.compile()
    message = r"{}: the byte order is not that of this machine; give x\.astype\(x\.dtype\.newbyteorder\('='\)\)"
    out = np.zeros_like(case.arguments["hidden_states"])
    for name, array in {**case.arguments, "out": out}.items():
        with pytest.raises(moec.InvalidArgument, match=message.format(name)):
            layer(**{**case.arguments, "out": out, name: swap(array)})
        # read-only arrays are imported differently
        array.flags.writeable = name == "out"
    for name, array in case.weights.items():
        with pytest.raises(moec.InvalidArgument, match=message.format(name)):
            layer.bind({name: swap(array)})
        with pytest.raises(moec.InvalidArgument, match=message.format(name)):
            layer.bind(**{name.replace(".", "_"): swap(array)})
    with pytest.raises(moec.InvalidArgument, match=message.format("output")):
        layer.run(5, {**case.arguments, "output": swap(out)})
    assert not out.any()
    case.verify(layer(**case.arguments))


def test_other_byte_order_of_records_is_refused() -> None:
    case = Case(record_ids=True)
    ids, weights = np.zeros((5, 2), np.int32), np.zeros((5, 2), np.float32)
    for changed in ({"topk_ids": swap(ids)}, {"topk_weights": swap(weights)}):
        with pytest.raises(moec.InvalidArgument, match="^topk_(ids|weights): the byte order"):
            case.compile()(**case.arguments, **{"topk_ids": ids, "topk_weights": weights, **changed})
    assert not ids.any() and not weights.any()


def test_numbers_of_a_tensor_are_in_the_byte_order_of_the_machine() -> None:
    case = Case(num_valid_tokens=True)
    with pytest.raises(moec.InvalidArgument, match="^num_valid_tokens: the byte order"):
        case.compile()(case.arguments["hidden_states"], num_valid_tokens=swap(np.array([4], np.int32)))


# field-bug: vllm#29219, 1bit-MONSTER#1342
def test_outputs_in_weights_are_refused() -> None:
    case = Case(dtype="f32", record_ids=True)
    weights = {name: each.copy() for name, each in case.weights.items()}
    layer = moec.compile(case.source, device="cpu").bind(weights)
    ids, probabilities = np.zeros((5, 2), np.int32), np.zeros((5, 2), np.float32)
    records = {"topk_ids": ids, "topk_weights": probabilities}
    hidden = case.arguments["hidden_states"]
    right = layer(hidden, **records)
    case.verify(right)
    for name, weight in weights.items():
        flat = weight.reshape(-1)
        for part in (flat[:128], flat[-128:]):
            with pytest.raises(moec.InvalidArgument, match=f"^out: shares memory with the weight '{name}'; give"):
                layer(hidden[:2], **{key: each[:2] for key, each in records.items()}, out=part.reshape(2, 64))
        for key, dtype in (("topk_ids", np.int32), ("topk_weights", np.float32)):
            with pytest.raises(moec.InvalidArgument, match=f"^{key}: shares memory with the weight '{name}'; give"):
                layer(hidden, **records | {key: flat[:10].view(dtype).reshape(5, 2)})
        with pytest.raises(moec.InvalidArgument, match=f"^output: shares memory with the weight '{name}'; give"):
            layer.run(2, {"hidden_states": hidden, "output": flat[:128].reshape(2, 64), **records})
    # A clone shares the weights.
    with pytest.raises(moec.InvalidArgument, match="^out: shares memory with the weight 'gate.weight'"):
        layer.clone()(hidden[:4], **{key: each[:4] for key, each in records.items()}, out=weights["gate.weight"])
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, case.weights[name])
    np.testing.assert_array_equal(layer(hidden, **records), right)


# field-bug: vllm#29219
def test_arguments_in_the_workspace_are_refused() -> None:
    case = Case(dtype="f32")
    layer = case.compile()
    hidden = case.arguments["hidden_states"]
    right = layer(hidden)
    memory = aligned(layer.workspace_bytes(64) + 4096)
    inside = memory[: hidden.nbytes].view(np.float32).reshape(hidden.shape)
    behind = memory[-hidden.nbytes :].view(np.float32).reshape(hidden.shape)
    layer.use_workspace(memory)
    with pytest.raises(moec.InvalidArgument, match="^hidden_states: shares memory with the workspace; give"):
        layer(inside)
    with pytest.raises(moec.InvalidArgument, match="^out: shares memory with the workspace; give"):
        layer(hidden, out=inside)
    np.testing.assert_array_equal(layer(hidden), right)
    # Memory beyond what a run of so few tokens uses is free.
    np.testing.assert_array_equal(layer(hidden, out=behind), right)
    weight = memory[: case.weights["gate.weight"].nbytes].view(np.float32).reshape(4, 64)
    weight[:] = case.weights["gate.weight"]
    layer.bind({"gate.weight": weight})
    with pytest.raises(moec.InvalidArgument, match="^run: the workspace shares memory with the weight 'gate.weight'"):
        layer(hidden)


def test_layers_are_copied_and_not_pickled() -> None:
    case = Case()
    layer = case.compile()
    copied, shallow = copy.deepcopy(layer), copy.copy(layer)
    assert copied is not layer and shallow is not layer
    layer.close()
    for each in (copied, shallow):
        case.verify(each(**case.arguments))
    with pytest.raises(moec.InvalidType, match="cannot be pickled; carry a package .*save_prepared"):
        pickle.dumps(copied)


def test_paths_are_no_numbers() -> None:
    case = Case()
    layer = case.compile()
    with pytest.raises(moec.InvalidType, match="weights: a path, a mapping .* expected, int found"):
        layer.load(3)
    for call in (layer.save_prepared, layer.load_prepared):
        with pytest.raises(moec.InvalidType, match="path: a path expected, int found"):
            call(3)


def test_ranks_without_a_communicator() -> None:
    source = Case().source | {"parallel": {"dp": 2, "experts": "linear"}, "max_tokens": 8}
    layer = moec.compile(source, device="cpu")
    layer.bind({info.name: np.zeros(info.shape, {"bf16": Case().arguments["hidden_states"].dtype}.get(
        info.dtype, np.int32 if info.dtype == "i32" else np.float32)) for info in layer.tensors if info.role == "weight"})
    with pytest.raises(moec.InvalidArgument, match="^the layer has the ranks of dp 2 .*; give it a communicator first"):
        layer(Case().arguments["hidden_states"][:2])
