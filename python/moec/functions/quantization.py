# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What engines say of quantized experts, as `quantization` of a spec and tensors of a layer."""

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
}
_BYTES = {torch.float8_e4m3fn: "fp8_e4m3", torch.int8: "int8"}


@dataclasses.dataclass(frozen=True)
class QuantConfig:
    """How the operands of experts are quantized; the fields are those that vLLM's FusedMoEQuantConfig
    answers to, which is taken in its place. Weights say themselves what they are: float8_e4m3fn,
    int8, or uint8 with two elements of 4 bits in a byte, the first in its low half."""

    #: What activations are rounded to: torch.float8_e4m3fn, torch.int8; None: they stay as they are.
    quant_dtype: Union[torch.dtype, str, None] = None
    #: Activations have a scale for each row; else one for all, or as block_shape says.
    per_act_token_quant: bool = False
    #: [128, 128] for weights of float8 in blocks.
    block_shape: Optional[list[int]] = None
    #: [E], [E, rows, 1], [E, blocks of rows, blocks of columns] or [E, rows, groups].
    w1_scale: Optional[torch.Tensor] = None
    w2_scale: Optional[torch.Tensor] = None
    w1_zp: Optional[torch.Tensor] = None
    w2_zp: Optional[torch.Tensor] = None
    #: Of the dtype of hidden states, [E, rows].
    w1_bias: Optional[torch.Tensor] = None
    w2_bias: Optional[torch.Tensor] = None
    #: Given scales of activations, one element each.
    a1_scale: Optional[torch.Tensor] = None
    a2_scale: Optional[torch.Tensor] = None
    #: Parameters of the activation.
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None


def is_same(first: Any, second: Any) -> bool:
    """Whether two descriptions are one, or of the same tensors: some callers make one for each call."""
    if not isinstance(first, QuantConfig) or not isinstance(second, QuantConfig):
        return first is second
    for field in dataclasses.fields(QuantConfig):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if one is not other and (isinstance(one, torch.Tensor) or one != other):
            return False
    return True


@dataclasses.dataclass
class Quantization:
    """`quantization` of a spec, None for none, and the tensors that come with it."""

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


def _describe_bytes(config: Any, w1: torch.Tensor, is_halved: bool) -> Quantization:
    """Of float8 and int8. is_halved: gate rows and up rows of w1 are its halves."""
    dtype, experts, rows = _BYTES[w1.dtype], w1.shape[0], w1.shape[1]
    first, second = config.w1_scale, config.w2_scale
    if first is None or second is None:
        raise _refuse("w1_scale", "weights of 8 bits need w1_scale and w2_scale")
    block = list(config.block_shape) if config.block_shape else None
    if block:
        if block != [128, 128] or dtype != "fp8_e4m3":
            raise _refuse("block_shape", f"{block} of {dtype} found; [128, 128] of float8 is supported")
        if is_halved and rows % 256:
            raise _refuse(
                "block_shape", f"blocks of 128 rows do not end with the {rows // 2} rows of the gate"
            )
        kind: Any = {"block": block}
    elif first.numel() == experts:
        kind = "tensor"
        # One scale for gate and up, and a layer has one for each.
        first = first.view(experts, 1, 1).expand(experts, 1 + is_halved, 1)
        second = second.view(experts, 1, 1)
    elif first.numel() == experts * rows:
        kind = "channel"
        first, second = first.view(experts, rows, 1), second.view(experts, -1, 1)
    else:
        raise _refuse("w1_scale", f"shape {list(first.shape)} is none of a tensor, channel or block")
    spec = {"weight": {"dtype": dtype, "scale": kind}, **_describe_activation(config, dtype, block)}
    tensors = {
        "experts.w13_scale": first.float().contiguous(),
        "experts.w2_scale": second.float().contiguous(),
    }
    if spec.get("activation", {}).get("static"):
        for name, scale in (("w13", config.a1_scale), ("w2", config.a2_scale)):
            if scale.numel() != 1:
                raise _refuse(f"{name}: scales of activations", "one for all experts is supported")
            tensors[f"experts.{name}_input_scale"] = scale.float().view(1)
    return Quantization(spec, tensors)


def _describe_pairs(config: Any, w1: torch.Tensor) -> Quantization:
    """Of elements of 4 bits: mxfp4, and int4 with groups."""
    first, second = config.w1_scale, config.w2_scale
    if first is None or second is None or first.dim() != 3:
        raise _refuse("w1_scale", "weights of 4 bits need w1_scale and w2_scale, [E, rows, groups]")
    if config.quant_dtype is not None:
        raise _refuse("quant_dtype", f"{config.quant_dtype} beside weights of 4 bits is not supported")
    if first.dtype not in _SCALES:
        raise _refuse("w1_scale", f"{first.dtype} is not supported")
    group, kind = 2 * w1.shape[2] // first.shape[2], _SCALES[first.dtype]
    weight = {"dtype": "int4", "scale": {"group": group}, "scale_dtype": kind}
    if kind == "e8m0":
        weight["dtype"] = "fp4_e2m1"
    as_stored = torch.uint8 if kind == "e8m0" else first.dtype
    tensors = {
        "experts.w13_scale": first.view(as_stored),
        "experts.w2_scale": second.view(as_stored),
    }
    return Quantization({"weight": weight}, tensors)


def describe_quantization(
    config: Any, w1: torch.Tensor, dtype: torch.dtype, is_halved: bool
) -> Quantization:
    """What the layer of such weights has in its spec and beside w1 and w2.

    config: a QuantConfig, vLLM's FusedMoEQuantConfig or None. dtype: of hidden states. Raises
    InvalidArgument for what has no form."""
    biases = {}
    if config is not None:
        for name, bias in (("w13", config.w1_bias), ("w2", config.w2_bias)):
            if bias is not None:
                biases[f"experts.{name}_bias"] = bias.to(dtype)
        if len(biases) == 1:
            raise _refuse("w1_bias", "w1_bias and w2_bias come together")
        for name in ("w1_zp", "w2_zp"):
            if getattr(config, name) is not None:
                raise _refuse(name, "zero points are packed in other ways by each engine; load them "
                              "as a checkpoint (docs/formats.md)")
    if w1.dtype == dtype:
        if config is not None and (config.quant_dtype is not None or config.w1_scale is not None):
            raise _refuse("quant_dtype", f"weights of {w1.dtype} are not quantized")
        found = Quantization(None, {})
    elif config is None:
        raise InvalidArgument(
            f"w1: {dtype} expected, as hidden_states has, {w1.dtype} found; convert it, or give a "
            "quant_config"
        )
    elif w1.dtype in _BYTES:
        found = _describe_bytes(config, w1, is_halved)
    elif w1.dtype == torch.uint8:
        found = _describe_pairs(config, w1)
    else:
        raise InvalidArgument(f"w1: {w1.dtype} beside hidden_states of {dtype} is not supported")
    return Quantization(found.spec, found.tensors | biases)
