# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's experts_int8: int8 quantized at load from 16-bit weights."""

from __future__ import annotations

from vllm.model_executor.layers.fused_moe.oracle.int8 import Int8MoeBackend
from vllm.model_executor.layers.quantization.experts_int8 import ExpertsInt8Config
from vllm.model_executor.layers.quantization.online.int8 import Int8OnlineMoEMethod
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from ..quantized import AsTriton, Config, Keys, add_methods


class MoecInt8OnlineMoEMethod(AsTriton, Int8OnlineMoEMethod):
    moec_kind, moec_backend = "int8 weights", ("int8_backend", Int8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return keys.kInt8StaticChannelSym, None


class MoecExpertsInt8Config(Config, ExpertsInt8Config):
    pass


add_methods(MoecInt8OnlineMoEMethod)
#: By vLLM's names of quantizations.
CONFIGS = {
    "experts_int8": MoecExpertsInt8Config,
}
