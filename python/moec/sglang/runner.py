# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A runner core for SGLang: runs experts between dispatch and combine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Optional

import torch
from sglang.srt.layers.moe.moe_runner import MoeRunner, MoeRunnerConfig, register_moe_runner_core
from sglang.srt.layers.moe.moe_runner.base import DispatchMoeRunnerCore
from sglang.srt.layers.moe.moe_runner.triton import TritonMoeQuantInfo, TritonRunnerCore
from sglang.srt.layers.moe.token_dispatcher.standard import StandardCombineInput
from sglang.srt.layers.moe.utils import MoeRunnerBackend
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from .. import InvalidArgument
from ..functions import packing
from ..functions.experts import Experts
from ..functions.quantization import QuantConfig

_logger = logging.getLogger("moec.sglang")
#: Formats whose line has been logged.
_told: set[str] = set()
#: The replaced runner: the default of most methods, with weights in the layout that layers read.
_BACKEND = MoeRunnerBackend.TRITON
_INIT = f"{MoeRunner.__module__}.{MoeRunner.__name__}.__init__"
_is_registered = False


def describe_activation(config: MoeRunnerConfig) -> tuple[str, dict[str, float]]:
    """Returns the kind of docs/use/layers.md and its parameters, as SGLang's Triton runner computes them. Raises
    InvalidArgument for unsupported activations."""
    name, alpha, limit = config.activation, config.gemm1_alpha, config.gemm1_clamp_limit
    if config.gemm1_beta not in (None, 1.0):
        raise InvalidArgument(f"gemm1_beta: {config.gemm1_beta} found, 1 is supported")
    if not config.is_gated:
        if name not in ("silu", "gelu", "relu2"):
            raise InvalidArgument(f"activation: {name!r} without a gate is not supported")
        return f"{name}_no_mul", {}
    if name == "situ":
        return name, {"beta": 4.0 if alpha is None else alpha, "linear_beta": limit or 0.0}
    if name in ("gelu", "gelu_tanh") and alpha is None and limit is None:
        return name, {}
    if name != "silu":
        raise InvalidArgument(f"activation: {name!r} is not supported")
    if alpha is not None:
        found = {"alpha": alpha} | ({} if limit is None else {"limit": limit})
        if config.gate_up_interleaved:
            return "swigluoai", found
        return "swigluoai_uninterleave", found | {"beta": 1.0}
    limit = config.swiglu_limit if limit is None else limit
    return name, {} if limit is None else {"limit": limit}


def _check_config(config: MoeRunnerConfig) -> None:
    describe_activation(config)
    if config.no_combine:
        raise InvalidArgument("no_combine: a layer always sums over the experts")
    if config.apply_router_weight_on_input and config.routed_scaling_factor not in (None, 1.0):
        raise InvalidArgument(
            "routed_scaling_factor: a layer with weights on the input does not support it"
        )


def _read_quantization(info: Any) -> Optional[QuantConfig]:
    """Returns a QuantConfig. Raises InvalidArgument if a layer cannot express the quantization."""
    for name in ("use_mxfp8", "fuse_swiglu_interleaved"):
        if getattr(info, name):
            raise InvalidArgument(f"quant_info: {name} is not supported")
    bits = 4 if info.use_int4_w4a16 else 8 if info.use_int8_w8a16 else None
    is_quantized = info.use_fp8_w8a8 or info.use_int8_w8a8
    if not is_quantized and bits is None and info.b13 is None and info.b2 is None:
        return None
    dtype = torch.float8_e4m3fn if info.use_fp8_w8a8 else torch.int8
    return QuantConfig(
        quant_dtype=dtype if is_quantized else None,
        per_act_token_quant=info.per_channel_quant,
        # For weight-only quantization it is [0, group], which the scales show too.
        block_shape=info.block_shape if bits is None else None,
        w1_scale=info.w13_scale,
        w2_scale=info.w2_scale,
        w1_zp=None if bits is None else _read_zero_points(info.w13_zp, info.w13_scale, bits),
        w2_zp=None if bits is None else _read_zero_points(info.w2_zp, info.w2_scale, bits),
        w1_bias=info.b13,
        w2_bias=info.b2,
        a1_scale=info.a13_scale,
        a2_scale=info.a2_scale,
    )


def _read_zero_points(
    packed: Optional[torch.Tensor], scale: torch.Tensor, bits: int
) -> Optional[torch.Tensor]:
    """Returns zero points for a layer. Weights in bytes need explicit zero points of 128."""
    if packed is not None:
        return packing.read_zero_points(packed, bits)
    return None if bits == 4 else torch.full_like(scale, 128, dtype=torch.uint8)


def _list_fields(info: Any) -> tuple[Any, ...]:
    """Returns the fields of a quantization. Raises InvalidArgument for those of another runner."""
    if not isinstance(info, TritonMoeQuantInfo):
        raise InvalidArgument(f"quant_info: {type(info).__name__} is not supported")
    return tuple(vars(info).values())


def _are_same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(
        one is other or (not isinstance(one, torch.Tensor) and one == other)
        for one, other in zip(first, second)
    )


def _tell_running(info: Any) -> None:
    """Logs, once for each format, that moec runs such experts."""
    formats = (
        ("use_fp8_w8a8", "fp8"), ("use_int8_w8a8", "int8"), ("use_int4_w4a16", "int4"),
        ("use_int8_w8a16", "int8 weights"),
    )
    kind = next((kind for field, kind in formats if getattr(info, field)), "16-bit")
    if kind not in _told:
        _told.add(kind)
        _logger.info("moec runs the experts of this model's layers (%s)", kind)


class MoecRunnerCore(DispatchMoeRunnerCore):
    """Runs the experts of one MoE layer. Unsupported calls go to `fallback`, SGLang's fused function for the same
    dispatch."""

    def __init__(self, config: MoeRunnerConfig) -> None:
        super().__init__(config)
        self.fallback: Optional[Callable[..., Any]] = None
        self._experts: Optional[Experts] = None
        #: Arguments that the experts were made for: SGLang passes them with each call, with the same tensors.
        self._options: tuple[Any, ...] = ()
        self._info: tuple[Any, ...] = ()
        self._reasons: set[str] = set()

    @property
    def runner_backend(self) -> MoeRunnerBackend:
        return _BACKEND

    def _find_experts(self, info: Any, config: MoeRunnerConfig) -> Experts:
        kind, parameters = describe_activation(config)
        on_input = config.apply_router_weight_on_input
        options = (kind, parameters, on_input)
        fields = _list_fields(info)
        if self._experts is None or options != self._options or not _are_same(fields, self._info):
            self._experts = Experts(
                kind, _read_quantization(info), weight_on_input=on_input, parameters=parameters
            )
            self._options, self._info = options, fields
            _tell_running(info)
        return self._experts

    def run_from_dispatch(
        self,
        dispatch_output: Any,
        quant_info: Any,
        runner_config: MoeRunnerConfig,
        hooks: Any = None,
    ) -> StandardCombineInput:
        try:
            return self._run(dispatch_output, quant_info, runner_config, hooks)
        except InvalidArgument as error:
            if self.fallback is None:
                raise
            if str(error) not in self._reasons:
                self._reasons.add(str(error))
                _logger.warning("moec: SGLang's own experts run: %s", error)
            return self.fallback(dispatch_output, quant_info, runner_config)

    def _run(
        self, dispatch_output: Any, info: Any, config: MoeRunnerConfig, hooks: Any
    ) -> StandardCombineInput:
        _check_config(config)
        if hooks is not None:
            raise InvalidArgument("hooks: LoRA is not supported")
        if getattr(dispatch_output, "hidden_states_scale", None) is not None:
            raise InvalidArgument("hidden_states_scale: unquantized inputs expected")
        topk = dispatch_output.topk_output
        if not hasattr(topk, "topk_ids") or not hasattr(topk, "topk_weights"):
            raise InvalidArgument(f"topk_output: {type(topk).__name__} is not supported")
        weights = topk.topk_weights
        if config.routed_scaling_factor not in (None, 1.0):
            weights = weights * config.routed_scaling_factor
        output = self._find_experts(info, config).run(
            dispatch_output.hidden_states, info.w13_weight, info.w2_weight, weights, topk.topk_ids
        )
        return StandardCombineInput(hidden_states=output)


def make_core(config: MoeRunnerConfig) -> Any:
    """Returns the core for a layer: moec's, or SGLang's own with a reason in the log."""
    try:
        _check_config(config)
    except InvalidArgument as error:
        _logger.warning("moec: experts keep SGLang's kernel: %s", error)
        return TritonRunnerCore(config)
    return MoecRunnerCore(config)


def _give_way(result: None, runner: MoeRunner, *arguments: Any, **named: Any) -> None:
    """Runs after MoeRunner.__init__. SGLang would call the fused function before a core; it becomes the core's fallback
    instead."""
    core = runner.runner_core
    if not isinstance(core, MoecRunnerCore):
        return
    if runner.lora_enabled:
        _logger.warning("moec: experts keep SGLang's kernel: LoRA is not supported")
        runner.runner_core = TritonRunnerCore(runner.config)
        return
    core.fallback, runner.fused_func = runner.fused_func, None


def register() -> None:
    """Registers the core with SGLang, once."""
    global _is_registered
    if _is_registered:
        return
    register_moe_runner_core(_BACKEND.value, make_core)
    HookRegistry.register(_INIT, _give_way, HookType.AFTER)
    _is_registered = True
