# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random weights for vLLM, the same for each kernel of the experts, and of a size that makes outputs depend on all of
them. vLLM's own dummy weights are near 0, and leave words of 4-bit weights as memory was."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from draw import DEVIATION, choose_deviation, fill, make_generator
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
#: Not weights: shapes, orders, and the engine's settings for its cache.
_LEFT = ("weight_shape", "g_idx", "sort_indices", "expert_map")
_OF_CACHE = ("k_scale", "v_scale", "q_scale", "prob_scale")


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
    deviation = choose_deviation(tensors)
    for name, tensor in tensors.items():
        if tensor.is_meta:
            continue
        # Norms have 1 or 0, which is right. Scales of experts would make weights nearly 0.
        value = getattr(tensor, "dummy_weight_value", None)
        if value is not None and deviation == DEVIATION:
            tensor.fill_(value)
            continue
        fill(tensor.data, name, deviation, make_generator(tensor.device, f"{prefix}.{name}", seed))
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
