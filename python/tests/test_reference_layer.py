# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The layer compared with the scalar implementation and with hand-computed values."""

import copy

import numpy as np
import pytest
import scalar_layer

from moec.reference import LayerSpec, SpecError, decide, evaluate, expert_counts
from moec.reference import expert_offsets, generate
from moec.reference.numerics import NUMPY_DTYPES

BASE = {
    "moec_spec": 1,
    "dtype": "f32",
    "hidden_size": 10,
    "num_experts": 6,
    "top_k": 2,
    "intermediate_size": 5,
    "routing": {},
    "activation": {"kind": "silu"},
}


def spec_json(**changes):
    value = copy.deepcopy(BASE)
    value.update(changes)
    return value


def route(**routing):
    return {"routing": routing}


GROUPED = {"num_experts": 12, "top_k": 4}

VARIANTS = {
    "plain": {},
    "bf16": {"dtype": "bf16"},
    "f16": {"dtype": "f16"},
    "logits": {"entry": "logits"},
    "ids": {"entry": "ids"},
    "renormalize": route(renormalize=True, scale=2.5),
    "epsilon": route(renormalize=True, renormalize_epsilon=0.25),
    "sigmoid": route(score="sigmoid", renormalize=True),
    "identity": route(score="identity"),
    "sqrtsoftplus": route(score="sqrtsoftplus", renormalize=True, scale=1.5),
    "weight_softmax": route(score="identity", weight="softmax", gate_bias=True),
    "weight_sigmoid": route(score="identity", weight="sigmoid"),
    "selection_bias": route(score="sigmoid", selection_bias=True),
    "expert_scale": route(expert_scale=True, renormalize=True, scale=3.0),
    "groups_max": {
        **GROUPED, **route(num_groups=4, topk_groups=2, renormalize=True)
    },
    "groups_top2": {
        **GROUPED,
        **route(score="sigmoid", selection_bias=True, num_groups=4, topk_groups=2),
    },
    "groups_top2_without_bias": {
        **GROUPED,
        **route(num_groups=3, topk_groups=2, group_score="top2_sum"),
    },
    "per_group": {**GROUPED, **route(select="per_group", num_groups=2)},
    "hash": {
        "entry": "logits",
        **route(select="hash", hash_vocab_size=9, score="sqrtsoftplus", renormalize=True),
    },
    "sparsemixer": route(select="sparsemixer", score="identity"),
    "weight_on_input": {
        "top_k": 1,
        "dtype": "bf16",
        **route(score="identity", weight="sigmoid", weight_on_input=True),
    },
    "zero_experts": {"num_zero_experts": 6, "top_k": 4},
    "zero_experts_on_input": {
        "num_zero_experts": 6,
        "top_k": 1,
        "dtype": "bf16",
        "shared_experts": {"intermediate_size": 7},
        **route(weight_on_input=True),
    },
    "zero_experts_latent": {"num_zero_experts": 2, "latent_size": 4, "top_k": 3},
    "padding_mask": {"padding_mask": True, "num_valid_tokens": True,
                     "shared_experts": {"intermediate_size": 7}},
    "padding_mask_ids": {"entry": "ids", "padding_mask": True},
    "padding_mask_latent": {"padding_mask": True, "latent_size": 4,
                            "shared_experts": {"intermediate_size": 7}},
    "replicas": {"replicas": {"num_physical_experts": 11, "max_replicas": 3}},
    "replicas_ids": {
        "entry": "ids", "num_valid_tokens": True,
        "replicas": {"num_physical_experts": 9, "max_replicas": 2},
    },
    "replicas_zero_experts": {
        "num_zero_experts": 3, "top_k": 4, "replicas": {"num_physical_experts": 9, "max_replicas": 2},
    },
    "latent": {"latent_size": 4, "dtype": "bf16", "shared_experts": {"intermediate_size": 3}},
    "shared": {"shared_experts": {"intermediate_size": 7}},
    "shared_gate": {"shared_experts": {"intermediate_size": 7, "gate": "sigmoid"}},
    "shared_gate_bf16": {
        "dtype": "bf16",
        "gate_up_order": "interleaved",
        "shared_experts": {"intermediate_size": 7, "gate": "sigmoid"},
    },
    "shared_softmax": {
        "entry": "ids", "num_zero_experts": 2,
        "shared_experts": {"intermediate_size": 7, "gate": "softmax", "gate_bias": True},
    },
    "shared_gate_bias": {"shared_experts": {"intermediate_size": 7, "gate": "sigmoid", "gate_bias": True}},
    "gate_hidden": {"dtype": "bf16", **route(gate_hidden_size=5, renormalize=True)},
    "output_bias": {"output_bias": True, "num_valid_tokens": True, "dtype": "bf16"},
    "expert_bias": {"expert_bias": True},
    "expert_columns": {"expert_columns": True},
    "expert_columns_on_input": {
        "expert_columns": True, "num_zero_experts": 2, "dtype": "bf16", "latent_size": 6,
        "top_k": 1, "routing": {"weight_on_input": True}, "shared_experts": {"intermediate_size": 7},
    },
    "shared_columns": {"shared_experts": {"intermediate_size": 7, "gate": "sigmoid", "columns": True}},
    "all_columns": {
        "dtype": "bf16", "expert_columns": True, "latent_size": 6,
        "shared_experts": {"intermediate_size": 7, "columns": True},
    },
    "expert_columns_replicas": {
        "expert_columns": True, "replicas": {"num_physical_experts": 11, "max_replicas": 3},
    },
    "up_gate": {"gate_up_order": "up_gate"},
    "interleaved": {"gate_up_order": "interleaved", "expert_bias": True},
    "no_gate": {
        "activation": {"kind": "relu2_no_mul"},
        "shared_experts": {"intermediate_size": 4},
    },
    "num_valid_tokens": {
        "num_valid_tokens": True,
        "shared_experts": {"intermediate_size": 4},
    },
    "lora": {"lora": {"adapters": 2, "rank": 3}, "expert_bias": True, "gate_up_order": "interleaved"},
    "lora_no_gate": {"lora": {"adapters": 1, "rank": 2}, "activation": {"kind": "relu2_no_mul"}, "latent_size": 4},
    "lora_columns": {"lora": {"adapters": 3, "rank": 2}, "expert_columns": True, "top_k": 1,
                     "routing": {"weight_on_input": True}},
    "local_experts": {"placement": {"local_experts": [4, 1, 0]}, "num_zero_experts": 1},
}


def to_lists(tensors):
    return {
        name: value.astype(np.float64 if value.dtype.kind != "i" else np.int64).tolist()
        for name, value in tensors.items()
    }


def against_scalar(value, tokens=9, seed=3, hard=None):
    spec = LayerSpec.from_json(value)
    tensors = generate(spec, tokens, seed, hard)
    decision = decide(spec, tensors)
    counts = expert_counts(spec, decision)
    out, ids, weights, want_counts = scalar_layer.run(value, to_lists(tensors))
    assert decision.ids.tolist() == ids
    weights = np.array(weights).reshape(decision.weights.shape)
    np.testing.assert_allclose(decision.weights, weights, rtol=1e-6)
    assert counts.tolist() == want_counts
    got = evaluate(spec, tensors, decision)
    out = np.array(out).reshape(got.shape)
    np.testing.assert_allclose(got, out, rtol=1e-6, atol=1e-9)
    return got


@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name):
    out = against_scalar(spec_json(**VARIANTS[name]))
    assert np.isfinite(out).all() and np.abs(out).max() > 1e-3


@pytest.mark.parametrize(
    "activation",
    [
        {"kind": "silu"},
        {"kind": "silu", "limit": 0.5},
        {"kind": "gelu"},
        {"kind": "gelu_tanh"},
        {"kind": "gelu", "beta": 1},
        {"kind": "relu"},
        {"kind": "relu2"},
        {"kind": "swigluoai"},
        {"kind": "swigluoai", "alpha": 1.1, "limit": 0.4},
        {"kind": "swigluoai_uninterleave"},
        {"kind": "swigluoai_uninterleave", "alpha": 1.702, "beta": 1, "limit": 0.5},
        {"kind": "swiglustep"},
        {"kind": "swiglustep", "limit": 0.25},
        {"kind": "situ"},
        {"kind": "situ", "beta": 0.5, "linear_beta": 0.75},
        {"kind": "situ", "linear_beta": 0},
        {"kind": "silu_no_mul"},
        {"kind": "gelu_no_mul"},
        {"kind": "gelu_tanh_no_mul"},
        {"kind": "relu_no_mul"},
        {"kind": "relu2_no_mul"},
    ],
    ids=lambda a: "-".join(str(v) for v in a.values()),
)
def test_activation_in_layer(activation):
    against_scalar(spec_json(activation=activation))


HARD = {
    "ids": ["one_expert", "empty_experts", "duplicate_ids", "minus_one_ids", "out_of_range_ids",
            "nan_weights", "padding"],
    "logits": ["one_expert", "empty_experts", "ties", "nan_logits", "inf_logits", "padding"],
    "gate": ["one_expert", "empty_experts", "ties", "nan_logits", "inf_logits", "padding"],
}


@pytest.mark.parametrize("entry,hard", [(e, h) for e in HARD for h in HARD[e]])
def test_hard_inputs(entry, hard):
    value = spec_json(entry=entry, num_valid_tokens=True)
    against_scalar(value, tokens=16, hard=hard)


@pytest.mark.parametrize("rule", ["zero", "neg_inf", "lowest"])
@pytest.mark.parametrize("score", ["identity", "softmax", "sigmoid", "sqrtsoftplus"])
@pytest.mark.parametrize("hard", ["nan_logits", "inf_logits"])
def test_nonfinite_rules(rule, score, hard):
    routing = route(score=score, nonfinite=rule, renormalize=score != "identity")
    against_scalar(spec_json(entry="logits", **routing), tokens=24, hard=hard)


@pytest.mark.parametrize("hard", ["ties", "nan_logits", "inf_logits", "one_expert"])
@pytest.mark.parametrize(
    "name",
    ["groups_max", "groups_top2", "per_group", "sparsemixer", "weight_softmax",
     "weight_sigmoid", "zero_experts"],
)
def test_hard_routing(name, hard):
    value = spec_json(**VARIANTS[name])
    value["routing"].pop("gate_bias", None)
    value["entry"] = "logits"
    against_scalar(value, tokens=24, hard=hard)


def test_hash_out_of_range():
    value = spec_json(**VARIANTS["hash"])
    against_scalar(value, tokens=24, hard="out_of_range_ids")


@pytest.mark.parametrize("tokens", [0, 1])
def test_few_tokens(tokens):
    for name in ("plain", "shared_gate", "ids", "hash", "latent", "num_valid_tokens"):
        against_scalar(spec_json(**VARIANTS[name]), tokens=tokens)


@pytest.mark.parametrize("valid", [-3, 0, 2, 5, 100])
def test_num_valid_tokens_is_clamped(valid):
    spec = LayerSpec.from_json(spec_json(num_valid_tokens=True))
    tensors = generate(spec, 5, 1)
    tensors["num_valid_tokens"][0] = valid
    decision = decide(spec, tensors)
    out = evaluate(spec, tensors, decision)
    assert (np.abs(out).sum(axis=1) > 0).tolist() == [t < valid for t in range(5)]
    assert decision.valid.sum() == 2 * min(max(valid, 0), 5)


def test_by_hand():
    """One token, two experts of one row each, with small numbers."""
    value = spec_json(
        entry="ids", hidden_size=2, num_experts=2, intermediate_size=1, routing={},
        activation={"kind": "relu2"},
    )
    spec = LayerSpec.from_json(value)
    f32 = np.float32
    tensors = {
        "hidden_states": np.array([[1, 2]], f32),
        "topk_ids": np.array([[1, 0]], np.int32),
        "topk_weights": np.array([[0.5, 2]], f32),
        # Expert 0: g = 1 + 2 = 3, u = 2; expert 1: g = 2, u = 1 - 2 = -1.
        "experts.w13": np.array([[[1, 1], [0, 1]], [[0, 1], [1, -1]]], f32),
        "experts.w2": np.array([[[1], [10]], [[2], [3]]], f32),
    }
    # a0 = 9 * 2 = 18, a1 = 4 * -1 = -4: 2 * 18 + 0.5 * -8, 2 * 180 + 0.5 * -12.
    decision = decide(spec, tensors)
    assert evaluate(spec, tensors, decision).tolist() == [[32.0, 354.0]]
    assert expert_counts(spec, decision).tolist() == [1, 1]


def test_rounding_places_bf16():
    """Each intermediate is rounded: omitting a rounding changes the result."""
    value = spec_json(
        dtype="bf16", entry="ids", hidden_size=1, num_experts=1, intermediate_size=1,
        top_k=1, activation={"kind": "relu2_no_mul"},
    )
    spec = LayerSpec.from_json(value)
    bf16 = NUMPY_DTYPES["bf16"]
    x = 1 + 2**-7
    tensors = {
        "hidden_states": np.array([[x]], bf16),
        "topk_ids": np.zeros((1, 1), np.int32),
        "topk_weights": np.array([[x]], np.float32),
        "experts.w13": np.ones((1, 1, 1), bf16),
        "experts.w2": np.full((1, 1, 1), x, bf16),
    }
    # x^2 = 1 + 2^-6 + 2^-14 rounds to 1 + 2^-6; times x twice, not rounded in
    # between: 1.0396... rounds to 1 + 5 * 2^-7.
    a = 1 + 2**-6
    exact = a * x * x
    assert evaluate(spec, tensors, decide(spec, tensors)).tolist() == [[1 + 4 * 2**-7]]
    assert 1 + 3.5 * 2**-7 < exact < 1 + 4.5 * 2**-7


def test_duplicate_ids_count_twice():
    spec = LayerSpec.from_json(spec_json(entry="ids"))
    tensors = generate(spec, 2, 1)
    tensors["topk_ids"][:] = 3
    decision = decide(spec, tensors)
    twice = evaluate(spec, tensors, decision)
    tensors["topk_weights"][:, 0] = tensors["topk_weights"].sum(axis=1)
    tensors["topk_ids"][:, 1] = -1
    once = evaluate(spec, tensors, decide(spec, tensors))
    np.testing.assert_allclose(twice, once, rtol=1e-5, atol=1e-7)
    assert expert_counts(spec, decision).tolist() == [0, 0, 0, 4, 0, 0]


def test_offsets():
    assert expert_offsets(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]


def test_chunks_of_weights_change_nothing(monkeypatch):
    spec = LayerSpec.from_json(spec_json(shared_experts={"intermediate_size": 7}))
    tensors = generate(spec, 5, 1)
    whole = evaluate(spec, tensors, decide(spec, tensors))
    monkeypatch.setattr("moec.reference.layer._PIECE", 25)
    np.testing.assert_allclose(
        evaluate(spec, tensors, decide(spec, tensors)), whole, rtol=1e-6
    )


def test_rows_alone():
    spec = LayerSpec.from_json(spec_json(num_valid_tokens=True))
    tensors = generate(spec, 8, 1)
    decision = decide(spec, tensors)
    whole = evaluate(spec, tensors, decision)
    rows = np.array([7, 0, 4])
    part = evaluate(spec, tensors, decision.rows(rows), rows)
    np.testing.assert_allclose(part, whole[rows], rtol=1e-6)
