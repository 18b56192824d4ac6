# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's ModelOpt: fp8, mxfp8 and nvfp4."""

from __future__ import annotations

import torch
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.quantization.modelopt import (
    ModelOptFp8Config,
    ModelOptFp8MoEMethod,
    ModelOptMixedPrecisionConfig,
    ModelOptMxFp8Config,
    ModelOptMxFp8FusedMoE,
    ModelOptNvFp4Config,
    ModelOptNvFp4FusedMoE,
)
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from ..nvfp4 import NvFp4
from ..quantized import AsTriton, Config, Keys, add_methods, make_fp8_keys, make_mxfp8_keys


class MoecModelOptFp8MoEMethod(AsTriton, ModelOptFp8MoEMethod):
    moec_kind, moec_backend = "ModelOpt fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return make_fp8_keys(self.fp8_backend, keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym)


class MoecModelOptMxFp8FusedMoE(AsTriton, ModelOptMxFp8FusedMoE):
    moec_kind, moec_backend = "ModelOpt mxfp8", ("mxfp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return make_mxfp8_keys(self.mxfp8_backend)


class MoecModelOptNvFp4FusedMoE(NvFp4, ModelOptNvFp4FusedMoE):
    moec_kind, moec_weight = "ModelOpt nvfp4", "weight"

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return getattr(layer, f"{prefix}_weight_scale_2").data


class MoecModelOptFp8Config(Config, ModelOptFp8Config):
    pass


class MoecModelOptMxFp8Config(Config, ModelOptMxFp8Config):
    pass


class MoecModelOptNvFp4Config(Config, ModelOptNvFp4Config):
    pass


class MoecModelOptMixedPrecisionConfig(Config, ModelOptMixedPrecisionConfig):
    pass


add_methods(MoecModelOptFp8MoEMethod, MoecModelOptMxFp8FusedMoE, MoecModelOptNvFp4FusedMoE)
#: By vLLM's names of quantizations.
CONFIGS = {
    "modelopt": MoecModelOptFp8Config,
    "modelopt_mxfp8": MoecModelOptMxFp8Config,
    "mxfp8": MoecModelOptMxFp8Config,
    "modelopt_fp4": MoecModelOptNvFp4Config,
    "modelopt_mixed": MoecModelOptMixedPrecisionConfig,
}
