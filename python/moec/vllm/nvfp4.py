# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Common code for nvfp4 of compressed-tensors and of ModelOpt."""

from __future__ import annotations

from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from .. import InvalidArgument
from .quantized import AsLoaded, Keys


class NvFp4(AsLoaded):
    moec_weight_dtype, moec_scale = "nvfp4", "weight_scale"
    #: Backends that keep activations in 16 bits regardless of the checkpoint.
    moec_weight_only = (NvFp4MoeBackend.MARLIN, NvFp4MoeBackend.HUMMING)

    def moec_find_keys(self) -> Keys:
        if not self.use_a16 and self.nvfp4_backend not in self.moec_weight_only:
            raise InvalidArgument("activations of 4 bits")
        if self.moe.activation.value == "swigluoai":
            raise InvalidArgument("interleaved gate and up rows, which have a global scale each")
        return keys.kNvfp4Static, None
