# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepacked weights of 4 and 8 bits, prepacked and multiplied on the simulator.

Layers of whole packed tiles of 64 x 64, with all numbers of consumers, weight blocks and packed tiles per k
tile, and with hard inputs.
"""

import json
import re

import pytest
from cases import Case
from features import cover
from runs import ALL_CASES, SEEDS
from schedules import launched

SPEC = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 320, "num_experts": 5,
    "top_k": 2, "intermediate_size": 192, "routing": {}, "activation": {"kind": "silu"},
    "expert_bias": True, "quantization": {"weight": "mxfp4"},
}
SHARED = {"shared_experts": {"intermediate_size": 128, "gate": "sigmoid"}}


def int4(scale, scale_dtype="bf16", zero_point=False, dtype="int4"):
    """A `quantization` whose weights are int4."""
    return {"weight": {"dtype": dtype, "scale": scale, "scale_dtype": scale_dtype,
                       "zero_point": zero_point}}


def int8(scale, scale_dtype="bf16", zero_point=False):
    """A `quantization` whose weights are int8."""
    return int4(scale, scale_dtype, zero_point, dtype="int8")


def minima(dtype, group, scale_dtype="f32"):
    """A `quantization` of integers with minima, as GGUF's q4_K and q5_K are."""
    return {"weight": {"dtype": dtype, "scale": {"group": group}, "scale_dtype": scale_dtype, "minimum": True}}


def nf4(scale, scale_dtype="f32"):
    """A `quantization` with weights in nf4."""
    return {"weight": {"dtype": "nf4", "scale": scale, "scale_dtype": scale_dtype}}


def fp8(scale, scale_dtype="f32"):
    """A `quantization` whose weights are e4m3."""
    return {"weight": {"dtype": "fp8_e4m3", "scale": scale, "scale_dtype": scale_dtype}}


def by_row(weight, activation="token", storage="fp8_e4m3"):
    """A `quantization` of activations of e4m3 or int8, with scales of whole rows."""
    scale = {"scale": activation} | ({"static": True} if activation == "tensor" else {})
    return {"quantization": {"weight": weight, "activation": {"dtype": storage} | scale}}


MX_E4M3 = by_row({"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"})
MXFP8_E4M3 = by_row({"dtype": "fp8_e4m3", "scale": {"group": 32}, "scale_dtype": "e8m0"})
INT4_E4M3 = by_row({"dtype": "int4", "scale": "channel", "scale_dtype": "f16"})
INT4_64 = {"dtype": "int4", "scale": {"group": 64}, "scale_dtype": "bf16"}
INT4_128_E4M3 = by_row(INT4_64 | {"scale": {"group": 128}}) | {"hidden_size": 384, "intermediate_size": 128}
NVFP4 = {"dtype": "fp4_e2m1", "scale": {"group": 16}, "scale_dtype": "e4m3", "global_scale": True}
MXFP8_ROWS = {"dtype": "fp8_e4m3", "scale": {"group": 32}, "scale_dtype": "e8m0"}
POINTS_64 = INT4_64 | {"zero_point": True}
INT4 = {"quantization": int4({"group": 32})}
INT4_F16 = {"quantization": int4({"group": 32}, "f16")}
POINTS_F16 = {"quantization": int4({"group": 32}, "f16", zero_point=True)}
HALF = {"dtype": "f16"}
#: Weight rows of a CTA, packed tiles per k tile of the first gemm, values of BLOCK_M, stages.
THREE, TWO, FOUR = (192, 5, "8+24", 3), (128, 1, "16", 4), (256, 5, "8+16", 3)
#: Likewise for 8 bits, whose packed tiles take twice the memory.
THREE_OF_8, FOUR_OF_8 = (192, 2, "8+24", 3), (256, 2, "8+16", 3)
#: Of 57 packed tiles, by 64 columns.
LONG = {"hidden_size": 3648, "intermediate_size": 64, "num_experts": 2, "top_k": 1}
#: Fields that differ, tokens, hard input, configs of the gemms.
PREPACKED = {
    "gate_up": ({"gate_up_order": "gate_up"} | SHARED, 40, None, THREE),
    "up_gate": ({"gate_up_order": "up_gate"} | SHARED, 11, None, FOUR),
    "interleaved": ({"gate_up_order": "interleaved"} | SHARED, 40, None, TWO),
    "no_gate": ({"activation": {"kind": "relu2_no_mul"}}, 11, None, THREE),
    "one_token": ({}, 1, None, THREE),
    "empty_experts": ({}, 11, "empty_experts", FOUR),
    "zeros": ({}, 11, "zero_groups", THREE),
    "nan": ({}, 11, "nan_hidden", TWO),
    "padding": ({"num_valid_tokens": True} | SHARED, 11, "padding", THREE),
    "scale_ends": ({}, 11, "scale_ends", THREE),
    "nan_scales": ({}, 11, "nan_scales", THREE),
    "int4_32": (INT4, 11, None, THREE),
    "int4_64_zero_points": ({"quantization": int4({"group": 64}, zero_point=True)} | SHARED, 40,
                            "zero_point_ends", TWO),
    "int4_32_zero_points": ({"quantization": int4({"group": 32}, zero_point=True)}, 11, None, FOUR),
    "int4_128": ({"hidden_size": 384, "intermediate_size": 128, "gate_up_order": "up_gate",
                  "quantization": int4({"group": 128})}, 11, None, (192, 2, "8+24", 3)),
    "int4_channel": ({"quantization": int4("channel", "f32")}, 11, "scale_ends", THREE),
    "int4_channel_zero_points": ({"quantization": int4("channel", "f16", zero_point=True)}, 1,
                                 None, THREE),
    "int4_scale_ends": (INT4, 11, "scale_ends", THREE),
    "int4_nan_scales": (INT4, 11, "nan_scales", THREE),
    "int4_zeros": (INT4, 11, "zero_weights", THREE),
    # One gemm with 4-bit weights, the other not quantized, and vice versa.
    "int4_w13": ({"quantization": int4({"group": 32}) | {"w2": None}}, 11, None, THREE),
    "int4_w2": ({"quantization": int4({"group": 32}) | {"w13": None}}, 11, None, THREE),
    # f16 scales, which become the sum of two bf16; and compute type f16.
    "int4_f16": ({"quantization": int4({"group": 64}, "f16"), **SHARED}, 40, None, THREE),
    "int4_32_f16_zero_points": (POINTS_F16, 11, "zero_point_ends", FOUR),
    "int4_f16_scale_ends": (INT4_F16, 11, "scale_ends", TWO),
    "int4_f16_nan_scales": (INT4_F16, 11, "nan_scales", THREE),
    "f16_64": (HALF | {"quantization": int4({"group": 64}, "f16"), **SHARED}, 40, None, THREE),
    "f16_32": (HALF | INT4_F16 | {"gate_up_order": "interleaved"}, 11, None, FOUR),
    "f16_32_zero_points": (HALF | POINTS_F16, 11, "zero_point_ends", TWO),
    "f16_bf16": (HALF | INT4, 11, "zero_groups", THREE),
    "f16_channel": (HALF | {"quantization": int4("channel", "f16")}, 11, "scale_ends", THREE),
    "f16_channel_zero_points": (HALF | {"quantization": int4("channel", "f32", zero_point=True)}, 1,
                                None, THREE),
    "f16_scale_ends": (HALF | INT4_F16, 11, "scale_ends", THREE),
    "f16_nan_scales": (HALF | INT4_F16, 11, "nan_scales", THREE),
    "f16_zeros": (HALF | POINTS_F16, 11, "zero_weights", THREE),
    "nvfp4": ({"quantization": {"weight": "nvfp4"}} | SHARED, 40, None, THREE),
    "nvfp4_interleaved": ({"quantization": {"weight": "nvfp4"}, "gate_up_order": "interleaved"}, 11,
                          None, FOUR),
    "nvfp4_scale_ends": ({"quantization": {"weight": "nvfp4"}}, 11, "scale_ends", TWO),
    "nvfp4_nan_scales": ({"quantization": {"weight": "nvfp4"}}, 11, "nan_scales", THREE),
    # 8-bit values with scales of channels, tensors, groups and blocks; f32 scales become the sum of two bf16.
    "int8_channel": ({"quantization": int8("channel", "f32"), **SHARED}, 40, "scale_ends", THREE_OF_8),
    "int8_tensor": ({"quantization": int8("tensor", "f32"), "gate_up_order": "up_gate"}, 11, None, TWO),
    "int8_channel_zero_points": ({"quantization": int8("channel", "f16", zero_point=True)}, 11, None, FOUR_OF_8),
    "int8_32": ({"quantization": int8({"group": 32}), "gate_up_order": "interleaved"}, 11, None, THREE_OF_8),
    "int8_64_f16": ({"quantization": int8({"group": 64}, "f16")}, 11, "nan_scales", THREE_OF_8),
    "int8_64_f32": ({"quantization": int8({"group": 64}, "f32")}, 11, "scale_ends", THREE_OF_8),
    "int8_32_zero_points": ({"quantization": int8({"group": 32}, zero_point=True)}, 11, "zero_point_ends", TWO),
    "int8_zeros": ({"quantization": int8({"group": 64})}, 11, "zero_weights", THREE_OF_8),
    # f32 scales with 4-bit values, and of groups of 16, as in q6_K.
    "int4_64_f32": ({"quantization": int4({"group": 64}, "f32"), **SHARED}, 40, "scale_ends", THREE),
    "int4_32_f32": ({"quantization": int4({"group": 32}, "f32"), "gate_up_order": "interleaved"}, 11, "nan_scales", FOUR),
    "int8_16_f32": ({"quantization": int8({"group": 16}, "f32"), **SHARED}, 40, "scale_ends", THREE_OF_8),
    "int8_16_zero_points": ({"quantization": int8({"group": 16}, zero_point=True), "gate_up_order": "up_gate"}, 11,
                            "zero_point_ends", FOUR_OF_8),
    # Zero points beside them.
    "int4_64_f32_zero_points": ({"quantization": int4({"group": 64}, "f32", zero_point=True), **SHARED}, 40,
                                "zero_point_ends", THREE),
    "int4_32_f32_zero_points": ({"quantization": int4({"group": 32}, "f32", zero_point=True), "gate_up_order": "interleaved"},
                                11, "scale_ends", FOUR),
    "int4_64_f32_zero_points_one": ({"quantization": int4({"group": 64}, "f32", zero_point=True)}, 1, "nan_scales", TWO),
    "int8_32_f32_zero_points": ({"quantization": int8({"group": 32}, "f32", zero_point=True), "gate_up_order": "up_gate"}, 11,
                                "zero_point_ends", FOUR_OF_8),
    "int8_16_f32_zero_points": ({"quantization": int8({"group": 16}, "f32", zero_point=True), **SHARED}, 40, "zero_weights",
                                THREE_OF_8),
    "int8_block_zero_points": ({"quantization": int8({"block": [64, 64]}, "f32", zero_point=True)}, 11, "zero_point_ends", TWO),
    "f16_int8_16": (HALF | {"quantization": int8({"group": 16}, "f16")}, 11, "scale_ends", TWO),
    "fp8_16": ({"quantization": fp8({"group": 16})}, 11, "nan_codes", TWO),
    # Minima, as in q4_K and q5_K.
    "int4_32_minima": ({"quantization": minima("int4", 32), **SHARED}, 40, None, THREE),
    "int4_32_minima_scale_ends": ({"quantization": minima("int4", 32), "gate_up_order": "interleaved"}, 11, "scale_ends",
                                  FOUR),
    "int4_32_minima_nan_scales": ({"quantization": minima("int4", 32), "gate_up_order": "up_gate"}, 11, "nan_scales", TWO),
    "int4_64_minima_f16": ({"quantization": minima("int4", 64, "f16")}, 11, "scale_ends", THREE),
    "int4_minima_zeros": ({"quantization": minima("int4", 32)}, 11, "zero_weights", THREE),
    "int4_minima_nan": ({"quantization": minima("int4", 32)}, 11, "nan_hidden", THREE),
    "int8_32_minima": ({"quantization": minima("int8", 32), **SHARED}, 40, "scale_ends", THREE_OF_8),
    "int8_64_minima": ({"quantization": minima("int8", 64, "bf16")}, 11, "zero_weights", FOUR_OF_8),
    "int8_16_minima": ({"quantization": minima("int8", 16), **SHARED}, 40, "scale_ends", THREE_OF_8),
    "int8_16_minima_bf16": ({"quantization": minima("int8", 16, "bf16"), "gate_up_order": "interleaved",
                             "intermediate_size": 128}, 11, "zero_weights", FOUR_OF_8),
    "int8_16_minima_nan_scales": ({"quantization": minima("int8", 16, "f16"), "gate_up_order": "up_gate"}, 1, "nan_scales",
                                  TWO),
    "f16_int8": (HALF | {"quantization": int8({"group": 64}, "f16")}, 11, None, THREE_OF_8),
    "f16_int8_channel_zero_points": (HALF | {"quantization": int8("channel", "f32", zero_point=True)}, 11, None, TWO),
    "fp8_channel": ({"quantization": fp8("channel")}, 11, "scale_ends", THREE_OF_8),
    "fp8_tensor": ({"quantization": fp8("tensor"), **SHARED}, 40, None, FOUR_OF_8),
    "fp8_block": ({"quantization": fp8({"block": [128, 128]}), "hidden_size": 384, "intermediate_size": 192,
                   "gate_up_order": "up_gate"}, 40, None, (192, 3, "8+24", 3)),
    "fp8_block_interleaved": ({"quantization": fp8({"block": [64, 64]}), "gate_up_order": "interleaved"}, 11,
                              "nan_scales", TWO),
    # NaN among quantized values, which the rearranged bits of an f16 or bf16 cannot represent.
    "fp8_nan": ({"quantization": fp8("channel"), **SHARED}, 11, "nan_codes", THREE_OF_8),
    "fp8_block_nan": ({"quantization": fp8({"block": [64, 64]})}, 11, "nan_codes", FOUR_OF_8),
    "fp8_32_nan": ({"quantization": fp8({"group": 32}, "e8m0")}, 40, "nan_codes", TWO),
    "f16_fp8_nan": (HALF | {"quantization": fp8("tensor")}, 11, "nan_codes", THREE_OF_8),
    "f16_fp8": (HALF | {"quantization": fp8("channel")}, 11, None, THREE_OF_8),
    # Numbers of a code book.
    "nf4_64": ({"quantization": nf4({"group": 64}), **SHARED}, 40, None, THREE),
    "nf4_64_scale_ends": ({"quantization": nf4({"group": 64}), "gate_up_order": "interleaved"}, 11, "scale_ends", FOUR),
    "nf4_64_nan_scales": ({"quantization": nf4({"group": 64}), "gate_up_order": "up_gate"}, 11, "nan_scales", TWO),
    "nf4_32_f16": ({"quantization": nf4({"group": 32}, "f16")}, 11, "scale_ends", THREE),
    "nf4_32_bf16": ({"quantization": nf4({"group": 32}, "bf16")}, 1, None, FOUR),
    "f16_nf4_64": (HALF | {"quantization": nf4({"group": 64}), **SHARED}, 40, None, THREE),
    "f16_nf4_64_scale_ends": (HALF | {"quantization": nf4({"group": 64})}, 11, "scale_ends", FOUR),
    "f16_nf4_32_bf16": (HALF | {"quantization": nf4({"group": 32}, "bf16"), "gate_up_order": "up_gate"}, 11,
                        "nan_scales", TWO),
    "f16_nf4_channel": (HALF | {"quantization": nf4("channel"), "gate_up_order": "interleaved"}, 1, None, FOUR),
    "nf4_channel": ({"quantization": nf4("channel")}, 11, "zero_weights", TWO),
    # f32 scales, and powers of two, which may exceed the range of f16; minima, whose rests are f16 too.
    "f16_int4_64_f32": (HALF | {"quantization": int4({"group": 64}, "f32"), **SHARED}, 40, None, THREE),
    "f16_int4_32_f32_zero_points": (HALF | {"quantization": int4({"group": 32}, "f32", zero_point=True),
                                            "gate_up_order": "interleaved"}, 11, "scale_ends", FOUR),
    "f16_int8_16_f32": (HALF | {"quantization": int8({"group": 16}, "f32"), "gate_up_order": "up_gate"}, 11, "nan_scales",
                        TWO),
    "f16_fp8_block": (HALF | {"quantization": fp8({"block": [64, 64]})}, 11, "scale_ends", THREE_OF_8),
    "f16_mxfp8": (HALF | {"quantization": fp8({"group": 32}, "e8m0"), **SHARED}, 40, None, THREE_OF_8),
    "f16_mxfp8_scale_ends": (HALF | {"quantization": fp8({"group": 32}, "e8m0")}, 11, "scale_ends", FOUR_OF_8),
    "f16_mxfp8_nan_codes": (HALF | {"quantization": fp8({"group": 32}, "e8m0")}, 11, "nan_codes", TWO),
    "f16_int4_32_minima": (HALF | {"quantization": minima("int4", 32), **SHARED}, 40, None, THREE),
    "f16_int4_32_minima_scale_ends": (HALF | {"quantization": minima("int4", 32), "gate_up_order": "interleaved"}, 11,
                                      "scale_ends", FOUR),
    "f16_int4_64_minima": (HALF | {"quantization": minima("int4", 64, "f16"), "gate_up_order": "up_gate"}, 11, "nan_scales",
                           TWO),
    "f16_int4_minima_zeros": (HALF | {"quantization": minima("int4", 32)}, 11, "zero_weights", THREE),
    "f16_int4_minima_nan": (HALF | {"quantization": minima("int4", 64)}, 1, "nan_hidden", FOUR),
    "f16_int8_16_minima": (HALF | {"quantization": minima("int8", 16), **SHARED}, 40, "scale_ends", THREE_OF_8),
    "f16_int8_32_minima": (HALF | {"quantization": minima("int8", 32, "bf16")}, 11, "zero_groups", FOUR_OF_8),
    "f16_mxfp4": (HALF | SHARED, 40, None, THREE),
    "f16_mxfp4_scale_ends": (HALF | {"gate_up_order": "interleaved"}, 11, "scale_ends", FOUR),
    "f16_mxfp4_nan_scales": (HALF | {"gate_up_order": "up_gate"}, 11, "nan_scales", TWO),
    "f16_mxfp4_one_token": (HALF, 1, None, THREE),
    "f16_mxfp4_zeros": (HALF, 11, "zero_weights", FOUR),
    "f16_nvfp4": (HALF | {"quantization": {"weight": "nvfp4"}, **SHARED}, 40, None, THREE),
    "f16_nvfp4_scale_ends": (HALF | {"quantization": {"weight": "nvfp4"}, "gate_up_order": "interleaved"}, 11, "scale_ends",
                             FOUR),
    "f16_nvfp4_nan_scales": (HALF | {"quantization": {"weight": "nvfp4"}, "gate_up_order": "up_gate"}, 1, "nan_scales", TWO),
    "f16_nvfp4_zeros": (HALF | {"quantization": {"weight": "nvfp4"}}, 11, "zero_groups", THREE),
    # e4m3 activations, for which 4-bit values become e4m3 too.
    "e4m3_mxfp4": (MX_E4M3 | SHARED, 40, None, THREE),
    "e4m3_mxfp4_up_gate": (MX_E4M3 | {"gate_up_order": "up_gate"}, 11, "empty_experts", FOUR),
    "e4m3_mxfp4_interleaved": (MX_E4M3 | {"gate_up_order": "interleaved"}, 1, None, TWO),
    "e4m3_mxfp4_scale_ends": (MX_E4M3, 11, "scale_ends", TWO),
    "e4m3_mxfp4_nan_scales": (MX_E4M3, 11, "nan_scales", THREE),
    "e4m3_mxfp4_zeros": (MX_E4M3, 11, "zero_groups", FOUR),
    "e4m3_mxfp4_tensor": (by_row(MX_E4M3["quantization"]["weight"], "tensor"), 11, None, THREE),
    "e4m3_mxfp4_nan": (MX_E4M3, 11, "nan_hidden", TWO),
    "e4m3_int4_128": (INT4_128_E4M3 | SHARED, 40, None, (192, 2, "8+24", 3)),
    "e4m3_int4_128_four": (INT4_128_E4M3, 11, "empty_experts", (256, 2, "8+16", 3)),
    "e4m3_int4_64": (by_row(INT4_64) | {"gate_up_order": "interleaved"}, 11, "scale_ends", TWO),
    "e4m3_int4_64_f16": (by_row(INT4_64 | {"scale_dtype": "f16"}) | {"gate_up_order": "up_gate"}, 40, "nan_scales", THREE),
    "e4m3_int4_zeros": (by_row(INT4_64), 1, "zero_weights", THREE),
    "e4m3_int4": (INT4_E4M3 | SHARED, 40, None, FOUR),
    "e4m3_int4_scale_ends": (INT4_E4M3 | {"gate_up_order": "interleaved"}, 11, "scale_ends", THREE),
    # Groups smaller than a packed tile, so that each wgmma has separate sums; and e4m3 weights, which are multiplied
    # natively.
    "e4m3_int4_32_f16": (by_row(INT4_64 | {"scale": {"group": 32}, "scale_dtype": "f16"}) | SHARED, 40, None, THREE),
    "e4m3_int4_32_f32": (by_row(INT4_64 | {"scale": {"group": 32}, "scale_dtype": "f32"}) | {"gate_up_order": "up_gate"},
                         11, "scale_ends", FOUR),
    "e4m3_mxfp8": (MXFP8_E4M3 | SHARED, 40, None, THREE_OF_8),
    "e4m3_mxfp8_up_gate": (MXFP8_E4M3 | {"gate_up_order": "up_gate"}, 11, "scale_ends", FOUR_OF_8),
    "e4m3_mxfp8_nan_scales": (MXFP8_E4M3 | {"gate_up_order": "interleaved"}, 11, "nan_scales", TWO),
    "e4m3_mxfp8_nan_codes": (MXFP8_E4M3, 11, "nan_codes", THREE_OF_8),
    "e4m3_mxfp8_least_scales": (MXFP8_E4M3, 11, "least_scales", TWO),
    "e4m3_fp8_64_bf16": (by_row(fp8({"group": 64}, "bf16")["weight"]), 11, "zero_weights", FOUR_OF_8),
    "e4m3_fp8_block": (by_row(fp8({"block": [128, 128]})["weight"]) | {"hidden_size": 384, "intermediate_size": 128} | SHARED,
                       40, "scale_ends", (192, 2, "8+24", 3)),
    # Activations kept as bf16, since tensor cores multiply the weights by 8-bit activations more slowly or not at all.
    "kept_nvfp4": (by_row(NVFP4) | SHARED, 40, None, THREE),
    "kept_nvfp4_tensor": (by_row(NVFP4, "tensor") | {"gate_up_order": "interleaved"}, 11, "scale_ends", FOUR),
    "kept_zero_points": (by_row(POINTS_64) | SHARED, 40, "zero_point_ends", THREE),
    "kept_zero_points_nan": (by_row(POINTS_64), 11, "nan_hidden", TWO),
    "kept_zero_points_tensor": (by_row(POINTS_64, "tensor") | {"gate_up_order": "up_gate"}, 11, "empty_experts", FOUR),
    "kept_f32_zero_points": (by_row(POINTS_64 | {"scale_dtype": "f32"}) | {"gate_up_order": "interleaved"}, 11,
                             "zero_point_ends", FOUR),
    "kept_int4_32": (by_row(INT4_64 | {"scale": {"group": 32}}) | SHARED, 40, None, THREE),
    "kept_int4_32_scale_ends": (by_row(INT4_64 | {"scale": {"group": 32}}) | {"gate_up_order": "up_gate"}, 11, "scale_ends",
                                FOUR),
    "kept_minima": (by_row(minima("int4", 32)["weight"]) | {"gate_up_order": "interleaved"}, 11, None, FOUR),
    "kept_minima_16": (by_row(minima("int8", 16)["weight"], storage="int8") | SHARED, 40, None, THREE_OF_8),
    "kept_nf4": (by_row(nf4({"group": 64})["weight"]), 11, "zero_groups", THREE),
    "kept_fp8_16": (by_row(fp8({"group": 16})["weight"]), 11, "nan_codes", TWO),
    "kept_int8_by_e4m3": (by_row(int8({"group": 64})["weight"]), 1, None, THREE_OF_8),
    "kept_int4_by_int8": (by_row(INT4_64, storage="int8") | SHARED, 40, None, THREE),
    "kept_int4_by_int8_tensor": (by_row(INT4_64, "tensor", "int8"), 11, "zero_weights", TWO),
    "kept_int4_by_int8_nan": (by_row(INT4_64, storage="int8") | {"gate_up_order": "interleaved"}, 11, "nan_hidden", FOUR),
    "kept_int8_32_by_int8": (by_row(int8({"group": 32}, zero_point=True)["weight"], storage="int8"), 11, "zero_groups",
                             THREE_OF_8),
    "kept_mxfp8": ({"quantization": {"weight": "mxfp8"}} | SHARED, 40, None, THREE_OF_8),
    "kept_mxfp8_scale_ends": ({"quantization": {"weight": "mxfp8"}, "gate_up_order": "interleaved"}, 11, "scale_ends", TWO),
    "kept_mxfp8_nan": ({"quantization": {"weight": "mxfp8"}}, 11, "nan_hidden", FOUR_OF_8),
    "kept_mxfp4_by_mxfp8": ({"quantization": MX_E4M3["quantization"] | {"activation": MXFP8_ROWS}} | SHARED, 40, "zero_groups",
                            THREE),
    "kept_f16_by_mxfp8": (HALF | {"quantization": {"weight": POINTS_64, "activation": MXFP8_ROWS}}, 11, None, TWO),
    # Results of a bf16 gemm.
    "kept_second": ({"quantization": int4({"group": 64}) | {"w2": by_row(NVFP4, "tensor")["quantization"]}, **SHARED}, 40, None,
                    THREE),
    "kept_f16_tensor": (HALF | by_row(POINTS_64, "tensor") | {"activation": {"kind": "relu2_no_mul"}}, 11, None, TWO),
    "kept_f16": (HALF | by_row(POINTS_64), 11, "scale_ends", TWO),
    "kept_first": ({"quantization": MX_E4M3["quantization"] | {"w13": by_row(POINTS_64)["quantization"]}}, 11, None, THREE),
    # Rows that a CTA prepacks in two parts, of which the second has fewer packed tiles.
    "int8_long": (LONG | {"quantization": int8({"group": 32}, zero_point=True)}, 3, "zero_point_ends", (192, 3, "8", 3)),
    "fp8_block_long": (LONG | {"quantization": fp8({"block": [64, 64]}), "gate_up_order": "interleaved"}, 3,
                       "scale_ends", TWO),
    "fp8_long_nan": (LONG | {"quantization": fp8("channel"), "hidden_size": 64, "intermediate_size": 3648}, 3, "nan_codes",
                     TWO),
    "nvfp4_long": (LONG | {"quantization": {"weight": "nvfp4"}, "hidden_size": 7232}, 3, "scale_ends", TWO),
    # K of the second gemm is not a multiple of 64.
    "first_alone": ({"intermediate_size": 96}, 11, None, (192, 5, "8", 3)),
}


def features(name: str) -> set[tuple]:
    """Features of a case: weights, hard input, tile; and each kind of weight with dtype, activations and order of
    gate and up."""
    fields, tokens, hard, tile = PREPACKED[name]
    model = SPEC | fields
    quantization = model["quantization"]
    weights = json.dumps(quantization.get("weight", quantization))
    kind = re.search("int4|int8|nf4|nvfp4|mxfp4|mxfp8|e2m1|e4m3", weights)[0]
    return {("weights", weights), ("input", hard), ("input", hard and hard.split("_")[0], kind), ("tile", tile),
            ("tokens", tokens), ("dtype", model["dtype"], kind), ("order", model.get("gate_up_order"), kind),
            ("activation", json.dumps(quantization.get("activation")), kind)}


#: A change runs cases that cover every feature, and those with long rows.
CHANGE = cover({name: features(name) for name in PREPACKED}, dict.fromkeys(PREPACKED, 1),
               features("nvfp4_long") | features("int8_long"))
CHANGE += [name for name in ("nvfp4_long", "int8_long") if name not in CHANGE]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", PREPACKED if ALL_CASES else CHANGE)
def test_prepacked(name, runs):
    fields, tokens, hard, (rows, tiles, block_ms, stages) = PREPACKED[name]
    # Whole k tiles.
    sizes = {"hidden_size": 384} if tiles == 2 else {}
    case = Case(f"prepacked_{name}", SPEC | sizes | fields, tokens=tokens, hard=hard)
    gate = 1 if fields.get("activation") else 2
    options = [f"--max-tokens={max(tokens, 1)}", "--disable=join-products,quantize-rows,quantize-inputs"]
    if name != "int4_w2":
        options.append(f"--config=experts_hidden:block_m={block_ms} block_n={rows // gate} "
                       f"block_k={64 * tiles} stages={stages}")
    if name not in ("first_alone", "int4_w13"):
        depth = fields.get("intermediate_size", 192)
        options.append(f"--config=experts_out:block_m={block_ms} block_n={rows} "
                       f"block_k={depth if tiles > 1 else 64} stages={stages}")
    names = launched(case, "sm_90a", *options)
    assert {"experts_hidden", "experts_out"} <= names
    run = runs.get(case, f"--device=sim:0-{SEEDS - 1}", "--target=sm_90a", *options)
    report = run.check()
    assert report.ok, run.explain("\n".join([report.summary(), *report.failures]))
    runs.forget(run)


@pytest.mark.parametrize("tokens", [1, 16, 200])
def test_products_are_apart(tokens):
    """Joined gemms share the memory behind the pipeline although their scales differ."""
    case = Case("prepacked_apart", SPEC | {"hidden_size": 2880, "intermediate_size": 320},
                tokens=tokens)
    names = launched(case, "sm_90a", f"--max-tokens={tokens}")
    assert not [name for name in names if "experts_hidden_experts_out" in name]
