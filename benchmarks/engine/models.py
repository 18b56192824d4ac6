# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders with the config.json of published models, from which vLLM makes them with random weights. Experts and routing
are those of test/models; attention and vocabulary are added here, and formats that a model is not published in."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Optional

Config = dict[str, Any]
_LAYERS = Path(__file__).resolve().parents[2] / "test" / "models"


def heads(query: int, key: int, size: int = 128) -> Config:
    return {"num_attention_heads": query, "num_key_value_heads": key, "head_dim": size}


_LATENT = {
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
    "vocab_size": 129280, "rope_theta": 10000.0,
}
_QWEN3 = heads(32, 4) | {
    "vocab_size": 151936, "intermediate_size": 6144, "rope_theta": 1e6, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "attention_bias": False,
}
_GPT_OSS = heads(64, 8, 64) | {
    "vocab_size": 201088, "sliding_window": 128, "rope_theta": 150000, "rms_norm_eps": 1e-5, "attention_bias": True,
    "experts_per_token": 4, "initial_context_length": 4096,
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                     "original_max_position_embeddings": 4096},
}
_GLM = heads(96, 8) | {
    "vocab_size": 151552, "intermediate_size": 10944, "rope_theta": 1e6, "rms_norm_eps": 1e-5, "attention_bias": True,
    "use_qk_norm": False, "partial_rotary_factor": 0.5,
}
_ERNIE = heads(20, 4) | {
    "vocab_size": 103424, "intermediate_size": 12288, "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "use_bias": False,
    "tie_word_embeddings": True,
}

#: Layers that keep 16 bits, by the patterns of each format.
_AT_16_BITS = ["lm_head", "re:.*self_attn.*", "re:.*mlp.gate$", "re:.*shared_expert.*",
               "re:.*mlp.(gate|up|gate_up|down)_proj.*"]
_FP8 = {"num_bits": 8, "type": "float"}


def compressed(format: str, weights: Config, inputs: Optional[Config] = None) -> Config:
    """quantization_config of compressed-tensors."""

    def fill(given: Optional[Config]) -> Optional[Config]:
        return given and {"type": "int", "symmetric": True, "dynamic": False, "observer": "minmax"} | given

    group = {"targets": ["Linear"], "weights": fill(weights), "input_activations": fill(inputs),
             "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": format, "quantization_status": "compressed",
            "kv_cache_scheme": None, "ignore": _AT_16_BITS, "config_groups": {"group_0": group}}


def int4(group: int) -> Config:
    return compressed("pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": group})


def modelopt(algorithm: str, **more: Any) -> Config:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "kv_cache_quant_algo": None,
            "exclude_modules": ["lm_head", "*self_attn*", "*mlp.gate"], **more}


_TOKEN = {"num_bits": 8, "strategy": "token", "dynamic": True}
_FP4 = {"num_bits": 4, "type": "float"}
_MXFP8 = _FP8 | {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
_NVFP4 = _FP4 | {"strategy": "tensor_group", "group_size": 16}


@dataclasses.dataclass(frozen=True)
class Model:
    #: A file of test/models.
    published: str
    #: The name in tables.
    format: str
    added: Config
    #: quantization_config if it is not the published one.
    quantization: Optional[Config] = None

    @property
    def layers(self) -> int:
        return self.read()["num_hidden_layers"]

    def read(self) -> Config:
        return json.loads((_LAYERS / f"{self.published}.json").read_text())


def qwen3(format: str, quantization: Config) -> Model:
    return Model("qwen3-30b-a3b", format, _QWEN3, quantization)


MODELS: dict[str, Model] = {
    "q3": Model("qwen3-30b-a3b", "bf16", _QWEN3),
    "q3fp8": Model("qwen3-30b-a3b-fp8", "block fp8", _QWEN3),
    "q3int4": qwen3("int4 g128", int4(128)),
    "oss20": Model("gpt-oss-20b", "mxfp4", _GPT_OSS),
    "oss120": Model("gpt-oss-120b", "mxfp4", _GPT_OSS),
    "q3gptq": qwen3("GPTQ int4 g128", {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "lm_head": False,
        "checkpoint_format": "gptq", "dynamic": {"-:.*self_attn.*": {}, "-:.*mlp.gate$": {}}}),
    "q3awq": qwen3("AWQ int4 g128", {
        "quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": ["self_attn", "mlp.gate"]}),
    "q3ctint8": qwen3("compressed-tensors int8", compressed(
        "int-quantized", {"num_bits": 8, "strategy": "channel"}, _TOKEN)),
    "q3ctfp8": qwen3("compressed-tensors fp8", compressed(
        "float-quantized", _FP8 | {"strategy": "channel"}, _TOKEN | _FP8)),
    "q3ctnvfp4": qwen3("compressed-tensors nvfp4", compressed(
        "nvfp4-pack-quantized", _NVFP4 | {"scale_dtype": "torch.float8_e4m3fn"}, _NVFP4 | {"dynamic": "local"})),
    "q3ctmxfp4": qwen3("compressed-tensors mxfp4", compressed(
        "mxfp4-pack-quantized", _FP4 | {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"})),
    "q3ctmxfp8": qwen3("compressed-tensors mxfp8", compressed("mxfp8-quantized", _MXFP8, _MXFP8 | {"dynamic": True})),
    "q3ctw4a8": qwen3("compressed-tensors int4, fp8 activations", compressed(
        "pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 128}, _TOKEN | _FP8)),
    "q3ctmx4a8": qwen3("compressed-tensors mxfp4, fp8 activations", compressed(
        "mxfp4-pack-quantized", _FP4 | {"strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
        _TOKEN | _FP8)),
    "q3mofp8": qwen3("ModelOpt fp8", modelopt("FP8")),
    "q3monvfp4": qwen3("ModelOpt nvfp4", modelopt("NVFP4", group_size=16)),
    # Attention at 16 bits, for which vLLM 0.33 needs no other package.
    "q3e8m0": qwen3("block fp8, e8m0 scales", {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "scale_fmt": "ue8m0",
        "modules_to_not_convert": [
            f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(48) for name in "qkvo"]}),
    "q3int8": qwen3("experts_int8", {"quant_method": "experts_int8"}),
    "glm": Model("glm-4.5-air", "bf16", _GLM),
    "ernie": Model("ernie-4.5-21b-a3b", "bf16", _ERNIE),
    "dsv3": Model("deepseek-v3", "block fp8", _LATENT | {"first_k_dense_replace": 1}),
    # One rank of eight has 48 of the experts.
    "kimi": Model("kimi-k2", "int4 g32", _LATENT | {
        "model_type": "deepseek_v3", "n_routed_experts": 48, "num_attention_heads": 64, "num_key_value_heads": 64,
        "vocab_size": 163840, "rope_theta": 50000.0}, int4(32)),
}
_COMMON = {
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "bos_token_id": 1,
    "eos_token_id": 2, "dtype": "bfloat16",
}


def make_config(name: str, layers: int = 0) -> Config:
    """config.json with this number of layers, or with the model's own number for 0."""
    model = MODELS[name]
    config = _COMMON | model.read() | model.added
    config.pop("torch_dtype", None)
    if model.quantization is not None:
        config["quantization_config"] = model.quantization
    config["num_hidden_layers"] = layers or config["num_hidden_layers"]
    if config["model_type"] == "gpt_oss":
        kinds = ("sliding_attention", "full_attention")
        config["layer_types"] = [kinds[layer % 2] for layer in range(config["num_hidden_layers"])]
    return config


def write_model(folder: Path, name: str, layers: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(make_config(name, layers)))
    return folder
