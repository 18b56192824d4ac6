# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints of MLX, and of tools whose matrices the loader decodes.

Encoders pack as the tools do, and the oracle takes what they mean from the definition of each form in float64.
test/Frameworks/test_encoders.py compares the encoders with the tools themselves."""

import ml_dtypes
import numpy as np
import pytest
from test_field_checkpoints import CONFIG, EXPERTS, HIDDEN, PROJECTIONS, add_experts, draw
from test_module_schemes import (
    BLOCK,
    EACH,
    WIDTH,
    bit_words,
    choose,
    expect_near,
    fp4,
    make,
    mxfp4,
    mxfp8,
    plain,
    run,
    torchao_config,
    words,
)

F16, BF16, E4M3 = np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def affine(matrix, bits, group, dtype):
    """Codes from 0 on, scales and the values of code 0. As in MLX, some scales are negative."""
    groups = matrix.reshape(len(matrix), -1, group)
    least, most = groups.min(2), groups.max(2)
    turned = np.abs(most) > np.abs(least)
    scales = (np.where(turned, least - most, most - least) / (2**bits - 1)).astype(dtype)
    biases = np.where(turned, most, least).astype(dtype)
    step, bias = scales.astype(np.float64)[..., None], biases.astype(np.float64)[..., None]
    codes = np.clip(np.round((groups - bias) / step), 0, 2**bits - 1)
    return codes.reshape(matrix.shape).astype(np.uint8), scales, biases, (codes * step + bias).reshape(matrix.shape)


def mlx(bits, group=32, dtype=np.float32, biases=".biases"):
    def encode(matrix):
        codes, scales, least, meant = affine(matrix, bits, group, dtype)
        return {".weight": bit_words(codes, bits, 1).view(np.uint32), ".scales": scales, biases: least}, meant

    return encode


def mlx_mxfp4(matrix):
    parts, meant = mxfp4(matrix)
    return {".weight": parts[".weight"].view(np.uint32), ".scales": parts[".weight_scale"]}, meant


def mlx_mxfp8(matrix):
    parts, meant = mxfp8(matrix)
    return {".weight": parts[".weight"].view(np.uint32), ".scales": parts[".weight_scale"]}, meant


def mlx_nvfp4(matrix):
    """The factor is the largest magnitude, which e4m3's and e2m1's largest values stand for."""
    parts, meant = fp4(matrix)
    most = np.float32(parts[".weight_scale_2"]).reshape(1) * np.float32(448 * 6)
    return {".weight": parts[".weight"].view(np.uint32), ".scales": parts[".weight_scale"].view(np.uint8),
            ".global_scale": most}, meant  # fmt: skip


def zeros_of(matrix, group, dtype=F16):
    """Codes of 4 bits, scales and zero points."""
    groups = matrix.reshape(len(matrix), -1, group)
    scales = ((groups.max(2) - groups.min(2)) / 15).astype(dtype)
    step = scales.astype(np.float64)[..., None]
    zeros = np.clip(np.round(-groups.min(2) / scales.astype(np.float64)), 0, 15)
    codes = np.clip(np.round(groups / step) + zeros[..., None], 0, 15)
    meant = ((codes - zeros[..., None]) * step).reshape(matrix.shape)
    return codes.reshape(matrix.shape).astype(np.uint8), scales, zeros.astype(np.uint8), meant


def pad_groups(array, multiple):
    return np.pad(array, ((0, 0), (0, -array.shape[1] % multiple)))


def awq_gemv(matrix, group=32):
    codes, scales, zeros, meant = zeros_of(matrix, group)
    # Four words of zeros at least, in groups of 32.
    return {".qweight": words(codes, 1), ".qzeros": words(pad_groups(zeros, 32), 1),
            ".scales": pad_groups(scales, 32)}, meant  # fmt: skip


def order_fast(codes):
    """The order of elements in AutoAWQ's and llm-awq's newer kernels."""
    rows, columns = codes.shape
    codes = codes.reshape(rows, -1, 4, 4, 2).transpose(0, 1, 3, 2, 4).reshape(rows, -1, 4, 4, 2)
    codes = codes.transpose(0, 1, 2, 4, 3).reshape(rows // 4, 4, columns // 64, 64)
    codes = codes.transpose(0, 2, 1, 3).reshape(rows // 4, columns, 4).astype(np.uint16)
    return (codes << np.arange(0, 16, 4, dtype=np.uint16)).sum(2, dtype=np.uint16).view(np.int16)


def awq_fast(zeros_name, group=32):
    def encode(matrix):
        codes, scales, zeros, _ = zeros_of(matrix, group)
        least = -(scales.astype(np.float32) * zeros).astype(F16)
        spread = [each.astype(np.float64).repeat(group, 1) for each in (scales, least)]
        return {".qweight": order_fast(codes), ".scales": pad_groups(scales, 32).T.copy(),
                zeros_name: pad_groups(least, 32).T.copy()}, codes * spread[0] + spread[1]  # fmt: skip

    return encode


def marlin(names, group=32):
    """Tiles of 16 x 16 in the order of a warp's threads, as AutoAWQ and AutoGPTQ permute them."""
    order = []
    for i in range(32):
        own = [16 * row + i // 4 + 8 * block for block in (0, 1)
               for row in (2 * (i % 4), 2 * (i % 4) + 1, 2 * (i % 4 + 4), 2 * (i % 4 + 4) + 1)]
        order += [place + 256 * j for j in range(4) for place in own]
    order = np.array(order).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].ravel()
    of_groups = [i + 8 * j for i in range(8) for j in range(8)]
    of_rows = [2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)]

    def encode(matrix):
        rows, columns = matrix.shape
        size = columns if group < 0 else group
        groups = matrix.reshape(rows, -1, size)
        scales = (np.abs(groups).max(2) / 7.5).astype(F16)
        step = scales.astype(np.float64)[..., None]
        codes = np.clip(np.round(groups / step) + 8, 0, 15)
        meant = ((codes - 8) * step).reshape(matrix.shape)
        tiles = codes.reshape(rows, columns).T.reshape(columns // 16, 16, rows // 16, 16).transpose(0, 2, 1, 3)
        tiles = tiles.reshape(-1, len(order))[:, order].reshape(columns // 16, -1)
        places = of_rows if group < 0 else of_groups
        permuted = scales.T.reshape(-1, len(places))[:, places].reshape(-1, rows)
        return {names[0]: words(tiles, 1), names[1]: np.ascontiguousarray(permuted)}, meant

    return encode


def hqq(bits, axis, group=32, view=None):
    """Groups are rows (axis 1) or columns (axis 0) of a rectangle whose slices of rows share bytes."""
    def encode(matrix):
        rectangle = matrix.reshape(-1, group) if axis else matrix.reshape(group, -1)
        least, most = (each(rectangle, axis=axis, keepdims=True) for each in (np.min, np.max))
        scales = ((most - least) / (2**bits - 1)).astype(F16)
        zeros = (-least / scales.astype(np.float32)).astype(F16)
        step, zero = scales.astype(np.float64), zeros.astype(np.float64)
        codes = np.clip(np.round(rectangle / step + zero), 0, 2**bits - 1)
        meant = ((codes - zero) * step).reshape(matrix.shape)
        together, unit = (10, np.uint32) if bits == 3 else (8 // bits, np.uint8)
        codes = np.pad(codes, ((0, -len(codes) % together), (0, 0))).astype(unit)
        slices = np.split(codes, together)
        packed = sum((each << unit(bits * (together - 1 - i)) for i, each in enumerate(slices)), np.zeros((), unit))
        packed = packed.astype(unit)
        parts = {".W_q": packed.view(np.int32) if bits == 3 else packed.view(view or unit), ".scale": scales,
                 ".zero": zeros, ".axis": np.int32(axis), ".nbits": np.int32(bits), ".group_size": np.int32(group),
                 ".shape": np.array(matrix.shape, np.int64), ".offload_meta": np.uint8(0)}  # fmt: skip
        return {suffix: np.asarray(tensor) for suffix, tensor in parts.items()}, meant

    return encode


def gemma(bits):
    def encode(matrix):
        middle = 2 ** (bits - 1)
        scales = (np.abs(matrix).max(1, keepdims=True) / (middle - 0.5)).astype(np.float32)
        codes = np.clip(np.round(matrix / scales), -middle, middle - 1)
        stored = codes.astype(np.int8)
        if bits < 8:
            places = (codes + middle).astype(np.uint8).reshape(len(matrix), -1, 8 // bits)
            stored = (places << np.arange(0, 8, bits, dtype=np.uint8)).sum(2, dtype=np.uint8)
        return {".weight": stored, ".weight_scale": scales, ".input_activation_scale": np.float32([0])[0:1].reshape(()),
                ".output_activation_scale": np.asarray(np.float32(0.5))}, codes * scales.astype(np.float64)  # fmt: skip

    return encode


def bitnet(multiplies):
    def encode(matrix):
        scale = np.float32(np.abs(matrix).mean())
        codes = np.clip(np.round(matrix / scale), -1, 1)
        quarters = np.stack(np.split((codes + 1).astype(np.uint8), 4))
        packed = (quarters << np.arange(0, 8, 2, dtype=np.uint8)[:, None, None]).sum(0, dtype=np.uint8)
        stored = scale if multiplies else np.float32(1) / scale
        factor = np.float64(stored) if multiplies else 1 / np.float64(stored)
        return {".weight": packed, ".weight_scale": stored.reshape(1)}, codes * factor

    return encode


def aqlm(books, bits, height=1, width=8):
    def encode(matrix):
        rng = np.random.default_rng(7)
        vectors = draw(rng, books, 2**bits, height, width).astype(F16)
        shape = (len(matrix) // height, matrix.shape[1] // width, books)
        codes = rng.integers(0, 2**bits, shape)
        scales = rng.uniform(0.5, 1, (shape[0], 1, 1, 1)).astype(F16)
        blocks = sum(vectors[i].astype(np.float64)[codes[..., i]] for i in range(books)) * scales.astype(np.float64)
        stored = codes.astype(np.uint8 if bits == 8 else np.uint16).view(np.int8 if bits == 8 else np.int16)
        return {".codes": stored, ".codebooks": vectors, ".scales": scales}, \
            blocks.transpose(0, 2, 1, 3).reshape(matrix.shape)  # fmt: skip

    return encode


def modelopt_awq(eight=False):
    """Two rows in a byte; factors of the input; for W4A8 scales of e4m3 with a factor."""
    def encode(matrix):
        factors = np.random.default_rng(8).uniform(0.5, 2, matrix.shape[1]).astype(BF16)
        groups = (matrix / factors.astype(np.float32)).reshape(len(matrix), -1, 32)
        scales, whole = np.abs(groups).max(2) / 7, np.float32(0.01)
        scales = (scales / whole).astype(E4M3) if eight else scales.astype(BF16)
        step = (scales.astype(np.float64) * (whole if eight else 1))[..., None]
        codes = np.clip(np.round(groups / step), -8, 7)
        meant = (codes * step).reshape(matrix.shape) * factors.astype(np.float64)
        pairs = codes.reshape(len(matrix) // 2, 2, -1).astype(np.int8).view(np.uint8) & 15
        parts = {".weight": pairs[:, 0] | pairs[:, 1] << 4, ".weight_scale": scales, ".pre_quant_scale": factors}
        if eight:
            parts |= {".weight_scale_2": np.asarray(whole), ".input_scale": np.asarray(np.float32(0.1))}
        return parts, meant

    return encode


def modelopt_svd(matrix, rank=2):
    rng, parts, meant = np.random.default_rng(9), *fp4(matrix)
    a, b = draw(rng, rank, matrix.shape[1]).astype(BF16), draw(rng, len(matrix), rank).astype(BF16)
    factors = rng.uniform(0.5, 2, matrix.shape[1]).astype(BF16)
    meant = (meant + b.astype(np.float64) @ a.astype(np.float64)) * factors.astype(np.float64)
    return parts | {".svdquant_lora_a": a, ".svdquant_lora_b": b, ".pre_quant_scale": factors}, meant


def torchao_intx(group, has_zeros=False):
    def encode(matrix):
        groups = matrix.reshape(len(matrix), -1, group or matrix.shape[1])
        scales = (np.abs(groups).max(2) / 7).astype(BF16)
        zeros = np.random.default_rng(3).integers(-3, 3, scales.shape) if has_zeros else np.zeros(scales.shape)
        step = scales.astype(np.float64)[..., None]
        codes = np.clip(np.round(groups / step) + zeros[..., None], -8, 7)
        return {"._weight_qdata": codes.reshape(matrix.shape).astype(np.int8), "._weight_scale": scales,
                "._weight_zero_point": zeros.astype(np.int8)}, \
            ((codes - zeros[..., None]) * step).reshape(matrix.shape)  # fmt: skip

    return encode


def gptqmodel_gguf(matrix):
    """Blocks q4_0 of 32 elements: an f16, and the first half of the elements in the low halves of bytes."""
    blocks = matrix.reshape(len(matrix), -1, 32)
    scales = (np.abs(blocks).max(2, keepdims=True) / 8).astype(F16)
    codes = np.clip(np.round(blocks / scales.astype(np.float64)) + 8, 0, 15)
    halves = codes.astype(np.uint8)
    packed = np.concatenate([scales.view(np.uint8), halves[..., :16] | halves[..., 16:] << 4], 2)
    return {".qweight": packed.reshape(len(matrix), -1)}, \
        ((codes - 8) * scales.astype(np.float64)).reshape(matrix.shape)  # fmt: skip


def fp8_e5m2(matrix):
    factors = (np.float32(57344) / np.abs(matrix).max(1)).astype(np.float32)
    quantized = (matrix * factors[:, None]).astype(ml_dtypes.float8_e5m2)
    return {".weight": quantized, ".weight_scale_inv": factors}, quantized.astype(np.float64) / factors[:, None]


def hqq_config(**fields):
    return {"quant_method": "hqq", "skip_modules": ["lm_head", "mlp.gate"], "quant_config": {
        "weight_quant_params": {"channel_wise": True, "optimize": True, "round_zero": False, "view_as_float": False,
                                **fields},
        "scale_quant_params": None, "zero_quant_params": None, "offload_meta": False}}  # fmt: skip


def awq_config(version):
    return {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": version != "marlin", "version": version,
            "modules_to_not_convert": ["mlp.gate"]}  # fmt: skip


def intx_config(name, **fields):
    return torchao_config(name, weight_dtype={"_type": "torch.dtype", "_data": "int4"}, **fields,
                          intx_packing_format={"_type": "IntxPackingFormat", "_data": "UNPACKED_TO_INT8"})  # fmt: skip


def per_group(size):
    return {"_type": "PerGroup", "_version": 1, "_data": {"group_size": size}}


ASYMMETRIC = {"_type": "MappingType", "_data": "ASYMMETRIC"}
MODELOPT = {"quant_method": "modelopt", "group_size": 32, "has_zero_point": False, "pre_quant_scale": True}
AQLM = {"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1, "num_codebooks": 1, "nbits_per_codebook": 8,
        "linear_weights_not_to_quantize": ["lm_head.weight"]}  # fmt: skip
GPTQ_MARLIN = {"quant_method": "gptq", "bits": 4, "sym": True, "desc_act": False, "checkpoint_format": "marlin",
               "is_marlin_format": True}  # fmt: skip
GPTQMODEL_GGUF = {"quant_method": "gguf", "method": "gguf", "bits": 4, "format": "q_0", "checkpoint_format": "q_0",
                  "lm_head": False, "meta": {}}  # fmt: skip
GPTQMODEL_FP8 = {"quant_method": "fp8", "method": "fp8", "bits": 8, "format": "float8_e5m2", "lm_head": False,
                 "checkpoint_format": "float8_e5m2", "weight_scale_semantics": "inverse",
                 "weight_scale_method": "row"}  # fmt: skip
#: A `quantization_config`, and the encoder of an expert's matrix.
CASES = {
    "gemv of AWQ": (awq_config("gemv"), lambda e, p: awq_gemv),
    "gemv_fast of AWQ": (awq_config("GEMV_FAST"), lambda e, p: awq_fast(".qzeros")),
    "llm-awq": (awq_config("llm-awq"), lambda e, p: awq_fast(".scaled_zeros")),
    "llm-awq by GPTQModel": (awq_config("llm-awq"), lambda e, p: awq_fast(".qzeros")),
    "marlin of AWQ": (awq_config("marlin"), lambda e, p: marlin((".qweight", ".scales"))),
    "marlin of GPTQ": (GPTQ_MARLIN | {"group_size": 32}, lambda e, p: marlin((".B", ".s"))),
    "rows in marlin": (GPTQ_MARLIN | {"group_size": -1}, lambda e, p: marlin((".B", ".s"), -1)),
    **{f"{bits} bits of HQQ, axis {axis}": (hqq_config(nbits=bits, axis=axis, group_size=32),
                                            lambda e, p, bits=bits, axis=axis: hqq(bits, axis))
       for bits, axis in ((8, 1), (4, 1), (4, 0), (3, 1), (3, 0), (2, 1), (1, 0))},
    "HQQ viewed as floats": (hqq_config(nbits=4, axis=1, group_size=32), lambda e, p: hqq(4, 1, view=np.float32)),
    "tags of HQQ": (
        {"quant_method": "hqq", "skip_modules": ["lm_head"], "quant_config": {
            "mlp.experts.down_proj": {"weight_quant_params": {"nbits": 4, "group_size": 32, "axis": 1}}}},
        lambda e, p: hqq(4, 1) if p == "down_proj" else plain),
    **{f"{bits} bits of Gemma": ({"quant_method": "gemma", "num_bits": bits, "quantize_embeddings": True},
                                 lambda e, p, bits=bits: gemma(bits)) for bits in (2, 4, 8)},
    "BitNet": ({"quant_method": "bitnet"}, lambda e, p: bitnet(False)),
    "BitNet that multiplies": (
        {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
        lambda e, p: bitnet(True)),
    "a book of AQLM": (AQLM, lambda e, p: aqlm(1, 8)),
    "two large books of AQLM": (AQLM | {"num_codebooks": 2, "nbits_per_codebook": 10},
                                lambda e, p: aqlm(2, 10, height=2, width=4)),
    "W4A16_AWQ of ModelOpt": (MODELOPT | {"quant_algo": "W4A16_AWQ"}, lambda e, p: modelopt_awq()),
    "W4A8_AWQ of ModelOpt": (MODELOPT | {"quant_algo": "W4A8_AWQ"}, lambda e, p: modelopt_awq(eight=True)),
    "NVFP4_SVD of ModelOpt": (MODELOPT | {"quant_algo": "NVFP4_SVD", "group_size": 16}, lambda e, p: modelopt_svd),
    "NVFP4_AWQ of ModelOpt": (MODELOPT | {"quant_algo": "NVFP4_AWQ", "group_size": 16}, lambda e, p: modelopt_svd),
    "rows of torchao's intx": (
        intx_config("IntxWeightOnlyConfig", granularity={"_type": "PerAxis", "_version": 1, "_data": {"axis": 0}}),
        lambda e, p: torchao_intx(0)),
    "groups of torchao's intx": (
        intx_config("Int8DynamicActivationIntxWeightConfig", weight_granularity=per_group(32)),
        lambda e, p: torchao_intx(32)),
    "zero points of torchao's intx": (
        intx_config("IntxWeightOnlyConfig", granularity=per_group(32), mapping_type=ASYMMETRIC),
        lambda e, p: torchao_intx(32, has_zeros=True)),
    "blocks of ggml by GPTQModel": (GPTQMODEL_GGUF, lambda e, p: gptqmodel_gguf),
    "e5m2 of GPTQModel": (GPTQMODEL_FP8, lambda e, p: fp8_e5m2),
    "Metal of Transformers": ({"quant_method": "metal", "bits": 4, "group_size": 32},
                              lambda e, p: mlx(4, biases=".qbiases")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_tool_forms(case, tmp_path):
    quantization, encode = CASES[case]
    tensors, meant = make(encode)
    x, got, said = run(tmp_path, CONFIG | {"quantization_config": quantization}, tensors)
    assert got is not None, said
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))


def stack(encode):
    """The experts of MLX's models: a module of all experts for each projection."""
    tensors, meant = make(encode)
    router = tensors.pop(BLOCK + "gate.weight")
    suffixes = {name.rpartition("_proj")[2] for name in tensors}
    stacked = {
        f"{BLOCK}switch_mlp.{projection}{suffix}": np.stack(
            [tensors[f"{BLOCK}experts.{e}.{projection}{suffix}"] for e in range(EXPERTS)])
        for projection in PROJECTIONS for suffix in suffixes
        if f"{BLOCK}experts.0.{projection}{suffix}" in tensors
    }  # fmt: skip
    return stacked | {BLOCK + "gate.weight": router}, meant


def test_plain_experts_of_mlx(tmp_path):
    tensors, meant = stack(lambda e, p: plain)
    x, got, said = run(tmp_path, CONFIG, tensors)
    assert got is not None, said
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))


#: Configurations of MLX, and the encoder of a matrix.
MLX = {
    **{f"{bits} bits": ({"group_size": 32, "bits": bits}, lambda e, p, bits=bits: mlx(bits))
       for bits in (2, 3, 5, 6, 8)},
    "4 bits, scales in bf16": ({"group_size": 64, "bits": 4, "mode": "affine"}, lambda e, p: mlx(4, 64, BF16)),
    "8 bits, scales in f16": ({"group_size": 32, "bits": 8}, lambda e, p: mlx(8, dtype=F16)),
    "mxfp4": ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, lambda e, p: mlx_mxfp4),
    "mxfp8": ({"group_size": 32, "bits": 8, "mode": "mxfp8"}, lambda e, p: mlx_mxfp8),
    "nvfp4": ({"group_size": 16, "bits": 4, "mode": "nvfp4", "global_scale": True}, lambda e, p: mlx_nvfp4),
    "a projection of more bits": (
        {"group_size": 32, "bits": 4, BLOCK + "switch_mlp.down_proj": {"group_size": 32, "bits": 6}},
        lambda e, p: mlx(6 if p == "down_proj" else 4)),
    "gate and up that differ": (
        {"group_size": 32, "bits": 4, BLOCK + "switch_mlp.up_proj": {"group_size": 64, "bits": 8}},
        lambda e, p: mlx(8, 64) if p == "up_proj" else mlx(4)),
    "a projection that is not quantized": (
        {"group_size": 32, "bits": 4, BLOCK + "switch_mlp.down_proj": False},
        lambda e, p: plain if p == "down_proj" else mlx(4)),
}  # fmt: skip


@pytest.mark.parametrize("case", MLX)
def test_mlx(case, tmp_path):
    quantization, encode = MLX[case]
    tensors, meant = stack(encode)
    router = tensors[BLOCK + "gate.weight"]
    # The tool quantizes routers too.
    parts, router = mlx(8)(router)
    del tensors[BLOCK + "gate.weight"]
    tensors |= {BLOCK + "gate" + suffix: tensor for suffix, tensor in parts.items()}
    quantization = quantization | {BLOCK + "gate": {"group_size": 32, "bits": 8, "mode": "affine"}}
    config = CONFIG | {"quantization": quantization, "quantization_config": quantization}
    x, got, said = run(tmp_path, config, tensors)
    assert got is not None, said
    assert "'gate.weight' is quantized in the checkpoint and dequantized to f32" in said
    expect_near(got, add_experts(x, *choose(x, router), meant))


@pytest.mark.parametrize(
    ("case", "suffix", "change", "message"),
    [
        ("gemv of AWQ", ".qzeros", lambda t: t[:, :1].copy(),
         "experts.0.gate_proj.qzeros': shape is [64, 1], expected"),
        ("gemv_fast of AWQ", ".scales", lambda t: t[:, :8].copy(), "shape is"),
        ("marlin of AWQ", ".qweight", lambda t: t.astype(np.int64), ".qweight': dtype is i64, expected i32"),
        ("4 bits of HQQ, axis 1", ".W_q", lambda t: t[1:].copy(), ".W_q': has 4064 bytes, expected 4096"),
        ("4 bits of HQQ, axis 1", ".zero", None, ".zero"),
        ("4 bits of HQQ, axis 1", ".scale", lambda t: t * F16("nan"), "has a weight that is not finite (element 0)"),
        ("gemv of AWQ", ".scales", lambda t: t[:, :7].copy(), "rows of at least 4, a multiple of 8"),
        ("a book of AQLM", ".codebooks", lambda t: t[0], ".codebooks': has 3 dimensions, expected 4"),
        ("a book of AQLM", ".codebooks", lambda t: t[:, :3].copy(), ".codebooks': has books of 3 vectors, expected a"),
        ("a book of AQLM", ".codebooks", lambda t: t[:, :0].copy(), ".codebooks': has books of 0 vectors, expected a"),
        ("W4A16_AWQ of ModelOpt", ".pre_quant_scale", lambda t: t[1:].copy(), ".pre_quant_scale': shape is"),
        ("BitNet", ".weight", lambda t: t[1:].copy(), ".weight': has 1920 elements, expected 16 x"),
    ],
)
def test_bad_tensors_are_named(case, suffix, change, message, tmp_path):
    quantization, encode = CASES[case]
    tensors, _ = make(encode)
    name = BLOCK + "experts.0.gate_proj" + suffix
    if change:
        tensors[name] = change(tensors[name])
    else:
        del tensors[name]
    _, got, said = run(tmp_path, CONFIG | {"quantization_config": quantization}, tensors)
    assert got is None and message in said and "experts.0.gate_proj" in said, said


@pytest.mark.parametrize(
    ("case", "width", "unit"),
    [("W4A16_AWQ of ModelOpt", 35, "2 x 1"), ("marlin of AWQ", 36, "64 x 16"), ("gemv_fast of AWQ", 35, "4 x 64")],
)
def test_sizes_that_a_form_lacks_are_named(case, width, unit, tmp_path):
    quantization, encode = CASES[case]
    tensors, _ = make(lambda e, p: plain, width=width)
    suffixes = encode(0, "gate_proj")(np.linspace(-1, 1, 64 * 64).reshape(64, 64))[0]
    for name in [name for name in tensors if "experts" in name]:
        del tensors[name]
        tensors |= {name.removesuffix(".weight") + suffix: np.zeros(1, np.float32) for suffix in suffixes}
    config = CONFIG | {"moe_intermediate_size": width, "quantization_config": quantization}
    _, got, said = run(tmp_path, config, tensors)
    expected = f"{width} x {HIDDEN} elements are not stored in this form, which has multiples of {unit}"
    assert got is None and expected in said and "experts.0." in said, said


# Methods that a file's weights show nothing of.
@pytest.mark.parametrize("method", ["quanto", "nvfp4", "gguf"])
def test_quantized_on_load(method, tmp_path):
    tensors, meant = make(lambda e, p: plain, name=EACH)
    x, got, said = run(tmp_path, CONFIG | {"quantization_config": {"quant_method": method}}, tensors)
    assert got is not None and "quantizes weights when a model is loaded" in said, said
    expect_near(got, add_experts(x, *choose(x, tensors[BLOCK + "gate.weight"]), meant))
