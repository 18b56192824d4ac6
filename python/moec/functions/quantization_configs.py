# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constructors of a QuantConfig by format, with the names and arguments of vLLM's. What a layer cannot express is
refused by the experts that get the result."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import InvalidArgument
from .quantization import QuantConfig

_FP8 = torch.float8_e4m3fn
_Tensor = Optional[torch.Tensor]


def _refuse_layout(is_scale_transposed: bool) -> None:
    if is_scale_transposed:
        raise InvalidArgument(
            "is_scale_transposed: True found; scales of rows have a row per token here, so leave it out")


def fp8_w8a8_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, a1_scale: _Tensor = None, a2_scale: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, per_act_token_quant: bool = False, per_out_ch_quant: bool = False,
    block_shape: Optional[list[int]] = None, a1_gscale: _Tensor = None, a2_gscale: _Tensor = None,
    g1_alphas: _Tensor = None, g2_alphas: _Tensor = None, is_scale_transposed: bool = False,
    gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None, gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """float8 activations and weights. (The shapes of weight scales say whether they are of channels. a1_gscale to
    g2_alphas repeat the scales in a form that a layer does not need.)"""
    _refuse_layout(is_scale_transposed)
    return QuantConfig(
        _FP8, per_act_token_quant, block_shape, w1_scale, w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, a1_scale=a1_scale,
        a2_scale=a2_scale, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta, gemm1_clamp_limit=gemm1_clamp_limit)


def int8_w8a8_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, a1_scale: _Tensor, a2_scale: _Tensor, w1_bias: _Tensor = None,
    w2_bias: _Tensor = None, per_act_token_quant: bool = False,
) -> QuantConfig:
    """int8 activations and weights."""
    return QuantConfig(
        torch.int8, per_act_token_quant, None, w1_scale, w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, a1_scale=a1_scale,
        a2_scale=a2_scale)


def gptq_marlin_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, weight_bits: int, group_size: int, w1_zp: _Tensor = None,
    w2_zp: _Tensor = None, w1_bias: _Tensor = None, w2_bias: _Tensor = None,
) -> QuantConfig:
    """int4 or int8 weights with scales of groups of columns; -1: of channels. Raises InvalidArgument for other bits."""
    if weight_bits not in (4, 8):
        raise InvalidArgument(f"weight_bits: {weight_bits} found; 4 and 8 are accepted")
    return QuantConfig(
        w1_scale=w1_scale, w2_scale=w2_scale, w1_zp=w1_zp, w2_zp=w2_zp, w1_bias=w1_bias, w2_bias=w2_bias,
        weight_quant_dtype="int4" if weight_bits == 4 else torch.int8)


def _mxfp4(quant_dtype: Any, w1_scale: torch.Tensor, w2_scale: torch.Tensor, **fields: Any) -> QuantConfig:
    return QuantConfig(quant_dtype, w1_scale=w1_scale, w2_scale=w2_scale, weight_quant_dtype="mxfp4", **fields)


def mxfp4_w4a16_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_bias: _Tensor = None, w2_bias: _Tensor = None,
    gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None, gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """mxfp4 weights, activations as they are."""
    return _mxfp4(
        None, w1_scale, w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta,
        gemm1_clamp_limit=gemm1_clamp_limit)


def mxfp4_mxfp8_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, a1_scale: _Tensor = None, a2_scale: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, block_shape: Optional[list[int]] = None,
    gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None, gemm1_clamp_limit: Optional[float] = None,
    mx_alignment: int = 0, is_scale_swizzled: bool = True,
) -> QuantConfig:
    """mxfp4 weights, mxfp8 activations, whose scales have no other layout here."""
    return _mxfp4(
        "mxfp8", w1_scale, w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta,
        gemm1_clamp_limit=gemm1_clamp_limit)


def mxfp4_w4a8_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, a1_scale: _Tensor = None, a2_scale: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, block_shape: Optional[list[int]] = None,
    gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """mxfp4 weights, float8 activations."""
    return _mxfp4(
        "fp8", w1_scale, w2_scale, a1_scale=a1_scale, a2_scale=a2_scale, w1_bias=w1_bias, w2_bias=w2_bias,
        block_shape=block_shape, gemm1_clamp_limit=gemm1_clamp_limit)


def ocp_mx_moe_quant_config(
    quant_dtype: str, w1_scale: torch.Tensor, w2_scale: torch.Tensor, weight_dtype: Optional[str] = None,
    a1_scale: _Tensor = None, a2_scale: _Tensor = None, w1_bias: _Tensor = None, w2_bias: _Tensor = None,
    block_shape: Optional[list[int]] = None, gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None,
    gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """A format of the OCP for activations and, unless weight_dtype says otherwise, weights."""
    return QuantConfig(
        quant_dtype, False, block_shape, w1_scale, w2_scale, w1_bias=w1_bias, w2_bias=w2_bias, a1_scale=a1_scale,
        a2_scale=a2_scale, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta, gemm1_clamp_limit=gemm1_clamp_limit,
        weight_quant_dtype=weight_dtype or quant_dtype)


def nvfp4_moe_quant_config(
    g1_alphas: torch.Tensor, g2_alphas: torch.Tensor, a1_gscale: torch.Tensor, a2_gscale: torch.Tensor,
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_bias: _Tensor = None, w2_bias: _Tensor = None,
    is_scale_swizzled: bool = True, gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None,
    gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """nvfp4 weights and activations, which no layer has: experts refuse it by quant_dtype."""
    return QuantConfig(
        "nvfp4", w1_scale=w1_scale, w2_scale=w2_scale, g1_alphas=g1_alphas, g2_alphas=g2_alphas, w1_bias=w1_bias,
        w2_bias=w2_bias, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta, gemm1_clamp_limit=gemm1_clamp_limit)


def mxfp4_moe_quant_config(w1_scale: torch.Tensor, w2_scale: torch.Tensor) -> QuantConfig:
    """mxfp4 weights and activations, which no layer has: experts refuse it by quant_dtype."""
    return _mxfp4("mxfp4", w1_scale, w2_scale)


def nvfp4_w4a16_moe_quant_config(
    g1_alphas: torch.Tensor, g2_alphas: torch.Tensor, w1_scale: torch.Tensor, w2_scale: torch.Tensor,
    gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None, gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """nvfp4 weights, activations as they are."""
    return QuantConfig(
        w1_scale=w1_scale, w2_scale=w2_scale, g1_alphas=g1_alphas, g2_alphas=g2_alphas, gemm1_alpha=gemm1_alpha,
        gemm1_beta=gemm1_beta, gemm1_clamp_limit=gemm1_clamp_limit, weight_quant_dtype="nvfp4")


def _weights_alone(
    weight_dtype: Any, w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_zp: _Tensor = None, w2_zp: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, gemm1_clamp_limit: Optional[float] = None,
    gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None, block_shape: Optional[list[int]] = None,
) -> QuantConfig:
    return QuantConfig(
        None, False, block_shape, w1_scale, w2_scale, w1_zp, w2_zp, w1_bias=w1_bias, w2_bias=w2_bias,
        gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta, gemm1_clamp_limit=gemm1_clamp_limit,
        weight_quant_dtype=weight_dtype)


def int4_w4a16_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_zp: _Tensor = None, w2_zp: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, block_shape: Optional[list[int]] = None, a1_gscale: _Tensor = None,
    a2_gscale: _Tensor = None, gemm1_clamp_limit: Optional[float] = None, gemm1_alpha: Optional[float] = None,
    gemm1_beta: Optional[float] = None,
) -> QuantConfig:
    """int4 weights with scales of groups, whose shape says how many columns they have; activations as they are."""
    return _weights_alone(
        "int4", w1_scale, w2_scale, w1_zp, w2_zp, w1_bias, w2_bias, gemm1_clamp_limit, gemm1_alpha, gemm1_beta)


def fp8_w8a16_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_bias: _Tensor = None, w2_bias: _Tensor = None,
    block_shape: Optional[list[int]] = None, gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None,
    gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """float8 weights, activations as they are."""
    return _weights_alone(
        _FP8, w1_scale, w2_scale, None, None, w1_bias, w2_bias, gemm1_clamp_limit, gemm1_alpha, gemm1_beta, block_shape)


def int8_w8a16_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, w1_zp: _Tensor = None, w2_zp: _Tensor = None,
    w1_bias: _Tensor = None, w2_bias: _Tensor = None, block_shape: Optional[list[int]] = None, a1_gscale: _Tensor = None,
    a2_gscale: _Tensor = None, gemm1_clamp_limit: Optional[float] = None, gemm1_alpha: Optional[float] = None,
    gemm1_beta: Optional[float] = None,
) -> QuantConfig:
    """int8 weights with scales of groups or channels, whose shape says which; activations as they are."""
    return _weights_alone(
        torch.int8, w1_scale, w2_scale, w1_zp, w2_zp, w1_bias, w2_bias, gemm1_clamp_limit, gemm1_alpha, gemm1_beta)


def int4_w4afp8_moe_quant_config(
    w1_scale: torch.Tensor, w2_scale: torch.Tensor, g1_alphas: torch.Tensor, g2_alphas: torch.Tensor,
    per_act_token_quant: bool = False, per_out_ch_quant: bool = False, block_shape: Optional[list[int]] = None,
) -> QuantConfig:
    """int4 weights, float8 activations."""
    return QuantConfig(
        _FP8, per_act_token_quant, block_shape, w1_scale, w2_scale, g1_alphas=g1_alphas, g2_alphas=g2_alphas,
        weight_quant_dtype="int4")


def biased_moe_quant_config(
    w1_bias: _Tensor, w2_bias: _Tensor, gemm1_alpha: Optional[float] = None, gemm1_beta: Optional[float] = None,
    gemm1_clamp_limit: Optional[float] = None,
) -> QuantConfig:
    """Biases, and nothing quantized."""
    return QuantConfig(
        w1_bias=w1_bias, w2_bias=w2_bias, gemm1_alpha=gemm1_alpha, gemm1_beta=gemm1_beta,
        gemm1_clamp_limit=gemm1_clamp_limit)
