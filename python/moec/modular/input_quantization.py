# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantization of rows ahead of experts, by the formula of docs/use/layers.md."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch

from .. import InvalidArgument
from ..functions.sublayers import element, round_tokens, run, write_function

_STORAGE = {torch.float8_e4m3fn: "f8E4M3FN", torch.int8: "i8"}


@dataclasses.dataclass(frozen=True)
class InputQuantization:
    """How a quant_config quantizes rows of `hidden` elements."""

    dtype: torch.dtype
    #: #moe.quant without its brackets.
    text: str
    #: Scales of a row; 0 for one scale for all rows.
    columns: int
    #: That scale, if it is given.
    given: Optional[torch.Tensor] = None

    @property
    def element(self) -> str:
        """The element type in IR."""
        return _STORAGE[self.dtype]


def describe_input(quant_config: Any, hidden: int) -> Optional[InputQuantization]:
    """Returns the quantization of inputs by a QuantConfig or vLLM's FusedMoEQuantConfig; None if they stay as they are.
    Raises InvalidArgument for one that rows cannot travel in."""
    wanted = None if quant_config is None else quant_config.quant_dtype
    if wanted is None:
        return None
    dtype = torch.float8_e4m3fn if wanted in ("fp8", "mxfp8") else wanted
    if dtype not in _STORAGE:
        raise InvalidArgument(
            f"quant_config: quant_dtype: {wanted} found; rows are quantized to torch.float8_e4m3fn, torch.int8 and "
            '"mxfp8"'
        )
    begin = f"storage = {_STORAGE[dtype]}, scale = f32, granularity = "
    if wanted == "mxfp8":
        text = begin + "group, block = [1, 32], dynamic = true, power_of_two = true"
        return InputQuantization(dtype, text, -(-hidden // 32))
    if quant_config.block_shape:
        columns = quant_config.block_shape[1]
        return InputQuantization(
            dtype, f"{begin}group, block = [1, {columns}], dynamic = true", -(-hidden // columns))
    if quant_config.per_act_token_quant:
        return InputQuantization(dtype, begin + "token, dynamic = true", 1)
    return InputQuantization(dtype, begin + "tensor", 0, quant_config.a1_scale)


def write_quantize(quantization: InputQuantization, hidden: int, dtype: torch.dtype) -> str:
    """Returns IR that makes %quantized, and %scale of rows, from %hidden_states and, for one scale, %tensor_scale."""
    rows = f"tensor<?x{hidden}x{element(dtype, 'a1')}>"
    quantized = f"tensor<?x{hidden}x{quantization.element}>"
    if quantization.columns:
        return (f"  %quantized, %scale = moe.quantize <{quantization.text}> %hidden_states : {rows} -> {quantized}, "
                f"tensor<?x{quantization.columns}xf32>\n")
    return (f"  %quantized = moe.quantize <{quantization.text}> %hidden_states tensor_scale(%tensor_scale : "
            f"tensor<1xf32>) : {rows} -> {quantized}\n")


def _write_tensor_scale(quantization: InputQuantization, matrix: str) -> str:
    return (f"  %tensor_scale = moe.tensor_scale <{quantization.text}, dynamic = true> %hidden_states : {matrix} -> "
            "tensor<1xf32>\n")


def find_tensor_scale(rows: torch.Tensor, quantization: InputQuantization) -> torch.Tensor:
    """Returns f32 [1], the scale that all rows share; zeros if there is no row."""
    scale = rows.new_zeros(1, dtype=torch.float32)
    tokens = rows.shape[0]
    if tokens:
        matrix = f"tensor<?x{rows.shape[1]}x{element(rows.dtype, 'a1')}>"
        text = write_function(
            {"hidden_states": matrix}, {"tensor_scale": "tensor<1xf32>"}, _write_tensor_scale(quantization, matrix),
            round_tokens(tokens))
        run(text, tokens, {"hidden_states": rows.contiguous(), "tensor_scale": scale}, "a1")
    return scale


def quantize_input(
    rows: torch.Tensor, quant_config: Any
) -> tuple[torch.Tensor, Optional[torch.Tensor]]:
    """Returns rows [T, H] quantized as quant_config says, and their scales: f32 [T, n], or one element for all rows,
    given or computed. Rows stay as they are, without scales, if it quantizes no activations."""
    hidden = rows.shape[1]
    quantization = describe_input(quant_config, hidden)
    if quantization is None:
        return rows, None
    tokens = rows.shape[0]
    matrix = f"tensor<?x{hidden}x{element(rows.dtype, 'a1')}>"
    inputs, outputs = {"hidden_states": matrix}, {"quantized": f"tensor<?x{hidden}x{quantization.element}>"}
    tensors = {"hidden_states": rows.contiguous()}
    body = write_quantize(quantization, hidden, rows.dtype)
    if quantization.columns:
        outputs["scale"] = f"tensor<?x{quantization.columns}xf32>"
        scale = tensors["scale"] = rows.new_empty((tokens, quantization.columns), dtype=torch.float32)
    elif quantization.given is not None:
        inputs["tensor_scale"] = "tensor<1xf32>"
        scale = tensors["tensor_scale"] = quantization.given.to(torch.float32).reshape(1)
    else:
        outputs["tensor_scale"] = "tensor<1xf32>"
        body = _write_tensor_scale(quantization, matrix) + body
        scale = tensors["tensor_scale"] = rows.new_empty(1, dtype=torch.float32)
    quantized = rows.new_empty(rows.shape, dtype=quantization.dtype)
    tensors["quantized"] = quantized.view(torch.uint8) if quantization.dtype == torch.float8_e4m3fn else quantized
    run(write_function(inputs, outputs, body, round_tokens(tokens)), tokens, tensors, "a1")
    return quantized, scale
