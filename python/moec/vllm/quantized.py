# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of vLLM's quantized layers that run moec's experts.

vLLM's config creates a method, and the method creates the parameters that checkpoints are loaded into. moec changes the
steps after that: the experts to run, and the packing of parameters for other kernels, which is skipped. If vLLM's
Triton kernels read the parameters as loaded, the method is told that it uses them. If no vLLM kernel does, the
checkpoint's words are unpacked to bytes here (moec.functions.packing)."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from typing import Any, Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.model_executor.layers.fused_moe.all2all_utils import maybe_make_prepare_finalize
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig, FusedMoEQuantDesc
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.layers.fused_moe.oracle.fp8 import Fp8MoeBackend
from vllm.model_executor.layers.quantization.utils import quant_utils as keys
from vllm.platforms import current_platform

from .. import InvalidArgument
from ..functions.experts import Held
from .experts import choose
from .monolithic import Selecting
from .report import count_loaded, count_taken, tell_kept

Keys = tuple[keys.QuantKey, Optional[keys.QuantKey]]


def is_strict() -> bool:
    """Returns whether an error of moec ends the engine."""
    return os.environ.get("MOEC_STRICT") == "1"


def describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, InvalidArgument) else f"{type(error).__name__}: {error}"


def _describe_parameters(layer: torch.nn.Module, with_memory: bool = False) -> dict[str, tuple[Any, ...]]:
    """Returns shapes and dtypes by name, with a value that changes when a parameter is written to or replaced."""
    return {
        name: (each.shape, each.dtype) + ((id(each), each.data_ptr(), each._version) if with_memory else ())
        for name, each in layer.named_parameters(recurse=False)
    }


class _Handover(Selecting):
    """Mixin ahead of a vLLM method, with the fields set by vLLM's constructor. Names of moec's own fields begin with
    moec_ to avoid clashes."""

    #: The method created by vLLM, and the arguments of its parameters.
    moec_own: FusedMoEMethodBase
    moec_arguments: dict[str, Any]
    #: Tensors that calls read from the weights, once they are processed.
    moec_held: Optional[Held] = None

    def moec_find_keys(self) -> Keys:
        """Returns vLLM's keys of the operands. Raises InvalidArgument, with the reason, for unsupported quantizations.
        """
        raise NotImplementedError

    def moec_take(self) -> None:
        """Called when moec's experts are chosen, before parameters are created."""

    def create_weights(self, layer: torch.nn.Module, **arguments: Any) -> None:
        self.moec_arguments = arguments
        super().create_weights(layer, **arguments)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Makes the kernel. If moec fails before it changed a parameter, vLLM's method continues with the parameters,
        and the log says why. With MOEC_STRICT=1, and when weights are reloaded, the error is raised instead: captured
        graphs already contain moec's kernel."""
        before = _describe_parameters(layer, with_memory=True)
        try:
            self.moec_choose_entry(layer)
            self.moec_process(layer)
            self.moec_put_exchange()
        except Exception as error:
            is_changed = _describe_parameters(layer, with_memory=True) != before
            is_again = self.moec_held is not None
            if is_strict() or is_again or is_changed or not self._moec_takes_back(layer):
                raise
            tell_kept(self.moec_kind, describe_error(error))
            count_loaded(self.moec_kind, is_kept=True)
            layer._replace_quant_method(self.moec_own)
            self.moec_own.process_weights_after_loading(layer)
            return
        count_loaded(self.moec_kind, selects=self.moec_selects)

    def moec_process(self, layer: torch.nn.Module) -> None:
        """Processes the parameters; changes them only after everything that can fail."""
        super().process_weights_after_loading(layer)

    def moec_hold(self, w13: torch.Tensor, w2: torch.Tensor) -> Held:
        """Passes the weights to the kernel. Reloaded weights are written to the previous memory, which captured graphs
        read; vLLM's own copy of supposedly new parameters is then a copy to itself."""
        return self.moe_kernel.fused_experts.hold(w13, w2, self.moec_held)

    @property
    def moec_moves_experts(self) -> bool:
        """Returns whether vLLM moves experts between ranks, within the parameters of the layer."""
        return self.moe.moe_parallel_config.enable_eplb

    def moec_check_moves(self, held: Held, parameters: Iterable[torch.Tensor]) -> None:
        """Raises InvalidArgument if experts move and calls read other memory than that of parameters: those that vLLM
        created, or prepared weights, which moec_keep() makes parameters."""
        if not self.moec_moves_experts:
            return
        stored = {each.untyped_storage().data_ptr() for each in parameters}
        experts = self.moe.num_local_experts
        if not held.sources <= stored or any(each.shape[:1] != (experts,) for each in held.prepared.values()):
            raise InvalidArgument("experts move between ranks (EPLB), and calls do not read the parameters in place")

    def moec_keep(self, layer: torch.nn.Module, held: Held) -> None:
        """Keeps in the layer only what calls read. Prepared weights become parameters, which vLLM keeps and offloads in
        sleep mode. Checkpoint words and scales that nothing reads are freed, except for their number of experts."""
        self.moec_held = held
        config = self.moe_kernel.fused_experts.quant_config
        # vLLM moves parameters of at least one element for each expert.
        rest = 1 if self.moec_moves_experts else 0
        for name, parameter in layer.named_parameters(recurse=False):
            is_read = parameter.untyped_storage().data_ptr() in held.sources
            # vLLM's loader writes shapes, and scales per expert, after it has processed the rest.
            is_small = parameter.dim() <= 1 or name.endswith("_shape")
            if name.startswith(("w13_", "w2_")) and not is_read and not is_small:
                parameter.data = parameter.data.new_empty((parameter.shape[0], *[rest] * (parameter.dim() - 1)))
        if self.moec_moves_experts:
            # Elastic expert parallelism makes experts anew, from this configuration and the parameters. Experts whose
            # weights are prepared are passed on.
            if not held.prepared:
                return
            config.moec_experts = self.moe_kernel.fused_experts.experts
        for each in (config._w1, config._w2):
            each.scale = each.zp = each.bias = each.alpha_or_gscale = None
        for name, tensor in held.prepared.items():
            layer.register_parameter(
                f"moec_{name.replace('.', '_')}", torch.nn.Parameter(tensor, requires_grad=False))

    def _moec_takes_back(self, layer: torch.nn.Module) -> bool:
        """Returns whether vLLM's own method holds the created parameters."""
        own = copy.copy(layer)
        own._parameters = {}
        with torch.device("meta"):
            self.moec_own.create_weights(own, **self.moec_arguments)
        return _describe_parameters(own) == _describe_parameters(layer)


def list_parameters(layer: torch.nn.Module) -> list[torch.Tensor]:
    """Returns weights and scales of the experts."""
    return [each for name, each in layer.named_parameters(recurse=False) if name.startswith(("w13_", "w2_"))]


class AsTriton(_Handover):
    """A method that keeps parameters in the layout of vLLM's Triton kernels."""

    #: Name of its backend field, and Triton's value.
    moec_backend: tuple[str, Any]

    def moec_take(self) -> None:
        setattr(self, *self.moec_backend)

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> Optional[FusedMoEQuantConfig]:
        config = super().get_fused_moe_quant_config(layer)
        if self.moec_keys[1] is None and config.quant_dtype is not None:
            # vLLM's Triton backend rounds activations; the backend that vLLM chose does not.
            config._a1, config._a2 = FusedMoEQuantDesc(), FusedMoEQuantDesc()
        return config

    def moec_process(self, layer: torch.nn.Module) -> None:
        if self.moec_moves_experts:
            # On trial, since vLLM's processing changes parameters.
            experts = self.experts_cls(moe_config=self.moe, quant_config=self.get_fused_moe_quant_config(layer))
            self.moec_check_moves(experts.hold(layer.w13_weight, layer.w2_weight), list_parameters(layer))
        before = self.moe_kernel
        super().moec_process(layer)
        # Some methods are called twice and act only once.
        if self.moe_kernel is not before:
            self.moec_keep(layer, self.moec_hold(layer.w13_weight, layer.w2_weight))


def make_fp8_keys(backend: Fp8MoeBackend, weight: keys.QuantKey, activation: keys.QuantKey) -> Keys:
    """Returns the keys of fp8 weights. GPUs without fp8 keep activations in 16 bits, as vLLM's kernels there."""
    is_weight_only = backend is Fp8MoeBackend.MARLIN and not current_platform.supports_fp8()
    return weight, None if is_weight_only else activation


def make_block_key(block: Any) -> keys.QuantKey:
    return keys.create_fp8_quant_key(static=True, group_shape=keys.GroupShape(*block))


def make_mxfp8_keys(backend: Fp8MoeBackend) -> Keys:
    """Returns the keys of mxfp8, whose activations some of vLLM's kernels keep in 16 bits."""
    is_weight_only = backend in (Fp8MoeBackend.MARLIN, Fp8MoeBackend.HUMMING)
    return keys.kMxfp8Static, None if is_weight_only else keys.kMxfp8Dynamic


def _describe_activation(key: Optional[keys.QuantKey]) -> dict[str, Any]:
    """Returns arguments of FusedMoEQuantConfig.make()."""
    if key is None:
        return {}
    if key == keys.kMxfp8Dynamic:
        return {"quant_dtype": "mxfp8"}
    columns = key.scale.group_shape.col
    return {"quant_dtype": key.dtype} | (
        {"per_act_token_quant": True} if columns == -1 else {"block_shape": [1, columns]})


class AsLoaded(_Handover):
    """A method whose parameters vLLM would pack differently for each of its kernels. Subclasses describe the loaded
    format and how to read it."""

    #: Weights packed by another process cannot be used.
    supports_pre_processed_weights = False
    #: Name of the element type in FusedMoEQuantConfig.
    moec_weight_dtype: Any
    #: Parameter names after "w13_" and "w2_".
    moec_weight: str
    moec_scale: str

    def moec_read_weights(self, stored: torch.Tensor) -> torch.Tensor:
        """Returns the weights in the experts' form."""
        return stored

    def moec_read_scales(self, stored: torch.Tensor) -> torch.Tensor:
        return stored

    def moec_read_zero_points(
        self, layer: torch.nn.Module, prefix: str, scales: torch.Tensor
    ) -> Optional[torch.Tensor]:
        """Returns zero points as bytes in the shape of the scales; None if zero is the middle of the range."""
        return None

    def moec_read_global_scales(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        return None

    def moec_process(self, layer: torch.nn.Module) -> None:
        found: dict[str, Any] = {}
        read: dict[str, torch.Tensor] = {}
        for prefix, short, gemm in (("w13", "w1", "g1"), ("w2", "w2", "g2")):
            scale, weight = f"{prefix}_{self.moec_scale}", f"{prefix}_{self.moec_weight}"
            read[scale] = found[f"{short}_scale"] = self.moec_read_scales(getattr(layer, scale).data)
            found[f"{short}_zp"] = self.moec_read_zero_points(layer, prefix, read[scale])
            found[f"{gemm}_alphas"] = self.moec_read_global_scales(layer, prefix)
            found[f"{short}_bias"] = self.moec_read_bias(layer, prefix)
            read[weight] = self.moec_read_weights(getattr(layer, weight).data)
        # Errors of moec or vLLM, and compilation errors, occur here.
        self.moe_quant_config, self.moe_kernel = self._moec_make_kernel(layer, found)
        biases = (found[f"{short}_bias"] for short in ("w1", "w2"))
        parameters = [*read.values(), *(bias for bias in biases if bias is not None)]
        held = self.moec_hold(read[f"w13_{self.moec_weight}"], read[f"w2_{self.moec_weight}"])
        self.moec_check_moves(held, parameters)
        for name, tensor in read.items():
            getattr(layer, name).data = tensor
        for prefix in ("w13", "w2"):
            # Kernels receive the weights under these names.
            setattr(layer, f"{prefix}_weight", getattr(layer, f"{prefix}_{self.moec_weight}"))
        self.moec_keep(layer, held)

    def _moec_make_kernel(
        self, layer: torch.nn.Module, found: dict[str, Any]
    ) -> tuple[FusedMoEQuantConfig, mk.FusedMoEKernel]:
        activation = _describe_activation(self.moec_keys[1])
        config = FusedMoEQuantConfig.make(weight_dtype=self.moec_weight_dtype, **found, **activation)
        prepare_finalize = maybe_make_prepare_finalize(
            moe=self.moe,
            quant_config=config,
            routing_tables=layer._expert_routing_tables(),
            allow_new_interface=True,
            use_monolithic=self.experts_cls.is_monolithic(),
        )
        # As vLLM does for kernels of its own.
        batches = {} if prepare_finalize.activation_format is mk.FusedMoEActivationFormat.Standard else {
            "max_num_tokens": prepare_finalize.max_num_tokens_per_rank(),
            "num_dispatchers": prepare_finalize.num_dispatchers(),
        }
        experts = self.experts_cls(moe_config=self.moe, quant_config=config, **batches)
        return config, mk.FusedMoEKernel(prepare_finalize, experts)

    def moec_read_bias(self, layer: torch.nn.Module, prefix: str) -> Optional[torch.Tensor]:
        return getattr(layer, f"{prefix}_bias", None)

    def get_fused_moe_quant_config(self, layer: torch.nn.Module) -> Optional[FusedMoEQuantConfig]:
        return self.moe_quant_config


class Integers(AsLoaded):
    """Unsigned 4-bit or 8-bit integers with group scales."""

    @property
    def moec_bits(self) -> int:
        raise NotImplementedError

    @property
    def moec_has_zero_points(self) -> bool:
        raise NotImplementedError

    @property
    def moec_has_column_order(self) -> bool:
        """Returns whether a column may belong to any group (act-order). vLLM does not load the tensor with the groups.
        """
        return False

    def moec_find_keys(self) -> Keys:
        if self.moec_has_column_order:
            raise InvalidArgument("groups in activation order (act-order)")
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

    def moec_read_zero_points(
        self, layer: torch.nn.Module, prefix: str, scales: torch.Tensor
    ) -> Optional[torch.Tensor]:
        if self.moec_has_zero_points:
            return self.moec_unpack_zero_points(layer, prefix)
        if self.moec_bits == 4:
            return None
        return torch.full_like(scales, 128, dtype=torch.uint8)


#: Generated classes by vLLM method class.
_METHODS: dict[type, type[_Handover]] = {}


def add_methods(*methods: type[_Handover]) -> None:
    for method in methods:
        own = method.__mro__[method.__mro__.index(Selecting) + 1]
        # vLLM's loader compares class names.
        method.__name__ = method.__qualname__ = own.__name__
        _METHODS[own] = method


def hand_over(method: Any) -> Any:
    """Returns a vLLM method that uses moec's experts if they support the layer; otherwise returns it unchanged, and the
    log says why. An error of moec also counts as a reason, unless MOEC_STRICT=1 is set."""
    if not isinstance(method, FusedMoEMethodBase) or isinstance(method, UnquantizedFusedMoEMethod):
        return method
    taken = _METHODS.get(type(method))
    if taken is None:
        tell_kept(type(method).__name__, "an unknown method")
        return method
    # vLLM's config creates each method from other arguments, so its fields are copied.
    made = taken.__new__(taken)
    made.__dict__.update(vars(method))
    made.moec_own = method
    try:
        made.moec_keys = made.moec_find_keys()
        if made.moec_moves_experts and made.moec_keys[0].scale.group_shape == keys.GroupShape.PER_TENSOR:
            raise InvalidArgument("experts move between ranks (EPLB), and gate and up share a scale")
        chosen, reason = choose(made.moe, *made.moec_keys)
        if chosen is not None:
            made.experts_cls = chosen
            made.moec_take()
    except Exception as error:
        if is_strict() and not isinstance(error, InvalidArgument):
            raise
        chosen, reason = None, describe_error(error)
    if chosen is None:
        tell_kept(taken.moec_kind, reason or "no reason is given")
        return method
    count_taken(taken.moec_kind)
    return made


class Config:
    """Mixin ahead of a vLLM config that replaces only the methods of experts. Module-level classes, since vLLM sends
    configs to other processes."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return hand_over(super().get_quant_method(layer, prefix))
