# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for the methods of vLLM 0.33's quantized experts: each has vLLM's fields, and makes parameters of the
names, shapes and dtypes that vLLM's create_weights() makes. Where vLLM would pack them for a kernel of its own, they
are spoiled here."""

from __future__ import annotations

import enum
import types
from typing import Any, Optional

import torch
from fake_modules import take
from fake_vllm import (
    FP8,
    FusedMoEMethodBase,
    FusedMoEQuantConfig,
    OwnExperts,
    QuantizationConfig,
    UnquantizedFusedMoEMethod,
)


class Int8MoeBackend(enum.Enum):
    TRITON = "TRITON"
    HUMMING = "HUMMING"


class Mxfp4MoeBackend(enum.Enum):
    TRITON = "TRITON"
    MARLIN = "MARLIN"
    HUMMING = "HUMMING"


class NvFp4MoeBackend(enum.Enum):
    MARLIN = "MARLIN"
    HUMMING = "HUMMING"
    VLLM_CUTLASS = "VLLM_CUTLASS"


def add(layer: torch.nn.Module, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    layer.register_parameter(
        name, torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)
    )


class QuantizedMethod(FusedMoEMethodBase):
    """shards: of w13, which are rows of gate and up."""

    def __init__(self, moe: Any, quant_config: Any = None) -> None:
        super().__init__(moe)
        self.quant_config, self.experts_cls = quant_config, OwnExperts

    def add_pair(self, layer, name, w13, w2, dtype) -> None:
        add(layer, f"w13_{name}", w13, dtype)
        add(layer, f"w2_{name}", w2, dtype)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """As another kernel would have them."""
        for parameter in layer.parameters():
            parameter.data = torch.zeros_like(parameter.data)


def group(size: int, group_size: int) -> int:
    return 1 if group_size == -1 else size // group_size


# compressed-tensors


class CompressedTensorsWNA16MoEMethod(QuantizedMethod):
    def __init__(self, weight_quant: Any, input_quant: Any, moe: Any) -> None:
        super().__init__(moe)
        self.weight_quant, self.symmetric = weight_quant, weight_quant.symmetric
        self.num_bits, self.strategy = weight_quant.num_bits, weight_quant.strategy
        self.group_size = -1 if weight_quant.group_size is None else weight_quant.group_size

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i, each = num_experts, hidden_size, intermediate_size, 32 // self.num_bits
        n, groups = 2 * i, (group(h, self.group_size), group(i, self.group_size))
        self.add_pair(layer, "weight_packed", (e, n, h // each), (e, h, i // each), torch.int32)
        self.add_pair(layer, "weight_scale", (e, n, groups[0]), (e, h, groups[1]), params_dtype)
        if not self.symmetric:
            self.add_pair(layer, "weight_zero_point", (e, n // each, groups[0]),
                          (e, h // each, groups[1]), torch.int32)
        self.add_pair(layer, "weight_shape", (e, 2), (e, 2), torch.float32)


class CompressedTensorsW8A8Int8MoEMethod(QuantizedMethod):
    def __init__(self, weight_quant: Any, input_quant: Any, moe: Any) -> None:
        super().__init__(moe)
        self.int8_backend = Int8MoeBackend.HUMMING

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight", (e, 2 * i, h), (e, h, i), torch.int8)
        self.add_pair(layer, "weight_scale", (e, 2 * i, 1), (e, h, 1), torch.float32)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if self.int8_backend is not Int8MoeBackend.TRITON:
            return super().process_weights_after_loading(layer)
        self.make_kernel(FusedMoEQuantConfig(
            torch.int8, True, w1_scale=layer.w13_weight_scale, w2_scale=layer.w2_weight_scale,
        ))


class CompressedTensorsW8A8Fp8MoEMethod(QuantizedMethod):
    def __init__(self, weight_quant: Any, input_quant: Any, moe: Any) -> None:
        super().__init__(moe)
        self.weight_quant, self.input_quant = weight_quant, input_quant
        is_block = weight_quant.strategy == "block"
        self.weight_block_size = weight_quant.block_structure if is_block else None
        self.block_quant, self.static_input_scales = is_block, not input_quant.dynamic
        self.fp8_backend = None

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight", (e, 2 * i, h), (e, h, i), FP8)
        shapes = {
            "tensor": ((e, 2), (e,)), "channel": ((e, 2 * i, 1), (e, h, 1)),
            "block": ((e, 2 * -(-i // 128), -(-h // 128)), (e, -(-h // 128), -(-i // 128))),
        }[self.weight_quant.strategy]
        self.add_pair(layer, "weight_scale", *shapes, torch.float32)
        if self.static_input_scales:
            self.add_pair(layer, "input_scale", (e,), (e,), torch.float32)
        else:
            layer.w13_input_scale = layer.w2_input_scale = None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if getattr(self.fp8_backend, "value", None) != "TRITON":
            return super().process_weights_after_loading(layer)
        inputs = layer.w13_input_scale, layer.w2_input_scale
        scale = layer.w13_weight_scale
        if self.weight_quant.strategy == "tensor":
            # vLLM rounds both halves anew by the larger scale; here they are alike.
            scale = scale.amax(1)
        is_per_token = self.input_quant.strategy == "token"
        self.make_kernel(FusedMoEQuantConfig(
            FP8, is_per_token, self.weight_block_size, w1_scale=scale, w2_scale=layer.w2_weight_scale,
            **{f"a{n}_scale": None if each is None else each.max() for n, each in enumerate(inputs, 1)},
        ))


class CompressedTensorsW4A4Mxfp4MoEMethod(QuantizedMethod):
    has_cutlass = False

    def __init__(self, moe: Any) -> None:
        super().__init__(moe)
        self.use_cutlass_mxfp4, self.mxfp4_backend = self.has_cutlass, Mxfp4MoeBackend.MARLIN

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight_packed", (e, 2 * i, h // 2), (e, h, i // 2), torch.uint8)
        self.add_pair(layer, "weight_scale", (e, 2 * i, h // 32), (e, h, i // 32), torch.uint8)


class CompressedTensorsW4A4Nvfp4MoEMethod(QuantizedMethod):
    chosen = NvFp4MoeBackend.MARLIN

    def __init__(self, moe: Any, layer_name: Optional[str] = None, use_a16: bool = False) -> None:
        super().__init__(moe)
        self.use_a16, self.nvfp4_backend = use_a16, self.chosen

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight_packed", (e, 2 * i, h // 2), (e, h, i // 2), torch.uint8)
        self.add_pair(layer, "weight_scale", (e, 2 * i, h // 16), (e, h, i // 16), FP8)
        self.add_pair(layer, "weight_global_scale", (e, 2), (e,), torch.float32)
        self.add_pair(layer, "input_global_scale", (e, 2), (e,), torch.float32)


class CompressedTensorsW4A8Fp8MoEMethod(QuantizedMethod):
    """One that moec does not know."""


class CompressedTensorsConfig(QuantizationConfig):
    """make: the method that the scheme of a checkpoint is for."""

    def __init__(self, make: Any) -> None:
        self.make = make

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        if not hasattr(layer, "moe_config"):
            return None
        return self.make(layer.moe_config)


# GPTQ and AWQ


class AutoGPTQConfig(QuantizationConfig):
    def __init__(self, weight_bits: int, group_size: int, **full_config: Any) -> None:
        self.weight_bits, self.group_size, self.pack_factor = weight_bits, group_size, 32 // weight_bits
        self.full_config = full_config

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return AutoGPTQMoEMethod(self, layer.moe_config)


class AutoGPTQMoEMethod(QuantizedMethod):
    def __init__(self, quant_config: AutoGPTQConfig, moe: Any) -> None:
        super().__init__(moe, quant_config)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i, config = num_experts, hidden_size, intermediate_size, self.quant_config
        each, groups = config.pack_factor, (group(h, config.group_size), group(i, config.group_size))
        self.add_pair(layer, "qweight", (e, h // each, 2 * i), (e, i // each, h), torch.int32)
        self.add_pair(layer, "scales", (e, groups[0], 2 * i), (e, groups[1], h), params_dtype)
        self.add_pair(layer, "qzeros", (e, groups[0], 2 * i // each), (e, groups[1], h // each), torch.int32)
        self.add_pair(layer, "bias", (e, 2 * i), (e, h), params_dtype)


class AutoAWQConfig(QuantizationConfig):
    def __init__(self, weight_bits: int, group_size: int, zero_point: bool) -> None:
        self.weight_bits, self.group_size, self.pack_factor = weight_bits, group_size, 32 // weight_bits
        self.zero_point = zero_point

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        if prefix == "dense":
            return UnquantizedFusedMoEMethod(layer.moe_config)
        return AutoAWQMoEMethod(self, layer.moe_config)


class AutoAWQMoEMethod(QuantizedMethod):
    def __init__(self, quant_config: AutoAWQConfig, moe: Any) -> None:
        super().__init__(moe, quant_config)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i, config = num_experts, hidden_size, intermediate_size, self.quant_config
        each, groups = config.pack_factor, (h // config.group_size, i // config.group_size)
        self.add_pair(layer, "qweight", (e, h, 2 * i // each), (e, i, h // each), torch.int32)
        self.add_pair(layer, "scales", (e, groups[0], 2 * i), (e, groups[1], h), params_dtype)
        self.add_pair(layer, "qzeros", (e, groups[0], 2 * i // each), (e, groups[1], h // each), torch.int32)


class MoeWNA16Config(QuantizationConfig):
    def __init__(self, weight_bits: int, group_size: int, has_zp: bool, **full_config: Any) -> None:
        self.weight_bits, self.group_size, self.has_zp = weight_bits, group_size, has_zp
        self.full_config = full_config
        self.bit8_pack_factor = 8 // weight_bits

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return MoeWNA16Method(self, layer.moe_config)


class MoeWNA16Method(QuantizedMethod):
    def __init__(self, quant_config: MoeWNA16Config, moe: Any) -> None:
        super().__init__(moe, quant_config)

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i, config = num_experts, hidden_size, intermediate_size, self.quant_config
        each, groups = config.bit8_pack_factor, (h // config.group_size, i // config.group_size)
        self.add_pair(layer, "qweight", (e, 2 * i, h // each), (e, h, i // each), torch.uint8)
        self.add_pair(layer, "scales", (e, 2 * i, groups[0]), (e, h, groups[1]), params_dtype)
        if config.has_zp:
            self.add_pair(layer, "qzeros", (e, 2 * i // each, groups[0]), (e, h // each, groups[1]), torch.uint8)


# mxfp4


class Mxfp4MoEMethod(QuantizedMethod):
    def __init__(self, moe: Any, activation_key: Any = None) -> None:
        super().__init__(moe)
        self.activation_key, self.mxfp4_backend = activation_key, Mxfp4MoeBackend.HUMMING

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight", (e, 2 * i, h // 2), (e, h, i // 2), torch.uint8)
        self.add_pair(layer, "weight_scale", (e, 2 * i, h // 32), (e, h, i // 32), torch.uint8)
        if self.moe.has_bias:
            self.add_pair(layer, "bias", (e, 2 * i), (e, h), torch.bfloat16)


class GptOssMxfp4MoEMethod(Mxfp4MoEMethod):
    def __init__(self, moe: Any) -> None:
        super().__init__(moe)
        del self.activation_key


class Mxfp4Config(QuantizationConfig):
    method: Any = Mxfp4MoEMethod

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return self.method(layer.moe_config)


class GptOssMxfp4Config(Mxfp4Config):
    method = GptOssMxfp4MoEMethod


# ModelOpt


class ModelOptFp8MoEMethod(CompressedTensorsW8A8Fp8MoEMethod):
    def __init__(self, quant_config: Any, moe_config: Any) -> None:
        scheme = types.SimpleNamespace(strategy="tensor", dynamic=False)
        super().__init__(scheme, scheme, moe_config)


class ModelOptNvFp4FusedMoE(QuantizedMethod):
    chosen = NvFp4MoeBackend.MARLIN

    def __init__(self, quant_config: Any, moe_config: Any) -> None:
        super().__init__(moe_config, quant_config)
        self.use_a16, self.nvfp4_backend = quant_config.quant_method == "W4A16_NVFP4", self.chosen

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight", (e, 2 * i, h // 2), (e, h, i // 2), torch.uint8)
        self.add_pair(layer, "weight_scale", (e, 2 * i, h // 16), (e, h, i // 16), FP8)
        self.add_pair(layer, "weight_scale_2", (e, 2), (e,), torch.float32)
        self.add_pair(layer, "input_scale", (e, 2), (e,), torch.float32)


class ModelOptFp8Config(QuantizationConfig):
    quant_method = "FP8"
    method: Any = ModelOptFp8MoEMethod

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return self.method(quant_config=self, moe_config=layer.moe_config)


class ModelOptNvFp4Config(ModelOptFp8Config):
    method = ModelOptNvFp4FusedMoE

    def __init__(self, quant_method: str = "W4A16_NVFP4") -> None:
        self.quant_method = quant_method


class ModelOptMixedPrecisionConfig(ModelOptNvFp4Config):
    pass


# int8, from weights of 16 bits


class Int8OnlineMoEMethod(QuantizedMethod):
    def __init__(self, *, moe: Any) -> None:
        super().__init__(moe)
        self.int8_backend = Int8MoeBackend.HUMMING

    def create_weights(self, layer, num_experts, hidden_size, intermediate_size, params_dtype):
        e, h, i = num_experts, hidden_size, intermediate_size
        self.add_pair(layer, "weight", (e, 2 * i, h), (e, h, i), params_dtype)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        if self.int8_backend is not Int8MoeBackend.TRITON:
            return super().process_weights_after_loading(layer)
        for prefix in ("w13", "w2"):
            weight = getattr(layer, f"{prefix}_weight").data.float()
            scale = weight.abs().amax(2) / 127
            codes = (weight / scale[:, :, None]).round().to(torch.int8)
            setattr(layer, f"{prefix}_weight", torch.nn.Parameter(codes, requires_grad=False))
            add(layer, f"{prefix}_scale", scale.shape, torch.float32)
            getattr(layer, f"{prefix}_scale").data.copy_(scale)
        self.make_kernel(FusedMoEQuantConfig(w1_scale=layer.w13_scale, w2_scale=layer.w2_scale))


class ExpertsInt8Config(QuantizationConfig):
    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return Int8OnlineMoEMethod(moe=layer.moe_config)


def list_modules() -> dict[str, dict[str, Any]]:
    """What moec.vllm imports, by module."""
    layers = "vllm.model_executor.layers"
    tensors = f"{layers}.quantization.compressed_tensors"
    moe = f"{tensors}.compressed_tensors_moe"
    return {
        f"{layers}.fused_moe.oracle.int8": take(Int8MoeBackend),
        f"{layers}.fused_moe.oracle.mxfp4": take(Mxfp4MoeBackend),
        f"{layers}.fused_moe.oracle.nvfp4": take(NvFp4MoeBackend),
        f"{layers}.quantization.auto_awq": take(AutoAWQConfig, AutoAWQMoEMethod),
        f"{layers}.quantization.auto_gptq": take(AutoGPTQConfig, AutoGPTQMoEMethod),
        f"{layers}.quantization.experts_int8": take(ExpertsInt8Config),
        f"{layers}.quantization.modelopt": take(
            ModelOptFp8Config, ModelOptFp8MoEMethod, ModelOptMixedPrecisionConfig, ModelOptNvFp4Config,
            ModelOptNvFp4FusedMoE,
        ),
        f"{layers}.quantization.moe_wna16": take(MoeWNA16Config, MoeWNA16Method),
        f"{layers}.quantization.mxfp4": take(
            GptOssMxfp4Config, GptOssMxfp4MoEMethod, Mxfp4Config, Mxfp4MoEMethod
        ),
        f"{layers}.quantization.online.int8": take(Int8OnlineMoEMethod),
        f"{tensors}.compressed_tensors": take(CompressedTensorsConfig),
        f"{moe}.compressed_tensors_moe_w4a4_mxfp4": take(CompressedTensorsW4A4Mxfp4MoEMethod),
        f"{moe}.compressed_tensors_moe_w4a4_nvfp4": take(CompressedTensorsW4A4Nvfp4MoEMethod),
        f"{moe}.compressed_tensors_moe_w8a8_fp8": take(CompressedTensorsW8A8Fp8MoEMethod),
        f"{moe}.compressed_tensors_moe_w8a8_int8": take(CompressedTensorsW8A8Int8MoEMethod),
        f"{moe}.compressed_tensors_moe_wna16": take(CompressedTensorsWNA16MoEMethod),
    }
