# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates engines' descriptions of quantized experts to `quantization` of a spec and tensors of a layer."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

import torch

from .. import InvalidArgument

_E8M0 = getattr(torch, "float8_e8m0fnu", None)
_SCALES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.uint8: "e8m0",
    _E8M0: "e8m0",
    torch.float8_e4m3fn: "e4m3",
}
_BLOCK = 128
_BYTES = {torch.float8_e4m3fn: "fp8_e4m3", torch.int8: "int8"}
#: Types of activations by engines' names.
_ACTIVATIONS = {**_BYTES, "fp8": "fp8_e4m3", "mxfp8": "fp8_e4m3"}


@dataclasses.dataclass(frozen=True)
class QuantConfig:
    """Quantization of the operands of experts. Field names are those of vLLM's FusedMoEQuantConfig, which is accepted
    in its place. The dtype of the weights gives their type: float8_e4m3fn, two's complement int8, or uint8. A uint8
    weight has two 4-bit elements per byte, the first in the low half, or, if it has as many columns as hidden_states,
    values 0 to 255 with zero points."""

    #: Quantized type of activations: torch.float8_e4m3fn or "fp8", torch.int8, "mxfp8", or None: not quantized.
    quant_dtype: Union[torch.dtype, str, None] = None
    #: One activation scale per row; otherwise one per tensor, or blocks as in block_shape.
    per_act_token_quant: bool = False
    #: Rows and columns of the blocks of weights of 8 bits; activations have groups of as many columns. (If it is None
    #: and activations are not quantized, the shape of the scales tells blocks of 128 x 128.)
    block_shape: Optional[list[int]] = None
    #: Weight scales: [E], [E, 2] for gate and up, [E, rows, 1], [E, blocks of rows, blocks of columns] or [E, rows,
    #: groups]. Those of uint8 are exponents (e8m0).
    w1_scale: Optional[torch.Tensor] = None
    w2_scale: Optional[torch.Tensor] = None
    #: Zero points of integers: uint8 in the shape of the scales, 0 to 15 or 0 to 255. (Default for 4-bit elements: 8.)
    w1_zp: Optional[torch.Tensor] = None
    w2_zp: Optional[torch.Tensor] = None
    #: Global factors of nvfp4 scales: f32, [E], or [E, 2] for gate and up. With int4 weights, a factor for the scales
    #: of each row: [E, rows] or [E, rows, 1].
    g1_alphas: Optional[torch.Tensor] = None
    g2_alphas: Optional[torch.Tensor] = None
    #: Biases in the dtype of hidden states, [E, rows]; without one of them there is nothing to add.
    w1_bias: Optional[torch.Tensor] = None
    w2_bias: Optional[torch.Tensor] = None
    #: Static activation scales: one element, or [E], of which the largest counts for all experts.
    a1_scale: Optional[torch.Tensor] = None
    a2_scale: Optional[torch.Tensor] = None
    #: Parameters of the activation.
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None
    #: "int4" for uint8 weights with float8_e4m3fn scales that are not nvfp4.
    weight_quant_dtype: Union[torch.dtype, str, None] = None


def is_same(first: Any, second: Any) -> bool:
    """Returns whether two descriptions are equal or refer to the same tensors; some callers make a new one for each
    call."""
    if not isinstance(first, QuantConfig) or not isinstance(second, QuantConfig):
        return first is second
    for field in dataclasses.fields(QuantConfig):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if one is not other and (isinstance(one, torch.Tensor) or one != other):
            return False
    return True


@dataclasses.dataclass
class Quantization:
    """`quantization` of a spec (None if not quantized) and its tensors."""

    spec: Optional[dict[str, Any]]
    tensors: dict[str, torch.Tensor]


def _refuse(argument: str, what: str) -> InvalidArgument:
    return InvalidArgument(f"quant_config: {argument}: {what}")


def _describe_activation(config: Any, experts: int) -> Quantization:
    """Describes activations: absent, with scales of rows, of groups, or one for all, computed or given."""
    wanted, block = config.quant_dtype, config.block_shape
    if wanted is None:
        return Quantization({}, {})
    if wanted not in _ACTIVATIONS:
        raise _refuse(
            "quant_dtype", f"activations of {wanted} are not supported; torch.float8_e4m3fn, torch.int8 and "
            '"mxfp8" are, and None keeps them in 16 bits'
        )
    dtype = _ACTIVATIONS[wanted]
    if wanted == "mxfp8":
        return Quantization({"dtype": dtype, "scale": {"group": 32}, "scale_dtype": "e8m0"}, {})
    if block:
        if dtype == "int8":
            raise _refuse("block_shape", f"activations of int8 have one scale for each row or for all, {block} found")
        return Quantization({"dtype": dtype, "scale": {"group": block[1]}}, {})
    spec: dict[str, Any] = {"dtype": dtype, "scale": "token" if config.per_act_token_quant else "tensor"}
    if config.a1_scale is None:
        return Quantization(spec, {})
    if config.per_act_token_quant or config.a2_scale is None:
        raise _refuse("a1_scale", "given scales are supported for whole tensors, with a2_scale")
    tensors = {}
    for name, short in (("w13", "a1"), ("w2", "a2")):
        scale = getattr(config, f"{short}_scale")
        if scale.numel() not in (1, experts):
            raise _refuse(f"{short}_scale", f"one element or [{experts}] expected, {list(scale.shape)} found")
        # As in vLLM's methods, the largest scale serves all experts.
        largest = scale if scale.numel() == 1 else scale.amax()
        tensors[f"experts.{name}_input_scale"] = largest.float().view(1)
    return Quantization({**spec, "static": True}, tensors)


def _find_block(config: Any, w1: torch.Tensor) -> Optional[list[int]]:
    """Returns the rows and columns that share a scale, if these are blocks of several rows."""
    block = config.block_shape
    # vLLM's block_shape applies to activations; the description of its weights has their own.
    own = getattr(getattr(config, "_w1", None), "shape", None)
    if not block and own is not None:
        block = [own.row, own.col]
    if block:
        return list(block) if block[0] > 1 and block[1] > 0 else None
    blocks = tuple(-(-size // _BLOCK) for size in w1.shape[1:])
    has_blocks = blocks != (1, 1) and tuple(config.w1_scale.shape[1:]) == blocks
    is_plain = config.quant_dtype is None and w1.dtype == torch.float8_e4m3fn
    return [_BLOCK, _BLOCK] if has_blocks and is_plain else None


def _describe_scales(
    config: Any, w1: torch.Tensor, w2: torch.Tensor, pack: int, is_halved: bool
) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Returns which elements share a scale, and the scales in the shapes of a layer. pack: elements per byte."""
    experts, rows, columns = w1.shape
    first, second = config.w1_scale, config.w2_scale
    block = _find_block(config, w1) if pack == 1 else None
    if block and is_halved and rows % (2 * block[0]):
        raise _refuse(
            "block_shape", f"blocks of {block[0]} rows do not divide the {rows // 2} rows of the gate"
        )
    if block is None and first.numel() in (experts, experts * (1 + is_halved)) and second.numel() == experts:
        # One scale for gate and up, or one for each, as in a layer.
        first = first.reshape(experts, -1, 1).expand(experts, 1 + is_halved, 1)
        return "tensor", first, second.view(experts, 1, 1)
    if block is None and first.numel() == experts * rows and second.numel() == experts * w2.shape[1]:
        return "channel", first.view(experts, rows, 1), second.view(experts, -1, 1)
    if block:
        kind: Any = {"block": block}
    elif first.dim() == 3 and first.shape[1] == rows and pack * columns % first.shape[2] == 0:
        block = [1, pack * columns // first.shape[2]]
        kind = {"group": block[1]}
    else:
        found = list(first.shape)
        raise _refuse("w1_scale", f"{found} is not that of a tensor, channel or group; blocks need block_shape")
    for name, scale, weight in (("w1", first, w1), ("w2", second, w2)):
        shape = [experts, -(-weight.shape[1] // block[0]), -(-pack * weight.shape[2] // block[1])]
        if list(scale.shape) != shape:
            raise _refuse(f"{name}_scale", f"{shape} expected for scales of {block}, {list(scale.shape)} found")
    return kind, first, second


def _multiply_by_rows(scale: torch.Tensor, factor: Any, name: str) -> torch.Tensor:
    """Returns scales with the factor of their row, in f32. A layer has such factors for a whole matrix only."""
    if factor is None or factor.numel() != scale.shape[0] * scale.shape[1]:
        what = "None" if factor is None else str(list(factor.shape))
        raise _refuse(name, f"{list(scale.shape[:2])} expected, one for each row, {what} found")
    return scale.float() * factor.float().view(*scale.shape[:2], 1)


def _describe_quantized(
    config: Any, w1: torch.Tensor, w2: torch.Tensor, pack: int, is_halved: bool
) -> Quantization:
    """Describes weights of 8 or 4 bits. pack: elements per byte of w1."""
    for name in ("w1_scale", "w2_scale"):
        if getattr(config, name).dtype not in _SCALES:
            raise _refuse(name, f"{getattr(config, name).dtype} is not supported")
    activation = _describe_activation(config, w1.shape[0])
    kind, first, second = _describe_scales(config, w1, w2, pack, is_halved)
    is_float = _SCALES[first.dtype] in ("e8m0", "e4m3") and getattr(config, "weight_quant_dtype", None) != "int4"
    dtype = _BYTES.get(w1.dtype, "int8") if pack == 1 else "fp4_e2m1" if is_float else "int4"
    alphas = getattr(config, "g1_alphas", None)
    has_factors = dtype == "int4" and alphas is not None and alphas.numel() == w1.shape[0] * w1.shape[1]
    if has_factors:
        first = _multiply_by_rows(first, alphas, "g1_alphas")
        second = _multiply_by_rows(second, config.g2_alphas, "g2_alphas")
    elif w1.dtype in _BYTES and "group" not in kind and _SCALES[first.dtype] != "e8m0":
        # Few scales, which kernels read fastest in f32.
        first, second = first.float(), second.float()
    scale_dtype = _SCALES[first.dtype]
    weight = {"dtype": dtype, "scale": kind, "scale_dtype": scale_dtype}
    stored = torch.uint8 if scale_dtype in ("e8m0", "e4m3") else first.dtype
    tensors = {
        "experts.w13_scale": first.contiguous().view(stored),
        "experts.w2_scale": second.contiguous().view(stored),
    }
    if w1.dtype == torch.uint8 and dtype in ("int4", "int8") and config.w1_zp is not None:
        weight["zero_point"] = True
        tensors |= _read_zero_points(config)
    elif dtype == "int8" and w1.dtype == torch.uint8:
        raise _refuse("w1_zp", "weights of 0 to 255 need w1_zp and w2_zp")
    if scale_dtype == "e4m3" and (dtype == "fp4_e2m1" or alphas is not None):
        weight["global_scale"] = True
        tensors |= _read_global_scales(config, w1.shape[0], is_halved)
    for name, is_read in (("w1_zp", "zero_point" in weight), ("g1_alphas", has_factors or "global_scale" in weight)):
        if getattr(config, name, None) is not None and not is_read:
            raise _refuse(name, f"weights of {dtype} with such scales have none")
    spec = {"weight": weight} | ({"activation": activation.spec} if activation.spec else {})
    return Quantization(spec, tensors | activation.tensors)


def _read_zero_points(config: Any) -> dict[str, torch.Tensor]:
    found = {}
    for layer_name, name in (("w13", "w1"), ("w2", "w2")):
        points, scale = getattr(config, f"{name}_zp"), getattr(config, f"{name}_scale")
        if points is None or points.dtype != torch.uint8 or points.shape != scale.shape:
            what = "None" if points is None else f"{list(points.shape)} of {points.dtype}"
            raise _refuse(
                f"{name}_zp", f"{list(scale.shape)} of torch.uint8 expected, one per byte, {what} found; each "
                "engine packs them in its own way"
            )
        found[f"experts.{layer_name}_zero_point"] = points.view(torch.int8)
    return found


def _read_global_scales(config: Any, experts: int, is_halved: bool) -> dict[str, torch.Tensor]:
    found = {}
    for layer_name, name, columns in (("w13", "g1", 1 + is_halved), ("w2", "g2", 1)):
        scale = getattr(config, f"{name}_alphas")
        if scale is None or scale.numel() not in (experts, experts * columns):
            what = "None" if scale is None else str(list(scale.shape))
            raise _refuse(f"{name}_alphas", f"[{experts}] or [{experts}, {columns}] expected, {what} found")
        scale = scale.float().view(experts, -1).expand(experts, columns)
        found[f"experts.{layer_name}_global_scale"] = scale.contiguous()
    return found


def _describe_biases(
    config: Any, w1: torch.Tensor, w2: torch.Tensor, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Returns both biases of a layer, or none. Zeros are that of a gemm without a bias."""
    given = {"w13": config.w1_bias, "w2": config.w2_bias}
    if all(bias is None for bias in given.values()):
        return {}
    for name, weight in (("w13", w1), ("w2", w2)):
        if given[name] is None:
            given[name] = torch.zeros(weight.shape[:2], dtype=dtype, device=w1.device)
    return {f"experts.{name}_bias": bias.to(dtype) for name, bias in given.items()}


def describe_quantization(
    config: Any, w1: torch.Tensor, w2: torch.Tensor, dtype: torch.dtype, pack: int, is_halved: bool
) -> Quantization:
    """Returns the spec fields and tensors of a layer with these quantized weights.

    config: a QuantConfig, vLLM's FusedMoEQuantConfig, or None.
    dtype: dtype of hidden states.
    pack: elements per byte of w1 and w2.
    is_halved: w1 consists of gate rows, then up rows.

    Raises InvalidArgument for anything that a layer cannot express."""
    biases = {} if config is None else _describe_biases(config, w1, w2, dtype)
    if w1.dtype == dtype:
        for name in ("quant_dtype", "w1_scale", "w1_zp", "g1_alphas"):
            if getattr(config, name, None) is not None:
                raise _refuse(name, f"weights of {w1.dtype} are not quantized")
        found = Quantization(None, {})
    elif config is None:
        raise InvalidArgument(
            f"w1: {dtype} expected, as hidden_states has, {w1.dtype} found; convert it, or give a "
            "quant_config"
        )
    elif w1.dtype not in (*_BYTES, torch.uint8):
        raise InvalidArgument(f"w1: {w1.dtype} beside hidden_states of {dtype} is not supported")
    elif config.w1_scale is None or config.w2_scale is None:
        raise _refuse("w1_scale", f"weights of {w1.dtype} need w1_scale and w2_scale")
    else:
        found = _describe_quantized(config, w1, w2, pack, is_halved)
    tensors = {name: each.contiguous() for name, each in (found.tensors | biases).items()}
    return Quantization(found.spec, tensors)
