# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families with their own activations and routers, from a folder with a config.json, beside formulas in float64.

Weights are random; the formulas are those of the modules that the models or engines have."""

import math

import numpy as np
import pytest
from test_engine_families import EXPERTS, WIDTH, choose, draw_experts, sigmoid, softmax
from test_field_checkpoints import HIDDEN, TOP_K, draw, nvfp4
from test_module_schemes import TOKENS, expect_near, run

erf = np.vectorize(math.erf)


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def add_experts(x, ids, weights, expert):
    """The weighted sum of `expert(e, row)` over the experts of each row."""
    return np.stack([sum(w * expert(e, row) for e, w in zip(own, ws, strict=True))
                     for row, own, ws in zip(x, ids, weights, strict=True)])  # fmt: skip


@pytest.mark.parametrize("is_softmax", [True, False])
def test_router_ahead_of_attention(is_softmax, tmp_path):
    """SmallThinker: the layer starts from logits, and the activation is relu(gate) * up."""
    rng = np.random.default_rng(1)
    prefix = "model.layers.1.block_sparse_moe."
    tensors, w = draw_experts(rng, prefix + "experts", names=("gate", "up", "down"))
    tensors |= {prefix + "primary_router.weight": draw(rng, EXPERTS, HIDDEN)}
    config = {"model_type": "smallthinker", "hidden_size": HIDDEN, "moe_num_primary_experts": EXPERTS,
              "moe_num_active_primary_experts": TOP_K, "moe_ffn_hidden_size": WIDTH, "moe_layer_layout": [0, 1],
              "num_hidden_layers": 2, "moe_primary_router_apply_softmax": is_softmax, "torch_dtype": "float32",
              "moe_enable_early_router": True, "moe_enable_secondary_experts": False}  # fmt: skip
    logits = draw(rng, TOKENS, EXPERTS, scale=1)
    x, output, said = run(tmp_path, config, tensors, layer=1, inputs={"router_logits": logits})
    assert output is not None, said
    ids, weights = choose((softmax if is_softmax else sigmoid)(logits.astype(np.float64)), 0)
    gate, up, down = w.values()
    expect_near(output, add_experts(x, ids, weights, lambda e, row: down[e] @ (relu(gate[e] @ row) * (up[e] @ row))))


def test_up_values_plus_one(tmp_path):
    """Moondream 3: gelu(gate) * (up + 1), and a router with a bias."""
    rng = np.random.default_rng(2)
    first, second = draw(rng, EXPERTS, 2 * WIDTH, HIDDEN), draw(rng, EXPERTS, HIDDEN, WIDTH)
    router, bias = draw(rng, EXPERTS, HIDDEN), draw(rng, EXPERTS)
    prefix = "model.text.blocks.4.mlp."
    tensors = {prefix + "fc1.weight": first, prefix + "fc2.weight": second, prefix + "router.weight": router,
               prefix + "router.bias": bias}  # fmt: skip
    text = {"model_type": "moondream3_text", "dim": HIDDEN, "n_layers": 6, "torch_dtype": "float32",
            "moe": {"n_experts": EXPERTS, "start_layer": 4, "n_experts_per_tok": TOP_K, "expert_inner_dim": WIDTH}}  # fmt: skip
    config = {"model_type": "moondream3", "torch_dtype": "float32", "text_config": text}
    x, output, said = run(tmp_path, config, tensors, layer=4)
    assert output is not None, said

    def expert(e, row):
        gate, up = np.split(first[e].astype(np.float64) @ row, 2)
        return second[e].astype(np.float64) @ (gelu(gate) * (up + 1))

    expect_near(output, add_experts(x, *choose(softmax(x @ router.T + bias), 0), expert))


@pytest.mark.parametrize("width", [None, WIDTH])
def test_width_of_four_hidden_sizes(width, tmp_path):
    """Phixtral: experts without a gate and with biases, 4 hidden sizes wide unless `n_inner` says otherwise."""
    rng = np.random.default_rng(3)
    rows = width or 4 * HIDDEN
    tensors, experts = {}, []
    for e in range(EXPERTS):
        one = draw(rng, rows, HIDDEN), draw(rng, rows), draw(rng, HIDDEN, rows), draw(rng, HIDDEN)
        names = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
        tensors |= {f"transformer.h.0.moe.mlp.{e}.{name}": part for name, part in zip(names, one, strict=True)}
        experts.append([part.astype(np.float64) for part in one])
    router = draw(rng, EXPERTS, HIDDEN)
    tensors |= {"transformer.h.0.moe.gate.weight": router}
    config = {"model_type": "phi-msft", "n_embd": HIDDEN, "n_inner": width, "n_layer": 1, "torch_dtype": "float32",
              "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K, "activation_function": "gelu_new"}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors)
    assert output is not None, said

    def expert(e, row):
        up, up_bias, down, down_bias = experts[e]
        return down @ gelu_tanh(up @ row + up_bias) + down_bias

    expect_near(output, add_experts(x, *choose(softmax(x @ router.T), 0), expert))


def normalize(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


@pytest.mark.parametrize(("has_norm", "is_nvfp4"), [(True, False), (False, False), (True, True)])
def test_norm_in_the_latent_width(has_norm, is_nvfp4, tmp_path):
    """Kimi K3: a norm between the experts' sum and the projection out of the latent width; also as ModelOpt stores it."""
    rng = np.random.default_rng(4)
    latent, prefix = 48, "language_model.model.layers.1.block_sparse_moe."
    tensors, experts = {}, []
    for e in range(EXPERTS):
        experts.append([])
        for name, shape in (("w1", (WIDTH, latent)), ("w3", (WIDTH, latent)), ("w2", (latent, WIDTH))):
            matrix = draw(rng, *shape)
            parts, meant = nvfp4(matrix, 1) if is_nvfp4 else ({".weight": matrix}, matrix.astype(np.float64))
            tensors |= {f"{prefix}experts.{e}.{name}{suffix}": np.asarray(part) for suffix, part in parts.items()}
            experts[-1].append(meant)
    router, bias = draw(rng, EXPERTS, HIDDEN), draw(rng, EXPERTS)
    down, up, norm = draw(rng, latent, HIDDEN), draw(rng, HIDDEN, latent), draw(rng, latent)
    tensors |= {prefix + "gate.weight": router, prefix + "gate.e_score_correction_bias": bias,
                prefix + "routed_expert_down_proj.weight": down, prefix + "routed_expert_up_proj.weight": up}  # fmt: skip
    if has_norm:
        tensors |= {prefix + "routed_expert_norm.weight": norm}
    text = {"model_type": "kimi_linear", "hidden_size": HIDDEN, "num_experts": EXPERTS, "moe_intermediate_size": WIDTH,
            "num_experts_per_token": TOP_K, "routed_expert_hidden_size": latent, "latent_moe_use_norm": has_norm,
            "rms_norm_eps": 1e-2, "hidden_act": "situ", "activation_situ_beta": 4.0, "num_hidden_layers": 3,
            "activation_situ_linear_beta": 25.0, "moe_router_activation_func": "sigmoid", "moe_renormalize": True,
            "first_k_dense_replace": 1, "num_shared_experts": 0, "torch_dtype": "float32"}  # fmt: skip
    config = {"model_type": "kimi_k3", "text_config": text, "torch_dtype": "float32"}
    if is_nvfp4:
        config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": [
            "*self_attn*", "*routed_expert_*_proj*", "lm_head"]}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors, layer=1)
    assert output is not None, said

    def expert(e, row):
        gate, linear, out = experts[e]
        g, u = gate @ row, linear @ row
        return out @ (4 * np.tanh(g / 4) * sigmoid(g) * 25 * np.tanh(u / 25))

    rows = add_experts(x @ down.T, *choose(sigmoid(x @ router.T), bias), expert)
    expect_near(output, (normalize(rows, norm, 1e-2) if has_norm else rows) @ up.T)


def pack_nvfp4(stack, tool):
    """The suffixes and tensors of a parameter of all experts, with one factor of each expert, and what they mean."""
    parts, meant = zip(*(nvfp4(matrix, 1) for matrix in stack), strict=True)
    words, scales, factors = (np.stack([part[key] for part in parts]) for key in (
        ".weight", ".weight_scale", ".weight_scale_2"))  # fmt: skip
    if tool == "modelopt":
        stored = {"": words, ".scale": scales, ".scale2": factors, ".input_amax": np.float32([3]),
                  ".original_shape": np.int64(stack.shape)}  # fmt: skip
    else:
        stored = {".weight_packed": words, ".weight_scale": scales, ".weight_global_scale": 1 / factors,
                  ".input_global_scale": np.full(len(stack), 7, np.float32)}  # fmt: skip
    return stored, np.stack(meant)


#: Of Inkling's experts in NVFP4; those that every token has are not quantized.
INKLING = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "kv_cache_quant_algo": None,
                 "modelopt_quant_config": {"quant_cfg": {"*input_quantizer": {"enable": True}}, "algorithm": "max"},
                 "exclude_modules": ["model.llm.layers.2.mlp.experts", "model.llm.unembed"]},
    "compressed-tensors": {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["re:.*shared_experts.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
            "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}}}},
}  # fmt: skip


@pytest.mark.parametrize(("tool", "ranks"), [
    ("", ""), ("", '{"tp": 2, "experts": "linear"}'), ("", '{"tp": 2}'), ("modelopt", ""), ("compressed-tensors", ""),
    ("modelopt", '{"tp": 2, "experts": "linear"}')])  # fmt: skip
def test_shared_experts_with_weights_of_the_router(tool, ranks, tmp_path):
    """Inkling: every token has the shared experts, whose logits are the router's last rows; also over two ranks."""
    rng = np.random.default_rng(5)
    shared, prefix = 2, "model.llm.layers.0.mlp." if tool else "model.layers.0.mlp."
    count = EXPERTS + shared
    first, second = draw(rng, count, 2 * WIDTH, HIDDEN), draw(rng, count, HIDDEN, WIDTH)
    router, bias = draw(rng, count, HIDDEN), draw(rng, EXPERTS)
    tensors = {prefix + "gate.weight": router, prefix + "gate.bias": bias, prefix + "gate.global_scale": np.float32([0.5]),
               prefix + "experts.w13_weight": first[:EXPERTS], prefix + "experts.w2_weight": second[:EXPERTS],
               prefix + "shared_experts.shared_w13_weight": first[EXPERTS:],
               prefix + "shared_experts.shared_w2_weight": second[EXPERTS:]}  # fmt: skip
    config = {"model_type": "inkling_model", "hidden_size": HIDDEN, "n_routed_experts": EXPERTS,
              "n_shared_experts": shared, "num_experts_per_tok": TOP_K, "intermediate_size": WIDTH,
              "dense_intermediate_size": 3 * WIDTH, "route_scale": 4.0, "num_hidden_layers": 1,
              "shared_expert_sink": True, "torch_dtype": "float32"}  # fmt: skip
    for name, stack in (("w13", first), ("w2", second)) if tool else ():
        config["quantization_config"] = INKLING[tool]
        del tensors[f"{prefix}experts.{name}_weight"]
        stored, stack[:EXPERTS] = pack_nvfp4(stack[:EXPERTS], tool)
        tensors |= {f"{prefix}experts.{name}_weight{suffix}": tensor for suffix, tensor in stored.items()}
    x, output, said = run(tmp_path, config, tensors, arguments=[f"--parallel={ranks}"] if ranks else [])
    assert output is not None, said
    scores = sigmoid(x @ router.T)
    ids, _ = choose(scores[:, :EXPERTS], bias)
    ids = np.concatenate([ids, np.tile(np.arange(EXPERTS, count), (len(x), 1))], 1)
    weights = np.take_along_axis(scores, ids, 1)
    weights *= 4 * 0.5 / weights.sum(1, keepdims=True)

    def expert(e, row):
        both = first[e].astype(np.float64) @ row
        gate, up = both[::2], both[1::2]
        return second[e].astype(np.float64) @ (gate * sigmoid(gate) * up)

    expect_near(output, add_experts(x, ids, weights, expert))
