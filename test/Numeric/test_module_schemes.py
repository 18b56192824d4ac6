# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints whose modules have several schemes, or whose names do not follow from the configuration.

The oracle dequantizes by itself, from the definition of each format. Weights are random."""

import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
from runs import TIMEOUT, binary
from safetensors.numpy import load_file, save_file
from test_field_checkpoints import CONFIG, EXPERTS, HIDDEN, PROJECTIONS, TOKENS, TOP_K, add_experts, draw, nvfp4

BF16, E4M3, E8M0 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu
BLOCK = "model.layers.0.mlp."
WIDTH = 64


def words(quantized, axis):
    """Eight values of 4 bits in each word, the first one in the lowest bits."""
    quantized = np.moveaxis(quantized.astype(np.uint32), axis, -1)
    quantized = quantized.reshape(*quantized.shape[:-1], -1, 8)
    packed = sum(quantized[..., i] << np.uint32(4 * i) for i in range(8)).astype(np.uint32).view(np.int32)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis))


def quantize(matrix, group, dtype):
    """Values from -8 to 7 and scales of groups, the last of which may be partial."""
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, 0), (0, -columns % group))).reshape(rows, -1, group)
    scales = (np.abs(padded).max(2) / 7.5).astype(dtype)
    quantized = np.clip(np.round(padded / scales.astype(np.float32)[..., None]), -8, 7)
    meant = (quantized * scales.astype(np.float64)[..., None]).reshape(rows, -1)[:, :columns]
    return quantized.reshape(rows, -1)[:, :columns], scales, meant


def bit_words(codes, bits, axis, planes=()):
    """Words of elements of any bits, whose bits follow each other; or, of each 32 elements, planes of their bits."""
    codes = np.moveaxis(codes.astype(np.uint8), axis, -1)
    codes = codes.reshape(len(codes), -1, 32)
    parts = [(codes[..., None] >> np.arange(first, first + width, dtype=np.uint8) & 1).reshape(*codes.shape[:2], -1)
             for first, width in planes or [(0, bits)]]
    packed = np.packbits(np.concatenate(parts, -1), axis=-1, bitorder="little").view(np.int32)
    return np.ascontiguousarray(np.moveaxis(packed.reshape(len(codes), -1), -1, axis))


def quantize_bits(matrix, bits, group, dtype):
    """Codes from 0 on, scales of groups, and what they mean."""
    groups, middle = matrix.reshape(len(matrix), -1, group), 2 ** (bits - 1)
    scales = (np.abs(groups).max(2) / (middle - 0.5)).astype(dtype)
    codes = np.clip(np.round(groups / scales.astype(np.float32)[..., None]), -middle, middle - 1)
    meant = (codes * scales.astype(np.float64)[..., None]).reshape(matrix.shape)
    return codes.reshape(matrix.shape) + middle, scales, meant


def packed_bits(bits):
    def encode(matrix):
        codes, scales, meant = quantize_bits(matrix, bits, 32, np.float32)
        return {".weight_packed": bit_words(codes, bits, 1), ".weight_scale": scales}, meant

    return encode


def gptq_bits(bits, group=32, planes=(), less=0):
    def encode(matrix):
        codes, scales, meant = quantize_bits(matrix, bits, matrix.shape[1] if group < 0 else group, np.float16)
        zeros = np.full((scales.shape[1], len(matrix)), 2 ** (bits - 1) - less)
        return {".qweight": bit_words(codes.T, bits, 0, planes), ".scales": np.ascontiguousarray(scales.T),
                ".qzeros": bit_words(zeros, bits, 1, planes)}, meant  # fmt: skip

    return encode


def fp8_blocks(matrix):
    side = 128
    rows, columns = (-(-size // side) for size in matrix.shape)
    scales = np.ones((rows, columns), np.float32)
    for i, j in np.ndindex(rows, columns):
        scales[i, j] = np.abs(matrix[i * side:(i + 1) * side, j * side:(j + 1) * side]).max() / 448
    spread = scales.repeat(side, 0).repeat(side, 1)[:matrix.shape[0], :matrix.shape[1]]
    quantized = (matrix / spread).astype(E4M3)
    return {".weight": quantized, ".weight_scale": scales}, quantized.astype(np.float64) * spread


def int8_rows(matrix):
    parts, meant = torchao_int8(matrix)
    return {".weight": parts["._weight_qdata"], ".weight_scale": parts["._weight_scale"]}, meant


def plain(matrix):
    return {".weight": matrix}, matrix.astype(np.float64)


def packed(matrix, group=32):
    quantized, scales, meant = quantize(matrix, group, np.float32)
    shape = np.array(matrix.shape, np.int64)
    return {".weight_packed": words(quantized + 8, 1), ".weight_scale": scales, ".weight_shape": shape}, meant


def gptq(matrix, group=32, bias=0):
    quantized, scales, meant = quantize(matrix, group, np.float16)
    rows, columns = matrix.shape
    zeros = np.full((scales.shape[1], rows // 8), 0x77777777, np.int32)
    return {".qweight": words((quantized + 8).T, 0), ".scales": np.ascontiguousarray(scales.T), ".qzeros": zeros,
            ".g_idx": (np.arange(columns) // group).astype(np.int32),
            ".bias": np.full(rows, bias, np.float16)}, meant  # fmt: skip


def fp8(matrix, suffix=".weight_scale"):
    scales = (np.abs(matrix).max(1, keepdims=True) / 448).astype(np.float32)
    quantized = (matrix / scales).astype(E4M3)
    return {".weight": quantized, suffix: scales}, quantized.astype(np.float64) * scales


def gptqmodel_fp8(matrix, method="row"):
    """GPTQModel 7.7 stores what a weight was multiplied by."""
    size, width = {"row": (1, matrix.shape[1]), "tensor": matrix.shape, "block": (32, 64)}[method]
    blocks = matrix.reshape(len(matrix) // size, size, -1, width)
    factors = (np.float32(448) / np.abs(blocks).max((1, 3))).astype(np.float32)
    spread = factors.repeat(size, 0).repeat(width, 1)
    quantized = np.clip(matrix * spread, -448, 448).astype(E4M3)
    stored = factors.reshape({"row": (-1,), "tensor": (), "block": factors.shape}[method])
    return {".weight": quantized, ".weight_scale_inv": stored}, quantized.astype(np.float64) / spread.astype(np.float64)


def mxfp4(matrix):
    """A byte of two values; the scales are bytes of exponents."""
    rows, columns = matrix.shape
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    blocks = matrix.reshape(rows, -1, 32)
    exponents = np.ceil(np.log2(np.abs(blocks).max(2) / 6))
    steps = np.exp2(exponents)[..., None]
    quantized = np.abs((blocks / steps)[..., None] - grid).argmin(-1).astype(np.uint8)
    meant = (grid[quantized] * steps).reshape(rows, columns)
    quantized = quantized.reshape(rows, columns)
    return {".weight": quantized[:, 0::2] | quantized[:, 1::2] << 4, ".weight_scale": (exponents + 127).astype(np.uint8)}, meant


def autoround_mxfp4(matrix):
    parts, meant = mxfp4(matrix)
    return {".weight_packed": parts[".weight"], ".weight_scale": parts[".weight_scale"]}, meant


def mxfp8(matrix, scale_type=np.uint8):
    """Groups of 32 elements of e4m3 with a power of two, whose exponent is a byte."""
    groups = matrix.reshape(len(matrix), -1, 32)
    exponents = np.ceil(np.log2(np.abs(groups).max(2) / 448))
    steps = np.exp2(exponents)[..., None]
    quantized = (groups / steps).astype(E4M3)
    scales = (exponents + 127).astype(np.uint8).view(scale_type)
    meant = (quantized.astype(np.float64) * steps).reshape(matrix.shape)
    return {".weight": quantized.reshape(matrix.shape), ".weight_scale": scales}, meant


def autoround_nvfp4(matrix):
    """The factor of all scales is stored as its reciprocal."""
    parts, meant = nvfp4(matrix, 1)
    return {".weight_packed": parts[".weight"], ".weight_scale": parts[".weight_scale"],
            ".weight_global_scale": np.float32([1]) / np.float32(parts[".weight_scale_2"]).reshape(1),
            ".input_global_scale": np.float32([3])}, meant  # fmt: skip


def fp4(matrix):
    parts, meant = nvfp4(matrix, 1)
    return parts | {".weight_scale_2": np.asarray(parts[".weight_scale_2"])}, meant


def int8(matrix):
    """Bytes of bitsandbytes, whose scales are 127 times as large."""
    largest = np.abs(matrix).max(1)
    quantized = np.round(matrix * 127 / largest[:, None]).astype(np.int8)
    meant = quantized.astype(np.float64) * (largest / np.float32(127))[:, None]
    return {".weight": quantized, ".SCB": largest, ".weight_format": np.asarray(np.uint8(0))}, meant


def torchao(matrix):
    """Rows of e4m3, as Float8Tensor of torchao 0.18 is written to safetensors."""
    parts, meant = fp8(matrix)
    return {"._weight_qdata": parts[".weight"], "._weight_scale": parts[".weight_scale"]}, meant


def torchao_int8(matrix):
    scales = (np.abs(matrix).max(1, keepdims=True) / 127).astype(np.float32)
    quantized = np.round(matrix / scales).astype(np.int8)
    return {"._weight_qdata": quantized, "._weight_scale": scales}, quantized * scales.astype(np.float64)


def awq(matrix, group=32):
    """Words of eight rows in AWQ's order; symmetric, as GPTQModel 7.7 writes it by default: all zero points are 8."""
    groups = matrix.reshape(len(matrix), -1, group)
    scales = (np.abs(groups).max(2) / 7).astype(np.float16)
    step = scales.astype(np.float64)[..., None]
    codes = np.clip(np.round(groups / step), -8, 7)
    meant = (codes * step).reshape(matrix.shape)

    def pack(rows):
        places = rows.astype(np.uint32).T.reshape(rows.shape[1], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        packed = (places << np.arange(0, 32, 4, dtype=np.uint32)).sum(2, dtype=np.uint32)
        return np.ascontiguousarray(packed).view(np.int32)

    return {".qweight": pack(codes.reshape(matrix.shape) + 8), ".qzeros": pack(np.full(scales.shape, 8)),
            ".scales": scales.T.copy()}, meant  # fmt: skip


def torchao_int4(matrix, group=32):
    """Int4Tensor of torchao 0.18: signed codes in pairs, scales and values of code 0 in bf16, transposed."""
    groups = matrix.reshape(len(matrix), -1, group)
    least = groups.min(2)
    scales = ((groups.max(2) - least) / 15).astype(BF16)
    zeros = (least + 8 * scales.astype(np.float32)).astype(BF16)
    step, zero = (each.astype(np.float64)[..., None] for each in (scales, zeros))
    codes = np.clip(np.round((groups - zero) / step), -8, 7).astype(np.int8)
    meant = (codes * step + zero).reshape(matrix.shape)
    codes = codes.reshape(matrix.shape)
    return {"._weight_qdata": codes[:, 0::2] & 15 | codes[:, 1::2] << 4, "._weight_scale": scales.T.copy(),
            "._weight_zero_point": zeros.T.copy()}, meant  # fmt: skip


#: The values of bitsandbytes' fp4, of the largest of a block.
FP4_VALUES = np.array([0, 0.0052083333, 0.6666667, 1, 0.33333334, 0.5, 0.16666667, 0.25], np.float32)


def bnb_fp4(matrix, nested=False):
    """Codes of blocks of 64 elements in one column, the first one in the high half of a byte, and their values."""
    values = np.concatenate([FP4_VALUES, -FP4_VALUES])
    blocks = matrix.reshape(-1, 64)
    largest = np.abs(blocks).max(1).astype(np.float32)
    codes = np.abs((blocks / largest[:, None])[..., None] - values).argmin(-1).astype(np.uint8).reshape(-1, 2)
    state = {"quant_type": "fp4", "blocksize": 64, "shape": list(matrix.shape), "dtype": "float32"}
    parts = {".weight": (codes[:, :1] << 4 | codes[:, 1:]), ".weight.quant_map": values}
    if nested:
        # Scales of 8 bits, and f32 factors of blocks of 256.
        numbers, offset = np.linspace(-1, 1, 256, dtype=np.float32), np.float32(largest.mean())
        factors = np.float32([np.abs(each - offset).max() for each in np.split(largest, range(256, len(largest), 256))])
        of_scale = np.repeat(factors, 256)[:len(largest)]
        indices = np.abs(((largest - offset) / of_scale)[:, None] - numbers).argmin(1).astype(np.uint8)
        largest = numbers[indices] * of_scale + offset
        state |= {"nested_blocksize": 256, "nested_offset": float(offset), "nested_dtype": "float32"}
        parts |= {".weight.absmax": indices, ".weight.nested_absmax": factors, ".weight.nested_quant_map": numbers}
    else:
        parts[".weight.absmax"] = largest
    parts[".weight.quant_state.bitsandbytes__fp4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    meant = values[codes.reshape(-1, 64)].astype(np.float64) * largest.astype(np.float64)[:, None]
    return parts, meant.reshape(matrix.shape)


def run(folder, config, tensors, dtype=np.float32, layer=0, inputs=None, arguments=()):
    """The layer's input, its output and what moe-run said. `inputs` are those of the call beside hidden states."""
    x = draw(np.random.default_rng(11), TOKENS, HIDDEN, scale=1).astype(dtype)
    save_file(tensors, folder / "model.safetensors")
    save_file({"hidden_states": x} | (inputs or {}), folder / "x.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    command = [binary("moe-run"), folder, f"--hidden-states={folder / 'x.safetensors'}",
               f"--outputs={folder / 'y.safetensors'}", f"--tokens={TOKENS}", f"--layer={layer}", *arguments]  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    said = done.stdout + done.stderr
    output = load_file(folder / "y.safetensors")["output"] if done.returncode == 0 else None
    return x.astype(np.float64), output, said


def choose(x, router):
    """Ids and weights of Qwen3's softmax."""
    logits = x @ router.astype(np.float64).T
    ids = np.argsort(-logits, 1)[:, :TOP_K]
    weights = np.exp(np.take_along_axis(logits, ids, 1))
    return ids, weights / weights.sum(1, keepdims=True)


def expect_near(got, expected, tolerance=2e-5):
    error = np.abs(got.astype(np.float64) - expected).max() / np.abs(expected).max()
    assert error < tolerance, error


def make(encode, width=WIDTH, name="{block}experts.{e}.{projection}", dtype=np.float32):
    """A checkpoint of which `encode(expert, projection)` gives the encoder of each matrix."""
    rng = np.random.default_rng(1)
    tensors, meant = {BLOCK + "gate.weight": draw(rng, EXPERTS, HIDDEN).astype(dtype)}, {p: [] for p in PROJECTIONS}
    for e in range(EXPERTS):
        for projection in PROJECTIONS:
            matrix = draw(rng, *((HIDDEN, width) if projection == "down_proj" else (width, HIDDEN)))
            parts, weights = encode(e, projection)(matrix)
            module = name.format(block=BLOCK, e=e, projection=projection)
            tensors |= {module + suffix: tensor for suffix, tensor in parts.items()}
            meant[projection].append(weights)
    return tensors, meant


INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False}
FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
EXPERT_OF_FP8 = {"targets": ["re:.*experts.2.*"], "weights": FP8, "format": "float-quantized"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False}


def compressed(*groups, **more):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*mlp.gate$"],
            "config_groups": {f"group_{i}": group for i, group in enumerate(groups)}, **more}  # fmt: skip


def modelopt(**modules):
    layers = {f"{BLOCK}experts.{e}": {"quant_algo": algo, "group_size": 16} for e, algo in modules.items()}
    return {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}


PER_ROW = {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}


PLAIN_INT4 = {"set_inductor_config": True, "int4_tile_packed_ntile": 8,
              "int4_packing_format": {"_type": "Int4PackingFormat", "_data": "PLAIN"},
              "int4_choose_qparams_algorithm": {"_type": "Int4ChooseQParamsAlgorithm", "_data": "TINYGEMM"}}  # fmt: skip


def torchao_config(name, **fields):
    """What TorchAoConfig.to_dict() of Transformers holds."""
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_version": 2, "_data": fields}},
            "quant_type_kwargs": {}, "include_input_output_embeddings": False, "untie_embedding_weights": False,
            "modules_to_not_convert": ["mlp.gate"]}  # fmt: skip


#: Activations of 4 bits stay in the layer's dtype.
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "act_bits": 4, "act_dynamic": True, "act_sym": True, "sym": True,
              "autoround_version": "0.16.1", "iters": 200, "block_name_to_quantize": "model.layers"}  # fmt: skip
GPTQMODEL_FP8 = {
    "quant_method": "fp8", "method": "fp8", "bits": 8, "group_size": -1, "desc_act": False, "lm_head": False,
    "format": "float8_e4m3fn", "checkpoint_format": "float8_e4m3fn", "pack_dtype": "int32",
    "weight_scale_semantics": "inverse", "weight_block_size": None, "meta": {"mse": 0.0},
}  # fmt: skip
CASES = {
    "groups that differ by projection": (
        compressed({"targets": ["re:.*(gate|up)_proj$"], "weights": INT4, "format": "pack-quantized"},
                   {"targets": ["re:.*down_proj$"], "weights": FP8, "format": "float-quantized"},
                   format="mixed-precision"),
        lambda e, p: fp8 if p == "down_proj" else packed),
    "groups that differ by expert": (
        compressed(EXPERT_OF_FP8, {"targets": ["RoutedExperts"], "weights": INT4}),
        lambda e, p: fp8 if e == 2 else packed),
    "an expert that is not quantized": (
        compressed({"targets": ["Linear"], "weights": INT4}), lambda e, p: plain if e == 1 else packed),
    "the name of a parent": (
        compressed({"targets": ["Linear"], "weights": INT4}, ignore=["lm_head", "model.layers.0.mlp.experts.0"]),
        lambda e, p: packed),
    "a group with a tail": (
        compressed({"targets": ["Linear"], "weights": INT4 | {"group_size": 48}}), lambda e, p: lambda m: packed(m, 48)),
    "expressions of GPTQModel": (
        GPTQ | {"dynamic": {"-:.*.mlp.gate.*": {}, "-:.*experts.0.down_proj": {}, "+:.*experts.1.*": {"group_size": 64}}},
        lambda e, p: plain if (e, p) == (0, "down_proj") else (lambda m: gptq(m, 64)) if e == 1 else gptq),
    "algorithms of ModelOpt": (
        modelopt(**{"0": "W4A16_NVFP4", "1": "W4A16_NVFP4", "2": "W4A16_NVFP4"}),
        lambda e, p: plain if e == 3 else fp4),
    "a layer that AWQ leaves out": (
        {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True,
         "modules_to_not_convert": ["model.layers.0."]}, lambda e, p: plain),
    "words of GPTQ by AutoRound": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "data_type": "int",
         "packing_format": "auto_round:auto_gptq", "extra_config": {BLOCK + "experts.3.up_proj": {"bits": 16}}},
        lambda e, p: plain if (e, p) == (3, "up_proj") else gptq),
    "mxfp4 of AutoRound": (
        AUTO_ROUND | {"group_size": 32, "data_type": "mx_fp", "act_data_type": "mx_fp", "act_group_size": 32,
                      "packing_format": "auto_round:mx_fp", "extra_config": {BLOCK + "experts.3": {"bits": 16}}},
        lambda e, p: plain if e == 3 else autoround_mxfp4),
    "mxfp8 of AutoRound": (
        AUTO_ROUND | {"bits": 8, "act_bits": 16, "group_size": 32, "data_type": "mx_fp",
                      "packing_format": "auto_round:mx_fp"},
        lambda e, p: (lambda m: mxfp8(m, E8M0)) if e == 1 else mxfp8),
    "nvfp4 of AutoRound": (
        AUTO_ROUND | {"group_size": 16, "data_type": "nv_fp", "act_data_type": "nv_fp4_with_static_gs",
                      "act_group_size": 16, "packing_format": "auto_round:nv_fp"}, lambda e, p: autoround_nvfp4),
    "mxfp4 of Quark": (
        {"quant_method": "quark", "global_quant_config": {"weight": {
            "dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": False, "symmetric": None}},
         "exclude": ["lm_head", "*mlp.gate"]}, lambda e, p: mxfp4),
    "rows of torchao": (
        torchao_config("Float8WeightOnlyConfig", weight_dtype={"_type": "torch.dtype", "_data": "float8_e4m3fn"},
                       granularity=PER_ROW, set_inductor_config=True), lambda e, p: torchao),
    "modules of torchao": (
        torchao_config("FqnToConfig", fqn_to_config={
            "_default": {"_type": "Int8WeightOnlyConfig", "_version": 2, "_data": {"granularity": PER_ROW}},
            r"re:.*experts\.1\..*": None}), lambda e, p: plain if e == 1 else torchao_int8),
    "symmetric words of AWQ by GPTQModel": (
        {"quant_method": "awq", "method": "awq", "bits": 4, "group_size": 32, "desc_act": False, "lm_head": False,
         "format": "gemm", "checkpoint_format": "gemm", "pack_dtype": "int32", "zero_point": False, "version": "gemm",
         "modules_to_not_convert": ["mlp.gate"], "meta": {"quantizer": ["gptqmodel:7.7.0"]}}, lambda e, p: awq),
    "groups of torchao": (
        torchao_config("Int4WeightOnlyConfig", group_size=32, **PLAIN_INT4), lambda e, p: torchao_int4),
    "groups of torchao beside plain experts": (
        torchao_config("FqnToConfig", fqn_to_config={
            "_default": {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": 32} | PLAIN_INT4},
            r"re:.*experts\.1\..*": None}), lambda e, p: plain if e == 1 else torchao_int4),
    "rows of GPTQModel's fp8 beside tensors and plain ones": (
        GPTQMODEL_FP8 | {"weight_scale_method": "row", "dynamic": {
            "-:.*experts.0.down_proj": {}, "+:.*experts.1.*": {"weight_scale_method": "tensor"}}},
        lambda e, p: plain if (e, p) == (0, "down_proj") else
        lambda m: gptqmodel_fp8(m, "tensor" if e == 1 else "row")),
    "blocks of GPTQModel's fp8": (
        GPTQMODEL_FP8 | {"weight_scale_method": "block", "weight_block_size": [32, 64]},
        lambda e, p: lambda m: gptqmodel_fp8(m, "block")),
    "AWQ of GPTQModel without an expert": (
        {"quant_method": "awq", "method": "awq", "bits": 4, "group_size": 32, "format": "gemm", "version": "gemm",
         "zero_point": False, "dynamic": {"-:.*experts.3.*": {}, "-:.*mlp.gate": {}}},
        lambda e, p: plain if e == 3 else awq),
    "fp4 of bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True}, lambda e, p: bnb_fp4),
    "fp4 of bitsandbytes with nested scales": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4",
         "bnb_4bit_use_double_quant": True}, lambda e, p: lambda m: bnb_fp4(m, nested=True)),
    "bytes of bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, lambda e, p: int8),
}  # fmt: skip


#: A tool's forms that differ only in bits, zero points or what shares a scale.
CASES |= {
    f"{bits} bits of compressed-tensors": (
        compressed({"targets": ["Linear"], "weights": INT4 | {"num_bits": bits}}), lambda e, p, bits=bits: packed_bits(bits))
    for bits in (2, 3, 5, 7, 8)
} | {
    "2 bits of GPTQ": (GPTQ | {"bits": 2}, lambda e, p: gptq_bits(2, less=1)),
    "rows of GPTQ": (GPTQ | {"group_size": -1}, lambda e, p: gptq_bits(4, -1, less=1)),
    "gptq_v2": (GPTQ | {"checkpoint_format": "gptq_v2"}, lambda e, p: gptq_bits(4)),
    "3 bits in planes": (GPTQ | {"bits": 3, "format": "gptq_p"}, lambda e, p: gptq_bits(3, planes=[(0, 2), (2, 1)])),
    "5 bits in planes": (GPTQ | {"bits": 5, "format": "gptq_p"}, lambda e, p: gptq_bits(5, planes=[(0, 4), (4, 1)])),
    "bits of a module": (
        GPTQ | {"format": "gptq_p", "dynamic": {"+:.*experts.*": {"bits": 6}}},
        lambda e, p: gptq_bits(6, planes=[(0, 4), (4, 2)])),
    "2 bits of AutoRound": (
        {"quant_method": "auto-round", "bits": 2, "group_size": 32, "sym": True, "packing_format": "auto_round:gptq"},
        lambda e, p: gptq_bits(2, less=1)),
    "4 bits of AutoRound": (
        {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "packing_format": "auto_round:gptq"},
        lambda e, p: gptq_bits(4, less=1)),
    "rows of GPTQModel's fp8": (GPTQMODEL_FP8 | {"weight_scale_method": "row"}, lambda e, p: gptqmodel_fp8),
    "one scale of GPTQModel's fp8": (
        GPTQMODEL_FP8 | {"weight_scale_method": "tensor"}, lambda e, p: lambda m: gptqmodel_fp8(m, "tensor")),
    "int8 of torchao": (torchao_config("Int8WeightOnlyConfig"), lambda e, p: torchao_int8),
    "5 bits of AutoRound": (
        {"quant_method": "auto-round", "bits": 5, "group_size": 32, "sym": True, "packing_format": "auto_round:gptq"},
        lambda e, p: gptq_bits(5, less=1)),
    "blocks of ModelOpt": ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, lambda e, p: fp8_blocks),
    "bytes of ModelOpt": ({"quant_method": "modelopt", "quant_algo": "W8A16"}, lambda e, p: int8_rows),
}  # fmt: skip


# field-bug: vllm#43227
# parity: L45, L47
@pytest.mark.parametrize("case", CASES)
def test_schemes(case, tmp_path):
    quantization, encode = CASES[case]
    tensors, meant = make(encode)
    x, got, said = run(tmp_path, CONFIG | {"quantization_config": quantization}, tensors)
    assert got is not None, said
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))


def tensor_fp8(matrix):
    scale = np.float32(np.abs(matrix).max() / 448)
    quantized = (matrix / scale).astype(E4M3)
    return {".weight": quantized, ".weight_scale": np.full(1, scale)}, quantized.astype(np.float64) * scale


def as_bytes(parts, *suffixes):
    return {suffix: tensor.view(np.uint8) if suffix in suffixes else tensor for suffix, tensor in parts.items()}


FP8_TENSORS = compressed({"targets": ["Linear"], "weights": FP8 | {"strategy": "tensor"}}, format="float-quantized")
FP8_ROWS = compressed({"targets": ["Linear"], "weights": FP8}, format="float-quantized")
EACH = "{block}experts.{e}.{projection}"
#: Published layouts: the configuration, the encoder of a matrix, and the names of modules.
LAYOUTS = {
    "expert behind its projection": (FP8_ROWS, fp8, "{block}experts.{projection}.{e}"),
    "plain expert behind its projection": (None, plain, "{block}experts.{projection}.{e}"),
    "bytes of e4m3": (FP8_ROWS, lambda m: (as_bytes(fp8(m)[0], ".weight"), fp8(m)[1]), EACH),
    "bytes of e4m3 scales": (modelopt(**{str(e): "W4A16_NVFP4" for e in range(EXPERTS)}),
                             lambda m: (as_bytes(fp4(m)[0], ".weight_scale"), fp4(m)[1]), EACH),
    "scales of a tensor": (FP8_TENSORS, tensor_fp8, EACH),
    "scales of rows in one dimension": (
        FP8_ROWS, lambda m: (fp8(m)[0] | {".weight_scale": fp8(m)[0][".weight_scale"][:, 0].copy()}, fp8(m)[1]), EACH),
    "scales of rows in bf16": (FP8_ROWS, lambda m: bf16_scales(m), EACH),
    "zero points of zeros": (
        FP8_ROWS, lambda m: (fp8(m)[0] | {".weight_zero_point": np.zeros((len(m), 1), np.int8)}, fp8(m)[1]), EACH),
}  # fmt: skip


def bf16_scales(matrix):
    scales = (np.abs(matrix).max(1, keepdims=True) / 448).astype(BF16)
    quantized = (matrix / scales.astype(np.float32)).astype(E4M3)
    return {".weight": quantized, ".weight_scale": scales}, quantized.astype(np.float64) * scales.astype(np.float64)


# parity: L43
@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts(case, tmp_path):
    quantization, encode, name = LAYOUTS[case]
    tensors, meant = make(lambda e, p: encode, name=name)
    # Scales of a key-value cache belong to attention.
    tensors |= {"model.layers.0.self_attn.k_proj.k_scale": np.float32([1])}
    x, got, said = run(tmp_path, CONFIG | ({"quantization_config": quantization} if quantization else {}), tensors)
    assert got is not None, said
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))


# parity: L31
@pytest.mark.parametrize("shape", [(EXPERTS,), (EXPERTS, 1, 1)])
def test_one_scale_of_gate_and_up(shape, tmp_path):
    rng = np.random.default_rng(6)
    tensors, meant = {BLOCK + "gate.weight": draw(rng, EXPERTS, HIDDEN)}, []
    for name, size in (("gate_up_proj", (2 * WIDTH, HIDDEN)), ("down_proj", (HIDDEN, WIDTH))):
        parts, matrices = zip(*(tensor_fp8(draw(rng, *size)) for _ in range(EXPERTS)), strict=True)
        tensors |= {f"{BLOCK}experts.{name}": np.stack([part[".weight"] for part in parts]),
                    f"{BLOCK}experts.{name}_scale": np.stack([part[".weight_scale"] for part in parts]).reshape(shape)}
        meant.append(np.stack(matrices))
    x, got, said = run(tmp_path, CONFIG | {"quantization_config": FP8_TENSORS}, tensors)
    assert got is not None, said
    meant = dict(zip(PROJECTIONS, (meant[0][:, :WIDTH], meant[0][:, WIDTH:], meant[1]), strict=True))
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))


# Values of the router that bf16 lacks decide between experts.
# field-bug: Automodel#3674, Automodel#3818
def test_router_in_f32(tmp_path):
    rng = np.random.default_rng(3)
    tensors, meant = make(lambda e, p: lambda m: plain(m.astype(BF16)))
    # All experts are near each other: bf16 cannot tell them apart.
    common = draw(rng, 1, HIDDEN, scale=1)
    router = tensors[BLOCK + "gate.weight"] = (common + draw(rng, EXPERTS, HIDDEN, scale=1e-3)).astype(np.float32)
    x, got, said = run(tmp_path, CONFIG | {"torch_dtype": "bfloat16"}, tensors, dtype=BF16)
    assert got is not None, said
    ids, weights = choose(x, router)
    assert (np.sort(ids) != np.sort(choose(x, router.astype(BF16))[0])).any()
    expect_near(got, add_experts(x, ids, weights, meant), 2e-2)


# parity: L11, L52
@pytest.mark.parametrize("name, dtype", [("bfloat16", BF16), ("float16", np.float16)])
def test_rounded_weights(name, dtype, tmp_path):
    config = CONFIG | {"torch_dtype": name}
    tensors, _ = make(lambda e, p: plain)
    folders = [tmp_path / each for each in ("refused", "rounded", "before", "large")]
    for folder in folders:
        folder.mkdir()
    _, got, said = run(folders[0], config, tensors, dtype=dtype)
    assert got is None and "which has no value" in said and "round weights by --round-weights" in said
    _, got, said = run(folders[1], config, tensors, dtype=dtype, arguments=["--round-weights"])
    assert got is not None, said
    # As if the file had been rounded, but for the router, which f32 files keep.
    rounded = {name: each if "gate.weight" in name else each.astype(dtype) for name, each in tensors.items()}
    _, expected, said = run(folders[2], config, rounded, dtype=dtype)
    assert expected is not None, said
    assert np.array_equal(got, expected)
    too_large = {name: each if "gate.weight" in name else np.full_like(each, 3.4e38) for name, each in tensors.items()}
    _, got, said = run(folders[3], config, too_large, dtype=dtype, arguments=["--round-weights"])
    assert got is None and "which has no value 3.39999995E+38" in said


# An encoder has layers of the same numbers, under "layer.1".
def test_switch_transformers(tmp_path):
    rng, tensors, own = np.random.default_rng(9), {}, {}
    for block in ("encoder.block.1.layer.1", "decoder.block.1.layer.2"):
        own = {f"{block}.mlp.router.classifier.weight": draw(rng, EXPERTS, HIDDEN)}
        for e in range(EXPERTS):
            own[f"{block}.mlp.experts.expert_{e}.wi.weight"] = draw(rng, WIDTH, HIDDEN)
            own[f"{block}.mlp.experts.expert_{e}.wo.weight"] = draw(rng, HIDDEN, WIDTH)
        tensors |= own | {f"{block}.layer_norm.weight": draw(rng, HIDDEN)}
    tensors["decoder.block.1.layer.0.SelfAttention.k.weight"] = draw(rng, HIDDEN, HIDDEN)
    config = {"model_type": "switch_transformers", "d_model": HIDDEN, "d_ff": WIDTH, "num_experts": EXPERTS,
              "expert_capacity": TOKENS, "decoder_sparse_step": 2, "num_decoder_layers": 2, "torch_dtype": "float32"}
    x, got, said = run(tmp_path, config, tensors, layer=1, arguments=[f"--max-tokens={TOKENS}"])
    assert got is not None, said
    router, *experts = own.values()
    logits = x @ router.astype(np.float64).T
    chances = np.exp(logits - logits.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    ids = chances.argmax(1)
    expect_near(got, np.stack([
        chances[t, e] * (experts[2 * e + 1] @ np.maximum(experts[2 * e].astype(np.float64) @ x[t], 0))
        for t, e in enumerate(ids)]))


# Experts that MoNE has replaced return their vector, with the weight that the router gives them.
@pytest.mark.parametrize("encode", [plain, packed], ids=["names", "int4"])
def test_constant_experts(encode, tmp_path):
    constant = [1, EXPERTS - 1]
    tensors, meant = make(lambda e, p: encode)
    rng, vectors = np.random.default_rng(8), {}
    for e in constant:
        tensors = {name: tensor for name, tensor in tensors.items() if f".experts.{e}." not in name}
        vectors[e] = tensors[f"{BLOCK}experts.{e}.approx_value"] = draw(rng, HIDDEN, scale=1)
        for matrices in meant.values():
            matrices[e] = np.zeros_like(matrices[e])
    if encode is packed:
        config = CONFIG | {"approximate_experts": {"0": constant, "1": [0]},
                           "quantization_config": compressed({"targets": ["Linear"], "weights": INT4})}
    else:
        replacements = {str(e): {"format": "constant-v1", "tensors": {"value": f"{BLOCK}experts.{e}.approx_value"}}
                        for e in constant}
        config = CONFIG | {"compression_config": {"transform_config": {"expert_substitution": {
            "version": 1, "router_semantics": {"preserve_logical_expert_ids": True, "preserve_router_weights": True,
                                               "renormalize_after_substitution": False},
            "targets": {f"{BLOCK}experts": {"weight_layout": "compact_retained_experts",
                                            "replacements": replacements}}}}}}
    x, got, said = run(tmp_path, config, tensors, arguments=["--check"])
    assert got is not None, said
    assert "makes 2 experts constant" in said
    ids, weights = choose(x, tensors[BLOCK + "gate.weight"])
    expected = add_experts(x, ids, weights, meant)
    for t, k in np.ndindex(*ids.shape):
        expected[t] += weights[t, k] * vectors.get(int(ids[t, k]), np.zeros(HIDDEN))
    assert np.isin(ids, constant).any()
    expect_near(got, expected)
    del tensors[f"{BLOCK}experts.1.approx_value"]
    (tmp_path / "y.safetensors").unlink()
    _, got, said = run(tmp_path, config, tensors)
    assert got is None and "experts.1.approx_value' for 'experts.w13_bias'" in said


# field-bug: transformers#47031, vllm#47058, vllm#47874
@pytest.mark.parametrize("transposed", [True, False])
def test_qwen3_vl_in_both_orders(transposed, tmp_path):
    rng = np.random.default_rng(4)
    first, down = draw(rng, EXPERTS, 2 * WIDTH, HIDDEN), draw(rng, EXPERTS, HIDDEN, WIDTH)
    order = (0, 2, 1) if transposed else (0, 1, 2)
    block = "model.language_model.layers.0.mlp."
    router = draw(rng, EXPERTS, HIDDEN)
    tensors = {block + "gate.weight": router, block + "experts.gate_up_proj": first.transpose(order).copy(),
               block + "experts.down_proj": down.transpose(order).copy()}  # fmt: skip
    config = {"model_type": "qwen3_vl_moe", "text_config": CONFIG | {"model_type": "qwen3_vl_moe_text"}}
    x, got, said = run(tmp_path, config, tensors)
    assert got is not None, said
    meant = dict(zip(PROJECTIONS, (first[:, :WIDTH], first[:, WIDTH:], down), strict=True))
    expect_near(got, add_experts(x, *choose(x, router), {p: m.astype(np.float64) for p, m in meant.items()}))


# Numbers of multi-token prediction layers continue those of the decoder, or start at 0.
# field-bug: llm-compressor#2735, omlx#2326, jjang-ai/vmlx#213, vllm-ascend#5794
@pytest.mark.parametrize("block", ["model.layers.2.mlp.", "mtp.layers.0.mlp."])
def test_multi_token_prediction(block, tmp_path):
    tensors, meant = make(lambda e, p: plain)
    tensors = tensors | {name.replace(BLOCK, block): tensor * 2 for name, tensor in tensors.items()}
    x, got, said = run(tmp_path, CONFIG | {"num_nextn_predict_layers": 1}, tensors, layer=2)
    assert got is not None, said
    meant = {projection: [2 * matrix for matrix in matrices] for projection, matrices in meant.items()}
    expect_near(got, add_experts(x, *choose(x, tensors[block + "gate.weight"]), meant))
    (tmp_path / "y.safetensors").unlink()
    _, got, said = run(tmp_path, CONFIG | {"num_nextn_predict_layers": 1}, tensors, layer=3)
    assert got is None and "2 decoder layers, counted from 0, and 1 of multi-token prediction" in said, said


# Each refusal names the field and the contents of the file.
@pytest.mark.parametrize(
    ("quantization", "encode", "message"),
    [
        pytest.param(GPTQ, lambda e, p: lambda m: gptq(m, bias=1), "and the model's experts have no bias", id="a bias"),
        pytest.param(torchao_config("Int4WeightOnlyConfig", **PLAIN_INT4 | {"int4_packing_format": {
            "_type": "Int4PackingFormat", "_data": "TILE_PACKED_TO_4D"}}), lambda e, p: torchao_int4,
            '"TILE_PACKED_TO_4D" is not supported; "PLAIN" is', id="words of one kernel"),
        pytest.param(GPTQ, lambda e, p: packed, "by 'quantization_config'); the file has", id="another tool's words"),
    ],
)
def test_refused(quantization, encode, message, tmp_path):
    tensors, _ = make(encode)
    _, got, said = run(tmp_path, CONFIG | {"quantization_config": quantization}, tensors)
    assert got is None and message in said, said
