# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the small quantized checkpoints of this folder with the tools that publish such.

  python -m venv V; V/bin/pip install compressed-tensors nvidia-modelopt bitsandbytes requests omegaconf pulp scipy torchao
  pip download --no-deps --no-binary :all: autoawq gptqmodel; tar xzf ...
  V/bin/python make_checkpoints.py AUTOAWQ-SOURCE GPTQMODEL-SOURCE

Each folder has a config.json, a model.safetensors, and an expected.safetensors with some of the
matrices as the tool dequantizes them. Nothing of it is needed to run the tests.
"""

import ast
import contextlib
import functools
import importlib
import json
import math
import sys
import types
from pathlib import Path
from typing import Optional

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
HIDDEN, WIDTH, EXPERTS = 64, 32, 2
MODULES = {"gate_proj": (WIDTH, HIDDEN), "up_proj": (WIDTH, HIDDEN), "down_proj": (HIDDEN, WIDTH)}
# One of each matrix is enough to see where rows, columns and experts go.
EXPECTED = ["experts.0.gate_proj", "experts.1.up_proj", "experts.1.down_proj"]


def write(name, dtype, quantization, pack, width=WIDTH):
    """pack(weight) gives the tensors of a module and its dequantized matrix."""
    generator = torch.Generator().manual_seed(len(name))
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tensors, expected = {}, {}
    tensors["model.layers.0.mlp.gate.weight"] = torch.randn(EXPERTS, HIDDEN, generator=generator).to(dtype)
    for expert in range(EXPERTS):
        for module, shape in MODULES.items():
            shape = [width if size == WIDTH else size for size in shape]
            own = f"experts.{expert}.{module}"
            packed, matrix = pack(torch.randn(*shape, generator=generator) / 8, generator)
            for suffix, tensor in packed.items():
                tensors[f"model.layers.0.mlp.{own}.{suffix}"] = tensor.contiguous()
            if own in EXPECTED:
                expected[own] = matrix.to(torch.float16).contiguous()
        # Gate and up have the same input.
        gate, up = (f"model.layers.0.mlp.experts.{expert}.{name}_proj.input_scale" for name in ("gate", "up"))
        if gate in tensors:
            tensors[gate] = torch.maximum(tensors[gate], tensors[up])
            tensors[up] = tensors[gate].clone()
    config = {
        "model_type": "qwen3_moe", "hidden_size": HIDDEN, "num_experts": EXPERTS, "num_experts_per_tok": 1,
        "moe_intermediate_size": width, "num_hidden_layers": 1, "hidden_act": "silu", "norm_topk_prob": True,
        "torch_dtype": str(dtype).removeprefix("torch."), "quantization_config": quantization,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file(tensors, folder / "model.safetensors")
    save_file(expected, folder / "expected.safetensors")


def compressed(name, form, weights, inputs=None, scale_dtype=torch.bfloat16):
    weights = QuantizationArgs(**weights)
    inputs = QuantizationArgs(**inputs) if inputs else None
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, input_activations=inputs, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)

    def pack(weight, generator):
        rows, columns = weight.shape
        strategy = str(weights.strategy)
        if strategy == "block":
            grid = (1, 1)
        elif "group" in strategy:
            grid = (rows, columns // weights.group_size)
        else:
            grid = (rows if strategy == "channel" else 1, 1)
        scale = torch.rand(*grid, generator=generator) / 64 + 1 / 64
        state = {"weight": weight.to(torch.bfloat16)}
        if form == "nvfp4-pack-quantized":
            state["weight_global_scale"] = torch.rand(1, generator=generator) * 100 + 100
            scale = (scale * 300).to(torch.float8_e4m3fn).to(torch.bfloat16)
        elif form in ("mxfp4-pack-quantized", "mxfp8-quantized"):
            scale = torch.exp2(torch.round(torch.log2(scale * 4)))
        state["weight_scale"] = scale.to(scale_dtype)
        state["weight_zero_point"] = torch.zeros(*grid, dtype=torch.int8)
        if not weights.symmetric:
            half = 2 ** (weights.num_bits - 1)
            state["weight_zero_point"] = torch.randint(-half, half, grid, generator=generator, dtype=torch.int8)
        packed = compressor.compress(state, scheme)
        matrix = compressor.decompress(packed, scheme)["weight"].float()
        if inputs and not inputs.dynamic:
            packed["input_scale"] = torch.rand(1, generator=generator) + 0.5
        return packed, matrix

    write(name, torch.bfloat16, {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
        "kv_cache_scheme": None, "config_groups": {"group_0": scheme.model_dump(mode="json")},
    }, pack)


def bitsandbytes(name, nested, width):
    from bitsandbytes import functional

    def pack(weight, generator):
        # A block of zeros has the largest magnitude 0.
        weight[0, :64] = 0
        packed, state = functional.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=nested)
        beside = {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        return {"weight": packed} | beside, functional.dequantize_4bit(packed, state)

    write(name, torch.bfloat16, {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "_load_in_4bit": True,
        "_load_in_8bit": False, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": "uint8",
        "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested, "llm_int8_enable_fp32_cpu_offload": False,
        "llm_int8_has_fp16_weight": False, "llm_int8_skip_modules": ["lm_head", "mlp.gate"], "llm_int8_threshold": 6.0,
    }, pack, width)


def modelopt(name):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor

    def pack(weight, generator):
        quantized, scale, scale_2 = NVFP4QTensor.quantize(weight, 16)
        matrix = quantized.dequantize(dtype=torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16})
        return {"weight": quantized._quantized_data, "weight_scale": scale, "weight_scale_2": scale_2.reshape([]),
                "input_scale": torch.rand([], generator=generator)}, matrix

    write(name, torch.bfloat16, {
        "quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt", "version": "0.47.0"},
        "ignore": ["lm_head"], "config_groups": {"group_0": {
            "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
            "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}},
    }, pack)


def torchao(name, config):
    """Configurations are of torchao.prototype.mx_formats.inference_workflow, and the names those of its safetensors."""
    from torchao.core.config import config_to_dict
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import quantize_

    def pack(weight, generator):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.bfloat16)
        linear.weight.data = weight.to(torch.bfloat16)
        module = torch.nn.Sequential(linear)
        quantize_(module, config)
        tensors, _ = flatten_tensor_state_dict(module.state_dict())
        matrix = module[0].weight.dequantize(torch.float32)
        return {key.removeprefix("0."): value for key, value in tensors.items()}, matrix

    # Scales are in tiles of 128 rows x 4 columns: two tiles of both directions.
    write(name, torch.bfloat16, {
        "quant_method": "torchao", "quant_type": {"default": config_to_dict(config)}, "quant_type_kwargs": {},
        "include_input_output_embeddings": False, "untie_embedding_weights": False,
        "modules_to_not_convert": ["mlp.gate"],
    }, pack, 160)


def draw(shape, bits, group, symmetric, generator):
    """Scales and zero points, of groups x rows, and a matrix that they represent exactly."""
    rows, columns = shape
    groups = columns // group
    most = 2 ** bits - 1
    scales = (torch.rand(rows, groups, generator=generator) / 64 + 1 / 64).half().float()
    zeros = torch.full((rows, groups), (most + 1) // 2)
    if not symmetric:
        zeros = torch.randint(0, most + 1, (rows, groups), generator=generator)
    elements = torch.randint(0, most + 1, shape, generator=generator)
    spread = lambda projection: projection.repeat_interleave(group, dim=1)
    return scales, zeros, (elements - spread(zeros)) * spread(scales)


def get_functions(source, path, wanted=lambda name: True):
    """Functions of a file of GPTQModel, by their names."""
    tree = ast.parse((Path(source) / "gptqmodel" / path).read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and wanted(node.name)]


def gptq(name, source, bits, group, symmetric, form="gptq"):
    packing = ast.parse((Path(source) / "gptqmodel/utils/planar_packing.py").read_text()).body
    functions = packing + get_functions(
        source, "utils/model_dequant.py", lambda name: "_cols" in name or "_3bit" in name or "_qzeros" in name)
    functions += get_functions(source, "nn_modules/qlinear/__init__.py", lambda name: name == "pack_original")
    none = type("None_", (), {})
    threads = types.SimpleNamespace(threadpool_limits=lambda count: contextlib.nullcontext())
    names = {"nn": torch.nn, "t": torch, "torch": torch, "np": np, "math": math, "THREADPOOLCTL": threads,
             "_ConvNd": none, "Optional": Optional,
             "transformers": types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=none))}
    exec(compile(ast.Module(functions, []), "gptqmodel", "exec"), names)
    size = group if group > 0 else None

    def pack(weight, generator):
        rows, columns = weight.shape
        scales, zeros, matrix = draw(weight.shape, bits, size or columns, symmetric, generator)
        module = torch.nn.Module()
        module.bits, module.maxq, module.pack_factor, module.pack_dtype_bits = bits, 2 ** bits - 1, 32 // bits, 32
        module.pack_np_dtype, module.pack_np_math_dtype, module.planar = np.int32, np.uint32, form == "gptq_p"
        module.pack_dtype = torch.int32
        linear = torch.nn.Linear(columns, rows, bias=False)
        linear.weight.data = matrix
        groups = torch.arange(columns, dtype=torch.int32) // (size or columns)
        names["pack_original"](module, linear, scales, zeros, groups)
        # Like the tool's convert_gptq_v2_to_v1_format_module: subtracts 1 from each element, in the word as a number.
        if form == "gptq" and bits == 3:
            module.qzeros = names["_revert_gptq_v1_qzeros_correction"](module.qzeros, bits)
        elif form == "gptq":
            module.qzeros -= {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}[bits]
        return {key: getattr(module, key) for key in ("qweight", "qzeros", "scales", "g_idx")}, matrix

    write(name, torch.float16, {
        "quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False, "sym": symmetric,
        "checkpoint_format": form, "pack_dtype": "int32", "lm_head": False, "damp_percent": 0.01,
    }, pack)


def awq(name, source, group):
    package = types.ModuleType("awq")
    package.__path__ = [str(Path(source) / "awq")]
    sys.modules["awq"] = package
    sys.modules.setdefault("accelerate", types.ModuleType("accelerate"))
    module = importlib.import_module("awq.modules.linear.gemm")

    def pack(weight, generator):
        rows, columns = weight.shape
        scales, zeros, matrix = draw(weight.shape, 4, group, False, generator)
        linear = torch.nn.Linear(columns, rows, bias=False)
        linear.weight.data = matrix
        packed = module.WQLinear_GEMM.from_linear(linear, 4, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
        return {key: getattr(packed, key) for key in ("qweight", "qzeros", "scales")}, matrix

    write(name, torch.float16, {
        "quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": None,
    }, pack)


def main(awq_source, gptq_source):
    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    channel = {"num_bits": 8, "type": "int", "strategy": "channel"}
    compressed("ct-int4", "pack-quantized", group | {"symmetric": True})
    compressed("ct-int4-zeros", "pack-quantized", group | {"symmetric": False})
    compressed("ct-int3-zeros", "pack-quantized", group | {"num_bits": 3, "symmetric": False})
    compressed("ct-int6", "pack-quantized", group | {"num_bits": 6, "symmetric": True})
    compressed("ct-int8", "pack-quantized", channel | {"symmetric": True})
    compressed("ct-w8a8", "int-quantized", channel | {"symmetric": True},
               {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True})
    compressed("ct-w8a8-zeros", "int-quantized", channel | {"symmetric": False},
               {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False})
    fp8 = {"num_bits": 8, "type": "float"}
    compressed("ct-fp8", "float-quantized", fp8 | {"strategy": "channel"},
               fp8 | {"strategy": "token", "dynamic": True})
    compressed("ct-fp8-block", "float-quantized", fp8 | {"strategy": "block", "block_structure": [128, 128]},
               fp8 | {"strategy": "group", "group_size": 128, "dynamic": True}, torch.float32)
    fp4 = {"num_bits": 4, "type": "float"}
    compressed("ct-nvfp4", "nvfp4-pack-quantized", fp4 | {"strategy": "tensor_group", "group_size": 16})
    compressed("ct-mxfp4", "mxfp4-pack-quantized", fp4 | {"strategy": "group", "group_size": 32})
    mx = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}
    compressed("ct-mxfp8", "mxfp8-quantized", mx | {"scale_dtype": torch.uint8},
               mx | {"dynamic": True, "scale_dtype": torch.uint8})
    bitsandbytes("bnb-nf4", False, 64)
    # Two blocks of scales.
    bitsandbytes("bnb-nf4-nested", True, 320)
    modelopt("modelopt-nvfp4")
    from torchao.prototype.mx_formats import inference_workflow
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference
    mx = functools.partial(inference_workflow.MXDynamicActivationMXWeightConfig,
                           kernel_preference=KernelPreference.EMULATED)
    four = torch.float4_e2m1fn_x2
    torchao("torchao-mxfp8", mx())
    torchao("torchao-mxfp4", mx(activation_dtype=four, weight_dtype=four))
    torchao("torchao-nvfp4", inference_workflow.NVFP4WeightOnlyConfig())
    gptq("gptq-int4", gptq_source, 4, 32, True)
    gptq("gptq-int4-zeros", gptq_source, 4, 32, False)
    gptq("gptq-int2-zeros", gptq_source, 2, 32, False)
    gptq("gptq-int3", gptq_source, 3, 32, True)
    gptq("gptq-int3-zeros", gptq_source, 3, 32, False)
    gptq("gptq-int7-planes", gptq_source, 7, 32, False, "gptq_p")
    gptq("gptq-int8", gptq_source, 8, -1, True)
    gptq("gptq-int8-zeros", gptq_source, 8, 32, False)
    awq("awq-int4", awq_source, 32)


if __name__ == "__main__":
    main(*sys.argv[1:])
