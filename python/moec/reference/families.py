# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates a Hugging Face config.json to a spec, by its model_type.

Each family gives the fields of a JSON spec (docs/use/layers.md, "Model families")."""

from __future__ import annotations

import re
from typing import Any, Callable

from .fields import Fields, SpecError

_DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_ACTS = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}


def spec_of_config(config: Any) -> dict:
    """Returns the JSON spec for a config.json."""
    fields = Fields(config, nulls=True)
    model_type = fields.raw("model_type")
    if model_type not in FAMILIES:
        raise SpecError(
            f"field 'model_type' is {model_type!r}: expected one of "
            + ", ".join(sorted(FAMILIES))
        )
    outer = fields
    if model_type == "llama4" and fields.has("text_config"):
        fields = fields.object("text_config")
    if fields.boolean("mlp_bias"):
        raise SpecError("field 'mlp_bias': biases in experts are not supported here")
    spec = {
        "moec_spec": 1,
        "name": model_type,
        "dtype": _dtype(fields, outer),
        "hidden_size": fields.integer("hidden_size", required=True),
    }
    spec |= FAMILIES[model_type](fields)
    if quantization := _quantization(outer):
        excluded = _Excluded(outer.object("quantization_config"), fields)
        spec["quantization"] = excluded.without("experts.0", quantization)
        if "shared_experts" in spec:
            # Families name the shared experts in one of these two ways.
            spec["shared_experts"]["quantization"] = excluded.without(
                "shared_experts", excluded.without("shared_expert", quantization)
            )
    return spec


class _Excluded:
    """Lists of modules excluded from a quantization."""

    _LISTS = (
        "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules",
        "llm_int8_skip_modules",
    )
    #: Names of the block of experts, and of the matrices of an expert, in models.
    _BLOCKS = ("mlp", "block_sparse_moe", "feed_forward", "mixer")
    _MATRICES = {
        "w13": (("gate_proj", "up_proj"), ("w1", "w3")), "w2": (("down_proj",), ("w2",)),
    }

    def __init__(self, config: Fields, model: Fields):
        self._entries = [
            entry for field in self._LISTS for entry in config.raw(field) or []
        ]
        # The first layer with experts.
        self._layer = model.raw("first_k_dense_replace") or 0

    def without(self, expert: str, quantization: dict | None) -> dict | None:
        """Returns `quantization` for an expert's gemms; None if they are excluded."""
        kept = {
            product: None
            for product, names in self._MATRICES.items()
            if any(all(self._names(f"{expert}.{name}") for name in each) for each in names)
        }
        if quantization is None or len(kept) == len(self._MATRICES):
            return None
        return quantization | kept

    def _names(self, module: str) -> bool:
        names = [f"model.layers.{self._layer}.{block}.{module}" for block in self._BLOCKS]
        return any(_matches(entry, name) for entry in self._entries for name in names)


def _matches(entry: str, module: str) -> bool:
    """Whether a list entry is the name of a module, of its parent, or a part of the name."""
    if entry.startswith("re:"):
        return re.match(entry[3:], module) is not None
    parts = ".*".join(map(re.escape, entry.split("*")))
    return re.search(rf"(^|\.){parts}($|\.)", module) is not None


def _dtype(fields: Fields, outer: Fields) -> str:
    for source in (fields, outer):
        for field in ("torch_dtype", "dtype"):
            if value := source.choice(field, _DTYPES):
                return _DTYPES[value]
    return "bf16"


def _quantization(fields: Fields) -> dict | None:
    config = fields.object("quantization_config")
    if config is None:
        return None
    methods = ("fp8", "mxfp4", "compressed-tensors")
    method = config.choice("quant_method", methods, required=True)
    if method == "mxfp4":
        return {"weight": "mxfp4"}
    if method == "compressed-tensors":
        return _compressed(config)
    config.choice("fmt", ("e4m3", "float8_e4m3fn"))
    schemes = ("dynamic", "static")
    static = config.choice("activation_scheme", schemes, required=True) == "static"
    size = config.raw("weight_block_size")
    if size is None:
        return {"weight": _fp8("tensor"), "activation": _fp8("tensor", static)}
    if size != [128, 128] or static:
        raise SpecError(
            "field 'quantization_config.weight_block_size': expected [128, 128], dynamic"
        )
    return {"weight": "fp8_block128"}


def _fp8(scale: str, static: bool = False) -> dict:
    return {"dtype": "fp8_e4m3", "scale": scale} | ({"static": True} if static else {})


def _compressed(config: Fields) -> dict:
    """Reads one config group of float-quantized e4m3."""
    groups = config.object("config_groups")
    if groups is None or len(groups.given()) != 1:
        raise SpecError("field 'quantization_config.config_groups': expected one group")
    group = groups.object(next(iter(groups.given())))

    def operand(name: str, strategies) -> tuple[str, Fields]:
        fields = group.object(name)
        if fields.integer("num_bits") != 8 or fields.raw("type") != "float":
            raise SpecError(f"field '{group.name(name)}': expected floats of 8 bits")
        return fields.choice("strategy", strategies, required=True), fields

    spec = {"weight": _fp8(operand("weights", ("tensor", "channel"))[0])}
    if group.has("input_activations"):
        scale, fields = operand("input_activations", ("tensor", "token"))
        spec["activation"] = _fp8(scale, not fields.boolean("dynamic"))
    return spec


def _sizes(fields: Fields, experts: str, intermediate: str) -> dict:
    return {
        "num_experts": fields.integer(experts, required=True),
        "top_k": fields.integer("num_experts_per_tok", required=True),
        "intermediate_size": fields.integer(intermediate, required=True),
    }


def _act(fields: Fields) -> dict:
    name = fields.choice("hidden_act", _ACTS, "silu")
    return {"activation": {"kind": _ACTS[name]}}


def _shared(fields: Fields, count: str, width: str) -> dict:
    number = fields.integer(count, 0, minimum=0)
    if number == 0:
        return {}
    size = number * fields.integer(width, required=True)
    return {"shared_experts": {"intermediate_size": size}}


def _groups(fields: Fields) -> dict:
    groups = fields.integer("n_group", 1)
    kept = fields.integer("topk_group", 1)
    if groups == 1 and kept == 1:
        return {}
    return {"num_groups": groups, "topk_groups": kept}


def _mixtral(fields: Fields) -> dict:
    return {
        **_sizes(fields, "num_local_experts", "intermediate_size"),
        **_act(fields),
        "routing": {"score": "softmax", "renormalize": True},
    }


def _qwen(shared: bool, renormalize: bool, intermediate="moe_intermediate_size"):
    def read(fields: Fields) -> dict:
        spec = {
            **_sizes(fields, "num_experts", intermediate),
            **_act(fields),
            "routing": {
                "score": "softmax",
                "renormalize": fields.boolean("norm_topk_prob", renormalize),
            },
        }
        if shared:
            width = fields.integer("shared_expert_intermediate_size", required=True)
            spec["shared_experts"] = {"intermediate_size": width, "gate": "sigmoid"}
        return spec

    return read


def _deepseek_v2(fields: Fields) -> dict:
    fields.choice("scoring_func", ("softmax",))
    routing = {
        "score": "softmax",
        "renormalize": fields.boolean("norm_topk_prob", False),
        "scale": fields.number("routed_scaling_factor", 1.0),
    }
    methods = ("greedy", "group_limited_greedy")
    if fields.choice("topk_method", methods, "greedy") != "greedy":
        routing |= {**_groups(fields), "group_score": "max"}
    return {
        **_sizes(fields, "n_routed_experts", "moe_intermediate_size"),
        **_act(fields),
        **_shared(fields, "n_shared_experts", "moe_intermediate_size"),
        "routing": routing,
    }


def _noaux_routing(fields: Fields) -> dict:
    fields.choice("scoring_func", ("sigmoid",))
    fields.choice("topk_method", ("noaux_tc",))
    renormalize = fields.boolean("norm_topk_prob", True)
    return {
        "score": "sigmoid",
        "selection_bias": True,
        **_groups(fields),
        "group_score": "top2_sum",
        "renormalize": renormalize,
        "renormalize_epsilon": 1e-20 if renormalize else 0.0,
        "scale": fields.number("routed_scaling_factor", 1.0),
    }


def _deepseek_v3(fields: Fields) -> dict:
    return {
        **_sizes(fields, "n_routed_experts", "moe_intermediate_size"),
        **_act(fields),
        **_shared(fields, "n_shared_experts", "moe_intermediate_size"),
        "routing": _noaux_routing(fields),
    }


def _nemotron(fields: Fields) -> dict:
    fields.choice("mlp_hidden_act", ("relu2",), required=True)
    spec = {
        **_sizes(fields, "n_routed_experts", "moe_intermediate_size"),
        **_shared(fields, "n_shared_experts", "moe_shared_expert_intermediate_size"),
        "activation": {"kind": "relu2_no_mul"},
        "routing": _noaux_routing(fields),
    }
    if latent := fields.integer("moe_latent_size"):
        spec["latent_size"] = latent
    return spec


def _minimax_m2(fields: Fields) -> dict:
    fields.choice("scoring_func", ("sigmoid",))
    return {
        **_sizes(fields, "num_local_experts", "intermediate_size"),
        **_act(fields),
        "routing": {
            "score": "sigmoid",
            "selection_bias": fields.boolean("use_routing_bias"),
            "renormalize": True,
            "renormalize_epsilon": 1e-20,
        },
    }


def _gpt_oss(fields: Fields) -> dict:
    fields.choice("hidden_act", ("silu",))
    return {
        **_sizes(fields, "num_local_experts", "intermediate_size"),
        "activation": {
            "kind": "swigluoai",
            "alpha": 1.702,
            "limit": fields.number("swiglu_limit", 7.0),
        },
        "gate_up_order": "interleaved",
        "expert_bias": True,
        "routing": {"score": "identity", "weight": "softmax", "gate_bias": True},
    }


def _llama4(fields: Fields) -> dict:
    width = fields.integer("intermediate_size", required=True)
    return {
        "num_experts": fields.integer("num_local_experts", required=True),
        "top_k": fields.integer("num_experts_per_tok", 1),
        "intermediate_size": width,
        **_act(fields),
        "shared_experts": {"intermediate_size": width},
        "routing": {
            "score": "identity",
            "weight": "sigmoid",
            "weight_on_input": True,
        },
    }


def _ernie(fields: Fields) -> dict:
    return {
        "num_experts": fields.integer("moe_num_experts", required=True),
        "top_k": fields.integer("moe_k", required=True),
        "intermediate_size": fields.integer("moe_intermediate_size", required=True),
        **_act(fields),
        **_shared(fields, "moe_num_shared_experts", "moe_intermediate_size"),
        "routing": {
            "score": "softmax",
            "selection_bias": True,
            "renormalize": True,
            "renormalize_epsilon": 1e-12,
        },
    }


FAMILIES: dict[str, Callable[[Fields], dict]] = {
    "mixtral": _mixtral,
    "qwen2_moe": _qwen(shared=True, renormalize=False),
    "qwen3_moe": _qwen(shared=False, renormalize=False),
    "qwen3_next": _qwen(shared=True, renormalize=True),
    "olmoe": _qwen(shared=False, renormalize=False, intermediate="intermediate_size"),
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "kimi_k2": _deepseek_v3,
    "glm4_moe": _deepseek_v3,
    "minimax_m2": _minimax_m2,
    "nemotron_h": _nemotron,
    "gpt_oss": _gpt_oss,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "ernie4_5_moe": _ernie,
}
