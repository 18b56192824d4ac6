# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The meaning of each model family's config.json."""

import dataclasses
import json
from pathlib import Path

import pytest

from moec.reference import LayerSpec, SpecError
from moec.reference.quantization import SHORT_NAMES, Operand, Products, Quantization

COMMON = {"hidden_size": 64, "hidden_act": "silu", "torch_dtype": "bfloat16"}
DEEPSEEK = {
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
}
QWEN = {"moe_intermediate_size": 32, "num_experts": 16, "num_experts_per_tok": 4}
LOCAL = {"intermediate_size": 32, "num_local_experts": 16, "num_experts_per_tok": 4}
SHARED_WIDTH = {"shared_expert_intermediate_size": 48}
SIZES = {"hidden_size": 64, "num_experts": 16, "top_k": 4, "intermediate_size": 32}
SILU = {"activation": {"kind": "silu"}}
NOAUX = {
    "score": "sigmoid",
    "selection_bias": True,
    "num_groups": 4,
    "topk_groups": 2,
    "group_score": "top2_sum",
    "renormalize": True,
    "renormalize_epsilon": 1e-20,
    "scale": 2.5,
    "nonfinite": "neg_inf",
}

# model_type: a configuration and the expected spec.
FAMILIES = {
    "mixtral": (LOCAL, {**SIZES, **SILU, "routing": {"renormalize": True}}),
    "qwen2_moe": (
        {**QWEN, **SHARED_WIDTH, "intermediate_size": 99},
        {**SIZES, **SILU, "shared_experts": {"intermediate_size": 48, "gate": "sigmoid"}},
    ),
    "qwen3_moe": (
        {**QWEN, "norm_topk_prob": True},
        {**SIZES, **SILU, "routing": {"renormalize": True}},
    ),
    "qwen3_next": (
        {**QWEN, **SHARED_WIDTH},
        {
            **SIZES,
            **SILU,
            "shared_experts": {"intermediate_size": 48, "gate": "sigmoid"},
            "routing": {"renormalize": True},
        },
    ),
    "olmoe": (
        {"intermediate_size": 32, "num_experts": 16, "num_experts_per_tok": 4},
        {**SIZES, **SILU},
    ),
    "deepseek_v2": (
        {**DEEPSEEK, "topk_method": "group_limited_greedy", "scoring_func": "softmax"},
        {
            **SIZES,
            **SILU,
            "shared_experts": {"intermediate_size": 64},
            "routing": {"num_groups": 4, "topk_groups": 2, "group_score": "max", "scale": 2.5},
        },
    ),
    "deepseek_v3": (
        {**DEEPSEEK, "topk_method": "noaux_tc", "scoring_func": "sigmoid"},
        {**SIZES, **SILU, "shared_experts": {"intermediate_size": 64}, "routing": NOAUX},
    ),
    "kimi_k2": (
        {**DEEPSEEK, "n_group": 1, "topk_group": 1},
        {
            **SIZES,
            **SILU,
            "shared_experts": {"intermediate_size": 64},
            "routing": {**NOAUX, "num_groups": 1, "topk_groups": 1, "nonfinite": "zero"},
        },
    ),
    "glm4_moe": (
        {**DEEPSEEK, "norm_topk_prob": False, "n_shared_experts": None},
        {
            **SIZES,
            **SILU,
            "routing": {**NOAUX, "renormalize": False, "renormalize_epsilon": 0},
        },
    ),
    "minimax_m2": (
        {**LOCAL, "use_routing_bias": True, "scoring_func": "sigmoid"},
        {
            **SIZES,
            **SILU,
            "routing": {
                "score": "sigmoid",
                "selection_bias": True,
                "renormalize": True,
                "renormalize_epsilon": 1e-20,
            },
        },
    ),
    "nemotron_h": (
        {
            **DEEPSEEK,
            "moe_shared_expert_intermediate_size": 40,
            "mlp_hidden_act": "relu2",
            "moe_latent_size": 24,
        },
        {
            **SIZES,
            "activation": {"kind": "relu2_no_mul"},
            "latent_size": 24,
            "shared_experts": {"intermediate_size": 80},
            "routing": NOAUX,
        },
    ),
    "gpt_oss": (
        {**LOCAL, "swiglu_limit": 6.0},
        {
            **SIZES,
            "activation": {"kind": "swigluoai", "alpha": 1.702, "limit": 6.0},
            "gate_up_order": "interleaved",
            "expert_bias": True,
            "routing": {"score": "identity", "weight": "softmax", "gate_bias": True},
        },
    ),
    "llama4_text": (
        {**LOCAL, "num_experts_per_tok": 1, "intermediate_size_mlp": 99},
        {
            **SIZES,
            **SILU,
            "top_k": 1,
            "shared_experts": {"intermediate_size": 32},
            "routing": {"score": "identity", "weight": "sigmoid", "weight_on_input": True},
        },
    ),
    "ernie4_5_moe": (
        {
            "moe_num_experts": 16,
            "moe_k": 4,
            "moe_intermediate_size": 32,
            "moe_num_shared_experts": 2,
        },
        {
            **SIZES,
            **SILU,
            "shared_experts": {"intermediate_size": 64},
            "routing": {
                "selection_bias": True,
                "renormalize": True,
                "renormalize_epsilon": 1e-12,
            },
        },
    ),
}


def config(model_type, **changes):
    value = {"model_type": model_type, **COMMON, **FAMILIES[model_type][0]} | changes
    if model_type == "nemotron_h":
        del value["hidden_act"]
    return value


@pytest.mark.parametrize("model_type", FAMILIES)
def test_family(model_type):
    spec = LayerSpec.from_json(config(model_type))
    expected = {"moec_spec": 1, "name": model_type, "dtype": "bf16"}
    assert spec == LayerSpec.from_json(expected | FAMILIES[model_type][1])


def test_llama4_with_text_config():
    text = config("llama4_text")
    spec = LayerSpec.from_json({"model_type": "llama4", "text_config": text})
    assert spec.routing.weight_on_input and spec.hidden_size == 64
    assert spec.name == "llama4"


def test_deepseek_v2_greedy_has_no_groups():
    spec = LayerSpec.from_json(config("deepseek_v2", topk_method="greedy"))
    assert spec.routing.num_groups == 1 and spec.routing.nonfinite == "zero"


@pytest.mark.parametrize(
    "name,dtype", [("float16", "f16"), ("float32", "f32"), ("bfloat16", "bf16"), (None, "bf16")]
)
def test_dtype(name, dtype):
    assert LayerSpec.from_json(config("mixtral", torch_dtype=name)).dtype == dtype
    value = config("mixtral", torch_dtype=None, dtype=name)
    assert LayerSpec.from_json(value).dtype == dtype


@pytest.mark.parametrize("act,kind", [("gelu", "gelu"), ("gelu_pytorch_tanh", "gelu_tanh")])
def test_hidden_act(act, kind):
    assert LayerSpec.from_json(config("mixtral", hidden_act=act)).activation.kind == kind


FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}


def test_quantization():
    value = config("mixtral", quantization_config=FP8)
    assert LayerSpec.from_json(value).quantization.w13 == SHORT_NAMES["fp8_block128"]
    value = config("gpt_oss", quantization_config={"quant_method": "mxfp4"})
    assert LayerSpec.from_json(value).quantization.w13 == SHORT_NAMES["mxfp4"]


E4M3 = Operand("fp8_e4m3", "tensor")


@pytest.mark.parametrize("scheme,static", [("dynamic", False), ("static", True)])
def test_fp8_of_tensors(scheme, static):
    fp8 = {"quant_method": "fp8", "activation_scheme": scheme}
    value = config("mixtral", quantization_config=fp8)
    activation = dataclasses.replace(E4M3, static=static)
    assert LayerSpec.from_json(value).quantization.w2 == Quantization(E4M3, activation)


def compressed(weights, inputs):
    scheme = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {"targets": ["Linear"], "weights": scheme | weights,
             "input_activations": inputs and scheme | inputs}
    return {"quant_method": "compressed-tensors", "format": "float-quantized",
            "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


@pytest.mark.parametrize("weights,inputs,weight,activation", [
    ("channel", {"strategy": "token", "dynamic": True}, Operand("fp8_e4m3", "channel", 1),
     Operand("fp8_e4m3", "token", 1)),
    ("tensor", {"strategy": "tensor", "dynamic": False}, E4M3,
     dataclasses.replace(E4M3, static=True)),
    ("tensor", {"strategy": "tensor", "dynamic": True}, E4M3, E4M3),
    ("channel", None, Operand("fp8_e4m3", "channel", 1), None),
])
def test_compressed_tensors(weights, inputs, weight, activation):
    value = config("mixtral", quantization_config=compressed({"strategy": weights}, inputs))
    assert LayerSpec.from_json(value).quantization.w2 == Quantization(weight, activation)


BLOCK = SHORT_NAMES["fp8_block128"]


@pytest.mark.parametrize("ignore,routed,shared", [
    (["lm_head", "re:.*self_attn.*"], Products(BLOCK, BLOCK), Products(BLOCK, BLOCK)),
    (["lm_head", "re:.*shared_experts.*"], Products(BLOCK, BLOCK), Products()),
    ([f"model.layers.1.mlp.shared_experts.{name}_proj" for name in ("gate", "up", "down")],
     Products(BLOCK, BLOCK), Products()),
    (["mlp.shared_experts.down_proj"], Products(BLOCK, BLOCK), Products(BLOCK)),
    (["*.mlp.experts.*"], Products(), Products(BLOCK, BLOCK)),
    (["down_proj"], Products(BLOCK), Products(BLOCK)),
    (["model.layers.0"], Products(BLOCK, BLOCK), Products(BLOCK, BLOCK)),
])
def test_modules_that_are_not_quantized(ignore, routed, shared):
    value = config("deepseek_v3", first_k_dense_replace=1,
                   quantization_config=FP8 | {"ignore": ignore})
    spec = LayerSpec.from_json(value)
    assert (spec.quantization, spec.shared_experts.quantization) == (routed, shared)


@pytest.mark.parametrize(
    "model_type,changes,named",
    [
        ("mixtral", {"num_local_experts": None}, "num_local_experts"),
        ("mixtral", {"hidden_size": -4}, "hidden_size"),
        ("mixtral", {"num_experts_per_tok": 17}, "top_k"),
        ("mixtral", {"hidden_act": "tanh"}, "hidden_act"),
        ("mixtral", {"torch_dtype": "int8"}, "torch_dtype"),
        ("mixtral", {"mlp_bias": True}, "mlp_bias"),
        ("mixtral", {"quantization_config": {"quant_method": "awq"}},
         "quantization_config.quant_method"),
        ("mixtral", {"quantization_config": FP8 | {"fmt": "e5m2"}},
         "quantization_config.fmt"),
        ("mixtral", {"quantization_config": FP8 | {"activation_scheme": "static"}},
         "quantization_config.weight_block_size"),
        ("mixtral", {"quantization_config": FP8 | {"activation_scheme": "none"}},
         "quantization_config.activation_scheme"),
        ("mixtral", {"quantization_config": compressed({"num_bits": 4}, None)},
         "quantization_config.config_groups.group_0.weights"),
        ("mixtral", {"quantization_config": FP8 | {"weight_block_size": [64, 64]}},
         "quantization_config.weight_block_size"),
        ("deepseek_v2", {"topk_method": "best"}, "topk_method"),
        ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func"),
        ("deepseek_v3", {"scoring_func": "softmax"}, "scoring_func"),
        ("deepseek_v3", {"n_group": 3}, "routing.num_groups"),
        ("deepseek_v3", {"topk_group": 9}, "routing.topk_groups"),
        ("nemotron_h", {"mlp_hidden_act": "silu"}, "mlp_hidden_act"),
        ("qwen2_moe", {"shared_expert_intermediate_size": None},
         "shared_expert_intermediate_size"),
    ],
)
def test_bad_configurations(model_type, changes, named):
    with pytest.raises(SpecError, match=f"'{named}'"):
        LayerSpec.from_json(config(model_type, **changes))


# -- the published configurations: H, E, k, I, S, groups, score, scale

MODELS = {
    "deepseek-v2-lite": (2048, 64, 6, 1408, 2816, (1, 1), "softmax", 1.0),
    "deepseek-v2": (5120, 160, 6, 1536, 3072, (8, 3), "softmax", 16.0),
    "deepseek-v3": (7168, 256, 8, 2048, 2048, (8, 4), "sigmoid", 2.5),
    "ernie-4.5-21b-a3b": (2560, 64, 6, 1536, 3072, (1, 1), "softmax", 1.0),
    "glm-4.5-air": (4096, 128, 8, 1408, 1408, (1, 1), "sigmoid", 1.0),
    "gpt-oss-120b": (2880, 128, 4, 2880, None, (1, 1), "identity", 1.0),
    "gpt-oss-20b": (2880, 32, 4, 2880, None, (1, 1), "identity", 1.0),
    "kimi-k2": (7168, 384, 8, 2048, 2048, (1, 1), "sigmoid", 2.827),
    "llama-4-maverick": (5120, 128, 1, 8192, 8192, (1, 1), "identity", 1.0),
    "llama-4-scout": (5120, 16, 1, 8192, 8192, (1, 1), "identity", 1.0),
    "minimax-m2": (3072, 256, 8, 1536, None, (1, 1), "sigmoid", 1.0),
    "mixtral-8x22b": (6144, 8, 2, 16384, None, (1, 1), "softmax", 1.0),
    "mixtral-8x7b": (4096, 8, 2, 14336, None, (1, 1), "softmax", 1.0),
    "nemotron-3-nano-30b-a3b": (2688, 128, 6, 1856, 3712, (1, 1), "sigmoid", 2.5),
    "olmoe-1b-7b": (2048, 64, 8, 1024, None, (1, 1), "softmax", 1.0),
    "qwen2-57b-a14b": (3584, 64, 8, 2560, 20480, (1, 1), "softmax", 1.0),
    "qwen3-235b-a22b": (4096, 128, 8, 1536, None, (1, 1), "softmax", 1.0),
    "qwen3-235b-a22b-fp8": (4096, 128, 8, 1536, None, (1, 1), "softmax", 1.0),
    "qwen3-30b-a3b": (2048, 128, 8, 768, None, (1, 1), "softmax", 1.0),
    "qwen3-30b-a3b-fp8": (2048, 128, 8, 768, None, (1, 1), "softmax", 1.0),
    "qwen3-next-80b-a3b": (2048, 512, 10, 512, 512, (1, 1), "softmax", 1.0),
}
UNNORMALIZED = {"deepseek-v2-lite", "deepseek-v2", "olmoe-1b-7b", "qwen2-57b-a14b",
                "gpt-oss-20b", "gpt-oss-120b", "llama-4-scout", "llama-4-maverick"}
FOLDER = Path(__file__).parents[2] / "test" / "models"


@pytest.mark.parametrize("name", MODELS)
def test_model_file(name):
    path = FOLDER / f"{name}.json"
    spec, routing = LayerSpec.from_file(path), LayerSpec.from_file(path).routing
    shared = spec.shared_experts
    assert MODELS[name] == (
        spec.hidden_size,
        spec.num_experts,
        spec.top_k,
        spec.intermediate_size,
        shared.intermediate_size if shared else None,
        (routing.num_groups, routing.topk_groups),
        routing.score,
        routing.scale,
    )
    assert routing.renormalize == (name not in UNNORMALIZED)
    quantized = "quantization_config" in json.loads(path.read_text())
    assert bool(spec.quantizations) == quantized
    assert spec.dtype == "bf16"


def test_every_model_file_is_known():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MODELS)


def test_unknown_model_type():
    with pytest.raises(SpecError, match="'model_type' is 'mixtrel'.*mixtral"):
        LayerSpec.from_json({"model_type": "mixtrel"})
