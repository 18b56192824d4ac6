# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Specs and model configurations give the right layers, or good errors."""

import copy
import json

import pytest

from moec.reference import LayerSpec, SpecError
from moec.reference.signature import inputs, outputs

SPEC = {
    "moec_spec": 1,
    "dtype": "bf16",
    "hidden_size": 64,
    "num_experts": 8,
    "top_k": 2,
    "intermediate_size": 32,
    "activation": {"kind": "silu"},
}


def spec_json(path=None, value=None, **changes):
    out = copy.deepcopy(SPEC) | changes
    if path:
        *parents, last = path.split(".")
        target = out
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return out


def parse(path=None, value=None, **changes):
    return LayerSpec.from_json(spec_json(path, value, **changes))


def test_defaults():
    spec = parse()
    assert (spec.name, spec.entry, spec.max_tokens) == ("layer", "gate", 16384)
    assert spec.gate_up_order == "gate_up" and not spec.expert_bias
    assert spec.latent_size is None and spec.width == 64 and spec.num_routes == 8
    assert spec.shared_experts is None and not spec.quantizations
    routing = spec.routing
    assert (routing.score, routing.select, routing.weight) == ("softmax", "top_k", "score")
    assert not routing.renormalize and routing.scale == 1.0
    assert routing.nonfinite == "zero" and routing.group_score == "max"


@pytest.mark.parametrize(
    "routing,nonfinite",
    [
        ({"score": "sigmoid"}, "zero"),
        ({"score": "sqrtsoftplus"}, "lowest"),
        ({"score": "identity", "weight": "softmax"}, "neg_inf"),
        ({"num_groups": 2}, "neg_inf"),
        ({"num_groups": 2, "score": "sqrtsoftplus"}, "neg_inf"),
        ({"score": "identity", "select": "sparsemixer"}, "neg_inf"),
        ({"num_groups": 2, "nonfinite": "zero"}, "zero"),
    ],
)
def test_default_of_nonfinite(routing, nonfinite):
    assert parse(routing=routing).routing.nonfinite == nonfinite


def test_default_of_group_score():
    assert parse(routing={"selection_bias": True}).routing.group_score == "top2_sum"


def test_defaults_of_activations():
    kinds = {
        "silu": (None, None, None, None),
        "gelu": (None, None, 0.0, None),
        "swigluoai": (7.0, 1.702, None, None),
        "swigluoai_uninterleave": (None, 1.0, 0.0, None),
        "swiglustep": (7.0, None, None, None),
        "situ": (None, None, 4.0, 25.0),
    }
    for kind, expected in kinds.items():
        a = parse(activation={"kind": kind}).activation
        assert (a.limit, a.alpha, a.beta, a.linear_beta) == expected


ERRORS = [
    ("hidden_size", (1 << 20) + 1, "hidden_size"),
    ("intermediate_size", (1 << 20) + 1, "intermediate_size"),
    ("latent_size", (1 << 20) + 1, "latent_size"),
    ("shared_experts", {"intermediate_size": (1 << 20) + 1}, "shared_experts.intermediate_size"),
    ("num_experts", (1 << 16) + 1, "num_experts"),
    ("num_zero_experts", (1 << 16) + 1, "num_zero_experts"),
    ("routing.num_groups", (1 << 16) + 1, "routing.num_groups"),
    ("routing.topk_groups", (1 << 16) + 1, "routing.topk_groups"),
    ("top_k", (1 << 10) + 1, "top_k"),
    ("max_tokens", (1 << 24) + 1, "max_tokens"),
    ("routing", {"select": "hash", "hash_vocab_size": (1 << 24) + 1}, "routing.hash_vocab_size"),
    ("name", "a" * 201, "name"),
    ("record_ids", "int64", "record_ids"),
    ("replay_ids", 1, "replay_ids"),
    ("routing.scale", 1e39, "routing.scale"),
    ("routing.logit_softcap", 1e-46, "routing.logit_softcap"),
    ("moec_spec", 2, "moec_spec"),
    ("colour", 1, "colour"),
    ("routing.colour", 1, "routing.colour"),
    ("activation.alpha", 1, "activation.alpha"),
    ("shared_experts", {"intermediate_size": 4, "colour": 1}, "shared_experts.colour"),
    ("shared_experts", {"intermediate_size": 4, "activation": {"kind": "situ", "beta": 0, "linear_beta": 0}},
     "shared_experts.activation.beta"),
    ("activation", {"kind": "situ", "beta": 0, "linear_beta": 0}, "activation.beta"),
    ("placement", {"num_ranks": 2}, "placement.num_ranks"),
    ("placement", {"local_experts": [8]}, "placement.local_experts"),
    ("placement", {"local_experts": [1, 1]}, "placement.local_experts"),
    ("placement", {"local_experts": []}, "placement.local_experts"),
    ("placement", {"colour": 1}, "placement.colour"),
    ("quantization", "int3", "quantization"),
    ("quantization", ["mxfp4"], "quantization"),
    ("quantization", {"w2": "mxfp4"}, "quantization.weight"),
    ("quantization", {"weight": "mxfp4", "w2": {}}, "quantization.w2.weight"),
    ("quantization", {"weight": "mxfp4", "w2": "none"}, "quantization.w2"),
    ("quantization", {"weight": "mxfp4", "w13": {"weight": "mxfp4", "w2": None}},
     "quantization.w13.w2"),
    ("shared_experts", {"intermediate_size": 64, "quantization": "none"},
     "shared_experts.quantization"),
    ("shared_experts", {"intermediate_size": 64, "quantization": {"weight": "mxfp4", "w1": None}},
     "shared_experts.quantization.w1"),
    ("quantization", {"weight": "int3"}, "quantization.weight"),
    ("quantization", {}, "quantization.weight"),
    ("quantization", {"weight": {"dtype": "int3", "scale": "tensor"}},
     "quantization.weight.dtype"),
    ("quantization", {"weight": {"dtype": "int8", "scale": "tensor", "scale_dtype": "e5m2"}},
     "quantization.weight.scale_dtype"),
    ("quantization", {"weight": {"dtype": "fp8_e4m3", "scale": "tensor", "zero_point": True}},
     "quantization.weight.zero_point"),
    ("quantization", {"weight": {"dtype": "int8", "scale": "channel", "global_scale": True}},
     "quantization.weight.global_scale"),
    *(("quantization", {"weight": {"dtype": "int8", "scale": {"group": 32}, "minimum": True} | other},
       "quantization.weight.minimum")
      for other in ({"dtype": "fp8_e4m3"}, {"scale": "channel"}, {"scale": {"block": [1, 32]}}, {"zero_point": True},
                    {"global_scale": True}, {"scale_dtype": "e8m0"})),
    ("quantization", {"weight": {"dtype": "int8", "scale": "channel"},
                      "activation": {"dtype": "int4", "scale": "token"}},
     "quantization.activation.dtype"),
    ("quantization", {"weight": {"dtype": "int8", "scale": "channel"},
                      "activation": {"dtype": "int8", "scale": {"group": 32}}},
     "quantization.activation.scale"),
    ("quantization", {"weight": {"dtype": "int4", "scale": {"group": 48}}}, "hidden_size"),
    ("quantization", {"weight": {"dtype": "fp8_e4m3", "scale": "token"}},
     "quantization.weight.scale"),
    ("quantization", {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [0, 8]}}},
     "quantization.weight.scale"),
    ("quantization", {"weight": "fp8_block128",
                      "activation": {"dtype": "fp8_e4m3", "scale": "tensor"}},
     "quantization.activation"),
    ("quantization", {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                      "activation": {"dtype": "fp8_e4m3", "scale": "token", "static": True}},
     "quantization.activation.static"),
    ("name", "a b", "name"),
    ("name", "", "name"),
    ("dtype", "f64", "dtype"),
    ("entry", "side", "entry"),
    ("hidden_size", 0, "hidden_size"),
    ("hidden_size", -1, "hidden_size"),
    ("hidden_size", 2**31, "hidden_size"),
    ("hidden_size", 64.0, "hidden_size"),
    ("hidden_size", "64", "hidden_size"),
    ("hidden_size", True, "hidden_size"),
    ("hidden_size", None, "hidden_size"),
    ("num_zero_experts", -1, "num_zero_experts"),
    ("num_valid_tokens", 1, "num_valid_tokens"),
    ("top_k", 9, "top_k"),
    ("activation.kind", "tanh", "activation.kind"),
    ("activation.limit", float("inf"), "activation.limit"),
    ("routing.score", "tanh", "routing.score"),
    ("routing.num_groups", 3, "routing.num_groups"),
    ("routing.topk_groups", 2, "routing.topk_groups"),
    ("routing", {"num_groups": 8, "topk_groups": 1}, "top_k"),
    ("routing", {"num_groups": 8, "topk_groups": 2, "group_score": "top2_sum"},
     "routing.group_score"),
    ("routing.renormalize_epsilon", -1e-9, "routing.renormalize_epsilon"),
    ("routing.weight_on_input", True, "routing.weight_on_input"),
    ("routing.hash_vocab_size", 5, "routing.hash_vocab_size"),
    ("routing.select", "hash", "routing.hash_vocab_size"),
    ("routing.select", "sparsemixer", "routing.score"),
    ("routing", {"select": "per_group", "num_groups": 4}, "top_k"),
    ("routing", {"select": "per_group", "num_groups": 2, "topk_groups": 2},
     "routing.topk_groups"),
]


@pytest.mark.parametrize("path,value,named", ERRORS)
def test_bad_field_is_named(path, value, named):
    with pytest.raises(SpecError, match=f"'{named}'"):
        parse(path, value)


@pytest.mark.parametrize("field", [f for f in SPEC if f != "moec_spec"])
def test_required(field):
    value = spec_json()
    del value[field]
    with pytest.raises(SpecError, match=f"'{field}' is missing"):
        LayerSpec.from_json(value)


def test_contradictions():
    for routing, top_k in [
        ({"select": "sparsemixer", "score": "identity"}, 3),
        ({"select": "sparsemixer", "score": "identity", "nonfinite": "zero"}, 2),
        ({"select": "sparsemixer", "score": "identity", "selection_bias": True}, 2),
        ({"select": "hash", "hash_vocab_size": 4, "selection_bias": True}, 2),
        ({"select": "hash", "hash_vocab_size": 4, "num_groups": 2}, 2),
        ({"score": "softmax", "weight": "softmax"}, 2),
        ({"renormalize_epsilon": 1.0}, 2),
    ]:
        with pytest.raises(SpecError):
            parse(routing=routing, top_k=top_k)
    with pytest.raises(SpecError, match="gate_up_order"):
        parse(gate_up_order="interleaved", activation={"kind": "relu2_no_mul"})
    with pytest.raises(SpecError, match="gate_bias"):
        parse(entry="logits", routing={"gate_bias": True})
    assert parse(entry="logits", routing={"logits_dtype": "f16"}).routing.logits_dtype == "f16"
    with pytest.raises(SpecError, match="logits_dtype"):
        parse(routing={"logits_dtype": "bf16"})


def test_ids_take_no_routing():
    with pytest.raises(SpecError, match="routing.score"):
        parse(entry="ids", routing={"score": "softmax"})
    spec = parse(entry="ids", top_k=1, routing={"weight_on_input": True})
    assert spec.routing.weight_on_input


def test_files(tmp_path):
    path = tmp_path / "spec.json"
    for text, message in [
        ("", "spec.json:1:1"),
        ("[1]", "expected a JSON object"),
        ("{}", "neither field 'moec_spec'"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"moec_spec": 1, "x": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
    ]:
        path.write_text(text)
        with pytest.raises(SpecError, match=message):
            LayerSpec.from_file(path)
    path.write_bytes(b'{"\xff": 1}')
    with pytest.raises(SpecError, match="UTF-8"):
        LayerSpec.from_file(path)
    with pytest.raises(SpecError, match="nowhere"):
        LayerSpec.from_file(tmp_path / "nowhere")
    path.write_text(json.dumps(SPEC))
    assert LayerSpec.from_file(path) == parse()


# -- overrides


def test_fewer_experts_keep_the_groups():
    spec = parse(num_experts=64, routing={"num_groups": 8, "topk_groups": 3})
    assert spec.with_overrides(num_experts=16).num_experts == 16
    assert spec.with_overrides(num_experts=16).routing == spec.routing
    with pytest.raises(SpecError, match="routing.num_groups"):
        spec.with_overrides(num_experts=20)
    many = parse(num_experts=64, top_k=6, routing={"num_groups": 8, "topk_groups": 3})
    assert many.with_overrides(num_experts=16).top_k == 6
    with pytest.raises(SpecError, match="top_k"):
        many.with_overrides(num_experts=8)
    with pytest.raises(SpecError, match="top_k"):
        parse().with_overrides(num_experts=1)
    with pytest.raises(SpecError, match="num_experts"):
        parse(top_k=1, num_zero_experts=3).with_overrides(num_experts=0)
    with pytest.raises(SpecError, match="local_experts"):
        parse(placement={"local_experts": [7]}).with_overrides(num_experts=4)


def test_other_entries():
    spec = parse(routing={"gate_bias": True, "renormalize": True})
    logits = spec.with_overrides(entry="logits")
    assert logits.routing.renormalize and not logits.routing.gate_bias
    ids = spec.with_overrides(entry="ids", num_valid_tokens=True)
    assert ids.entry == "ids" and ids.num_valid_tokens
    assert not ids.routing.renormalize
    assert spec.with_overrides() == spec
    with pytest.raises(SpecError, match="entry"):
        ids.with_overrides(entry="gate")


# -- signature


def names(spec):
    return {t.name: (t.shape_for(3), t.dtype) for t in inputs(spec)}


def test_signature_of_the_smallest():
    assert names(parse()) == {
        "hidden_states": ((3, 64), "bf16"),
        "gate.weight": ((8, 64), "bf16"),
        "experts.w13": ((8, 64, 64), "bf16"),
        "experts.w2": ((8, 64, 32), "bf16"),
    }


def test_signature_of_everything():
    spec = parse(
        entry="gate",
        num_valid_tokens=True,
        num_zero_experts=2,
        latent_size=16,
        expert_bias=True,
        expert_columns=True,
        shared_experts={"intermediate_size": 24, "gate": "sigmoid", "columns": True},
        routing={"gate_bias": True, "selection_bias": True, "expert_scale": True},
        placement={"local_experts": [5, 2, 7]},
    )
    assert names(spec) == {
        "hidden_states": ((3, 64), "bf16"),
        "num_valid_tokens": ((1,), "i32"),
        "gate.weight": ((10, 64), "bf16"),
        "gate.bias": ((10,), "f32"),
        "gate.selection_bias": ((10,), "f32"),
        "gate.expert_scale": ((10,), "f32"),
        "experts.w13": ((3, 64, 16), "bf16"),
        "experts.w13_columns": ((3, 16), "i32"),
        "experts.w13_bias": ((3, 64), "bf16"),
        "experts.w2": ((3, 16, 32), "bf16"),
        "experts.w2_bias": ((3, 16), "bf16"),
        "shared_experts.w13": ((48, 64), "bf16"),
        "shared_experts.w13_columns": ((1, 64), "i32"),
        "shared_experts.w2": ((64, 24), "bf16"),
        "shared_experts.gate": ((1, 64), "bf16"),
        "latent.down": ((16, 64), "bf16"),
        "latent.up": ((64, 16), "bf16"),
    }
    assert [t.shape_for(3) for t in outputs(spec)] == [(3, 64), (3, 2), (3, 2), (3,), (4,)]


def test_signature_of_entries():
    logits = names(parse(entry="logits", routing={"select": "hash", "hash_vocab_size": 5}))
    assert logits["router_logits"] == ((3, 8), "f32")
    assert logits["input_ids"] == ((3,), "i32")
    assert logits["gate.hash_table"] == ((5, 2), "i32")
    assert "gate.weight" not in logits
    ids = names(parse(entry="ids"))
    assert ids["topk_ids"] == ((3, 2), "i32")
    assert ids["topk_weights"] == ((3, 2), "f32")
    assert not any(name.startswith("gate") for name in ids)


def test_signature_without_a_gate():
    spec = parse(
        activation={"kind": "relu2_no_mul"}, shared_experts={"intermediate_size": 24}
    )
    assert names(spec)["experts.w13"] == ((8, 32, 64), "bf16")
    assert names(spec)["shared_experts.w13"] == ((24, 64), "bf16")
