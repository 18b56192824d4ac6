# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers with more than a router, experts and shared experts, from a folder with a config.json, beside formulas in
float64.

Weights are random; the formulas are those of the code published with the models."""

import math

import numpy as np
import pytest
from test_engine_families import EXPERTS, SIZES, WIDTH, choose, draw_experts, run_mlp, sigmoid, softmax
from test_field_checkpoints import HIDDEN, TOP_K, add_experts, draw
from test_module_schemes import TOKENS, expect_near, run

erf = np.vectorize(math.erf)


@pytest.mark.parametrize("ranks", ["", '{"tp": 2}', '{"tp": 2, "experts": "linear"}'])
def test_pairs_share_a_narrow_expert(ranks, tmp_path):
    """GroveMoE: the expert of a pair adds 0.05 of its output, once for each chosen expert of the pair."""
    rng = np.random.default_rng(1)
    prefix, narrow = "model.layers.0.mlp.", 8
    tensors, w = draw_experts(rng, prefix + "experts")
    added, small = draw_experts(rng, prefix + "chunk_experts", count=EXPERTS // 2, width=narrow)
    router = draw(rng, EXPERTS, HIDDEN)
    tensors |= added | {prefix + "gate.weight": router, prefix + "expert_bias": draw(rng, EXPERTS)}
    config = {"model_type": "grove_moe", "num_experts": EXPERTS, "hidden_act": "silu", "norm_topk_prob": True,
              "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 2,
              "parallel_expert_intermediate_size": narrow, **SIZES}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors, arguments=[f"--parallel={ranks}"] if ranks else [])
    assert output is not None, said
    ids, weights = choose(softmax(x @ router.T), 0)
    both = (ids // 2 == ids[:, :1] // 2).sum(1) > 1
    assert both.any() and not both.all()
    expect_near(output, add_experts(x, ids, weights, w) + 0.05 * add_experts(x, ids // 2, weights, small))


def test_pairs_that_do_not_come_out(tmp_path):
    config = {"model_type": "grove_moe", "num_experts": 5, "num_hidden_layers": 1, **SIZES}
    _, output, said = run(tmp_path, config, {})
    assert output is None
    assert "'num_experts_per_group' is 2, but must divide the 5 experts ('num_experts')" in said


@pytest.mark.parametrize("name, columns, message", [
    ("chunk_experts.1.down_proj", None, "no tensor 'model.layers.0.mlp.chunk_experts.1.down_proj.weight'"),
    ("chunk_experts.1.down_proj", 9, "shape is [128, 9], expected [128, 8]"),
    ("chunk_experts.3.down_proj", 8, "tensor 'model.layers.0.mlp.chunk_experts.3.down_proj.weight' is none of this"),
    ("experts.1.down_proj", 8, "shape is [128, 8], expected [128, 32]"),
])  # fmt: skip
def test_narrow_experts_that_are_wrong(name, columns, message, tmp_path):
    rng = np.random.default_rng(1)
    prefix = "model.layers.0.mlp."
    tensors, _ = draw_experts(rng, prefix + "experts")
    tensors |= draw_experts(rng, prefix + "chunk_experts", count=EXPERTS // 2, width=8)[0]
    tensors |= {prefix + "gate.weight": draw(rng, EXPERTS, HIDDEN)}
    tensors.pop(f"{prefix}{name}.weight", None)
    if columns:
        tensors[f"{prefix}{name}.weight"] = draw(rng, HIDDEN, columns)
    config = {"model_type": "grove_moe", "num_experts": EXPERTS, "num_hidden_layers": 1,
              "parallel_expert_intermediate_size": 8, **SIZES}  # fmt: skip
    _, output, said = run(tmp_path, config, tensors)
    assert output is None and message in said, said


def test_quantized_experts_that_are_changed_at_load(tmp_path):
    config = {"model_type": "grove_moe", "num_experts": EXPERTS, "num_hidden_layers": 1, **SIZES}
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
    scales = {"model.layers.0.mlp.experts.0.gate_proj.weight_scale": np.ones(1, np.float32),
              "model.layers.0.mlp.experts.0.gate_proj.weight": np.zeros((WIDTH, HIDDEN), np.uint8)}  # fmt: skip
    _, output, said = run(tmp_path, config, scales)
    assert output is None and "are changed at load and cannot be quantized; convert the" in said, said


def test_shares_of_experts_and_shared_experts(tmp_path):
    """Klear: a softmax of two values weighs the experts' sum and the shared experts."""
    rng = np.random.default_rng(2)
    prefix = "model.layers.0.mlp."
    tensors, w = draw_experts(rng, prefix + "experts")
    added, own = draw_experts(rng, prefix + "shared", count=1)
    tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
    router, bias = draw(rng, EXPERTS, HIDDEN), draw(rng, EXPERTS)
    shares, offset = draw(rng, 2, HIDDEN), draw(rng, 2)
    tensors |= {prefix + "gate.weight": router, prefix + "expert_bias": bias, prefix + "coefficient.weight": shares,
                prefix + "coefficient.bias": offset}  # fmt: skip
    config = {"model_type": "Klear", "num_experts": EXPERTS, "hidden_act": "silu", "norm_topk_prob": True,
              "n_shared_experts": 1, "decoder_sparse_step": 1, "mlp_only_layers": [], "num_hidden_layers": 1,
              **SIZES}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors)
    assert output is not None, said
    share = softmax(x @ shares.T + offset)
    routed = add_experts(x, *choose(sigmoid(x @ router.T), bias), w)
    expect_near(output, share[:, :1] * routed + share[:, 1:] * run_mlp(x, own))


def test_bias_of_the_sum(tmp_path):
    """Nomic's MoE encoder: all experts in one matrix, and a bias once per token."""
    rng = np.random.default_rng(3)
    prefix = "encoder.layers.1.mlp."
    up, down, bias = draw(rng, EXPERTS * WIDTH, HIDDEN), draw(rng, EXPERTS * WIDTH, HIDDEN), draw(rng, HIDDEN)
    router = draw(rng, EXPERTS, HIDDEN)
    tensors = {prefix + "experts.mlp.w1": up, prefix + "experts.mlp.w2": down, prefix + "experts.bias": bias,
               prefix + "router.layer.weight": router}  # fmt: skip
    config = {"model_type": "nomic_bert", "n_embd": HIDDEN, "n_inner": WIDTH, "n_layer": 2, "num_experts": EXPERTS,
              "moe_top_k": TOP_K, "moe_every_n_layers": 2, "moe_normalize_expert_weights": False,
              "activation_function": "gelu", "torch_dtype": "float32"}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors, layer=1)
    assert output is not None, said
    first, second = (matrix.astype(np.float64).reshape(EXPERTS, WIDTH, HIDDEN) for matrix in (up, down))
    expected = np.zeros_like(x) + bias
    for t, (ids, weights) in enumerate(zip(*choose(softmax(x @ router.T), 0, renormalize=False), strict=True)):
        for e, weight in zip(ids, weights, strict=True):
            u = first[e] @ x[t]
            expected[t] += weight * (0.5 * u * (1 + erf(u / math.sqrt(2)))) @ second[e]
    expect_near(output, expected)


@pytest.mark.parametrize("doubles", [True, False])
def test_router_of_two_gemms(doubles, tmp_path):
    """Skywork-MoE: a tanh between the router's two matrices, and experts that read twice the states."""
    rng = np.random.default_rng(4)
    prefix = "model.layers.0.mlp.moe."
    tensors, w = draw_experts(rng, prefix + "experts.experts")
    first, second = draw(rng, 8 * EXPERTS, HIDDEN), draw(rng, EXPERTS, 8 * EXPERTS, scale=0.5)
    tensors |= {prefix + "gate.wg.0.weight": first, prefix + "gate.wg.2.weight": second}
    config = {"model_type": "skywork", "hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_experts": [EXPERTS],
              "num_hidden_layers": 1, "moe_2layer_gate": True, "moe_use_logits_norm": False,
              "moe_feature_no_mul_topk": not doubles, "hidden_act": "silu", "torch_dtype": "float32",
              "num_experts_per_tok": TOP_K}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors)
    assert output is not None, said
    ids, weights = choose(softmax(np.tanh(x @ first.T) @ second.T), 0)
    expect_near(output, add_experts(x * (2 if doubles else 1), ids, weights, w))
    if doubles:
        return
    # Logits that the model divides by their standard deviation are an input.
    logits = draw(rng, TOKENS, EXPERTS, scale=1)
    logits /= logits.std(axis=1, ddof=1, keepdims=True)
    (tmp_path / "y.safetensors").unlink()
    x, output, said = run(tmp_path, config | {"moe_use_logits_norm": True}, tensors, inputs={"router_logits": logits})
    assert output is not None and "remark: the model divides a token's logits by their standard deviation" in said, said
    expect_near(output, add_experts(x, *choose(softmax(logits.astype(np.float64)), 0), w))


@pytest.mark.parametrize("layer, bank", [(1, 1), (3, 1), (4, 4)])
def test_layers_that_share_experts(layer, bank, tmp_path):
    """Megrez-MoE: three layers in a row have the experts of the first; the router reads the layer before."""
    rng = np.random.default_rng(5)
    tensors, experts, own = {}, {}, {}
    for index in range(1, 5):
        prefix = f"model.layers.{index}.mlp."
        if index in (1, 4):
            added, experts[index] = draw_experts(rng, prefix + "experts")
            tensors |= added
        added, own[index] = draw_experts(rng, prefix + "shared", count=1)
        tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
        tensors |= {prefix + "gate.weight": draw(rng, EXPERTS, HIDDEN),
                    prefix + "gate.e_score_correction_bias": draw(rng, EXPERTS) + index}  # fmt: skip
    config = {"model_type": "megrez_moe", "n_routed_experts": EXPERTS, "n_shared_experts": 1, "hidden_act": "silu",
              "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "scoring_func": "sigmoid",
              "topk_method": "noaux_tc", "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
              "moe_layer_freq": 1, "pre_gate": True, "experts_shared_frequency": 3, "num_hidden_layers": 5,
              **SIZES}  # fmt: skip
    logits = draw(rng, TOKENS, EXPERTS, scale=1)
    x, output, said = run(tmp_path, config, tensors, layer=layer, inputs={"router_logits": logits})
    assert output is not None, said
    bias = tensors[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"]
    ids, weights = choose(sigmoid(logits.astype(np.float64)), bias)
    expect_near(output, 2.5 * add_experts(x, ids, weights, experts[bank]) + run_mlp(x, own[layer]))


@pytest.mark.parametrize("part", [0, 1])
def test_parts_for_text_and_images(part, tmp_path):
    """ERNIE 4.5 VL as published: experts of images are numbered behind those of text, routers are K x rows."""
    rng = np.random.default_rng(6)
    prefix, widths = "model.layers.1.mlp.", (WIDTH, 16)
    tensors, w = draw_experts(rng, prefix + "experts", width=widths[0])
    added, images = draw_experts(rng, prefix + "images", width=widths[1])
    for name, matrix in added.items():
        expert, rest = name.removeprefix(prefix + "images.").split(".", 1)
        tensors[f"{prefix}experts.{EXPERTS + int(expert)}.{rest}"] = matrix
    added, own = draw_experts(rng, prefix + "shared", count=1, width=2 * widths[0])
    tensors |= {name.replace("shared.0", "shared_experts"): matrix for name, matrix in added.items()}
    routers, bias = draw(rng, 2, HIDDEN, EXPERTS), draw(rng, 2, EXPERTS)
    tensors |= {prefix + "gate.weight": routers[0], prefix + "gate.weight_1": routers[1],
                prefix + "moe_statics.e_score_correction_bias": bias}  # fmt: skip
    config = {"model_type": "ernie4_5_moe_vl", "hidden_size": HIDDEN, "moe_num_experts": [EXPERTS, EXPERTS],
              "moe_intermediate_size": list(widths), "moe_k": TOP_K, "moe_num_shared_experts": 2, "hidden_act": "silu",
              "moe_layer_start_index": [1, 1], "moe_layer_end_index": [1, 1], "moe_layer_interval": 1,
              "use_bias": False, "num_hidden_layers": 2, "torch_dtype": "float32"}  # fmt: skip
    x, output, said = run(tmp_path, config, tensors, layer=1, arguments=["--part=vision"] * part)
    assert output is not None, said
    ids, weights = choose(softmax(x @ routers[part]), bias[part])
    expect_near(output, add_experts(x, ids, weights, (w, images)[part]) + run_mlp(x, own))
    assert ("--part=vision" in said) == (part == 0)


def test_parts_that_are_not_there(tmp_path):
    config = {"model_type": "mixtral", "num_local_experts": EXPERTS, "intermediate_size": WIDTH, **SIZES}
    _, output, said = run(tmp_path, config, {}, arguments=["--part=vision"])
    assert output is None
    assert "the layers of model_type \"mixtral\" have no part 'vision'; leave out --part" in said
    config["model_type"] = "ernie4_5_vl_moe"
    _, output, said = run(tmp_path, config, {}, arguments=["--part=audio"])
    assert "have no part 'audio'; there is 'vision'" in said
