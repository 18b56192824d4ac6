# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that torchao's own tensors and safetensors support write, against what these tensors dequantize to."""

from __future__ import annotations

import json

import ml_dtypes
import moec
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

torchao = pytest.importorskip("torchao", reason="torchao is not installed (pip install torchao)")
from test_quantization_configs import read
from torchao.core.config import config_to_dict
from torchao.prototype.mx_formats import inference_workflow as mx
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor, per_tensor_amax_to_scale
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8DynamicActivationFloat8WeightConfig,
    Float8WeightOnlyConfig,
    FqnToConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxUnpackedToInt8Tensor,
    IntxWeightOnlyConfig,
    MappingType,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

HIDDEN, WIDTH, EXPERTS, TOP_K, TOKENS = 128, 192, 4, 2, 5
BLOCK = "model.layers.0.mlp."
FOUR = torch.float4_e2m1fn_x2


def make_mx(**more):
    return mx.MXDynamicActivationMXWeightConfig(kernel_preference=KernelPreference.EMULATED, **more)


def round_rows(rows):
    """Activations in mxfp8, as docs/use/layers.md rounds them."""
    groups = rows.reshape(len(rows), -1, 32)
    steps = np.exp2(np.ceil(np.log2(np.abs(groups).max(2, keepdims=True) / 448)))
    return ((groups / steps).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * steps).reshape(rows.shape)


MODULES = {
    "float8 rows": Float8WeightOnlyConfig(granularity=PerRow()),
    "int8 rows": Int8WeightOnlyConfig(),
    "intx rows": IntxWeightOnlyConfig(),
    "intx of 4 bits in groups": IntxWeightOnlyConfig(torch.int4, PerGroup(32)),
    "intx of 3 bits with zero points": IntxWeightOnlyConfig(torch.int3, PerGroup(64), MappingType.ASYMMETRIC),
    "mxfp8": make_mx(),
    "mxfp4": make_mx(activation_dtype=FOUR, weight_dtype=FOUR),
    "nvfp4": mx.NVFP4WeightOnlyConfig(),
    "nvfp4 without a scale of the matrix": mx.NVFP4WeightOnlyConfig(use_dynamic_per_tensor_scale=False),
}


def dequantize(weight):
    """In f32. Tensors of integers multiply in a dtype of their own."""
    if isinstance(weight, IntxUnpackedToInt8Tensor):
        return weight.to(torch.float32).dequantize()
    return weight.dequantize(torch.float32)


def run(folder, quant_type, tensors, matrices, is_mxfp8):
    """The layer of a folder with these tensors, against its matrices in float64."""
    config = {
        "model_type": "qwen3_moe", "hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS,
        "num_experts_per_tok": TOP_K, "num_hidden_layers": 1, "hidden_act": "silu", "norm_topk_prob": True,
        "torch_dtype": "float32",
        "quantization_config": {
            "quant_method": "torchao", "quant_type": {"default": config_to_dict(quant_type)}, "quant_type_kwargs": {},
            "include_input_output_embeddings": False, "untie_embedding_weights": False,
            "modules_to_not_convert": ["mlp.gate"],
        },
    }  # fmt: skip
    router, x = torch.randn(EXPERTS, HIDDEN), torch.randn(TOKENS, HIDDEN)
    flat, metadata = flatten_tensor_state_dict(tensors | {BLOCK + "gate.weight": router})
    save_file({name: tensor.contiguous() for name, tensor in flat.items()}, folder / "model.safetensors", metadata)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"hidden_states": x}, folder / "x.safetensors")
    moec.call("moe-run", folder, f"--hidden-states={folder / 'x.safetensors'}", f"--tokens={TOKENS}",
              f"--outputs={folder / 'y.safetensors'}")
    got = load_file(folder / "y.safetensors")["output"].astype(np.float64)
    gate, up, down = (matrix.double().numpy() for matrix in matrices)
    rows, logits = x.double().numpy(), (x.double() @ router.double().T).numpy()
    ids = np.argsort(-logits, 1)[:, :TOP_K]
    weights = np.exp(np.take_along_axis(logits, ids, 1))
    weights /= weights.sum(1, keepdims=True)
    expected, read = np.zeros_like(rows), round_rows if is_mxfp8 else np.asarray
    inputs = read(rows)
    for t, k in np.ndindex(TOKENS, TOP_K):
        e = ids[t, k]
        g, u = gate[e] @ inputs[t], up[e] @ inputs[t]
        expected[t] += weights[t, k] * (down[e] @ read((g / (1 + np.exp(-g)) * u)[None])[0])
    # A sum in f32 may round to another element of 8 bits.
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < (5e-3 if is_mxfp8 else 2e-5), error


@pytest.mark.parametrize("case", MODULES)
def test_modules(case, tmp_path):
    config = MODULES[case]
    torch.manual_seed(1)
    tensors, matrices = {}, [[], [], []]
    for e in range(EXPERTS):
        for of, (name, shape) in zip(matrices, (("gate", (WIDTH, HIDDEN)), ("up", (WIDTH, HIDDEN)),
                                                ("down", (HIDDEN, WIDTH))), strict=True):
            module = torch.nn.Linear(*shape[::-1], bias=False, dtype=torch.bfloat16)
            quantize_(module, config)
            tensors[f"{BLOCK}experts.{e}.{name}_proj.weight"] = module.weight.data
            of.append(dequantize(module.weight.detach()))
    run(tmp_path, config, tensors, [torch.stack(of) for of in matrices], case == "mxfp8")


def nvfp4(weights):
    """As torchao's workflow for sm_100a makes it of all experts, with one scale of each."""
    scale = per_tensor_amax_to_scale(weights.abs().amax(dim=(1, 2))).view(-1, 1, 1)
    return NVFP4Tensor.to_nvfp4(weights, per_tensor_scale=scale, is_swizzled_scales=True)


#: Parameters of all experts.
PARAMETERS = {
    "float8 rows": (Float8WeightOnlyConfig(granularity=PerRow()), None),
    "mxfp8": (make_mx(), None),
    "nvfp4": (mx.NVFP4WeightOnlyConfig(), nvfp4),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters(case, tmp_path):
    config, quantize = PARAMETERS[case]
    torch.manual_seed(2)
    by_name = FqnToConfig(fqn_to_config={r"re:.*experts\.(gate_up|down)_proj": config})
    experts = torch.nn.Module()
    for name, shape in (("gate_up_proj", (2 * WIDTH, HIDDEN)), ("down_proj", (HIDDEN, WIDTH))):
        weights = torch.randn(EXPERTS, *shape).bfloat16() / 8
        setattr(experts, name, torch.nn.Parameter(quantize(weights) if quantize else weights, requires_grad=False))
    if not quantize:
        model = torch.nn.Module()
        model.experts = experts
        quantize_(model, by_name, filter_fn=None)
    first, down = (getattr(experts, name) for name in ("gate_up_proj", "down_proj"))
    gate, up = torch.split(first.dequantize(torch.float32), WIDTH, 1)
    run(tmp_path, by_name, {f"{BLOCK}experts.gate_up_proj": first.data, f"{BLOCK}experts.down_proj": down.data},
        [gate, up, down.dequantize(torch.float32)], case == "mxfp8")


#: Configuration, and expected contents of the spec or the message.
CONFIGS = [
    (Float8WeightOnlyConfig(), '"dtype": "fp8_e4m3"'),
    (Float8DynamicActivationFloat8WeightConfig(granularity=PerTensor()), '"scale": "tensor"'),
    (Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), '"scale": "token"'),
    (Int8WeightOnlyConfig(), '"dtype": "int8"'),
    (Int8DynamicActivationInt8WeightConfig(), '"activation": {"dtype": "int8", "scale": "token"}'),
    (Int4WeightOnlyConfig(group_size=64), '"minimum": true'),
    (IntxWeightOnlyConfig(), '"weight": {"dtype": "int8", "scale": "channel"}'),
    (IntxWeightOnlyConfig(torch.int4, PerGroup(64)), '"scale": {"group": 64}'),
    (IntxWeightOnlyConfig(mapping_type=MappingType.ASYMMETRIC), '"zero_point": true'),
    (Int8DynamicActivationIntxWeightConfig(), '{"weight": {"dtype": "int8", "scale": {"group": 32}}}'),
    (make_mx(), "mxfp8"),
    (make_mx(activation_dtype=FOUR, weight_dtype=FOUR), "mxfp4"),
    (mx.NVFP4WeightOnlyConfig(), "nvfp4"),
    (mx.NVFP4DynamicActivationNVFP4WeightConfig(), "nvfp4"),
]


@pytest.mark.parametrize(("config", "expected"), CONFIGS)
def test_configs(config, expected, tmp_path, variant):
    quantization = {"quant_method": "torchao", "quant_type": {"default": config_to_dict(config)},
                    "quant_type_kwargs": {}, "modules_to_not_convert": ["mlp.gate"]}
    granularity = getattr(config, "granularity", None)
    kinds = granularity if isinstance(granularity, list) else [granularity] if granularity else []
    shown = ["float4"] if getattr(config, "weight_dtype", None) == FOUR else [type(each).__name__ for each in kinds]
    if getattr(config, "mapping_type", None) == MappingType.ASYMMETRIC:
        shown.append("ASYMMETRIC")
    variant("torchao", torchao.__version__, f"{type(config).__name__}({', '.join(shown)})", quantization)
    assert expected in read(quantization, tmp_path)
