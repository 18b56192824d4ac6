# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families that only engines have, from a folder with a config.json, beside their formulas in float64.

Weights are random; the formulas are those of the engines' modules."""

import numpy as np
import pytest
from test_field_checkpoints import HIDDEN, PROJECTIONS, TOP_K, add_experts, draw, silu
from test_module_schemes import expect_near, run

EXPERTS, WIDTH = 6, 32
SIZES = {"hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "num_experts_per_tok": TOP_K, "torch_dtype": "float32"}


def draw_experts(rng, prefix, names=PROJECTIONS, count=EXPERTS, width=WIDTH):
    """Tensors of a module per expert, and their matrices by projection."""
    tensors, matrices = {}, {projection: [] for projection in PROJECTIONS}
    for expert in range(count):
        for name, projection in zip(names, PROJECTIONS, strict=True):
            shape = (HIDDEN, width) if projection == "down_proj" else (width, HIDDEN)
            matrix = draw(rng, *shape)
            tensors[f"{prefix}.{expert}.{name}.weight"] = matrix
            matrices[projection].append(matrix.astype(np.float64))
    return tensors, matrices


def choose(scores, bias, renormalize=True):
    ids = np.argsort(-(scores + bias), 1, kind="stable")[:, :TOP_K]
    weights = np.take_along_axis(scores, ids, 1)
    return ids, weights / weights.sum(1, keepdims=True) if renormalize else weights


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def run_mlp(x, w):
    return (silu(x @ w["gate_proj"][0].T) * (x @ w["up_proj"][0].T)) @ w["down_proj"][0].T


@pytest.mark.parametrize("layer", [1, 3])
def test_bank_of_several_layers(layer, tmp_path):
    """Intern-S2-Mobius: layer N takes bank N modulo `num_blocks`, and has a shared expert of its own."""
    rng = np.random.default_rng(layer)
    tensors, banks, shared = {}, [], []
    for bank in range(2):
        prefix = f"model.language_model.meta_mlp.{bank}."
        added, w = draw_experts(rng, prefix + "experts")
        router = draw(rng, EXPERTS, HIDDEN)
        tensors |= added | {prefix + "gate.weight": router}
        banks.append((router, w))
    for index in range(4):
        prefix = f"model.language_model.layers.{index}."
        added, w = draw_experts(rng, prefix + "shared", count=1)
        gate = draw(rng, 1, HIDDEN)
        tensors |= {name.replace("shared.0", "mlp.shared_expert"): matrix for name, matrix in added.items()}
        tensors |= {prefix + "mlp.shared_expert_gate.weight": gate, prefix + "ffn_layer_scale": draw(rng, HIDDEN),
                    prefix + "self_attn.q_proj.weight": draw(rng, 4, 4)}  # fmt: skip
        shared.append((gate, w))
    text = {"model_type": "interns2_mobius_text", "num_experts": EXPERTS, "num_hidden_layers": 4, "num_blocks": 2,
            "shared_expert_intermediate_size": WIDTH, "hidden_act": "silu", "layer_scale": True, **SIZES}  # fmt: skip
    x, output, said = run(tmp_path, {"model_type": "interns2_mobius", "text_config": text}, tensors, layer=layer)
    assert output is not None, said
    router, w = banks[layer % 2]
    gate, own = shared[layer]
    expected = add_experts(x, *choose(softmax(x @ router.T), 0), w) + sigmoid(x @ gate.T) * run_mlp(x, own)
    expect_near(output, expected)


def test_counts_and_widths_of_each_layer(tmp_path):
    """Nemotron-H Puzzle: the object of a layer replaces keys of the model."""
    rng = np.random.default_rng(0)
    prefix = "backbone.layers.1.mixer."
    tensors, w = draw_experts(rng, prefix + "experts", count=4, width=64)
    tensors = {name: matrix for name, matrix in tensors.items() if "gate_proj" not in name}
    router, bias = draw(rng, 4, HIDDEN), draw(rng, 4)
    tensors |= {prefix + "gate.weight": router, prefix + "gate.e_score_correction_bias": bias}
    config = {"model_type": "nemotron_h_puzzle", **SIZES, "n_routed_experts": 8, "routed_scaling_factor": 2.5,
              "mlp_hidden_act": "relu2", "moe_shared_expert_intermediate_size": 0, "block_configs": [
                  {"block_type": "mamba"},
                  {"block_type": "moe", "n_routed_experts": 4, "moe_intermediate_size": 64}]}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors, layer=1)
    assert output is not None, said
    ids, weights = choose(sigmoid(x @ router.T), bias)
    expected = np.zeros_like(x)
    for t in range(len(x)):
        for e, weight in zip(ids[t], weights[t], strict=True):
            expected[t] += 2.5 * weight * (w["down_proj"][e] @ np.maximum(w["up_proj"][e] @ x[t], 0) ** 2)
    expect_near(output, expected)


def test_bias_of_images_is_left_out(tmp_path):
    """DeepSeek V4.1: tokens of text choose with `gate.bias`."""
    rng = np.random.default_rng(2)
    tensors, w = draw_experts(rng, "layers.0.ffn.experts", names=("w1", "w3", "w2"))
    added, own = draw_experts(rng, "layers.0.ffn.shared", names=("w1", "w3", "w2"), count=1)
    tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
    router, bias = draw(rng, EXPERTS, HIDDEN), draw(rng, EXPERTS)
    tensors |= {"layers.0.ffn.gate.weight": router, "layers.0.ffn.gate.bias": bias,
                "layers.0.ffn.gate.bias_vl": draw(rng, EXPERTS)}  # fmt: skip
    text = {"model_type": "deepseek_v41_text", "n_routed_experts": EXPERTS, "n_shared_experts": 1, **SIZES,
            "scoring_func": "sqrtsoftplus", "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
            "num_hidden_layers": 1, "norm_topk_prob": True, "topk_method": "noaux_tc"}  # fmt: skip
    config = {"model_type": "deepseek_v41", "text_config": text, "vision_config": {"hidden_size": 64}}
    x, output, said = run(tmp_path, config, tensors)
    assert output is not None, said
    assert "tokens of images choose experts with 'gate.bias_vl'" in said
    scores = np.sqrt(np.log1p(np.exp(x @ router.T)))
    ids, weights = choose(scores, bias)
    expect_near(output, add_experts(x, ids, 1.5 * weights, w) + run_mlp(x, own))


@pytest.mark.parametrize("key", [{"multi_gate": True}, {"router_type": "MultiRouter"}], ids=str)
@pytest.mark.parametrize("model_type", ["bailing_moe_v3", "bailing_hybrid"])
def test_router_of_text_among_three(model_type, key, tmp_path):
    """Ling 3: images and audio have gates of their own; limits differ by layer."""
    rng = np.random.default_rng(5)
    prefix = "model.layers.1.mlp."
    tensors, w = draw_experts(rng, prefix + "experts")
    added, own = draw_experts(rng, prefix + "shared", count=1)
    tensors |= {name.replace("shared.0", "shared_experts"): 8 * matrix for name, matrix in added.items()}
    for name in ("gate", "image_gate", "audio_gate"):
        tensors |= {f"{prefix}{name}.weight": draw(rng, EXPERTS, HIDDEN),
                    f"{prefix}{name}.expert_bias": draw(rng, EXPERTS)}  # fmt: skip
    config = {"model_type": model_type, "num_experts": EXPERTS, "num_shared_experts": 1, "n_group": 1, "topk_group": 1,
              "first_k_dense_replace": 0, "num_hidden_layers": 2, "score_function": "sigmoid", "norm_topk_prob": True,
              "moe_router_enable_expert_bias": True, "routed_scaling_factor": 2.5, **SIZES, **key}  # fmt: skip
    limit = np.inf
    if model_type == "bailing_moe_v3":
        limit = 0.5
        config |= {"expert_swiglu_limit_list": [0, 0], "share_expert_swiglu_limit_list": [None, limit]}
    x, output, said = run(tmp_path, config, tensors, layer=1)
    assert output is not None, said
    assert "tokens of images and audio have routers of their own" in said
    ids, weights = choose(sigmoid(x @ tensors[prefix + "gate.weight"].T), tensors[prefix + "gate.expert_bias"])
    gate, up, down = (8 * own[name][0] for name in PROJECTIONS)
    hidden = np.minimum(silu(x @ gate.T), limit) * np.clip(x @ up.T, -limit, limit)
    assert limit == np.inf or np.abs(x @ up.T).max() > 2 * limit
    expect_near(output, add_experts(x, ids, 2.5 * weights, w) + hidden @ down.T)


@pytest.mark.parametrize("model_type", ["openpangu_v2", "openpangu_v2_vl_moe", "pangu_v2_moe", "pangu_pro_moe_v2"])
def test_pangu_v2(model_type, tmp_path):
    rng = np.random.default_rng(6)
    prefix = "model.layers.1.mlp."
    tensors, w = draw_experts(rng, prefix + "experts")
    added, own = draw_experts(rng, prefix + "shared", count=1)
    tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
    router, bias = draw(rng, EXPERTS, HIDDEN), draw(rng, EXPERTS)
    name = "e_score_correction_bias" if model_type == "openpangu_v2" else "gate.e_score_correction_bias"
    tensors |= {prefix + "gate.weight": router, prefix + name: bias}
    config = {"model_type": model_type, "n_routed_experts": EXPERTS, "n_shared_experts": 1, "first_k_dense_replace": 1,
              "num_hidden_layers": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "sandwich_norm": True,
              "router_enable_expert_bias": True, "router_sliding_window": 4, "use_mome": True, "use_mhc": True,
              "mhc_num_stream": 4, "dsa_layers": [0], "swa_layers": [1], "sliding_window_list": [512], **SIZES}  # fmt: skip
    if "vl" in model_type:
        config = {"model_type": model_type, "text_config": config, "vision_config": {"hidden_size": 64}}
    x, output, said = run(tmp_path, config, tensors, layer=1)
    assert output is not None, said
    ids, weights = choose(sigmoid(x @ router.T), bias)
    expect_near(output, add_experts(x, ids, 2.5 * weights, w) + run_mlp(x, own))


@pytest.mark.parametrize("kind", ["zero", "copy"])
def test_experts_without_weights(kind, tmp_path):
    """GLM-4.7-Flash-Dynamic: the last experts return nothing, or their input."""
    rng = np.random.default_rng(3)
    tensors, w = draw_experts(rng, "model.layers.0.mlp.experts")
    added, own = draw_experts(rng, "model.layers.0.mlp.shared", count=1)
    tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
    router, bias = draw(rng, EXPERTS + 3, HIDDEN), draw(rng, EXPERTS + 3)
    tensors |= {"model.layers.0.mlp.gate.weight": router, "model.layers.0.mlp.gate.e_score_correction_bias": bias}
    config = {"model_type": "glm4_moe_lite_plus_plus", "n_routed_experts": EXPERTS, "first_k_dense_replace": 0,
              "zce_nums": [3], "zce_types": [kind], "use_zce_mask": False, **SIZES}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors)
    assert output is not None, said
    ids, weights = choose(sigmoid(x @ router.T), bias)
    assert (ids >= EXPERTS).any() and (ids < EXPERTS).any()
    kept = np.where(ids < EXPERTS, weights, 0)
    expected = 1.8 * add_experts(x, np.minimum(ids, EXPERTS - 1), kept, w) + run_mlp(x, own)
    if kind == "copy":
        expected += 1.8 * x * (weights - kept).sum(1, keepdims=True)
    expect_near(output, expected)
