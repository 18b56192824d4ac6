# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers from IR with arbitrarily named inputs and outputs."""

from __future__ import annotations

import numpy as np
import pytest

import moec
from moec.compiler import compile_text

ROUTE = """func.func @route(%l: tensor<?x8xf32> {moe.name = "router_logits", moe.role = "input"})
    -> (tensor<?x2xi32> {moe.name = "topk_ids"}, tensor<?x2xf32> {moe.name = "topk_weights"})
    attributes {moe.max_tokens = 16 : i64} {
  %i, %w = moe.route %l : tensor<?x8xf32> <top_k = 2, softmax = all>
      -> tensor<?x2xi32>, tensor<?x2xf32>
  return %i, %w : tensor<?x2xi32>, tensor<?x2xf32>
}
"""


@pytest.fixture(scope="module")
def layer() -> moec.Layer:
    return compile_text("route.mlir", ROUTE, device="cpu")


def make_tensors(tokens: int = 5) -> dict[str, np.ndarray]:
    return {
        "router_logits": np.random.default_rng(1).standard_normal((tokens, 8), np.float32),
        "topk_ids": np.full((tokens, 2), -7, np.int32),
        "topk_weights": np.full((tokens, 2), -7, np.float32),
    }


def test_writes_all_outputs(layer: moec.Layer) -> None:
    tensors = make_tensors()
    layer.run(5, tensors)
    logits = tensors["router_logits"].astype(np.float64)
    order = np.argsort(-logits, axis=1)[:, :2]
    np.testing.assert_array_equal(tensors["topk_ids"], order)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(
        tensors["topk_weights"], np.take_along_axis(shares, order, 1), rtol=1e-6
    )


def test_runs_on_fewer_rows_than_there_are(layer: moec.Layer) -> None:
    tensors = make_tensors()
    layer.run(3, tensors)
    assert (tensors["topk_ids"][3:] == -7).all() and (tensors["topk_ids"][:3] >= 0).all()


def test_is_checked(layer: moec.Layer) -> None:
    tensors = make_tensors()
    with pytest.raises(moec.InvalidArgument, match=r"use run\(\), which takes tensors by name"):
        layer(tensors["router_logits"])
    with pytest.raises(moec.InvalidArgument, match="x: the layer has no such input or output; it "
                       "has router_logits, topk_ids, topk_weights"):
        layer.run(5, tensors | {"x": tensors["router_logits"]})
    with pytest.raises(moec.InvalidType, match="topk_ids: is missing"):
        layer.run(5, {"router_logits": tensors["router_logits"]})
    with pytest.raises(moec.InvalidType, match="topk_ids: dtype i32 expected, f32 found"):
        layer.run(5, tensors | {"topk_ids": tensors["topk_weights"].copy()})
    with pytest.raises(moec.InvalidArgument, match="topk_weights: shares memory with the input 'router_logits'"):
        layer.run(5, tensors | {"topk_weights": tensors["router_logits"].reshape(-1)[:10].reshape(5, 2)})
    with pytest.raises(moec.InvalidArgument, match="dimension 0 is at most 16"):
        layer.run(17, make_tensors(17))
    with pytest.raises(moec.Error, match="router_logits"):
        layer.run(5, tensors | {"router_logits": tensors["router_logits"][:4].copy()})
    with pytest.raises(moec.InvalidType, match="tensors: a dict expected"):
        layer.run(5, [tensors])
    read_only = tensors["topk_ids"].copy()
    read_only.flags.writeable = False
    with pytest.raises(moec.Error, match="topk_ids: .*read"):
        layer.run(5, tensors | {"topk_ids": read_only})
