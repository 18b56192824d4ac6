# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for the parts of SGLang 0.5.23 that moec.sglang uses, with SGLang's names, fields and signatures. A runner
gets its core from a factory registered for its backend, and calls a fused function before a core."""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from fake_modules import take


class MoeRunnerBackend(enum.Enum):
    TRITON = "triton"
    DEEP_GEMM = "deep_gemm"


@dataclasses.dataclass
class MoeRunnerConfig:
    num_experts: Optional[int] = None
    num_local_experts: Optional[int] = None
    activation: str = "silu"
    is_gated: bool = True
    apply_router_weight_on_input: bool = False
    inplace: bool = True
    no_combine: bool = False
    routed_scaling_factor: Optional[float] = None
    gemm1_alpha: Optional[float] = None
    gemm1_beta: Optional[float] = None
    gemm1_clamp_limit: Optional[float] = None
    swiglu_limit: Optional[float] = None
    gate_up_interleaved: bool = True


@dataclasses.dataclass
class TritonMoeQuantInfo:
    w13_weight: torch.Tensor
    w2_weight: torch.Tensor
    b13: Optional[torch.Tensor] = None
    b2: Optional[torch.Tensor] = None
    use_mxfp8: bool = False
    use_fp8_w8a8: bool = False
    use_int8_w8a8: bool = False
    use_int8_w8a16: bool = False
    use_int4_w4a16: bool = False
    per_channel_quant: bool = False
    w13_scale: Optional[torch.Tensor] = None
    w2_scale: Optional[torch.Tensor] = None
    w13_zp: Optional[torch.Tensor] = None
    w2_zp: Optional[torch.Tensor] = None
    a13_scale: Optional[torch.Tensor] = None
    a2_scale: Optional[torch.Tensor] = None
    block_shape: Optional[list[int]] = None
    fuse_swiglu_interleaved: bool = False


class StandardTopKOutput(NamedTuple):
    topk_weights: torch.Tensor
    topk_ids: torch.Tensor
    router_logits: torch.Tensor


class BypassedTopKOutput(NamedTuple):
    hidden_states: torch.Tensor


class StandardDispatchOutput(NamedTuple):
    hidden_states: torch.Tensor
    hidden_states_scale: Optional[torch.Tensor]
    topk_output: Any
    hidden_states_pre_quant: Optional[tuple] = None


class StandardCombineInput(NamedTuple):
    hidden_states: torch.Tensor


class DispatchMoeRunnerCore(abc.ABC):
    def __init__(self, config: MoeRunnerConfig) -> None:
        self.config = config

    @property
    @abc.abstractmethod
    def runner_backend(self) -> MoeRunnerBackend: ...

    @abc.abstractmethod
    def run_from_dispatch(self, dispatch_output, quant_info, runner_config, hooks=None): ...


class TritonRunnerCore:
    """The engine's own core."""

    def __init__(self, config: MoeRunnerConfig) -> None:
        self.config = config


FACTORIES: dict[str, Callable[[MoeRunnerConfig], Any]] = {}
#: Calls of the engine's own kernel.
OWN_CALLS: list[tuple] = []


def register_moe_runner_core(backend_name: str, factory: Callable[[MoeRunnerConfig], Any]) -> None:
    if backend_name in FACTORIES:
        raise ValueError(f"Runner core for {backend_name!r} is already registered")
    MoeRunnerBackend(backend_name)
    FACTORIES[backend_name] = factory


def run_own(dispatch_output, quant_info, runner_config):
    OWN_CALLS.append((dispatch_output, quant_info, runner_config))
    return StandardCombineInput(torch.zeros_like(dispatch_output.hidden_states))


class MoeRunner:
    def __init__(
        self, runner_backend: MoeRunnerBackend, config: MoeRunnerConfig, lora_enabled: bool = False
    ) -> None:
        self.config, self.lora_enabled = config, lora_enabled
        factory = FACTORIES.get(runner_backend.value)
        self.runner_core = factory(config) if factory else TritonRunnerCore(config)
        self.fused_func = None if lora_enabled else run_own

    def run(self, dispatch_output, quant_info, lora_info=None):
        if self.fused_func is not None and not self.lora_enabled:
            return self.fused_func(dispatch_output, quant_info, self.config)
        if isinstance(self.runner_core, DispatchMoeRunnerCore):
            return self.runner_core.run_from_dispatch(
                dispatch_output, quant_info, self.config, hooks=None
            )
        OWN_CALLS.append((dispatch_output, quant_info, self.config))
        return StandardCombineInput(torch.zeros_like(dispatch_output.hidden_states))


MoeRunner.__module__ = "sglang.srt.layers.moe.moe_runner.runner"


class HookType(enum.Enum):
    BEFORE = "before"
    AFTER = "after"


class HookRegistry:
    hooks: list[tuple[str, Callable, HookType]] = []

    @classmethod
    def register(cls, target: str, hook: Callable, hook_type: HookType = HookType.AFTER, *,
                 source: Any = None) -> None:
        cls.hooks.append((target, hook, hook_type))

    @classmethod
    def apply_hooks(cls) -> type:
        """Returns the runner with its hooks, as in the engine after plugins are loaded."""
        hooks = list(cls.hooks)

        class Hooked(MoeRunner):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                for target, hook, hook_type in hooks:
                    assert target == "sglang.srt.layers.moe.moe_runner.runner.MoeRunner.__init__"
                    assert hook_type is HookType.AFTER
                    assert hook(None, self, *args, **kwargs) is None

        return Hooked


def list_modules() -> dict[str, dict[str, Any]]:
    """Returns what moec.sglang imports, by module."""
    moe = "sglang.srt.layers.moe"

    return {
        f"{moe}.moe_runner": take(MoeRunner, MoeRunnerConfig, register_moe_runner_core),
        f"{moe}.moe_runner.base": take(DispatchMoeRunnerCore),
        f"{moe}.moe_runner.triton": take(TritonMoeQuantInfo, TritonRunnerCore),
        f"{moe}.token_dispatcher.standard": take(StandardCombineInput),
        f"{moe}.utils": take(MoeRunnerBackend),
        "sglang.srt.plugins.hook_registry": take(HookRegistry, HookType),
    }
