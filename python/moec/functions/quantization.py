# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates engines' descriptions of quantized experts to `quantization` of a spec and tensors of a layer."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

import torch

from .. import InvalidArgument

_SCALES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.uint8: "e8m0",
    getattr(torch, "float8_e8m0fnu", None): "e8m0",
    torch.float8_e4m3fn: "e4m3",
}
_BLOCK = 128
_BYTES = {torch.float8_e4m3fn: "fp8_e4m3", torch.int8: "int8"}


@dataclasses.dataclass(frozen=True)
class QuantConfig:
    """Quantization of the operands of experts. Field names are those of vLLM's FusedMoEQuantConfig, which is accepted
    in its place. The dtype of the weights gives their type: float8_e4m3fn, two's complement int8, or uint8. A uint8
    weight has two 4-bit elements per byte, the first in the low half, or, if it has as many columns as hidden_states,
    values 0 to 255 with zero points."""

    #: Quantized type of activations: torch.float8_e4m3fn, torch.int8, or None if they are not quantized.
    quant_dtype: Union[torch.dtype, str, None] = None
    #: One activation scale per row; otherwise one per tensor, or blocks as in block_shape.
    per_act_token_quant: bool = False
    #: [128, 128] for float8 weights in blocks. (If it is None and activations are not quantized, the shape of the
    #: scales decides.)
    block_shape: Optional[list[int]] = None
    #: Weight scales: [E], [E, rows, 1], [E, blocks of rows, blocks of columns] or [E, rows, groups].
    w1_scale: Optional[torch.Tensor] = None
    w2_scale: Optional[torch.Tensor] = None
    #: Zero points of integers: uint8 in the shape of the scales, 0 to 15 or 0 to 255. (Default for 4-bit elements: 8.)
    w1_zp: Optional[torch.Tensor] = None
    w2_zp: Optional[torch.Tensor] = None
    #: Global factors of nvfp4 scales: f32, [E], or [E, 2] for gate and up.
    g1_alphas: Optional[torch.Tensor] = None
    g2_alphas: Optional[torch.Tensor] = None
    #: Biases in the dtype of hidden states, [E, rows].
    w1_bias: Optional[torch.Tensor] = None
    w2_bias: Optional[torch.Tensor] = None
    #: Static activation scales, one element each.
    a1_scale: Optional[torch.Tensor] = None
    a2_scale: Optional[torch.Tensor] = None
    #: Parameters of the activation.
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None


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


def _describe_activation(config: Any, dtype: str, block: Optional[list[int]]) -> dict[str, Any]:
    wanted = config.quant_dtype
    if wanted is None:
        return {}
    if isinstance(wanted, str) or _BYTES.get(wanted) != dtype:
        raise _refuse("quant_dtype", f"{wanted} beside weights of {dtype} is not supported")
    if block:
        scale: Any = {"group": block[1]}
    else:
        scale = "token" if config.per_act_token_quant else "tensor"
    given = config.a1_scale is not None
    if given and (scale != "tensor" or config.a2_scale is None):
        raise _refuse("a1_scale", "given scales are supported for whole tensors, with a2_scale")
    return {"activation": {"dtype": dtype, "scale": scale} | ({"static": True} if given else {})}


def _has_blocks(scale: torch.Tensor, w1: torch.Tensor) -> bool:
    """Returns whether there is a scale per 128 x 128 block of float8, and more than one such block."""
    blocks = tuple(-(-size // _BLOCK) for size in w1.shape[1:])
    return w1.dtype == torch.float8_e4m3fn and blocks != (1, 1) and tuple(scale.shape[1:]) == blocks


def _describe_bytes(config: Any, w1: torch.Tensor, is_halved: bool) -> Quantization:
    """Describes float8 and int8 with scales per tensor, channel or block. is_halved: w1 consists of gate rows, then up
    rows."""
    dtype, experts, rows = _BYTES[w1.dtype], w1.shape[0], w1.shape[1]
    first, second = config.w1_scale, config.w2_scale
    block = list(config.block_shape) if config.block_shape else None
    if block is None and config.quant_dtype is None and _has_blocks(first, w1):
        # vLLM's block_shape applies to activations.
        block = [_BLOCK, _BLOCK]
    if block:
        if block != [_BLOCK, _BLOCK] or dtype != "fp8_e4m3":
            raise _refuse("block_shape", f"{block} of {dtype} found; [128, 128] of float8 is supported")
        if is_halved and rows % 256:
            raise _refuse(
                "block_shape", f"blocks of 128 rows do not divide the {rows // 2} rows of the gate"
            )
        kind: Any = {"block": block}
    elif first.numel() == experts:
        kind = "tensor"
        # One scale for gate and up; a layer has one for each.
        first = first.view(experts, 1, 1).expand(experts, 1 + is_halved, 1)
        second = second.view(experts, 1, 1)
    elif first.numel() == experts * rows:
        kind = "channel"
        first, second = first.view(experts, rows, 1), second.view(experts, -1, 1)
    else:
        raise _refuse("w1_scale", f"shape {list(first.shape)} is not that of a tensor, channel or block")
    spec = {"weight": {"dtype": dtype, "scale": kind}, **_describe_activation(config, dtype, block)}
    tensors = {
        "experts.w13_scale": first.float().contiguous(),
        "experts.w2_scale": second.float().contiguous(),
    }
    if spec.get("activation", {}).get("static"):
        for name, scale in (("w13", config.a1_scale), ("w2", config.a2_scale)):
            if scale.numel() != 1:
                raise _refuse(f"{name}: scales of activations", "one scale for all experts is supported")
            tensors[f"experts.{name}_input_scale"] = scale.float().view(1)
    return Quantization(spec, tensors)


def _describe_groups(config: Any, w1: torch.Tensor, pack: int, is_halved: bool) -> Quantization:
    """Describes elements with group or channel scales of any type: int4, int8, mxfp4 and nvfp4. pack: elements per byte
    of w1."""
    first, second = config.w1_scale, config.w2_scale
    if first.dim() != 3 or second.dim() != 3:
        raise _refuse("w1_scale", f"[E, rows, groups] expected, {list(first.shape)} found")
    if config.quant_dtype is not None:
        raise _refuse("quant_dtype", f"{config.quant_dtype} beside weights with scales of groups is not supported")
    if first.dtype not in _SCALES:
        raise _refuse("w1_scale", f"{first.dtype} is not supported")
    kind, columns = _SCALES[first.dtype], pack * w1.shape[2]
    is_channel = first.shape[2] == second.shape[2] == 1
    weight = {
        "dtype": "int8" if pack == 1 else "fp4_e2m1" if kind in ("e8m0", "e4m3") else "int4",
        "scale": "channel" if is_channel else {"group": columns // first.shape[2]},
        "scale_dtype": kind,
    }
    as_stored = torch.uint8 if kind in ("e8m0", "e4m3") else first.dtype
    tensors = {
        "experts.w13_scale": first.view(as_stored),
        "experts.w2_scale": second.view(as_stored),
    }
    if config.w1_zp is not None:
        weight["zero_point"] = True
        tensors |= _read_zero_points(config)
    elif w1.dtype == torch.uint8 and pack == 1:
        raise _refuse("w1_zp", "weights of 0 to 255 need w1_zp and w2_zp")
    if kind == "e4m3":
        weight["global_scale"] = True
        tensors |= _read_global_scales(config, w1.shape[0], is_halved)
    return Quantization({"weight": weight}, tensors)


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


def _describe_weights(
    config: Any, w1: torch.Tensor, dtype: torch.dtype, pack: int, is_halved: bool
) -> Quantization:
    if w1.dtype == dtype:
        for name in ("quant_dtype", "w1_scale", "w1_zp", "g1_alphas"):
            if getattr(config, name, None) is not None:
                raise _refuse(name, f"weights of {w1.dtype} are not quantized")
        return Quantization(None, {})
    if config is None:
        raise InvalidArgument(
            f"w1: {dtype} expected, as hidden_states has, {w1.dtype} found; convert it, or give a "
            "quant_config"
        )
    if w1.dtype not in (*_BYTES, torch.uint8):
        raise InvalidArgument(f"w1: {w1.dtype} beside hidden_states of {dtype} is not supported")
    if config.w1_scale is None or config.w2_scale is None:
        raise _refuse("w1_scale", f"weights of {w1.dtype} need w1_scale and w2_scale")
    has_groups = w1.dtype == torch.int8 and config.w1_scale.dim() == 3 and config.w1_scale.shape[2] > 1
    if w1.dtype == torch.uint8 or (has_groups and not config.block_shape):
        found = _describe_groups(config, w1, pack, is_halved)
    else:
        found = _describe_bytes(config, w1, is_halved)
    assert found.spec is not None
    for name, field in (("w1_zp", "zero_point"), ("g1_alphas", "global_scale")):
        if getattr(config, name, None) is not None and field not in found.spec["weight"]:
            raise _refuse(name, f"weights of {found.spec['weight']['dtype']} with such scales have none")
    return found


def describe_quantization(
    config: Any, w1: torch.Tensor, dtype: torch.dtype, pack: int, is_halved: bool
) -> Quantization:
    """Returns the spec fields and tensors of a layer with these quantized weights.

    config: a QuantConfig, vLLM's FusedMoEQuantConfig, or None.
    dtype: dtype of hidden states.
    pack: elements per byte of w1.
    is_halved: w1 consists of gate rows, then up rows.

    Raises InvalidArgument for anything that a layer cannot express."""
    biases = {}
    if config is not None:
        for name, bias in (("w13", config.w1_bias), ("w2", config.w2_bias)):
            if bias is not None:
                biases[f"experts.{name}_bias"] = bias.to(dtype)
        if len(biases) == 1:
            raise _refuse("w1_bias", "w1_bias and w2_bias go together; give both or neither")
    found = _describe_weights(config, w1, dtype, pack, is_halved)
    tensors = {name: each.contiguous() for name, each in (found.tensors | biases).items()}
    return Quantization(found.spec, tensors)
