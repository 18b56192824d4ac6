# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The methods of vLLM's quantized layers that hand their experts to moec.

vLLM's config makes a method, and vLLM's method makes the parameters that checkpoints are loaded into. What moec
changes comes after: which experts run, and that the parameters are not packed for another kernel. Where vLLM's
Triton kernels read them as they were loaded, the method is told that it has these; where no kernel of vLLM's does,
the words of the checkpoint become bytes here (moec.functions.packing)."""

from __future__ import annotations

from typing import Any, Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.model_executor.layers.fused_moe.all2all_utils import maybe_make_prepare_finalize
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.int8 import Int8MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQMoEMethod
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQMoEMethod
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe import (
    compressed_tensors_moe_w4a4_mxfp4,
    compressed_tensors_moe_w4a4_nvfp4,
    compressed_tensors_moe_w8a8_fp8,
    compressed_tensors_moe_w8a8_int8,
    compressed_tensors_moe_wna16,
)
from vllm.model_executor.layers.quantization.fp8 import Fp8MoEMethod
from vllm.model_executor.layers.quantization.modelopt import ModelOptFp8MoEMethod, ModelOptNvFp4FusedMoE
from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Method
from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4MoEMethod, Mxfp4MoEMethod
from vllm.model_executor.layers.quantization.online.int8 import Int8OnlineMoEMethod
from vllm.model_executor.layers.quantization.utils import quant_utils as keys
from vllm.model_executor.utils import replace_parameter

from .. import InvalidArgument
from ..functions import packing
from .experts import choose, tell

Keys = tuple[keys.QuantKey, Optional[keys.QuantKey]]


class _Handover:
    """Goes ahead of a method of vLLM's, whose instance has the fields that vLLM's constructor left. Names of moec's
    own begin with moec_, so that no field hides them."""

    #: In the log.
    moec_kind: str

    def moec_find_keys(self) -> Keys:
        """The operands as vLLM names them. Raises InvalidArgument, with the reason, for what has no form."""
        raise NotImplementedError

    def moec_take(self) -> None:
        """Once the experts are moec's, before parameters are made."""


class _AsTriton(_Handover):
    """A method that leaves parameters as they are for vLLM's Triton kernels."""

    #: Its field of the backend, and Triton's value.
    moec_backend: tuple[str, Any]

    def moec_take(self) -> None:
        setattr(self, *self.moec_backend)


def _check_block(block: Any) -> Keys:
    if list(block) != [128, 128]:
        raise InvalidArgument(f"weights in blocks of {list(block)}")
    return keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym


class MoecFp8MoEMethod(_AsTriton, Fp8MoEMethod):
    moec_kind, moec_backend = "fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        if self.block_quant:
            return _check_block(self.moe_block_shape)
        if self.quant_config.activation_scheme == "static":
            return keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym
        dynamic = keys.kFp8DynamicTokenSym if self.per_act_token_quant else keys.kFp8DynamicTensorSym
        return keys.kFp8StaticTensorSym, dynamic


class MoecCompressedTensorsW8A8Fp8MoEMethod(
    _AsTriton, compressed_tensors_moe_w8a8_fp8.CompressedTensorsW8A8Fp8MoEMethod
):
    moec_kind, moec_backend = "compressed-tensors fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        if self.block_quant:
            return _check_block(self.weight_block_size)
        if self.weight_quant.strategy == "channel":
            return keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym
        if self.static_input_scales:
            return keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym
        return keys.kFp8StaticTensorSym, keys.kFp8DynamicTensorSym


class MoecModelOptFp8MoEMethod(_AsTriton, ModelOptFp8MoEMethod):
    moec_kind, moec_backend = "ModelOpt fp8", ("fp8_backend", Fp8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym


class MoecCompressedTensorsW8A8Int8MoEMethod(
    _AsTriton, compressed_tensors_moe_w8a8_int8.CompressedTensorsW8A8Int8MoEMethod
):
    moec_kind, moec_backend = "compressed-tensors int8", ("int8_backend", Int8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return keys.kInt8StaticChannelSym, keys.kInt8DynamicTokenSym


class MoecInt8OnlineMoEMethod(_AsTriton, Int8OnlineMoEMethod):
    moec_kind, moec_backend = "int8 weights", ("int8_backend", Int8MoeBackend.TRITON)

    def moec_find_keys(self) -> Keys:
        return keys.kInt8StaticChannelSym, None


class _AsLoaded(_Handover):
    """A method whose parameters vLLM would pack for each of its kernels. Formats say what they are when they are
    loaded, and how they are read."""

    #: Those of a process that has packed them can not be taken for these.
    supports_pre_processed_weights = False
    #: FusedMoEQuantConfig's name of the elements.
    moec_weight_dtype: Any
    #: Parameters, after "w13_" and "w2_".
    moec_weight: str
    moec_scale: str

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        """As experts take them."""
        return stored

    def moec_read_scales(self, stored: torch.Tensor) -> torch.Tensor:
        return stored

    def moec_read_zero_points(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        """As bytes in the shape of the scales; None where the middle of the range is zero."""
        return None

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        return None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        found: dict[str, Any] = {}
        for prefix, short, gemm in (("w13", "w1", "g1"), ("w2", "w2", "g2")):
            # Zero points may depend on the scales that are read, and nothing on the weights.
            scale, weight = f"{prefix}_{self.moec_scale}", f"{prefix}_{self.moec_weight}"
            replace_parameter(layer, scale, self.moec_read_scales(getattr(layer, scale).data))
            found[f"{short}_scale"] = getattr(layer, scale)
            found[f"{short}_zp"] = self.moec_read_zero_points(layer, prefix)
            found[f"{gemm}_alphas"] = self.moec_read_global_scales(layer, prefix)
            found[f"{short}_bias"] = self.moec_read_bias(layer, prefix)
            replace_parameter(layer, weight, self.moec_read_weights(getattr(layer, weight).data))
            # Kernels get them by these names.
            setattr(layer, f"{prefix}_weight", getattr(layer, weight))
        self.moe_quant_config = FusedMoEQuantConfig.make(weight_dtype=self.moec_weight_dtype, **found)
        prepare_finalize = maybe_make_prepare_finalize(
            moe=self.moe,
            quant_config=self.moe_quant_config,
            routing_tables=layer._expert_routing_tables(),
            allow_new_interface=True,
        )
        self.moe_kernel = mk.FusedMoEKernel(
            prepare_finalize, self.experts_cls(moe_config=self.moe, quant_config=self.moe_quant_config)
        )

    def moec_read_bias(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        return getattr(layer, f"{prefix}_bias", None)

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> Optional[FusedMoEQuantConfig]:
        return self.moe_quant_config


class _Mxfp4(_AsLoaded):
    moec_weight_dtype, moec_weight, moec_scale = "mxfp4", "weight", "weight_scale"

    def moec_find_keys(self) -> Keys:
        if getattr(self, "activation_key", None) is not None:
            raise InvalidArgument(f"activations of {self.activation_key}")
        return keys.kMxfp4Static, None

    def moec_take(self) -> None:
        # Sizes are rounded up as for Triton's kernels: I to a multiple of 64, and zeros beyond add nothing.
        self.mxfp4_backend = Mxfp4MoeBackend.TRITON


class MoecGptOssMxfp4MoEMethod(_Mxfp4, GptOssMxfp4MoEMethod):
    moec_kind = "gpt-oss mxfp4"


class MoecMxfp4MoEMethod(_Mxfp4, Mxfp4MoEMethod):
    moec_kind = "mxfp4"


class MoecCompressedTensorsW4A4Mxfp4MoEMethod(
    _AsLoaded, compressed_tensors_moe_w4a4_mxfp4.CompressedTensorsW4A4Mxfp4MoEMethod
):
    moec_kind = "compressed-tensors mxfp4"
    moec_weight_dtype, moec_weight, moec_scale = "mxfp4", "weight_packed", "weight_scale"

    def moec_find_keys(self) -> Keys:
        if self.use_cutlass_mxfp4 or self.mxfp4_backend is not Mxfp4MoeBackend.MARLIN:
            raise InvalidArgument("activations of 4 bits")
        return keys.kMxfp4Static, None


class _NvFp4(_AsLoaded):
    moec_weight_dtype, moec_scale = "nvfp4", "weight_scale"
    #: Backends that leave activations in 16 bits whatever the checkpoint says.
    moec_weight_only = (NvFp4MoeBackend.MARLIN, NvFp4MoeBackend.HUMMING)

    def moec_find_keys(self) -> Keys:
        if not self.use_a16 and self.nvfp4_backend not in self.moec_weight_only:
            raise InvalidArgument("activations of 4 bits")
        if self.moe.activation.value == "swigluoai":
            raise InvalidArgument("interleaved gate and up rows, which have a global scale each")
        return keys.kNvfp4Static, None


class MoecModelOptNvFp4FusedMoE(_NvFp4, ModelOptNvFp4FusedMoE):
    moec_kind, moec_weight = "ModelOpt nvfp4", "weight"

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return getattr(layer, f"{prefix}_weight_scale_2").data


class MoecCompressedTensorsW4A4Nvfp4MoEMethod(
    _NvFp4, compressed_tensors_moe_w4a4_nvfp4.CompressedTensorsW4A4Nvfp4MoEMethod
):
    moec_kind, moec_weight = "compressed-tensors nvfp4", "weight_packed"

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        return 1 / getattr(layer, f"{prefix}_weight_global_scale").data


class _Integers(_AsLoaded):
    """Integers of 4 or 8 bits that begin at 0, with scales of groups."""

    @property
    def moec_bits(self) -> int:
        raise NotImplementedError

    @property
    def moec_has_zero_points(self) -> bool:
        raise NotImplementedError

    @property
    def moec_has_column_order(self) -> bool:
        """Whether a column may be in any group (act-order). vLLM loads no tensor that says which."""
        return False

    def moec_find_keys(self) -> Keys:
        if self.moec_has_column_order:
            raise InvalidArgument("groups in the order of activations")
        if self.moec_bits not in (4, 8):
            raise InvalidArgument(f"weights of {self.moec_bits} bits")
        if self.moec_bits == 8:
            return keys.kInt8Static, None
        return keys.kInt4StaticAsym if self.moec_has_zero_points else keys.kInt4Static, None

    @property
    def moec_weight_dtype(self) -> Any:
        return "int4" if self.moec_bits == 4 else torch.int8

    def moec_unpack_zero_points(self, layer: torch.nn.Module, prefix: str) -> torch.Tensor:
        raise NotImplementedError

    def moec_read_zero_points(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        if self.moec_has_zero_points:
            return self.moec_unpack_zero_points(layer, prefix)
        if self.moec_bits == 4:
            return None
        return torch.full_like(getattr(layer, f"{prefix}_{self.moec_scale}").data, 128, dtype=torch.uint8)


class MoecCompressedTensorsWNA16MoEMethod(
    _Integers, compressed_tensors_moe_wna16.CompressedTensorsWNA16MoEMethod
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


def _has_column_order(config: Any) -> bool:
    """By the checkpoint's own configuration of GPTQ. One group for a row has one order."""
    return config.group_size != -1 and bool(config.full_config.get("desc_act"))


class _Transposed(_Integers):
    """GPTQ's and AWQ's matrices are K x N."""

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
        # vLLM's config takes symmetric weights alone; qzeros are there all the same.
        return False

    @property
    def moec_has_column_order(self) -> bool:
        return _has_column_order(self.quant_config)

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        return packing.read_gptq_weights(stored)

    def moec_read_bias(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        # There is memory for them whether or not the checkpoint has any.
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


class MoecMoeWNA16Method(_Integers, MoeWNA16Method):
    """GPTQ and AWQ, which vLLM's loader lays out for its Triton kernel."""

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


#: By the method of vLLM's that each is of.
_METHODS = {
    each.__mro__[each.__mro__.index(_Handover) + 1]: each
    for each in (
        MoecFp8MoEMethod,
        MoecCompressedTensorsW8A8Fp8MoEMethod,
        MoecModelOptFp8MoEMethod,
        MoecCompressedTensorsW8A8Int8MoEMethod,
        MoecInt8OnlineMoEMethod,
        MoecGptOssMxfp4MoEMethod,
        MoecMxfp4MoEMethod,
        MoecCompressedTensorsW4A4Mxfp4MoEMethod,
        MoecModelOptNvFp4FusedMoE,
        MoecCompressedTensorsW4A4Nvfp4MoEMethod,
        MoecCompressedTensorsWNA16MoEMethod,
        MoecAutoGPTQMoEMethod,
        MoecAutoAWQMoEMethod,
        MoecMoeWNA16Method,
    )
}
# vLLM's loader goes by the names of classes.
for _own, _ours in _METHODS.items():
    _ours.__name__ = _ours.__qualname__ = _own.__name__


def hand_over(method: Any) -> Any:
    """A method of vLLM's, whose experts are moec's where that supports them; else as it came, and the log says
    why."""
    if not isinstance(method, FusedMoEMethodBase) or isinstance(method, UnquantizedFusedMoEMethod):
        return method
    taken = _METHODS.get(type(method))
    if taken is None:
        tell(type(method).__name__, "a method that is not known here")
        return method
    # Each kind is made from other arguments, by vLLM's config; ours takes over the fields.
    made = taken.__new__(taken)
    made.__dict__.update(vars(method))
    try:
        chosen, reason = choose(made.moe, *made.moec_find_keys())
    except InvalidArgument as error:
        chosen, reason = None, str(error)
    tell(taken.moec_kind, reason)
    if chosen is None:
        return method
    made.experts_cls = chosen
    made.moec_take()
    return made
