# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of more than max_tokens rows are several runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from small_layer import CALLS, SPEC, Case

import moec

LARGEST = 24
#: 24 rows are parts of 16, so that parts begin at multiples of 16 bytes.
TOKENS = 37


def make(entry: str = "gate", options: Mapping[str, Any] = {}, **fields: Any) -> tuple[Case, moec.Layer]:
    case = Case(tokens=TOKENS, entry=entry, **fields)
    return case, case.compile(max_tokens=LARGEST, **options)


@pytest.mark.parametrize("entry", CALLS)
def test_result_is_that_of_one_run(entry: str) -> None:
    case, layer = make(entry)
    output = layer(**case.arguments)
    case.verify(output)
    parts = [layer(**{name: value[begin:end] for name, value in case.arguments.items()})
             for begin, end in ((0, 16), (16, 32), (32, TOKENS))]
    np.testing.assert_array_equal(np.concatenate(parts).view(np.uint16), output.view(np.uint16))
    out = np.full_like(output, np.nan)
    assert layer(**case.arguments, out=out) is out
    np.testing.assert_array_equal(out.view(np.uint16), output.view(np.uint16))


def test_batch_of_sequences() -> None:
    case, layer = make()
    wide = {name: np.stack([value, value]) for name, value in case.arguments.items()}
    output = layer(**wide)
    assert output.shape == (2, TOKENS, 64)
    case.verify(np.ascontiguousarray(output[1]))


@pytest.mark.parametrize("valid", [0, 5, 16, 30, 100])
def test_valid_tokens_are_counted_over_parts(valid: int) -> None:
    case, layer = make(options={"num_valid_tokens": True})
    whole = layer(**case.arguments)
    output = layer(**case.arguments, num_valid_tokens=valid)
    np.testing.assert_array_equal(output[:valid].view(np.uint16), whole[:valid].view(np.uint16))
    assert not output[valid:].any()


def test_valid_tokens_in_a_tensor_are_refused() -> None:
    case, layer = make(options={"num_valid_tokens": True})
    with pytest.raises(moec.InvalidArgument, match="more than max_tokens = 24 rows, and num_valid_tokens in a tensor"):
        layer(**case.arguments, num_valid_tokens=np.array([5], np.int32))


def test_one_scale_of_all_rows_is_refused() -> None:
    scheme = {"dtype": "fp8_e4m3", "scale": "tensor"}
    case = Case(tokens=TOKENS)
    layer = moec.compile({**SPEC, "quantization": {"weight": scheme, "activation": scheme}}, device="cpu",
                         max_tokens=LARGEST).generate_weights()
    with pytest.raises(moec.InvalidArgument, match="activations have one scale for all rows of a run; compile the layer"):
        layer(**case.arguments)


def test_counts_of_a_run_are_refused() -> None:
    case, layer = make(record_load=True)
    offsets = np.zeros(SPEC["num_experts"] + 1, np.int32)
    with pytest.raises(moec.InvalidArgument, match="expert_offsets counts the rows of one run"):
        layer(**case.arguments, expert_offsets=offsets)


def test_wrong_tensor_is_named_as_in_one_run() -> None:
    case, layer = make("ids")
    ids = case.arguments["topk_ids"][:-1]
    with pytest.raises(moec.InvalidArgument, match="topk_ids: "):
        layer(**{**case.arguments, "topk_ids": ids})


def test_tokens_beyond_a_capacity_are_refused() -> None:
    """The model leaves out tokens of a sequence that an expert has beyond its capacity, and parts of a call would not."""
    case, layer = make(expert_capacity=LARGEST)
    assert layer.spec["expert_capacity"] == LARGEST
    wide = {name: np.stack([value[:20], value[17:]]) for name, value in case.arguments.items()}
    output = layer(**wide)
    for i, begin in enumerate((0, 17)):
        alone = layer(**{name: value[begin : begin + 20] for name, value in case.arguments.items()})
        np.testing.assert_array_equal(output[i].view(np.uint16), alone.view(np.uint16))
    message = "more than max_tokens = 24 rows, and the model leaves out tokens .* beyond expert_capacity = 24"
    with pytest.raises(moec.InvalidArgument, match=message):
        layer(**case.arguments)
    with pytest.raises(moec.InvalidArgument, match=message):
        layer(**{name: value[None] for name, value in case.arguments.items()})
    with pytest.raises(moec.InvalidArgument, match=r"'expert_capacity' is 24, and a call may have 25 tokens \(max_tokens\)"):
        moec.compile(SPEC | {"expert_capacity": LARGEST}, max_tokens=LARGEST + 1)
