# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Routers of moec.functions compared with the float64 reference and with exact ids."""

from __future__ import annotations

import numpy as np
import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec.functions import QuantConfig, fused_topk, fused_topk_bias, grouped_topk  # noqa: E402
from moec.functions.selecting_experts import SelectingExperts  # noqa: E402
from moec.reference.layer import decide  # noqa: E402
from moec.reference.spec import LayerSpec  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def expect(logits: torch.Tensor, top_k: int, bias: torch.Tensor | None = None, **routing):
    """Returns ids and weights of the reference, and the rows without a near tie."""
    experts = logits.shape[1]
    spec = LayerSpec.from_json({
        "moec_spec": 1, "dtype": "f32", "entry": "logits", "hidden_size": 16,
        "num_experts": experts, "top_k": top_k, "intermediate_size": 16,
        "activation": {"kind": "silu"},
        "routing": routing | ({"selection_bias": True} if bias is not None else {}),
    })
    tokens = logits.shape[0]
    tensors = {
        "hidden_states": np.zeros((tokens, 16), np.float32), "router_logits": logits.float().numpy()
    }
    if bias is not None:
        tensors["gate.selection_bias"] = bias.float().numpy()
    decision = decide(spec, tensors)
    clear = ~np.asarray(decision.routing.near)
    return decision.ids, decision.weights, clear


def verify(found: tuple, wanted: tuple) -> None:
    (weights, ids), (wanted_ids, wanted_weights, clear) = found[:2], wanted
    assert clear.mean() > 0.5 and weights.dtype == torch.float32
    np.testing.assert_array_equal(ids.numpy()[clear], wanted_ids[clear])
    np.testing.assert_allclose(weights.numpy()[clear], wanted_weights[clear], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("experts", [6, 16])
@pytest.mark.parametrize("top_k", [3, 4])
def test_fused_topk(top_k: int, experts: int, renormalize: bool, score: str) -> None:
    torch.manual_seed(0)
    for tokens in (1, 33, 56):
        for dtype in DTYPES:
            logits = torch.randn(tokens, experts).to(dtype)
            hidden = torch.randn(tokens, 8)
            found = fused_topk(hidden, logits, top_k, renormalize, scoring_func=score)
            verify(found, expect(logits, top_k, score=score, renormalize=renormalize))
            assert found[2].tolist() == [
                [k * tokens + token for k in range(top_k)] for token in range(tokens)
            ]


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "sqrtsoftplus"])
def test_fused_topk_bias(score: str) -> None:
    torch.manual_seed(1)
    for experts, top_k in ((6, 3), (16, 4), (256, 6)):
        logits, bias = torch.randn(33, experts), torch.randn(experts)
        found = fused_topk_bias(
            logits, logits, score, bias, top_k, True, routed_scaling_factor=1.5
        )
        verify(found, expect(logits, top_k, bias, score=score, renormalize=True, scale=1.5))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("experts", [6, 8, 16])
def test_scores_that_are_not_finite_count_as_0(experts: int, value: float) -> None:
    for score in ("softmax", "sigmoid"):
        for top_k in (3, 4):
            logits = torch.full((2, experts), value)
            weights, ids, _ = fused_topk(logits, logits, top_k, True, scoring_func=score)
            assert ids.tolist() == [list(range(top_k))] * 2
            if score == "softmax" or value != value:
                assert not weights.any()


@pytest.mark.parametrize(
    "experts, top_k, groups, topk_group",
    [(16, 2, 8, 2), (128, 2, 8, 2), (256, 8, 8, 4), (384, 8, 1, 1), (512, 22, 1, 1)],
)
@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_grouped_topk(score: str, experts: int, top_k: int, groups: int, topk_group: int) -> None:
    torch.manual_seed(2)
    for tokens in (1, 33, 64):
        for scale, renormalize, has_bias in ((1.0, True, True), (2.5, True, False), (2.5, False, True)):
            logits = torch.randn(tokens, experts)
            bias = torch.randn(experts) if has_bias else None
            found = grouped_topk(
                logits, logits, top_k, renormalize, groups, topk_group, score, scale, bias
            )
            routing = {"score": score, "renormalize": renormalize, "scale": scale,
                       "nonfinite": "neg_inf"}
            if renormalize:
                routing["renormalize_epsilon"] = 1e-20
            if groups > 1:
                routing |= {"num_groups": groups, "topk_groups": topk_group}
            verify(found, expect(logits, top_k, bias, **routing))


@pytest.mark.parametrize("experts", [512, 896, 1024])
def test_ties_go_to_the_lowest_id(experts: int) -> None:
    logits = torch.full((3, experts), 0.5)
    bias = torch.zeros(experts)
    wanted = [list(range(16))] * 3
    assert fused_topk(logits, logits, 16, True)[1].tolist() == wanted
    assert grouped_topk(logits, logits, 16, True, 1, 1, "sigmoid", 1.0, bias)[1].tolist() == wanted


@pytest.mark.parametrize("experts", [512, 896, 1024])
def test_grouped_rows_with_few_finite_scores(experts: int) -> None:
    bias = torch.zeros(experts)
    for finite in (0, 15):
        logits = torch.full((1, experts), float("nan"))
        logits[0, :finite] = torch.arange(finite, dtype=torch.float32)
        weights, ids = grouped_topk(logits, logits, 16, True, 1, 1, "sigmoid", 1.0, bias)
        if finite == 0:
            assert ids.tolist() == [list(range(16))]
            torch.testing.assert_close(weights, torch.full((1, 16), 1 / 16))
        else:
            assert ids[0, :15].tolist() == list(range(14, -1, -1)) and weights[0, 15] == 0
            torch.testing.assert_close(weights.sum(), torch.tensor(1.0))


def test_options_and_errors() -> None:
    logits = torch.randn(3, 8)
    assert fused_topk(logits, logits, 2, True, torch.int64)[1].dtype == torch.int64
    assert fused_topk(logits, logits, 2, True, torch.uint32)[1].dtype == torch.uint32
    empty = fused_topk(logits[:0], logits[:0], 2, True)
    assert [tuple(each.shape) for each in empty] == [(0, 2)] * 3
    with pytest.raises(moec.InvalidArgument, match="indices_type: torch.int8 found"):
        fused_topk(logits, logits, 2, True, torch.int8)
    with pytest.raises(moec.InvalidArgument, match="scoring_func: 'tanh' found; softmax, sigmoid"):
        fused_topk(logits, logits, 2, True, scoring_func="tanh")
    with pytest.raises(moec.InvalidArgument, match="gating_output: 2 rows expected"):
        fused_topk(logits[:2], logits, 2, True)
    with pytest.raises(moec.InvalidArgument, match="topk: 9 found"):
        fused_topk(logits, logits, 9, True)
    with pytest.raises(moec.InvalidArgument, match=r"e_score_correction_bias: shape \[8\] expected"):
        grouped_topk(logits, logits, 2, True, 4, 2, e_score_correction_bias=torch.zeros(7))
    with pytest.raises(moec.InvalidArgument, match="hash_indices_table"):
        fused_topk_bias(logits, logits, "softmax", torch.zeros(8), 2, True,
                        hash_indices_table=torch.zeros(4, 2))
    for name in ("bias_vl", "input_tokens"):
        with pytest.raises(moec.InvalidArgument, match=f"{name}: "):
            fused_topk_bias(logits, logits, "softmax", torch.zeros(8), 2, True, **{name: torch.zeros(8)})


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_replayed_ids(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    hidden, logits, bias = torch.randn(33, 8), torch.randn(33, 16), torch.rand(16)
    routers = (
        lambda **ids: fused_topk(hidden, logits, 4, True, **ids)[:2],
        lambda **ids: fused_topk_bias(hidden, logits, "sigmoid", bias, 4, True, **ids),
        lambda **ids: grouped_topk(hidden, logits, 4, True, 4, 2, "sigmoid", 2.5, bias, **ids),
    )
    for route in routers:
        weights, ids = route()
        again, same = route(replay_ids=ids.to(dtype))
        assert torch.equal(again.view(torch.int32), weights.view(torch.int32)) and torch.equal(same, ids)
    ids[:, 0] = 200
    weights, ids = fused_topk(hidden, logits, 4, False, replay_ids=ids.to(dtype))[:2]
    assert (ids[:, 0] == -1).all() and not weights[:, 0].any()
    torch.testing.assert_close(weights[:, 1:], logits.softmax(1).gather(1, ids[:, 1:].long()))
    for wrong in (ids.long(), ids.to(dtype)[1:], ids.to(dtype)[:, 1:]):
        with pytest.raises(moec.InvalidArgument, match=r"replay_ids: \[33, 4\] of int32, int16 or uint8 expected"):
            fused_topk(hidden, logits, 4, True, replay_ids=wrong)


def test_experts_record_the_ids_that_they_select() -> None:
    torch.manual_seed(4)
    w13, w2 = torch.randn(16, 64, 32).bfloat16() / 8, torch.randn(16, 32, 32).bfloat16() / 8
    hidden, logits = torch.randn(20, 32).bfloat16(), torch.randn(20, 16)
    made = [SelectingExperts("silu", QuantConfig(), routing={"renormalize": True}, num_experts=16, top_k=3,
                             chunk_tokens=16, records=records) for records in (False, True)]
    ids = torch.full((20, 3), -7, dtype=torch.int16)
    is_padding = torch.arange(20) == 4
    plain, recorded, silent = (
        made[0].select_and_run(hidden, w13, w2, logits, is_padding),
        made[1].select_and_run(hidden, w13, w2, logits, is_padding, recorded_ids=ids),
        made[1].select_and_run(hidden, w13, w2, logits, is_padding),
    )
    assert torch.equal(plain, recorded) and torch.equal(plain, silent)
    expected = fused_topk(hidden, logits, 3, True)[1]
    expected[4] = -1
    assert torch.equal(ids.int(), expected)
    with pytest.raises(moec.InvalidArgument, match=r"recorded_ids: \[20, 3\] of int16 expected"):
        made[1].select_and_run(hidden, w13, w2, logits, recorded_ids=ids.int())
    with pytest.raises(moec.InvalidArgument, match="recorded_ids: the experts record none"):
        made[0].select_and_run(hidden, w13, w2, logits, recorded_ids=ids)
