# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The methods of vLLM's layers that hand their experts to moec, and how vLLM is told of them."""

from __future__ import annotations

import logging
from typing import Any, Optional

import torch
from vllm.model_executor.custom_op import CustomOp, op_registry_oot
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8MoEMethod
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kFp8Dynamic128Sym,
    kFp8DynamicTensorSym,
    kFp8DynamicTokenSym,
    kFp8Static128BlockSym,
    kFp8StaticTensorSym,
)

from .experts import MoecBatchedExperts, choose

_logger = logging.getLogger("moec.vllm")
_METHOD = "UnquantizedFusedMoEMethod"
_is_registered = False


def _tell(kind: str, reason: Optional[str]) -> None:
    if reason is None:
        _logger.info("moec: %s experts run in moec", kind)
    else:
        _logger.warning("moec: %s experts keep vLLM's kernel: %s", kind, reason)


class MoecUnquantizedFusedMoEMethod(UnquantizedFusedMoEMethod):
    """Experts of 16 bits (and of 32). Weights stay as the loader lays them out: those of vLLM's Triton
    kernels, whose backend the method says it has, are those of a layer."""

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        chosen, reason = choose(moe, None, None)
        _tell("16-bit", reason)
        if chosen is None:
            return
        self.experts_cls = chosen
        self.unquantized_backend = (
            UnquantizedMoeBackend.BATCHED_TRITON
            if chosen is MoecBatchedExperts
            else UnquantizedMoeBackend.TRITON
        )


class MoecFp8MoEMethod(Fp8MoEMethod):
    """Experts of fp8, by blocks of 128 x 128 or by tensor."""

    def __init__(self, quant_config: Fp8Config, layer: torch.nn.Module) -> None:
        super().__init__(quant_config, layer)
        chosen, reason = None, f"weights in blocks of {self.moe_block_shape}"
        if not self.block_quant or list(self.moe_block_shape) == [128, 128]:
            chosen, reason = choose(self.moe, *self._get_keys())
        _tell("fp8", reason)
        if chosen is not None:
            self.experts_cls, self.fp8_backend = chosen, Fp8MoeBackend.TRITON

    def _get_keys(self) -> tuple[Any, Any]:
        if self.block_quant:
            return kFp8Static128BlockSym, kFp8Dynamic128Sym
        if self.quant_config.activation_scheme == "static":
            return kFp8StaticTensorSym, kFp8StaticTensorSym
        dynamic = kFp8DynamicTokenSym if self.per_act_token_quant else kFp8DynamicTensorSym
        return kFp8StaticTensorSym, dynamic


class MoecFp8Config(Fp8Config):
    """fp8 as vLLM has it, but for the method of experts."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        method = super().get_quant_method(layer, prefix)
        return MoecFp8MoEMethod(self, layer) if type(method) is Fp8MoEMethod else method


def register() -> None:
    """Tells vLLM of the methods, once."""
    global _is_registered
    if _is_registered:
        return
    if _METHOD in op_registry_oot:
        _tell("16-bit", f"{op_registry_oot[_METHOD].__name__} of another plugin has their place")
    else:
        CustomOp.register_oot(name=_METHOD)(MoecUnquantizedFusedMoEMethod)
    register_quantization_config("fp8")(MoecFp8Config)
    _is_registered = True
