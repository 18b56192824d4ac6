# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Routing with hand-computed values: options, non-finite scores, groups and near ties."""

import numpy as np
import pytest

from moec.reference import LayerSpec
from moec.reference.routing import Routing

F32 = np.float32
NAN, INF = np.nan, np.inf


def spec_of(experts, top_k, **routing):
    return LayerSpec.from_json(
        {
            "moec_spec": 1,
            "dtype": "f32",
            "entry": "logits",
            "hidden_size": 4,
            "num_experts": experts,
            "top_k": top_k,
            "intermediate_size": 4,
            "routing": routing,
            "activation": {"kind": "silu"},
        }
    )


def route(logits, top_k, tensors=None, input_ids=None, **routing):
    logits = np.atleast_2d(np.array(logits, np.float64))
    spec = spec_of(logits.shape[1], top_k, **routing)
    got = Routing(spec, logits, tensors or {}, input_ids)
    return got, got.weights(np.arange(len(logits)), got.ids)


def first(logits, top_k, **options):
    got, weights = route(logits, top_k, **options)
    return got.ids[0].tolist(), weights[0].tolist()


LOG2, LOG3 = float(np.log(2)), float(np.log(3))


@pytest.mark.parametrize(
    "routing,ids,weights",
    [
        # exp(l) = 1, 3, 2, so softmax is 1/6, 1/2, 1/3.
        ({"score": "softmax"}, [1, 2], [1 / 2, 1 / 3]),
        ({"score": "softmax", "renormalize": True}, [1, 2], [3 / 5, 2 / 5]),
        (
            {"score": "softmax", "renormalize": True, "renormalize_epsilon": 1 / 6},
            [1, 2],
            [1 / 2, 1 / 3],
        ),
        ({"score": "softmax", "scale": 6}, [1, 2], [3, 2]),
        # 1 / (1 + exp(-l)) = 1/2, 3/4, 2/3.
        ({"score": "sigmoid"}, [1, 2], [3 / 4, 2 / 3]),
        ({"score": "identity"}, [1, 2], [LOG3, LOG2]),
        # 2 tanh(l / 2) = 2 (exp(l) - 1) / (exp(l) + 1) = 0, 1, 2/3.
        ({"score": "sigmoid", "logit_scale": 2}, [1, 2], [9 / 10, 4 / 5]),
        ({"score": "identity", "logit_softcap": 2}, [1, 2], [1, 2 / 3]),
        ({"score": "identity", "weight": "sigmoid"}, [1, 2], [3 / 4, 2 / 3]),
        ({"score": "identity", "weight": "softmax"}, [1, 2], [3 / 5, 2 / 5]),
        # softplus(l) = log(1 + exp(l)) = log 4, log 3.
        ({"score": "sqrtsoftplus"}, [1, 2], [np.log(4) ** 0.5, np.log(3) ** 0.5]),
    ],
)
def test_scores_and_weights(routing, ids, weights):
    got_ids, got = first([0.0, LOG3, LOG2], 2, **routing)
    assert got_ids == ids
    np.testing.assert_allclose(got, weights, rtol=1e-6)


def test_softplus_of_large_logits_is_the_logit():
    _, weights = first([100.0, 25.0], 2, score="sqrtsoftplus")
    np.testing.assert_allclose(weights, [10.0, 5.0], rtol=1e-6)


def test_softplus_of_logits_far_below_zero_is_zero():
    ids, weights = first([-300.0, -200.0, -150.0], 2, score="sqrtsoftplus")
    assert ids == [0, 1] and list(weights) == [0.0, 0.0]


def test_bias_selects_but_does_not_weigh():
    bias = np.array([0.5, 0.0, 0.0], F32)
    ids, weights = first(
        [0.0, LOG3, LOG2],
        2,
        tensors={"gate.selection_bias": bias},
        score="sigmoid",
        selection_bias=True,
    )
    assert ids == [0, 1]
    np.testing.assert_allclose(weights, [1 / 2, 3 / 4], rtol=1e-6)


def test_expert_scale_after_renormalize():
    scale = np.array([9, 2, 4], F32)
    ids, weights = first(
        [0.0, LOG3, LOG2],
        2,
        tensors={"gate.expert_scale": scale},
        expert_scale=True,
        renormalize=True,
        scale=0.5,
    )
    assert ids == [1, 2]
    np.testing.assert_allclose(weights, [3 / 5, 4 / 5], rtol=1e-6)


def test_ties_go_to_the_lowest_index():
    assert first([1.0, 2.0, 2.0, 1.0, 2.0], 4)[0] == [1, 2, 4, 0]
    assert first([0.5] * 512, 9)[0] == list(range(9))


def test_keys_are_rounded_to_f32_before_the_tie():
    # The second key is larger in float64 but equal in f32.
    got, _ = route([1.0, 1.0 + 1e-9], 1, score="identity")
    assert got.ids[0].tolist() == [0] and not got.accepts(0, np.array([1]))
    assert first([1.0, 1.0 + 1e-6], 1, score="identity")[0] == [1]
    # With a bias, keys that are equal in f32 stay tied.
    bias = {"gate.selection_bias": np.zeros(2, F32)}
    got, _ = route([1.0, 1.0 + 1e-9], 1, score="softmax", tensors=bias, selection_bias=True)
    assert got.ids[0].tolist() == [0] and not got.accepts(0, np.array([1]))


def test_shares_that_f32_does_not_tell_apart_may_come_in_either_order():
    got, _ = route([1.0, 1.0 + 1e-9], 1, score="softmax")
    assert got.accepts(0, np.array([0])) and got.accepts(0, np.array([1]))
    got, _ = route([1.0, 1.0 + 1e-5], 1, score="softmax")
    assert not got.accepts(0, np.array([0])) and got.accepts(0, np.array([1]))
    got, _ = route([1.0, 1.0], 1, score="softmax")
    assert got.accepts(0, np.array([0])) and not got.accepts(0, np.array([1]))


# -- non-finite scores


def test_zero_replaces_the_score_before_the_bias():
    bias = np.array([0.0, 0.9, 0.0], F32)
    ids, weights = first(
        [1.0, NAN, -1.0],
        2,
        tensors={"gate.selection_bias": bias},
        score="sigmoid",
        selection_bias=True,
    )
    assert ids == [1, 0]
    np.testing.assert_allclose(weights, [0.0, 0.7310586], rtol=1e-6)


def test_zero_stands_above_negative_keys():
    assert first([-1.0, NAN, INF, -2.0], 3, score="identity")[0] == [1, 2, 0]


def test_zero_row_of_softmax():
    ids, weights = first([1.0, NAN, 3.0], 2, renormalize=True)
    assert (ids, weights) == ([0, 1], [0.0, 0.0])


def test_neg_inf_comes_last_and_weighs_nothing():
    ids, weights = first([NAN, -5.0, INF], 3, score="identity", nonfinite="neg_inf")
    assert (ids, weights) == ([1, 0, 2], [-5.0, 0.0, 0.0])


def test_neg_inf_row_without_a_key():
    options = dict(score="identity", nonfinite="neg_inf", scale=7, renormalize=True)
    ids, weights = first([NAN, INF, -INF, NAN], 2, **options)
    assert (ids, weights) == ([0, 1], [0.5, 0.5])


def test_neg_inf_sees_the_bias():
    bias = np.array([INF, 0.0], F32)
    options = dict(score="sigmoid", selection_bias=True, nonfinite="neg_inf")
    ids, _ = first([5.0, -5.0], 1, tensors={"gate.selection_bias": bias}, **options)
    assert ids == [1]


def test_lowest_comes_last_but_is_a_key():
    ids, weights = first([NAN, -5.0, INF], 3, score="sqrtsoftplus")
    assert ids == [1, 0, 2] and weights[1:] == [0.0, 0.0]
    ids, weights = first([NAN, NAN], 1, score="sqrtsoftplus", renormalize=True)
    assert (ids, weights) == ([0], [0.0])


def test_softmax_weight_leaves_nonfinite_out():
    ids, weights = first([0.0, NAN, LOG3], 3, score="identity", weight="softmax")
    assert ids == [2, 0, 1]
    np.testing.assert_allclose(weights, [3 / 4, 1 / 4, 0.0], rtol=1e-6)


def test_sigmoid_weight_of_nonfinite_is_zero():
    ids, weights = first([-1.0, NAN], 1, score="identity", weight="sigmoid")
    assert (ids, weights) == ([1], [0.0])


def test_renormalize_of_zero_and_of_overflow():
    ids, weights = first([1.0, -1.0], 2, score="identity", renormalize=True)
    assert weights == [1.0, -1.0]
    ids, weights = first([3e38, 2e38], 2, score="identity", renormalize=True)
    np.testing.assert_allclose(weights, [3e38, 2e38], rtol=1e-6)


# -- groups


def test_group_max():
    # Groups (5, 0), (4, 3), (6, -9), (1, 2): the best two are the third and the first.
    logits = [5.0, 0.0, 4.0, 3.0, 6.0, -9.0, 1.0, 2.0]
    options = dict(score="identity", num_groups=4, topk_groups=2)
    assert first(logits, 3, **options)[0] == [4, 0, 1]


def test_group_top2_sum():
    logits = [5.0, 0.0, 4.0, 3.0, 6.0, -9.0, 1.0, 2.0]
    options = dict(
        score="identity", num_groups=4, topk_groups=2, group_score="top2_sum"
    )
    assert first(logits, 3, **options)[0] == [0, 2, 3]


def test_top2_is_the_default_with_a_bias():
    logits = [5.0, 0.0, 4.0, 3.0, 6.0, -9.0, 1.0, 2.0]
    options = dict(
        score="identity", num_groups=4, topk_groups=2, selection_bias=True,
        tensors={"gate.selection_bias": np.zeros(8, F32)},
    )
    assert first(logits, 3, **options)[0] == [0, 2, 3]


def test_tied_groups_go_to_the_lowest():
    options = dict(score="identity", num_groups=3, topk_groups=1)
    assert first([0.0, 1.0, 1.0, 0.5, 1.0, 0.9], 2, **options)[0] == [1, 0]


def test_experts_outside_of_the_groups_stay_out():
    # Kept groups contain two experts without a finite score; they still rank first.
    logits = [9.0, NAN, NAN, NAN, 8.0, 8.0]
    options = dict(score="identity", num_groups=3, topk_groups=1)
    ids, weights = first(logits, 2, **options)
    assert (ids, weights) == ([0, 1], [9.0, 0.0])


def test_per_group():
    logits = [1.0, 3.0, 2.0, 9.0, 7.0, 8.0]
    options = dict(score="identity", select="per_group", num_groups=2)
    assert first(logits, 4, **options)[0] == [1, 2, 3, 5]


# -- other selections


def test_hash():
    table = np.array([[2, 0], [1, 7], [-1, 1]], np.int32)
    got, weights = route(
        [[0.0, LOG3, LOG2]] * 5,
        2,
        tensors={"gate.hash_table": table},
        input_ids=np.array([0, 1, 2, 3, -1]),
        select="hash",
        hash_vocab_size=3,
        score="sigmoid",
        renormalize=True,
    )
    assert got.ids.tolist() == [[2, 0], [1, 7], [-1, 1], [-1, -1], [-1, -1]]
    # 2/3 and 1/2, normalized to the sum 1; a single weight becomes 1.
    want = [[4 / 7, 3 / 7], [1, 0], [0, 1], [0, 0], [0, 0]]
    np.testing.assert_allclose(weights, want, rtol=1e-6)


def test_sparsemixer():
    # 1 - 0.99 = 0.01 <= 0.02: with the first; 0.5 is masked.
    # Then 0.99 with 0.5 masked is alone.
    ids, weights = first([0.5, 1.0, 0.99], 2, score="identity", select="sparsemixer")
    assert ids == [1, 2]
    np.testing.assert_allclose(weights, [1 / (1 + np.exp(-0.01)), 1.0], rtol=1e-6)


def test_sparsemixer_divides_by_the_larger():
    # 0.0198 / 1 <= 0.02, though 0.0198 / 0.9802 is above.
    _, weights = first([1.0, 0.9802, 0.0], 2, score="identity", select="sparsemixer")
    assert weights[0] == pytest.approx(1 / (1 + np.exp(-0.0198)), rel=1e-6)


def test_sparsemixer_with_negative_logits():
    # The scale is the larger of |l| and the maximum: 0.02 / 2.02 <= 0.02.
    ids, weights = first(
        [-2.02, -2.0, -2.1], 2, score="identity", select="sparsemixer"
    )
    assert ids == [1, 0]
    np.testing.assert_allclose(weights, [1 / (1 + np.exp(-0.02)), 1.0], rtol=1e-6)


def test_sparsemixer_without_finite_logits():
    options = dict(score="identity", select="sparsemixer")
    assert first([NAN, INF, -INF], 2, **options) == ([0, 1], [0.5, 0.5])
    assert first([NAN, 1.0, INF], 2, **options) == ([1, 0], [1.0, 0.0])


# -- near ties


def up(x, ulps):
    x = F32(x)
    for _ in range(abs(ulps)):
        x = np.nextafter(x, F32(np.inf if ulps > 0 else -np.inf))
    return float(x)


@pytest.mark.parametrize("ulps,near", [(0, False), (1, True), (4, True), (5, False)])
def test_near_tie_of_two_keys(ulps, near):
    got, _ = route([0.0, up(1.0, ulps), 1.0], 1, score="identity")
    assert got.near.tolist() == [near]
    assert got.ids[0].tolist() == [1]
    assert got.accepts(0, np.array([1]))
    assert got.accepts(0, np.array([2])) == near
    assert not got.accepts(0, np.array([0]))


def test_equal_keys_are_no_near_tie():
    got, _ = route([1.0, 2.0, 2.0, 2.0], 2, score="identity")
    assert not got.near[0]
    for wrong in ([2, 1], [1, 3], [2, 3], [1, 0]):
        assert not got.accepts(0, np.array(wrong))


def test_near_tie_that_decides_nothing():
    # The third and fourth keys are near; the order of the fourth and fifth does not matter.
    got, _ = route([9.0, 8.0, 1.0, up(1.0, 1), 0.0], 2, score="identity")
    assert not got.near[0]
    assert not got.accepts(0, np.array([1, 0]))


def test_near_tie_at_the_edge_and_in_the_order():
    logits = [5.0, up(5.0, 2), 3.0, up(3.0, -3), 0.0]
    got, _ = route(logits, 3, score="identity")
    assert got.ids[0].tolist() == [1, 0, 2] and got.near[0]
    for right in ([1, 0, 2], [0, 1, 2], [1, 0, 3], [0, 1, 3]):
        assert got.accepts(0, np.array(right))
    for wrong in ([1, 2, 0], [1, 0, 4], [1, 2, 3], [0, 0, 2], [1, 0, -1], [1, 0, 9]):
        assert not got.accepts(0, np.array(wrong))
    listed = sorted(ids.tolist() for ids in got.alternatives(0))
    assert listed == [[0, 1, 2], [0, 1, 3], [1, 0, 2], [1, 0, 3]]


def test_near_tie_behind_equal_keys():
    # Experts 1 and 2 have the key 1; the key of 0 is one ulp less, and a kernel may round it up to 1.
    below = np.nextafter(F32(1), F32(0))
    got, _ = route([below, 1, 1], 1, score="identity")
    assert got.ids[0].tolist() == [1] and got.near[0]
    assert got.accepts(0, np.array([0])) and not got.accepts(0, np.array([2]))


def test_near_tie_of_groups_behind_equal_ones():
    below = np.nextafter(F32(1), F32(0))
    got, _ = route([below, 0, 1, 0, 1, 0], 1, score="identity", num_groups=3, topk_groups=1, group_score="max")
    assert got.ids[0].tolist() == [2] and got.near[0]
    assert got.accepts(0, np.array([0])) and not got.accepts(0, np.array([4]))


def test_nearness_is_no_chain():
    # The ends of the chain are six ulps apart, so their order is fixed.
    got, _ = route([up(1.0, 6), up(1.0, 3), 1.0], 1, score="identity")
    assert got.accepts(0, np.array([1]))
    assert not got.accepts(0, np.array([2]))
    assert sorted(ids.tolist() for ids in got.alternatives(0)) == [[0], [1]]


def test_a_tie_within_a_near_tie_keeps_its_order():
    # 0 and 1 are equal and 2 is near both: it may be anywhere, but 1 never precedes 0.
    got, _ = route([up(1.0, 2), up(1.0, 2), 1.0, 0.0], 3, score="identity")
    listed = sorted(ids.tolist() for ids in got.alternatives(0))
    assert listed == [[0, 1, 2], [0, 2, 1], [2, 0, 1]]


def test_near_tie_of_groups():
    logits = [9.0, 8.0, 5.0, 4.0, up(5.0, 2), 1.0, 0.0, 0.0]
    options = dict(score="identity", num_groups=4, topk_groups=2)
    got, _ = route(logits, 3, **options)
    assert got.ids[0].tolist() == [0, 1, 4] and got.near[0]
    assert got.accepts(0, np.array([0, 1, 2]))
    # Keeping both groups would be too many.
    assert not got.accepts(0, np.array([0, 4, 2]))
    listed = [ids.tolist() for ids in got.alternatives(0)]
    assert sorted(listed) == [[0, 1, 2], [0, 1, 4]]


def test_near_tie_of_groups_is_between_their_sums():
    # Sums 5 + 4 and 6 + 3 are equal, so the first group is kept, without a near tie.
    logits = [5.0, 4.0, 6.0, 3.0]
    options = dict(score="identity", num_groups=2, group_score="top2_sum")
    got, _ = route(logits, 2, **options)
    assert got.ids[0].tolist() == [0, 1] and not got.near[0]
    assert not got.accepts(0, np.array([2, 3]))
    logits[3] = up(3.0, 4)
    got, _ = route(logits, 2, **options)
    assert got.ids[0].tolist() == [2, 3] and got.near[0]
    assert got.accepts(0, np.array([0, 1]))


def test_near_tie_per_group():
    logits = [1.0, up(1.0, 1), 7.0, 8.0]
    options = dict(score="identity", select="per_group", num_groups=2)
    got, _ = route(logits, 2, **options)
    assert got.ids[0].tolist() == [1, 3] and got.near[0]
    assert got.accepts(0, np.array([0, 3]))
    assert not got.accepts(0, np.array([3, 1]))
    assert not got.accepts(0, np.array([1, 2]))


def test_rows_of_equal_shares_accept_one_answer():
    options = dict(score="identity", nonfinite="neg_inf")
    got, _ = route([NAN, NAN, NAN], 2, **options)
    assert got.accepts(0, np.array([0, 1]))
    assert not got.accepts(0, np.array([1, 0]))
