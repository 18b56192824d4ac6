# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/spec.schema.json accepts valid specs, refuses invalid ones, and agrees with the reference's parser."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest
from test_reference_layer import VARIANTS
from test_reference_layer import spec_json as layer_json
from test_reference_spec import ERRORS, spec_json

from moec.reference import LayerSpec, SpecError
from moec.reference.activations import PARAMETERS

PATH = Path(__file__).parents[2] / "docs" / "spec.schema.json"
SCHEMA = json.loads(PATH.read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

# Errors that a schema cannot express: relations between numbers, 64.0 as an integer, and numbers that are 0 in f32.
BEYOND_SCHEMA = [
    ("routing.logit_softcap", 1e-46),
    ("top_k", 9),
    ("hidden_size", 64.0),
    ("routing.num_groups", 3),
    ("routing.topk_groups", 2),
    ("routing", {"num_groups": 8, "topk_groups": 1}),
    ("routing", {"num_groups": 8, "topk_groups": 2, "group_score": "top2_sum"}),
    ("routing", {"select": "per_group", "num_groups": 4}),
    ("placement", {"local_experts": [8]}),
    ("quantization", {"weight": {"dtype": "int4", "scale": {"group": 48}}}),
]


def is_valid(value):
    return VALIDATOR.is_valid(value)


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_objects_are_closed():
    def closed(node, path):
        if isinstance(node, dict):
            if node.get("type") == "object":
                keys = ("additionalProperties", "unevaluatedProperties")
                assert any(node.get(key) is False for key in keys), path
            for key, child in node.items():
                closed(child, f"{path}/{key}")
        elif isinstance(node, list):
            for child in node:
                closed(child, path)

    closed(SCHEMA, "")


@pytest.mark.parametrize("name", VARIANTS)
def test_good_specs(name):
    VALIDATOR.validate(layer_json(**VARIANTS[name]))


@pytest.mark.parametrize("kind", PARAMETERS)
def test_activation_parameters(kind):
    everything = ("limit", "alpha", "beta", "linear_beta")
    VALIDATOR.validate(spec_json("activation.kind", kind))
    for parameter in everything:
        value = spec_json(activation={"kind": kind, parameter: 1.5})
        assert is_valid(value) == (parameter in PARAMETERS[kind])


def test_every_field_of_the_reader_is_in_the_schema():
    value = spec_json(
        name="a.b-c_1", entry="gate", max_tokens=5, num_valid_tokens=True,
        num_zero_experts=2, latent_size=4, gate_up_order="up_gate", expert_bias=True,
        expert_columns=True, strided_weights=True, padding_mask=True, record_ids="int16", record_load=True,
        batch_invariant=True, round_weights=True, expert_capacity=128, replay_ids=False, output="sum",
        quantized_input=False,
        norms={name: {"epsilon": 1e-6, "offset": 1, "weight_first": True} for name in ("latent_in", "expert", "latent_out")},
        lora={"adapters": 2, "rank": 4},
        routing={
            "score": "sigmoid", "select": "top_k", "gate_bias": True, "split_gate": False,
            "selection_bias": True, "expert_scale": True, "num_groups": 2,
            "topk_groups": 1, "group_score": "max", "weight": "score",
            "renormalize": True, "renormalize_epsilon": 1e-20, "scale": 2.5,
            "nonfinite": "zero", "weight_on_input": False, "logit_softcap": 30, "logit_scale": 0.5,
            "logits_dtype": "f32",
        },
        shared_experts={
            "intermediate_size": 3, "gate": "softmax", "gate_bias": True, "bias": True, "scale": 0.5,
            "columns": True,
            "activation": {"kind": "silu"}, "quantization": None,
        },
        quantization={"weight": "fp8_block128", "w13": None, "w2": "fp8_block128"},
        placement={"num_ranks": 1, "local_experts": [3, 0]},
        parallel={"dp": 2, "pcp": 1, "tp": 2, "sp": False, "reduce": True, "experts": [[0, 1], [2, 3], [1, 0], [3, 2]]},
    )
    VALIDATOR.validate(value)
    LayerSpec.from_json(value)
    assert set(value["parallel"]) == set(SCHEMA["$defs"]["parallel"]["properties"])
    # Fields that exclude others above.
    VALIDATOR.validate(spec_json(output_bias=True))
    VALIDATOR.validate(spec_json("routing.gate_hidden_size", 8))
    used = set(value["routing"]) | {"hash_vocab_size", "gate_hidden_size"}
    assert used == set(SCHEMA["$defs"]["routing"]["properties"])
    assert set(value["shared_experts"]) == set(
        SCHEMA["$defs"]["shared_experts"]["properties"]
    )
    # Local experts of one rank and replicas exclude each other.
    replicas = {"num_physical_experts": 9, "max_replicas": 2}
    value |= {"replicas": replicas}
    assert not is_valid(value)
    VALIDATOR.validate(spec_json(replicas=replicas))
    for experts, goes in (("linear", True), ([[0, 1], [1, 2]], True), ("round_robin", False), (None, False)):
        parallel = {"dp": 2} if experts is None else {"dp": 2, "experts": experts}
        assert is_valid(spec_json(replicas=replicas, parallel=parallel)) == goes
    assert set(replicas) == set(SCHEMA["$defs"]["replicas"]["properties"])
    assert set(value) | {"output_bias"} == set(SCHEMA["properties"])


@pytest.mark.parametrize("quantization", [
    None,
    "fp8_block128",
    {"weight": "fp8_block128", "w2": None},
    {"weight": "fp8_block128", "w13": "fp8_block128",
     "w2": {"weight": {"dtype": "int8", "scale": "channel"},
            "activation": {"dtype": "int8", "scale": "token"}}},
    {"weight": "mxfp4"},
    {"weight": "nvfp4"},
    {"weight": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "f16",
                "zero_point": True}},
    {"weight": {"dtype": "int4", "scale": {"group": 32}, "minimum": True}},
    {"weight": {"dtype": "int8", "scale": {"block": [8, 8]}, "scale_dtype": "bf16",
                "global_scale": True},
     "activation": {"dtype": "int8", "scale": "token"}},
    {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
     "activation": {"dtype": "fp8_e4m3", "scale": "token"}},
    {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
     "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}},
    {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [64, 128]}, "scale_dtype": "e8m0"},
     "activation": {"dtype": "fp8_e5m2", "scale": {"group": 64}}},
])
def test_quantizations(quantization):
    shared = {"intermediate_size": 64, "quantization": quantization}
    for value in (spec_json(quantization=quantization), spec_json(shared_experts=shared)):
        VALIDATOR.validate(value)
        LayerSpec.from_json(value)


# Infinity is not JSON.
BAD = [row[:2] for row in ERRORS if row[1] != float("inf")] + [
    ("activation.limit", 0),
    ("routing", {"logit_softcap": 0}),
    ("routing", {"logit_scale": 0}),
    ("norms", {"expert": {"epsilon": 0}}),
    ("shared_experts", {"intermediate_size": 8, "gate_bias": True}),
    ("routing.gate_hidden_size", 0),
    ("lora", {"adapters": 0, "rank": 4}),
    ("lora", {"adapters": 1}),
    ("activation", {"kind": "situ", "beta": 0}),
    ("routing", {"renormalize_epsilon": 1}),
    ("routing", {"weight": "softmax"}),
    ("routing", {"select": "hash", "hash_vocab_size": 4, "selection_bias": True}),
    ("routing", {"select": "sparsemixer", "score": "identity", "nonfinite": "zero"}),
    ("placement", {"local_experts": [-1]}),
    ("routing.hash_vocab_size", 4),
]


@pytest.mark.parametrize("path,value", BAD)
def test_bad_specs(path, value):
    spec = spec_json(path, value)
    assert is_valid(spec) == ((path, value) in BEYOND_SCHEMA)
    with pytest.raises(SpecError):
        LayerSpec.from_json(spec)


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": "ids", "routing": {"score": "softmax"}},
        {"entry": "ids", "routing": {"weight_on_input": True}, "top_k": 2},
        {"output": "slots", "shared_experts": {"intermediate_size": 8}},
        {"output_bias": True, "shared_experts": {"intermediate_size": 8}},
        {"output_bias": True, "parallel": {"tp": 2}},
        {"entry": "logits", "routing": {"gate_hidden_size": 8}},
        {"output": "slots", "latent_size": 4},
        {"quantized_input": True, "quantization": "fp8_block128"},
        {"quantized_input": True, "entry": "ids"},
        {"quantized_input": True, "entry": "ids", "quantization": "fp8_block128", "latent_size": 4},
        {"quantized_input": True, "entry": "ids", "quantization": "fp8_block128", "expert_columns": True},
        {"output": "slots", "num_zero_experts": 1},
        {"output": "slots", "top_k": 1, "routing": {"weight_on_input": True}},
        {"entry": "logits", "routing": {"gate_bias": True}},
        {"entry": "logits", "dtype": "bf16", "routing": {"split_gate": True}},
        {"dtype": "f32", "routing": {"split_gate": True}},
        {"dtype": "bf16", "routing": {"split_gate": True, "gate_bias": True}},
        {"routing": {"logits_dtype": "bf16"}},
        {"gate_up_order": "interleaved", "activation": {"kind": "relu2_no_mul"}},
        {"routing": {"select": "sparsemixer", "score": "identity"}, "top_k": 3},
    ],
)
def test_contradictions(changes):
    assert not is_valid(spec_json(**changes))
    with pytest.raises(SpecError):
        LayerSpec.from_json(spec_json(**changes))


@pytest.mark.parametrize("field", ["moec_spec", "dtype", "hidden_size", "activation"])
def test_required(field):
    value = copy.deepcopy(spec_json())
    del value[field]
    assert not is_valid(value)
