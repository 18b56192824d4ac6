# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's GPTQ and AWQ, with K x N matrices, and both in the layout of vLLM's loader for Triton."""

from __future__ import annotations

from typing import Any, Optional

import torch
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig, AutoAWQMoEMethod
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig, AutoGPTQMoEMethod
from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Config, MoeWNA16Method

from ...functions import packing
from ..quantized import Config, Integers, add_methods


def _has_column_order(config: Any) -> bool:
    """Returns whether columns are permuted, by the checkpoint's GPTQ configuration. With one group per row the order
    does not matter."""
    return config.group_size != -1 and bool(config.full_config.get("desc_act"))


class _Transposed(Integers):
    """K x N matrices of GPTQ and AWQ."""

    moec_weight, moec_scale = "qweight", "scales"

    @property
    def moec_bits(self) -> int:
        return self.quant_config.weight_bits

    def moec_read_scales(self, stored: torch.Tensor) -> torch.Tensor:
        return stored.transpose(1, 2).contiguous()


class MoecAutoGPTQMoEMethod(_Transposed, AutoGPTQMoEMethod):
    moec_kind = "GPTQ"

    @property
    def moec_has_zero_points(self) -> bool:
        # vLLM's config accepts only symmetric weights; their qzeros are still loaded.
        return False

    @property
    def moec_has_column_order(self) -> bool:
        return _has_column_order(self.quant_config)

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        return packing.read_gptq_weights(stored)

    def moec_read_bias(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        # vLLM allocates biases even if the checkpoint has none.
        return super().moec_read_bias(layer, prefix) if f"{prefix}_bias" in layer._loaded_expert_biases else None


class MoecAutoAWQMoEMethod(_Transposed, AutoAWQMoEMethod):
    moec_kind = "AWQ"

    @property
    def moec_has_zero_points(self) -> bool:
        return self.quant_config.zero_point

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        return packing.read_awq_weights(stored)

    def moec_unpack_zero_points(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return packing.read_awq_zero_points(getattr(layer, f"{prefix}_qzeros").data)


class MoecMoeWNA16Method(Integers, MoeWNA16Method):
    """GPTQ and AWQ in the layout of vLLM's loader for its Triton kernel."""

    moec_kind, moec_weight, moec_scale = "moe_wna16", "qweight", "scales"

    @property
    def moec_bits(self) -> int:
        return self.quant_config.weight_bits

    @property
    def moec_has_zero_points(self) -> bool:
        return self.quant_config.has_zp

    @property
    def moec_has_column_order(self) -> bool:
        return _has_column_order(self.quant_config)

    def moec_unpack_zero_points(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return packing.read_zero_points(getattr(layer, f"{prefix}_qzeros").data, self.moec_bits)


class MoecAutoGPTQConfig(Config, AutoGPTQConfig):
    pass


class MoecAutoAWQConfig(Config, AutoAWQConfig):
    pass


class MoecMoeWNA16Config(Config, MoeWNA16Config):
    pass


add_methods(MoecAutoGPTQMoEMethod, MoecAutoAWQMoEMethod, MoecMoeWNA16Method)
#: By vLLM's names of quantizations.
CONFIGS = {
    "gptq": MoecAutoGPTQConfig,
    "gptq_marlin": MoecAutoGPTQConfig,
    "auto_gptq": MoecAutoGPTQConfig,
    "awq": MoecAutoAWQConfig,
    "awq_marlin": MoecAutoAWQConfig,
    "auto_awq": MoecAutoAWQConfig,
    "moe_wna16": MoecMoeWNA16Config,
}
