# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints of the kinds that public bug reports are about: right beside float64, or refused by name.

The oracle dequantizes by itself, from the definition of each format. Weights are random."""

import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
from runs import TIMEOUT, binary
from safetensors.numpy import load_file, save_file

TOKENS, EXPERTS, TOP_K, HIDDEN = 6, 4, 2, 128
BLOCK = "model.layers.0.mlp."
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def silu(x):
    return x / (1 + np.exp(-x))


def draw(rng, *shape, scale=0.15):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def nvfp4(matrix, factor):
    """ModelOpt's three tensors of a matrix, its global scale `factor` times the usual one, and what they mean."""
    rows, columns = matrix.shape
    whole = np.float32(np.abs(matrix).max() / (6 * 448) * factor)
    blocks = matrix.reshape(rows, -1, 16)
    scales = np.maximum(np.abs(blocks).max(2) / 6 / whole, 2.0**-9).astype(ml_dtypes.float8_e4m3fn)
    steps = scales.astype(np.float64)[..., None] * whole
    quantized = np.abs((blocks / steps)[..., None] - E2M1).argmin(-1).astype(np.uint8)
    meant = (E2M1[quantized] * steps).reshape(rows, columns)
    quantized = quantized.reshape(rows, columns)
    return {".weight": quantized[:, 0::2] | quantized[:, 1::2] << 4, ".weight_scale": scales, ".weight_scale_2": whole}, meant


def fp8_blocks(matrix):
    """Blocks of 128 x 128, the last ones cut off."""
    quantized, meant = np.zeros(matrix.shape, ml_dtypes.float8_e4m3fn), np.zeros(matrix.shape)
    scales = np.zeros([-(-size // 128) for size in matrix.shape], np.float32)
    for i, j in np.ndindex(*scales.shape):
        at = np.s_[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
        scales[i, j] = np.abs(matrix[at]).max() / 448
        quantized[at] = matrix[at] / scales[i, j]
        meant[at] = quantized[at].astype(np.float64) * scales[i, j]
    return {".weight": quantized, ".weight_scale": scales}, meant


def run(folder, config, tensors):
    """The layer's input and output."""
    rng = np.random.default_rng(11)
    x = draw(rng, TOKENS, HIDDEN, scale=1)
    save_file(tensors, folder / "model.safetensors")
    save_file({"hidden_states": x}, folder / "x.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    command = [binary("moe-run"), folder / "config.json", f"--inputs={folder / 'model.safetensors'}",
               f"--hidden-states={folder / 'x.safetensors'}", f"--outputs={folder / 'y.safetensors'}",
               f"--tokens={TOKENS}"]  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    return x.astype(np.float64), load_file(folder / "y.safetensors")["output"]


def add_experts(x, ids, weights, w):
    out = np.zeros_like(x)
    for t in range(len(x)):
        for e, weight in zip(ids[t], weights[t], strict=True):
            gate, up, down = (w[name][e] for name in PROJECTIONS)
            out[t] += weight * (down @ (silu(gate @ x[t]) * (up @ x[t])))
    return out


def expect_near(got, expected):
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < 2e-5, error


CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": HIDDEN, "moe_intermediate_size": 64, "num_experts": EXPERTS,
    "num_experts_per_tok": TOP_K, "num_hidden_layers": 2, "hidden_act": "silu", "norm_topk_prob": True,
    "torch_dtype": "float32",
}  # fmt: skip


# Global scales of gate and up that differ, in each shape that tools write; scales of inputs that are missing,
# infinite, 0 or NaN, which a layer of activations as they are does not read; an expert that is nearly dead.
# field-bug: vllm#54974, vllm#56095, TensorRT-LLM#14199, vllm#34675, vllm#41769, vllm#54189
# field-bug: vllm#42601, compressed-tensors#595, flashinfer#2595
def test_nvfp4_global_scales(tmp_path):
    rng = np.random.default_rng(1)
    tensors, meant = {BLOCK + "gate.weight": draw(rng, EXPERTS, HIDDEN)}, {name: [] for name in PROJECTIONS}
    shapes = {"gate_proj": (), "up_proj": (1,), "down_proj": (1, 1)}
    inputs = [None, np.float32("inf"), np.float32(0), np.float32("nan")]
    for e in range(EXPERTS):
        for name in PROJECTIONS:
            matrix = draw(rng, *((HIDDEN, 64) if name == "down_proj" else (64, HIDDEN)))
            parts, weights = nvfp4(matrix * (1e-23 if e == 3 else 1), 10 if name == "up_proj" else 1)
            parts[".weight_scale_2"] = np.full(shapes[name], parts[".weight_scale_2"], np.float32)
            if inputs[e] is not None:
                parts[".input_scale"] = np.asarray(inputs[e])
            tensors |= {f"{BLOCK}experts.{e}.{name}{suffix}": tensor for suffix, tensor in parts.items()}
            meant[name].append(weights)
    quantization = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["lm_head", "*mlp.gate"]}
    x, got = run(tmp_path, CONFIG | {"quantization_config": quantization}, tensors)
    logits = x @ tensors[BLOCK + "gate.weight"].astype(np.float64).T
    ids = np.argsort(-logits, 1)[:, :TOP_K]
    weights = np.exp(np.take_along_axis(logits, ids, 1))
    expect_near(got, add_experts(x, ids, weights / weights.sum(1, keepdims=True), meant))


# Biases near 7 that differ by less than bf16 tells apart, beside experts in blocks of fp8 of which the last ones are
# cut off, a router that the list of what is not quantized leaves out, and a shared expert that is not quantized.
# field-bug: Automodel#2553, vllm#50761, sglang#31213, sglang#37133, Automodel#2682, vllm#54178, ATOM#1944
# field-bug: llm-compressor#1758, compressed-tensors#733, sglang#31174, sglang#19644, sglang#33759
def test_correction_bias_beside_fp8_blocks(tmp_path):
    rng = np.random.default_rng(2)
    width = 320
    bias = (7 + draw(rng, EXPERTS, scale=0.02)).astype(np.float32)
    router = draw(rng, EXPERTS, HIDDEN, scale=0.002)
    tensors = {BLOCK + "gate.weight": router, BLOCK + "gate.e_score_correction_bias": bias}
    meant, shared = {name: [] for name in PROJECTIONS}, {}
    for name in PROJECTIONS:
        shape = (HIDDEN, width) if name == "down_proj" else (width, HIDDEN)
        for e in range(EXPERTS):
            parts, weights = fp8_blocks(draw(rng, *shape))
            tensors |= {f"{BLOCK}experts.{e}.{name}{suffix}": tensor for suffix, tensor in parts.items()}
            meant[name].append(weights)
        shared[name] = tensors[f"{BLOCK}shared_experts.{name}.weight"] = draw(rng, *shape)
    quantization = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["re:.*shared_experts.*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
            "num_bits": 8, "type": "float", "symmetric": True, "strategy": "block", "block_structure": [128, 128],
            "dynamic": False}}},
    }  # fmt: skip
    config = CONFIG | {
        "model_type": "deepseek_v3", "n_routed_experts": EXPERTS, "moe_intermediate_size": width,
        "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "first_k_dense_replace": 0, "quantization_config": quantization,
    }  # fmt: skip
    del config["num_experts"]
    x, got = run(tmp_path, config, tensors)
    scores = 1 / (1 + np.exp(-(x @ router.astype(np.float64).T)))
    ids = np.argsort(-(scores + bias), 1)[:, :TOP_K]
    assert (ids != np.argsort(-(scores + bias.astype(ml_dtypes.bfloat16)), 1)[:, :TOP_K]).any()
    weights = np.take_along_axis(scores, ids, 1)
    weights *= 2.5 / (weights.sum(1, keepdims=True) + 1e-20)
    gate, up, down = (shared[name].astype(np.float64) for name in PROJECTIONS)
    expect_near(got, add_experts(x, ids, weights, meant) + silu(x @ gate.T) * (x @ up.T) @ down.T)


def names(experts):
    parts = [f"{BLOCK}experts.{e}.{name}.weight" for e in range(experts) for name in PROJECTIONS]
    return [BLOCK + "gate.weight", *parts]


EXPERT = BLOCK + "experts.0.gate_proj."


# moe-extract's error for names that do not match the configuration: names alone are enough to find a layer.
# field-bug: reap-mlx#80, reap-mlx#107, llm-compressor#2864, vllm-ascend#5794, sglang#10440, mlxcel#620
@pytest.mark.parametrize(
    ("config", "tensors", "message"),
    [
        pytest.param({}, names(3), f"no tensor '{BLOCK}experts.3.gate_proj.weight'", id="experts were pruned"),
        pytest.param({"num_experts": 3}, names(4), f"'{BLOCK}experts.3.down_proj.weight' is none of this layer's",
                     id="more experts than the configuration has"),
        pytest.param({}, [name.replace("layers.0", "layers.1") for name in names(4)],
                     "has no experts of layer 0, but of layer 1", id="another layer"),
        pytest.param({"model_type": "glm4_moe", "n_routed_experts": EXPERTS, "n_shared_experts": 0, "n_group": 1,
                      "topk_group": 1, "routed_scaling_factor": 1.0, "first_k_dense_replace": 0}, names(4),
                     "no tensor for 'gate.selection_bias'", id="correction bias is missing"),
        pytest.param({}, [BLOCK + "gate.weight", *(f"{BLOCK}switch_glu.{name}.weight" for name in PROJECTIONS)],
                     f"the file has '{BLOCK}switch_glu.down_proj.weight'", id="experts of another layout"),
        pytest.param({}, [*names(4), EXPERT + "lora_A.weight"], "lora_A.weight' is none of this layer's",
                     id="an adapter beside the weights"),
        pytest.param({}, [name.replace("gate_proj", "gate_proj.base_layer") for name in names(4)],
                     f"the file has '{EXPERT}base_layer.weight'", id="weights inside an adapter"),
    ],
)  # fmt: skip
def test_names_of_another_layer_are_refused(config, tensors, message, tmp_path):
    save_file({name: np.zeros(1, np.float32) for name in tensors}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | config))
    command = [binary("moe-extract"), tmp_path, "--layer=0", "-o", tmp_path / "layer.safetensors"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "layer.safetensors").exists()
