# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model families of Transformers that have experts, and how to make small ones.

Families come from Transformers itself (`discover`): this table only has the fields that a small configuration needs
beside the common sizes, and the families that cannot be covered, with the reason.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pathlib
import re

#: Sizes of a small model, for each key that a configuration class has.
SMALL = {
    "hidden_size": 64, "d_model": 64, "intermediate_size": 48, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 40, "ffn_hidden_size": 48,
    "expert_ffn_hidden_size": 32, "moe_shared_expert_intermediate_size": 40,
    "shared_intermediate_size": 40, "share_expert_dim": 40, "moe_hidden_size": 32,
    "shared_experts_intermediate_size": 40, "dense_intermediate_size": 48,
    "intermediate_size_mlp": 48, "prefix_dense_intermediate_size": 48,
    "num_hidden_layers": 4, "num_layers": 2, "n_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "n_heads": 4, "head_dim": 16, "vocab_size": 128,
    "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "moe_num_experts": 8,
    "num_experts_per_tok": 3, "num_experts_per_token": 3, "moe_k": 3, "moe_topk": 3,
    "moe_top_k": 3, "top_k_experts": 3, "q_lora_rank": 24, "kv_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16, "v_head_dim": 16,
    "index_n_heads": 2, "index_head_dim": 16, "index_topk": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 8, "mamba_num_heads": 4,
    "mamba_head_dim": 32, "ssm_state_size": 8, "n_groups": 2, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "linear_head_dim": 16, "linear_num_heads": 4, "zero_expert_num": 4,
    "hidden_size_per_layer_input": 0, "n_group": 2, "topk_group": 1, "num_expert_group": 2,
    "sliding_window": 8, "moe_layer_end_index": 3, "num_dense_layers": 1,
    "first_k_dense_replace": 1, "o_groups": 2, "o_lora_rank": 16,
}

#: Further fields that the configuration class of a module needs. None: keep the class's default.
EXTRA: dict[str, dict] = {
    "Llama4TextConfig": {"num_experts_per_tok": 1},
    "PhimoeConfig": {"num_experts_per_tok": 2},
    "DeepseekOcr2TextConfig": {
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "num_key_value_heads": 4,
    },
    "Dots1Config": {"n_shared_experts": 1},
    "Dots3NoteTextConfig": {"num_key_value_heads": 4},
    "Glm5NextTextConfig": {"num_key_value_heads": 4, "index_topk": 16, "qk_rope_head_dim": 0},
    "HYV4VLTextConfig": {"qk_rope_head_dim": 64, "qk_head_dim": 72},
    "InklingTextConfig": {"unpadded_vocab_size": 128},
    "Inkling2TextConfig": {"unpadded_vocab_size": 128},
    "Inkling2LoopTextConfig": {"unpadded_vocab_size": 128},
    "Ernie4_5_VLMoeTextConfig": {
        "moe_intermediate_size": [16, 8],
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]},
    },
    "JetMoeConfig": {"num_experts_per_tok": 2, "num_key_value_heads": 4},
    "Lfm2MoeConfig": {
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    },
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16,
        "indexer_budget": 4, "indexer_compress_ratio": 2,
    },
    "Qwen3OmniMoeTalkerTextConfig": {"shared_expert_intermediate_size": 40},
    "ZayaConfig": {"num_experts_per_tok": 1, "num_key_value_heads": 2, "num_attention_heads": 4, "router_hidden_size": 16},
    "AXK2Config": {"n_group": None, "topk_group": None},
    "Gemma4TextConfig": {"enable_moe_block": True},
    "NemotronHConfig": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
        "num_hidden_layers": None,
    },
}

#: MoE classes that no layer of moec describes, by module of Transformers. moec refuses these by name if they have a
#: config.json.
UNCOVERED = {
    "granite_docling": "dense: 'Moe' is in the name of a class alone",
    "vitpose_backbone": "the caller chooses the expert by the data set; experts share all but a few rows of one MLP",
}

#: Modules that test_apart.py compares.
APART = {"doge", "nllb_moe", "switch_transformers"}

#: Values to try instead of a small configuration's own if the class has the key; a dictionary changes several keys at
#: once.
ALTERATIONS = {
    "norm_topk_prob": (True, False),
    "moe_renormalize": (False,),
    "n_group": (1, {"n_group": 4, "topk_group": 2}),
    "num_expert_group": (1, {"num_expert_group": 4, "topk_group": 2}),
    "routed_scaling_factor": (1.7,),
    "route_scale": (1.7,),
    "router_scaling_factor": (1.7,),
    "moe_routed_scaling_factor": (1.7,),
    "moe_router_scaling_factor": (1.7,),
    "n_shared_experts": (2,),
    "num_shared_experts": (2,),
    "moe_num_shared_experts": (0, 1),
    "shared_expert_intermediate_size": (24,),
    "shared_intermediate_size": (24,),
    "num_experts_per_tok": (1, 2),
    "num_experts_per_token": (1,),
    "moe_k": (1,),
    "moe_topk": (1,),
    "moe_top_k": (1, 2),
    "top_k_experts": (1, 2),
    "num_experts": (4,),
    "moe_num_experts": (5,),
    "hidden_activation": ("silu", "gelu"),
    "ffn_act_fn": ({"name": "gelu"},),
    "hidden_act": ("gelu", "gelu_pytorch_tanh"),
    "mlp_hidden_act": ("silu",),
    "swiglu_limit": (0.3,),
    "swiglu_alpha": (1.1,),
    "mlp_gate_softcap": (0.5,),
    "expert_selection_fn": ("sigmoid",),
    "shared_expert_combination_strategy": ("sum",),
    "use_expert_bias": (False,),
    "moe_router_logit_softcapping": (0.5,),
    "moe_normalize_expert_weights": (None,),
    "topk_method": ("group_limited_greedy",),
    "scoring_func": ("sigmoid", "sqrtsoftplus"),
    "zero_expert_num": (0,),
    "moe_latent_size": (24,),
    "mlp_only_layers": ([1],),
    "decoder_sparse_step": (2,),
    "swiglu_limits": ([0.3, 0.3, 0.2, 0.4],),
    "swiglu_limits_shared": ([0.5, 0.5, 0.3, 0.0],),
    "first_k_dense_replace": (2,),
    "num_dense_layers": (2,),
    "moe_layer_interval": (2,),
    "expert_layer_period": (3,),
    "mlp_bias": (True,),
    "use_bias": (True,),
    "moe_norm_min": (0.5,),
    "router_jitter_noise": (0.2,),
    "interleave_moe_layer_step": (2,),
}

_MODELS = pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "models"
_EXPERTS = re.compile(r"^class \w*(?:MoE|SparseMoe|Moe|Router|TopK|Experts?)\w*\(", re.MULTILINE)


def discover() -> list[str]:
    """Modules of Transformers whose modelling code has a class with experts."""
    return sorted(
        path.parent.name
        for path in _MODELS.glob("*/modeling_*.py")
        if path.name == f"modeling_{path.parent.name}.py" and _EXPERTS.search(path.read_text())
    )


def config_classes(module: str) -> list[type]:
    """The configuration classes of a module that hold the fields of a language model."""
    from transformers import PreTrainedConfig

    code = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    skipped = ("ision", "udio", "CodePredictor", "Code2Wav", "OmniMoeTextConfig")
    return [
        value
        for name, value in vars(code).items()
        if inspect.isclass(value)
        and issubclass(value, PreTrainedConfig)
        and value.__module__ == code.__name__
        and getattr(value, "model_type", "")
        # No second, deprecated name of a class.
        and not any(getattr(base, "model_type", "") == value.model_type for base in value.__bases__)
        and not any(word in name for word in skipped)
        and (module == "dbrx" or set(getattr(value, "sub_configs", {})) <= {"per_layer_config"})
    ]


def small(config_class: type, changes: dict | None = None):
    """A small configuration with the changes."""
    known = config_class().to_dict()
    values = {key: value for key, value in SMALL.items() if key in known}
    layers = values.get("num_hidden_layers", 2)
    if isinstance(known.get("layer_types"), list):
        values["layer_types"] = known["layer_types"][:layers]
    if isinstance(kinds := known.get("mlp_layer_types"), list):
        # One of the first kind, then all others in turn.
        others = [kind for kind in dict.fromkeys(kinds) if kind != kinds[0]] or kinds[:1]
        values["mlp_layer_types"] = (kinds[:1] + others * layers)[:layers]
    for key, value in (EXTRA.get(config_class.__name__, {}) | (changes or {})).items():
        values[key] = value
        if key == "num_hidden_layers" and value is None:
            del values[key]
    return config_class(**values)


def alterations(config_class: type) -> list[dict]:
    known = config_class().to_dict()
    if "ffn_config" in known:
        known = known["ffn_config"]
    return [
        value if isinstance(value, dict) and not isinstance(known[key], dict) else {key: value}
        for key, values in ALTERATIONS.items()
        if key in known
        for value in values
    ]


def small_dbrx(config_class: type, changes: dict):
    """Its experts have a configuration of their own inside."""
    experts = {
        "hidden_size": 64, "ffn_hidden_size": 48, "moe_num_experts": 8, "moe_top_k": 3, **changes,
    }
    config = config_class(d_model=64, n_layers=2, n_heads=4)
    for key, value in experts.items():
        setattr(config.ffn_config, key, value)
    return config


_SUSPICIOUS = re.compile(
    "moe|expert|rout|gate|scor|shared|topk|top_k|quant|swiglu|act|bias|norm_|scal|limit|group|latent|softcap"
)


def is_suspicious(key: str) -> bool:
    """Whether a key could matter to a layer with experts, by its name."""
    return bool(_SUSPICIOUS.search(key))
