# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""vLLM's compressed-tensors: fp8, mxfp8, int8, integers, mxfp4 and nvfp4."""

from __future__ import annotations

from typing import Optional

import torch
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.int8 import Int8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_mxfp4,
    compressed_tensors_moe_w4a4_nvfp4,
    compressed_tensors_moe_w4a8_fp8,
    compressed_tensors_moe_w4a8_mxfp4,
    compressed_tensors_moe_w8a8_fp8,
    compressed_tensors_moe_w8a8_int8,
    compressed_tensors_moe_w8a8_mxfp8,
    compressed_tensors_moe_wna16,
)
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from ... import InvalidArgument
from ...functions import packing
from ..nvfp4 import NvFp4
from ..quantized import (
    AsLoaded,
    AsTriton,
    Config,
    Integers,
    Keys,
    add_methods,
    make_block_key,
    make_fp8_keys,
    make_mxfp8_keys,
)
from .mxfp4 import Mxfp4


class _Monolithic:
    """Mixin for methods of vLLM that only call modular kernels."""

    def apply_monolithic(
        self, layer: torch.nn.Module, x: torch.Tensor, router_logits: torch.Tensor,
        input_ids: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        return self.moe_kernel.apply_monolithic(
            x, layer.w13_weight, layer.w2_weight, router_logits, activation=layer.activation,
            global_num_experts=layer.global_num_experts, expert_map=layer.expert_map,
            apply_router_weight_on_input=layer.apply_router_weight_on_input, routing_sink=layer.routing_sink,
        )


class MoecCompressedTensorsW8A8Fp8MoEMethod(
    AsTriton, compressed_tensors_moe_w8a8_fp8.CompressedTensorsW8A8Fp8MoEMethod
):
    moec_kind, moec_backend = "compressed-tensors fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        if self.block_quant:
            found = make_block_key(self.weight_block_size), keys.kFp8Dynamic128Sym
        elif self.weight_quant.strategy == "channel":
            found = keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym
        elif self.static_input_scales:
            found = keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym
        else:
            found = keys.kFp8StaticTensorSym, keys.kFp8DynamicTensorSym
        return make_fp8_keys(self.fp8_backend, *found)


class MoecCompressedTensorsW8A8Mxfp8MoEMethod(
    AsTriton, compressed_tensors_moe_w8a8_mxfp8.CompressedTensorsW8A8Mxfp8MoEMethod
):
    moec_kind, moec_backend = "compressed-tensors mxfp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return make_mxfp8_keys(self.fp8_backend)


class MoecCompressedTensorsW8A8Int8MoEMethod(
    AsTriton, compressed_tensors_moe_w8a8_int8.CompressedTensorsW8A8Int8MoEMethod
):
    moec_kind, moec_backend = "compressed-tensors int8", ("int8_backend", Int8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return keys.kInt8StaticChannelSym, keys.kInt8DynamicTokenSym


class MoecCompressedTensorsWNA16MoEMethod(
    Integers, compressed_tensors_moe_wna16.CompressedTensorsWNA16MoEMethod
):
    moec_kind, moec_weight, moec_scale = "compressed-tensors integer", "weight_packed", "weight_scale"

    @property
    def moec_bits(self) -> int:
        return self.num_bits

    @property
    def moec_has_zero_points(self) -> bool:
        return not self.symmetric

    @property
    def moec_has_column_order(self) -> bool:
        return self.weight_quant.actorder == "group"

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        return stored.view(torch.uint8)

    def moec_unpack_zero_points(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return packing.read_zero_points(getattr(layer, f"{prefix}_weight_zero_point").data, self.moec_bits)


class MoecCompressedTensorsW4A8Fp8MoEMethod(
    _Monolithic, AsLoaded, compressed_tensors_moe_w4a8_fp8.CompressedTensorsW4A8Fp8MoEMethod
):
    moec_kind = "compressed-tensors int4 with fp8 activations"
    moec_weight_dtype, moec_weight, moec_scale = "int4", "weight_packed", "weight_scale"

    def moec_find_keys(self) -> Keys:
        return keys.kInt4Static, keys.kFp8DynamicTokenSym

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        return stored.view(torch.uint8)


class MoecCompressedTensorsW4A8Mxfp4MoEMethod(
    Mxfp4, compressed_tensors_moe_w4a8_mxfp4.CompressedTensorsW4A8Mxfp4MoEMethod
):
    moec_kind, moec_weight = "compressed-tensors mxfp4 with fp8 activations", "weight_packed"


class MoecCompressedTensorsW4A4Mxfp4MoEMethod(
    _Monolithic, AsLoaded, compressed_tensors_moe_w4a4_mxfp4.CompressedTensorsW4A4Mxfp4MoEMethod
):
    moec_kind = "compressed-tensors mxfp4"
    moec_weight_dtype, moec_weight, moec_scale = "mxfp4", "weight_packed", "weight_scale"

    def moec_find_keys(self) -> Keys:
        if self.use_cutlass_mxfp4 or self.mxfp4_backend is not Mxfp4MoeBackend.MARLIN:
            raise InvalidArgument("activations of 4 bits")
        return keys.kMxfp4Static, None


class MoecCompressedTensorsW4A4Nvfp4MoEMethod(
    NvFp4, compressed_tensors_moe_w4a4_nvfp4.CompressedTensorsW4A4Nvfp4MoEMethod
):
    moec_kind, moec_weight = "compressed-tensors nvfp4", "weight_packed"

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return 1 / getattr(layer, f"{prefix}_weight_global_scale").data


class MoecCompressedTensorsConfig(Config, CompressedTensorsConfig):
    pass


add_methods(
    MoecCompressedTensorsW8A8Fp8MoEMethod,
    MoecCompressedTensorsW8A8Int8MoEMethod,
    MoecCompressedTensorsW8A8Mxfp8MoEMethod,
    MoecCompressedTensorsWNA16MoEMethod,
    MoecCompressedTensorsW4A8Fp8MoEMethod,
    MoecCompressedTensorsW4A8Mxfp4MoEMethod,
    MoecCompressedTensorsW4A4Mxfp4MoEMethod,
    MoecCompressedTensorsW4A4Nvfp4MoEMethod,
)
#: By vLLM's names of quantizations.
CONFIGS = {
    "compressed-tensors": MoecCompressedTensorsConfig,
}
