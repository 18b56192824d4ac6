# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where a message offers --ignore-field, what it offers works as it is typed, in a shell, to the end."""

import json
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from runs import TIMEOUT, binary

MODEL = {
    "model_type": "qwen3_moe", "hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 4,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "hidden_act": "silu", "norm_topk_prob": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False,
        "actorder": None}  # fmt: skip
ROWS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
TOKENS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}


def compressed(file_format, weights, inputs):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": file_format, "ignore": ["lm_head"],
            "config_groups": {"group_0": group}, "sparsity_config": {}}  # fmt: skip


def torchao(name, fields):
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_version": 2, "_data": fields}},
            "modules_to_not_convert": ["gate"], "quant_type_kwargs": {}}  # fmt: skip


#: A configuration of each tool.
CONFIGS = {
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic", "fmt": "e4m3",
            "scale_fmt": "float", "modules_to_not_convert": ["lm_head"]},
    "fp8 of GPTQModel": {
        "quant_method": "fp8", "bits": 8, "group_size": -1, "format": "float8_e4m3fn", "weight_scale_method": "row",
        "weight_scale_semantics": "inverse", "dynamic": {"+:.*(up|down).*": {"weight_scale_method": "tensor"}}},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "format": "gptq",
             "pack_dtype": "int32", "dynamic": {"-:.*gate.*": {}, "+:.*experts.*": {"group_size": 64, "bits": 4}},
             "activation": {"mode": "w4afp8"}},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int",
                   "packing_format": "auto_round:auto_gptq", "act_bits": 16,
                   "extra_config": {"model.layers.0.mlp.experts.1": {"bits": 8}}},
    "mxfp4 of auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 32, "data_type": "mx_fp",
                            "packing_format": "auto_round:mx_fp", "act_bits": 16},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                     "bnb_4bit_quant_storage": "uint8", "llm_int8_skip_modules": ["lm_head"]},
    "int4 of compressed-tensors": compressed("pack-quantized", INT4, None),
    "fp8 of compressed-tensors": compressed("float-quantized", ROWS, TOKENS),
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]},
    "modules of modelopt": {
        "quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16}}},
    "quark": {"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {"input_tensors": None, "weight": {
        "dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": False, "symmetric": None}}},
    "torchao": torchao("Float8WeightOnlyConfig", {
        "weight_dtype": {"_type": "torch.dtype", "_data": "float8_e4m3fn"},
        "granularity": {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}}),
    "modules of torchao": torchao("FqnToConfig", {"fqn_to_config": {r"re:.*experts\..*(up|gate|down)_proj": {
        "_type": "MXDynamicActivationMXWeightConfig", "_version": 1, "_data": {"block_size": 32}}}}),
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}  # fmt: skip


def list_paths(values, path=()):
    for key, value in values.items():
        yield *path, key
        if isinstance(value, dict):
            yield from list_paths(value, (*path, key))


def put(values, path, value):
    changed = json.loads(json.dumps(values))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def follow(quantization, folder):
    """Follows what the messages offer; returns whether they offered something, and the last message."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL | {"quantization_config": quantization}))
    options, offer = [], "--ignore-field="
    while True:
        command = [binary("moe-compile"), folder / "config.json", "--emit=moe", "-o", folder / "layer.mlir", *options]
        done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
        lines = [line[line.index(offer):] for line in done.stderr.splitlines() if " with " + offer in line]
        added = [option for option in shlex.split(" ".join(lines)) if option not in options]
        if done.returncode == 0 or not added:
            return bool(options), "" if done.returncode == 0 else done.stderr
        options += added


@pytest.mark.parametrize("tool", CONFIGS)
def test_offers(tool, tmp_path):
    config = CONFIGS[tool]
    paths = [path for path in list_paths(config) if path != ("quant_method",)]
    changed = [put(config, path, value) for path in paths for value in ("odd", True, {"x": 1})]
    changed += [put(config, ("a new key's",), 1), put(config, ("scale_of_all",), "odd"), config]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(follow, changed, [tmp_path / str(i) for i in range(len(changed))]))
    for (has_offers, message), made in zip(results, changed, strict=True):
        assert not (has_offers and message), f"{json.dumps(made)}\n{message}"
    assert results[-1] == (False, "") and results[-2] == (True, "") and results[-3] == (True, "")
