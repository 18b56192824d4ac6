# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's fp8, with scales per block or per tensor."""

from __future__ import annotations

from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8MoEMethod
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from ..quantized import AsTriton, Config, Keys, add_methods, make_block_key, make_fp8_keys


class MoecFp8MoEMethod(AsTriton, Fp8MoEMethod):
    moec_kind, moec_backend = "fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        if self.block_quant:
            return make_fp8_keys(self.fp8_backend, make_block_key(self.moe_block_shape), keys.kFp8Dynamic128Sym)
        activation = keys.kFp8DynamicTokenSym if self.per_act_token_quant else keys.kFp8DynamicTensorSym
        if self.quant_config.activation_scheme == "static":
            activation = keys.kFp8StaticTensorSym
        return make_fp8_keys(self.fp8_backend, keys.kFp8StaticTensorSym, activation)


class MoecFp8Config(Config, Fp8Config):
    pass


add_methods(MoecFp8MoEMethod)
#: By vLLM's names of quantizations.
CONFIGS = {
    "fp8": MoecFp8Config,
}
