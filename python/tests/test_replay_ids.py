# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recorded ids in 8, 16 and 32 bits, and a router that weighs given ids, on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from small_layer import SPEC, Case

import moec
from moec.compiler import compile_text

DTYPES = {"uint8": np.uint8, "int16": np.int16, True: np.int32}
#: moe.route of four experts: operands, attributes, region of the score; logits, given ids, weights by hand.
SIGMOID = """score {
^bb0(%l: f32):
  %one = arith.constant 1.0 : f32
  %n = arith.negf %l : f32
  %e = math.exp %n : f32
  %d = arith.addf %one, %e : f32
  %s = arith.divf %one, %d : f32
  moe.yield %s : f32
} """
VECTORS = {
    "softmax": ("", "softmax = all", "", [0, 0, 0, 0], [3, 1], [0.25, 0.25]),
    "softmax_renormalized": ("", "softmax = all, renormalize = true", "", [2, 2, 9, 2], [1, 0], [0.5, 0.5]),
    # The bias takes part in the selection alone.
    "sigmoid_bias": ("selection_bias(%b : tensor<4xf32>) ", "scale = 2.0 : f32", SIGMOID, [0, 200, 0, 0], [1, 2], [2, 1]),
    # Both ids are of groups that the selection would not keep.
    "grouped": ("", "num_groups = 2, topk_groups = 1, renormalize = true, nonfinite = neg_inf", SIGMOID,
                [0, 0, 200, 200], [0, 3], [1 / 3, 2 / 3]),
    "softmax_after_top_k": ("", "softmax = selected, nonfinite = neg_inf", "", [5, 7, 7, 7], [2, 1], [0.5, 0.5]),
    "out_of_range": ("", "softmax = all, renormalize = true", "", [0, 0, 0, 0], [4, 1], [0, 1]),
    "no_finite_score": ("", "softmax = all, nonfinite = neg_inf", "", [np.nan, 0, 0, 0], [3, 2], [0.5, 0.5]),
}


@pytest.mark.parametrize("name", VECTORS)
def test_weights_of_given_ids(name: str) -> None:
    operands, attributes, region, logits, given, weights = VECTORS[name]
    bias = '%b: tensor<4xf32> {moe.name = "bias", moe.role = "input"}, ' if operands else ""
    layer = compile_text("route.mlir", f"""func.func @route({bias}
        %l: tensor<?x4xf32> {{moe.name = "logits", moe.role = "input"}},
        %g: tensor<?x2xi8> {{moe.name = "given", moe.role = "input"}})
    -> (tensor<?x2xi32> {{moe.name = "ids"}}, tensor<?x2xf32> {{moe.name = "weights"}},
        tensor<?x2xi16> {{moe.name = "recorded"}}) attributes {{moe.max_tokens = 4 : i64}} {{
  %i, %w, %r = moe.route %l : tensor<?x4xf32> {operands}given(%g : tensor<?x2xi8>) <top_k = 2, {attributes}> {region}
      -> tensor<?x2xi32>, tensor<?x2xf32> record(tensor<?x2xi16>)
  return %i, %w, %r : tensor<?x2xi32>, tensor<?x2xf32>, tensor<?x2xi16>
}}
""", device="cpu")
    tensors = {
        "logits": np.array([logits], np.float32), "given": np.array([given], np.int8),
        "ids": np.zeros((1, 2), np.int32), "weights": np.zeros((1, 2), np.float32),
        "recorded": np.zeros((1, 2), np.int16),
    }
    if bias:
        tensors["bias"] = np.array([0, 0, 0, 9], np.float32)
    layer.run(1, tensors)
    expected = [each if each < 4 else -1 for each in given]
    assert tensors["ids"].tolist() == tensors["recorded"].tolist() == [expected]
    assert tensors["weights"].tolist() == [np.array(weights, np.float32).tolist()]


@pytest.mark.parametrize("dtype", DTYPES)
def test_recorded_ids_are_replayed(dtype: str | bool) -> None:
    case = Case(tokens=9, record_ids=dtype)
    ids, weights = np.zeros((9, 2), DTYPES[dtype]), np.zeros((9, 2), np.float32)
    output = case.compile()(**case.arguments, topk_ids=ids, topk_weights=weights)
    case.verify(output)
    replay = moec.compile(SPEC | {"replay_ids": dtype}, device="cpu").bind(case.weights)
    rows = np.array([5, 2, 8])
    again = replay(case.arguments["hidden_states"][rows], topk_ids=ids[rows])
    np.testing.assert_array_equal(again.view(np.uint16), output[rows].view(np.uint16))
    # All of the weight goes to one expert, as the reference says.
    ids[:, 1] = SPEC["num_experts"]
    given = Case(tokens=9, replay_ids=dtype)
    given.tensors = case.tensors | {"topk_ids": ids}
    given.verify(replay(**given.arguments))


def test_arguments_are_checked() -> None:
    layer = Case(tokens=3, replay_ids="uint8").compile()
    hidden = Case(tokens=3).arguments["hidden_states"]
    with pytest.raises(moec.InvalidType, match="topk_ids: is missing"):
        layer(hidden)
    with pytest.raises(moec.InvalidType, match="topk_ids: dtype u8 expected, i32 found"):
        layer(hidden, topk_ids=np.zeros((3, 2), np.int32))
    with pytest.raises(moec.InvalidType, match="topk_ids: dtype u8 expected, bool found"):
        layer(hidden, topk_ids=np.zeros((3, 2), np.bool_))
    with pytest.raises(moec.InvalidArgument, match='topk_weights: .*its entry is "gate"'):
        layer(hidden, topk_ids=np.zeros((3, 2), np.uint8), topk_weights=np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("fields,message", [
    ({"num_experts": 257, "record_ids": "uint8"}, '"uint8", which can name 256 experts, and the router has 257; give '
                                                   '"int16" or "int32"'),
    ({"record_ids": "int8"}, "'record_ids' must be \"int32\", \"int16\" or \"uint8\", not \"int8\""),
    ({"replay_ids": True, "record_ids": True}, "'record_ids' has no meaning beside 'replay_ids'"),
    ({"replay_ids": True, "entry": "ids", "routing": {}}, "'replay_ids' lets the router weigh given ids"),
])
def test_descriptions_are_checked(fields: dict, message: str) -> None:
    with pytest.raises(moec.InvalidArgument) as error:
        moec.compile(SPEC | fields, device="cpu")
    assert message in str(error.value)
