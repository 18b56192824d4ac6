# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public reports of other projects that no other test covers (docs/generated/field-bugs.md), on the CPU."""

from __future__ import annotations

import os

import numpy as np
import pytest
from small_layer import Case

import moec

SIGMOID = {"score": "sigmoid", "selection_bias": True, "renormalize": True}


def bits(output: np.ndarray) -> np.ndarray:
    return np.asarray(output).view(np.uint16)


# field-bug: vllm#49070, flashinfer#3206, vllm#49087
@pytest.mark.parametrize("changes", [
    {"quantization": "nvfp4", "hidden_size": 128, "activation": {"kind": "swigluoai", "limit": 0.75}},
    {"quantization": "nvfp4", "hidden_size": 192, "intermediate_size": 704},
    {"num_zero_experts": 6, "top_k": 6, "hidden_size": 71},
    {"num_zero_experts": 6, "top_k": 6, "hidden_size": 257},
], ids=str)
def test_layer(changes: dict) -> None:
    case = Case(tokens=9, **changes)
    case.verify(case.compile()(**case.arguments))


# field-bug: sglang#3705, flashinfer#2168
@pytest.mark.parametrize("bias", [-2.0, -1e30])
def test_groups_whose_keys_are_all_negative(bias: float) -> None:
    """Experts outside the kept groups never rank above a negative key."""
    case = Case(tokens=9, entry="logits", num_experts=16, top_k=4, routing={
        **SIGMOID, "num_groups": 4, "topk_groups": 2})
    case.tensors["gate.selection_bias"] += np.float32(bias)
    case.verify(case.compile()(**case.arguments))


# field-bug: flashinfer#3875
def test_small_scores_beside_a_large_bias() -> None:
    """A score of 2^-26 vanishes beside a bias of 12 but determines the weight."""
    case = Case(tokens=9, entry="logits", dtype="f32", num_experts=8, routing=SIGMOID)
    case.tensors["router_logits"] -= np.float32(18)
    case.tensors["gate.selection_bias"] += np.float32(12)
    case.verify(case.compile()(**case.arguments))


# field-bug: grouped_gemm#36
@pytest.mark.parametrize("quantization", [None, "mxfp4", "fp8_block128"])
def test_experts_without_tokens_are_not_read(quantization: str | None) -> None:
    case = Case(tokens=9, entry="ids", hidden_size=128, intermediate_size=128, num_experts=6,
                **{"quantization": quantization} if quantization else {})
    case.tensors["topk_ids"][:] = [4, 1]
    expected = case.compile()(**case.arguments)
    case.verify(expected)
    unused = [0, 2, 3, 5]
    for name, weight in case.weights.items():
        # All bits set is NaN in bf16, e4m3, e8m0 and f32.
        weight.view(np.uint8)[unused] = 0xFF
        assert name.startswith("experts.")
    np.testing.assert_array_equal(bits(case.compile()(**case.arguments)), bits(expected))


# field-bug: vllm#57016, sglang#27869, vllm#41480, vllm#46639
@pytest.mark.parametrize("quantization", [None, "mxfp4", "fp8_block128"])
def test_a_row_has_the_same_bits_in_every_batch(quantization: str | None) -> None:
    case = Case(tokens=150, hidden_size=128, intermediate_size=128, num_experts=8, max_tokens=150,
                **{"quantization": quantization} if quantization else {})
    layer = case.compile()
    rows = case.arguments["hidden_states"]
    whole = layer(rows)
    for first, last in ((0, 1), (149, 150), (3, 10), (64, 129)):
        np.testing.assert_array_equal(bits(layer(rows[first:last])), bits(whole[first:last]))
    np.testing.assert_array_equal(bits(layer(rows[::-1].copy())), bits(whole[::-1].copy()))


def expected_rows(x: np.ndarray, w13: np.ndarray, w2: np.ndarray) -> np.ndarray:
    """Computes silu(gate) * up of one expert, in float64."""
    gate, up = np.split(x.astype(np.float64) @ w13.astype(np.float64).T, 2, axis=1)
    return (gate / (1 + np.exp(-gate)) * up) @ w2.astype(np.float64).T


# field-bug: Liger-Kernel#1296
def test_experts_beyond_two_to_the_31() -> None:
    """Weights of 2.6e9 elements, of which only those of six experts occupy memory."""
    experts, hidden, width = 40_000, 256, 128
    ids = np.array([0, 1, 32767, 32768, experts - 2, experts - 1])
    rng = np.random.default_rng(1)
    weights = {"experts.w13": np.zeros((experts, 2 * width, hidden), np.float16),
               "experts.w2": np.zeros((experts, hidden, width), np.float16)}
    assert weights["experts.w13"].size > 2**31
    for weight in weights.values():
        for expert in ids:
            weight[expert] = rng.standard_normal(weight.shape[1:]) / 16
    layer = moec.compile({
        "moec_spec": 1, "dtype": "f16", "entry": "ids", "hidden_size": hidden, "num_experts": experts, "top_k": 1,
        "intermediate_size": width, "max_tokens": 8, "activation": {"kind": "silu"}}, device="cpu").bind(weights)
    x = rng.standard_normal((len(ids), hidden)).astype(np.float16)
    output = layer(x, topk_ids=ids[:, None].astype(np.int32), topk_weights=np.ones((len(ids), 1), np.float32))
    for row, expert in enumerate(ids):
        wanted = expected_rows(x[row:row + 1], weights["experts.w13"][expert], weights["experts.w2"][expert])
        assert np.linalg.norm(output[row] - wanted) < 1e-3 * np.linalg.norm(wanted), expert


# field-bug: vllm#53390, sglang#4727, flashinfer#2642
@pytest.mark.skipif(not os.environ.get("MOEC_ALL_CASES"), reason="needs 5 GB and a minute")
def test_rows_beyond_two_to_the_31() -> None:
    """Over 2^31 elements between the two gemms: each row has the same bits as in a small call."""
    case = Case(tokens=16, entry="ids", hidden_size=8, num_experts=8, top_k=8, intermediate_size=1040,
                max_tokens=262_147)
    layer = case.compile()
    small = layer(**case.arguments)
    case.verify(small)
    repeats = -(-262_147 // 16)
    many = {name: np.tile(value, (repeats, 1))[:262_147] for name, value in case.arguments.items()}
    assert 262_147 * 8 * 1040 > 2**31
    output = layer(**many)
    np.testing.assert_array_equal(bits(output), np.tile(bits(small), (repeats, 1))[:262_147])
