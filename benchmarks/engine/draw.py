# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random weights of a size that makes outputs depend on all of them, the same for each kernel of the experts."""

from __future__ import annotations

import math
import zlib

import torch

#: Standard deviation of a dot product of 2048 weights and inputs of variance 1 is 1.3.
DEVIATION = 1.3 / math.sqrt(2048)
#: Standard deviations of random quantized values: words of 4-bit integers, bytes of fp4 pairs, int8, fp8 within 1.
OF_VALUES = {torch.int32: 4.6, torch.uint8: 2.9, torch.int8: 73.0, torch.float8_e4m3fn: 0.58}


def draw_floats(tensor: torch.Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """In parts, so that 8-bit values need no complete copy in f32."""
    for part in tensor.split(1) if tensor.dim() > 2 else [tensor]:
        numbers = torch.empty(part.shape, dtype=torch.float32, device=part.device)
        part.copy_(numbers.uniform_(low, high, generator=generator))


def fill(tensor: torch.Tensor, name: str, deviation: float, generator: torch.Generator) -> None:
    """One parameter, by its name and dtype; deviation: that of the weights over that of the layer's quantized values."""
    is_scale = "scale" in name
    if tensor.dtype == torch.int32:
        if "zero" in name:
            tensor.fill_(0x77777777)
        else:
            tensor.random_(-(1 << 31), 1 << 31, generator=generator)
    elif tensor.dtype in (torch.uint8, torch.float8_e8m0fnu):
        exponent = 127 + round(math.log2(deviation))
        low, high = (exponent - 1, exponent + 2) if is_scale else (0, 256)
        tensor.view(torch.uint8).random_(low, high, generator=generator)
    elif tensor.dtype == torch.int8:
        tensor.random_(-127, 128, generator=generator)
    elif tensor.dtype == torch.float8_e4m3fn:
        draw_floats(tensor, *((0.5, 1.5) if is_scale else (-1, 1)), generator)
    elif not tensor.is_floating_point():
        return
    elif "input" in name and is_scale:
        # compressed-tensors stores the reciprocal.
        tensor.fill_(20.0 if "global" in name else 0.05)
    elif "global_scale" in name:
        tensor.fill_(1 / deviation)
    elif name.endswith("scale_2"):
        tensor.fill_(deviation)
    elif is_scale:
        draw_floats(tensor, 0.5 * deviation, 1.5 * deviation, generator)
    elif "bias" in name:
        draw_floats(tensor, -0.1, 0.1, generator)
    elif tensor.dim() < 2:
        draw_floats(tensor, 0.8, 1.2, generator)
    else:
        limit = DEVIATION * math.sqrt(3 * 2048 / tensor.shape[-1])
        draw_floats(tensor, -limit, limit, generator)


def choose_deviation(tensors: dict[str, torch.Tensor], of_values: dict[torch.dtype, float] = OF_VALUES) -> float:
    """Of a layer's weights over its quantized values."""
    codes = [each.dtype for name, each in tensors.items() if each.dtype in of_values and "scale" not in name
             and "zero" not in name]
    return DEVIATION / of_values[codes[0]] if codes else DEVIATION


def make_generator(device: torch.device, name: str, seed: int) -> torch.Generator:
    generator = torch.Generator(device=device)
    generator.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    return generator
