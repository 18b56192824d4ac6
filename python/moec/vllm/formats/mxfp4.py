# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's mxfp4, including gpt-oss."""

from __future__ import annotations

from typing import Any, Optional

from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import (
    Mxfp4MoeBackend,
    _backend_activation_key,
    _resolve_activation_key,
)
from vllm.model_executor.layers.quantization.mxfp4 import (
    GptOssMxfp4Config,
    GptOssMxfp4MoEMethod,
    Mxfp4Config,
    Mxfp4MoEMethod,
)
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from ... import InvalidArgument
from ..quantized import AsLoaded, Config, Keys, add_methods


def find_activation(method: Any) -> Optional[keys.QuantKey]:
    """Returns the key of activations in the backend that vLLM chose. Humming takes what the checkpoint declares."""
    if method.mxfp4_backend is Mxfp4MoeBackend.HUMMING:
        declared = getattr(method, "activation_key", None)
        return _resolve_activation_key(declared) if get_current_vllm_config().model_config else declared
    return _backend_activation_key(method.mxfp4_backend)


class Mxfp4(AsLoaded):
    moec_weight_dtype, moec_weight, moec_scale = "mxfp4", "weight", "weight_scale"

    def moec_find_keys(self) -> Keys:
        activation = find_activation(self)
        if activation == keys.kMxfp4Dynamic:
            raise InvalidArgument("activations of 4 bits")
        return keys.kMxfp4Static, activation

    def moec_take(self) -> None:
        # Sizes are padded as for Triton's kernels: I to a multiple of 64 with zeros, which add nothing.
        self.mxfp4_backend = Mxfp4MoeBackend.TRITON


class MoecGptOssMxfp4MoEMethod(Mxfp4, GptOssMxfp4MoEMethod):
    moec_kind = "gpt-oss mxfp4"


class MoecMxfp4MoEMethod(Mxfp4, Mxfp4MoEMethod):
    moec_kind = "mxfp4"


class MoecMxfp4Config(Config, Mxfp4Config):
    pass


class MoecGptOssMxfp4Config(Config, GptOssMxfp4Config):
    pass


add_methods(MoecGptOssMxfp4MoEMethod, MoecMxfp4MoEMethod)
#: By vLLM's names of quantizations.
CONFIGS = {
    "mxfp4": MoecMxfp4Config,
    "gpt_oss_mxfp4": MoecGptOssMxfp4Config,
}
