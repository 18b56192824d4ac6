# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registration in vLLM: the method of 16-bit layers, and the configs of quantized ones."""

from __future__ import annotations

import importlib

import torch
from vllm.model_executor.custom_op import CustomOp, op_registry_oot
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.quantization import register_quantization_config

from . import formats
from .experts import MoecBatchedExperts, choose
from .monolithic import Selecting
from .report import count_loaded, count_taken, tell_kept

_METHOD = "UnquantizedFusedMoEMethod"
_KIND = "16-bit"
_is_registered = False


class MoecUnquantizedFusedMoEMethod(Selecting, UnquantizedFusedMoEMethod):
    """Experts with 16-bit (or 32-bit) weights. Weights keep the loader's layout for vLLM's Triton kernels, which equals
    a layer's layout; the method claims to have that backend."""

    moec_kind, moec_keys = _KIND, (None, None)

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        chosen, reason = choose(moe, None, None)
        self.moec_runs = chosen is not None
        if chosen is None:
            tell_kept(_KIND, reason or "no reason is given")
            return
        count_taken(_KIND)
        self.experts_cls = chosen
        self.unquantized_backend = (
            UnquantizedMoeBackend.BATCHED_TRITON
            if chosen is MoecBatchedExperts
            else UnquantizedMoeBackend.TRITON
        )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if not self.moec_runs:
            super().process_weights_after_loading(layer)
            self.moec_put_exchange()
            return
        self.moec_choose_entry(layer)
        super().process_weights_after_loading(layer)
        self.moec_put_exchange()
        count_loaded(_KIND, selects=self.moec_selects)


def register() -> None:
    """Registers the methods with vLLM, once. A format with a missing dependency keeps vLLM's kernel."""
    global _is_registered
    if _is_registered:
        return
    if _METHOD in op_registry_oot:
        tell_kept(_KIND, f"{op_registry_oot[_METHOD].__name__} of another plugin replaces them")
    else:
        CustomOp.register_oot(name=_METHOD)(MoecUnquantizedFusedMoEMethod)
    for name in formats.NAMES:
        try:
            module = importlib.import_module(f"{formats.__name__}.{name}")
        except ImportError as error:
            tell_kept(name, f"vLLM's module for them has a missing dependency: {error}")
            continue
        for quantization, config in module.CONFIGS.items():
            register_quantization_config(quantization)(config)
    _is_registered = True
