# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How vLLM is told of moec: the method of layers of 16 bits, and the configs of quantized ones."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.custom_op import CustomOp, op_registry_oot
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from vllm.model_executor.layers.quantization.experts_int8 import ExpertsInt8Config
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.layers.quantization.modelopt import (
    ModelOptFp8Config,
    ModelOptMixedPrecisionConfig,
    ModelOptNvFp4Config,
)
from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Config
from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config, Mxfp4Config

from .experts import MoecBatchedExperts, choose, tell
from .quantized import hand_over

_METHOD = "UnquantizedFusedMoEMethod"
_is_registered = False


class MoecUnquantizedFusedMoEMethod(UnquantizedFusedMoEMethod):
    """Experts of 16 bits (and of 32). Weights stay as the loader lays them out: those of vLLM's Triton
    kernels, whose backend the method says it has, are those of a layer."""

    def __init__(self, moe: FusedMoEConfig) -> None:
        super().__init__(moe)
        chosen, reason = choose(moe, None, None)
        tell("16-bit", reason)
        if chosen is None:
            return
        self.experts_cls = chosen
        self.unquantized_backend = (
            UnquantizedMoeBackend.BATCHED_TRITON
            if chosen is MoecBatchedExperts
            else UnquantizedMoeBackend.TRITON
        )


class _Config:
    """Goes ahead of a config of vLLM's, which is all the same but for the methods of experts."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return hand_over(super().get_quant_method(layer, prefix))


# Classes of the module, since vLLM sends configs to other processes.


class MoecFp8Config(_Config, Fp8Config):
    pass


class MoecMxfp4Config(_Config, Mxfp4Config):
    pass


class MoecGptOssMxfp4Config(_Config, GptOssMxfp4Config):
    pass


class MoecCompressedTensorsConfig(_Config, CompressedTensorsConfig):
    pass


class MoecAutoGPTQConfig(_Config, AutoGPTQConfig):
    pass


class MoecAutoAWQConfig(_Config, AutoAWQConfig):
    pass


class MoecMoeWNA16Config(_Config, MoeWNA16Config):
    pass


class MoecExpertsInt8Config(_Config, ExpertsInt8Config):
    pass


class MoecModelOptFp8Config(_Config, ModelOptFp8Config):
    pass


class MoecModelOptNvFp4Config(_Config, ModelOptNvFp4Config):
    pass


class MoecModelOptMixedPrecisionConfig(_Config, ModelOptMixedPrecisionConfig):
    pass


#: By vLLM's names of quantizations.
CONFIGS: dict[str, type[_Config]] = {
    "fp8": MoecFp8Config,
    "mxfp4": MoecMxfp4Config,
    "gpt_oss_mxfp4": MoecGptOssMxfp4Config,
    "compressed-tensors": MoecCompressedTensorsConfig,
    "gptq": MoecAutoGPTQConfig,
    "gptq_marlin": MoecAutoGPTQConfig,
    "auto_gptq": MoecAutoGPTQConfig,
    "awq": MoecAutoAWQConfig,
    "awq_marlin": MoecAutoAWQConfig,
    "auto_awq": MoecAutoAWQConfig,
    "moe_wna16": MoecMoeWNA16Config,
    "experts_int8": MoecExpertsInt8Config,
    "modelopt": MoecModelOptFp8Config,
    "modelopt_fp4": MoecModelOptNvFp4Config,
    "modelopt_mixed": MoecModelOptMixedPrecisionConfig,
}


def register() -> None:
    """Tells vLLM of the methods, once."""
    global _is_registered
    if _is_registered:
        return
    if _METHOD in op_registry_oot:
        tell("16-bit", f"{op_registry_oot[_METHOD].__name__} of another plugin has their place")
    else:
        CustomOp.register_oot(name=_METHOD)(MoecUnquantizedFusedMoEMethod)
    for name, config in CONFIGS.items():
        register_quantization_config(name)(config)
    _is_registered = True
