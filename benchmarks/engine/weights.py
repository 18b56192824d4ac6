# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random weights for vLLM, the same for each kernel of the experts, and of a size that makes outputs depend on all of
them. vLLM's own dummy weights are near 0, and leave words of 4-bit weights as memory was."""

from __future__ import annotations

import math
import zlib
from typing import Any, Iterator

import torch
from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.fused_moe import RoutedExperts
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.reload.layerwise import (
    _layerwise_process, finalize_layerwise_reload, get_layerwise_info, initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.meta import materialize_layer
from vllm.model_executor.model_loader.reload.utils import get_layer_tensors

LOAD_FORMAT = "moec_random"
#: Standard deviation of a dot product of 2048 weights and inputs of variance 1 is 1.3.
_DEVIATION = 1.3 / math.sqrt(2048)
#: Standard deviations of random quantized values: words of 4-bit integers, bytes of fp4 pairs, int8, fp8 within 1.
_OF_VALUES = {torch.int32: 4.6, torch.uint8: 2.9, torch.int8: 73.0, torch.float8_e4m3fn: 0.58}
#: Not weights: shapes, orders, and the engine's settings for its cache.
_LEFT = ("weight_shape", "g_idx", "sort_indices", "expert_map")
_OF_CACHE = ("k_scale", "v_scale", "q_scale", "prob_scale")


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
        limit = _DEVIATION * math.sqrt(3 * 2048 / tensor.shape[-1])
        draw_floats(tensor, -limit, limit, generator)


def list_weights(layer: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: tensor for name, tensor in get_layer_tensors(layer).items()
        if name not in layer._non_persistent_buffers_set and tensor.numel()
        and not any(left in name for left in _LEFT) and name.lstrip("_") not in _OF_CACHE
    }


@torch.no_grad()
def fill_layer(layer: torch.nn.Module, prefix: str, seed: int) -> None:
    """Like vLLM's loaders, including weights that it quantizes while loading."""
    info = get_layerwise_info(layer)
    is_processed_here = info.can_load()
    if is_processed_here:
        materialize_layer(layer, info)
    tensors = list_weights(layer)
    codes = [each.dtype for name, each in tensors.items() if each.dtype in _OF_VALUES and "scale" not in name
             and "zero" not in name]
    deviation = _DEVIATION / _OF_VALUES[codes[0]] if codes else _DEVIATION
    for name, tensor in tensors.items():
        if tensor.is_meta:
            continue
        # Norms have 1 or 0, which is right. Scales of experts would make weights nearly 0.
        value = getattr(tensor, "dummy_weight_value", None)
        if value is not None and not codes:
            tensor.fill_(value)
            continue
        generator = torch.Generator(device=tensor.device)
        generator.manual_seed(zlib.crc32(f"{seed} {prefix}.{name}".encode()))
        fill(tensor.data, name, deviation, generator)
    if is_processed_here and tensors:
        _layerwise_process(layer, info)


def fill_model(model: torch.nn.Module, seed: int = 0) -> None:
    for prefix, layer in model.named_modules():
        fill_layer(layer, prefix, seed)


@register_model_loader(LOAD_FORMAT)
class RandomLoader(BaseModelLoader):
    def download_model(self, model_config: ModelConfig) -> None:
        pass

    def load_weights(self, model: torch.nn.Module, model_config: ModelConfig) -> None:
        fill_model(model)


def list_experts(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for prefix, layer in model.named_modules():
        if isinstance(layer, RoutedExperts):
            yield prefix, layer


def reload_experts(config: VllmConfig, model: torch.nn.Module, seed: int) -> None:
    """Other weights through vLLM's reload in place, only for expert layers."""
    with set_current_vllm_config(config):
        for prefix, layer in list_experts(model):
            initialize_layerwise_reload(layer)
            fill_layer(layer, prefix, seed)
            finalize_layerwise_reload(layer, config.model_config)
