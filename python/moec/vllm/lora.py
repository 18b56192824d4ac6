# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts with vLLM's LoRA adapters, which layers read from vLLM's stacked tensors in place.

vLLM makes these tensors once all weights are loaded. A layer that prepares its weights is compiled with the sizes of the
LoRAConfig, and reads memory without adapters until then."""

from __future__ import annotations

import weakref
from typing import Any, Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.config import LoRAConfig, get_current_vllm_config
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.experts.lora_context import MoELoRAContext
from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
from .. import InvalidArgument
from ..functions.adapters import Adapters
from ..functions.experts import Held
from .experts import MoecExperts

#: Memory without adapters, which layers of the same sizes share.
_empty: weakref.WeakValueDictionary[tuple[Any, ...], Adapters] = weakref.WeakValueDictionary()


def why_not_adapted(moe: FusedMoEConfig) -> Optional[str]:
    """Returns the reason why vLLM keeps its kernel for a layer with adapters; None if moec runs it."""
    if moe.moe_parallel_config.use_batched_activation_format:
        return "LoRA adapters in the batched format"
    config = get_current_vllm_config().lora_config
    if config is None:
        return "LoRA adapters without a lora_config"
    for option in ("fully_sharded_loras", "enable_moe_shared_loras"):
        if getattr(config, option, False):
            return f"LoRA adapters with {option}"
    if isinstance(config.lora_dtype, torch.dtype) and config.lora_dtype != moe.in_dtype:
        return f"LoRA adapters of {config.lora_dtype} beside {moe.in_dtype}"
    return None


class MoecLoRAExperts(LoRAExpertsMixin, MoecExperts):
    """The format [T, H], with an adapter for each token."""

    #: The number of adapters of a call, and their rank.
    sizes: tuple[int, int]
    _adapters: Optional[Adapters] = None

    @classmethod
    def of_config(cls, config: Optional[LoRAConfig]) -> type[MoecLoRAExperts]:
        """Returns a class for layers with the adapters of a configuration."""
        assert config is not None
        return type(cls.__name__, (cls,), {"sizes": (config.max_loras, config.max_lora_rank)})

    def hold(self, w1: torch.Tensor, w2: torch.Tensor, previous: Optional[Held] = None) -> Held:
        """Calls Experts.hold() for a layer with adapters."""
        if self._adapters is None:
            self._adapters = self._make_empty(w1)
            self.experts.use_adapters(self._adapters)
        return super().hold(w1, w2, previous)

    def _make_empty(self, w1: torch.Tensor) -> Adapters:
        moe = self.moe_config
        sizes = (
            *self.sizes, w1.shape[0], moe.hidden_dim, w1.shape[1] // (2 if moe.is_act_and_mul else 1),
            moe.is_act_and_mul, moe.in_dtype, w1.device)
        found = _empty.get(sizes)
        if found is None:
            found = _empty[sizes] = Adapters.make_empty(*sizes)
        return found

    def set_lora_context(self, ctx: MoELoRAContext) -> None:
        """Takes the stacked tensors, whose addresses do not change. Raises InvalidArgument for gate and up rows in one
        tensor."""
        if len(ctx.w13_lora_a_stacked) != (2 if self.moe_config.is_act_and_mul else 1):
            raise InvalidArgument(
                "LoRA: experts with gate and up in one tensor (FusedMoE3DWithLoRA) are not supported; give "
                "--moe-backend triton, or enable_mixed_moe_lora_format")
        super().set_lora_context(ctx)
        self._adapters = Adapters(
            ctx.w13_lora_a_stacked, ctx.w13_lora_b_stacked, ctx.w2_lora_a_stacked[0], ctx.w2_lora_b_stacked[0])
        self.experts.use_adapters(self._adapters)

    def _run(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        weights: tuple[torch.Tensor, torch.Tensor],
        choice: tuple[torch.Tensor, torch.Tensor],
        expert_map: Optional[torch.Tensor],
        meta: Optional[mk.ExpertTokensMetadata],
        workspace: Optional[torch.Tensor],
        scale: Optional[torch.Tensor],
    ) -> None:
        if self._adapters is None:
            super()._run(output, hidden_states, weights, choice, expert_map, meta, workspace, scale)
            return
        rows = hidden_states.shape[0]
        adapter_ids = self._find_adapter_ids(rows)
        if adapter_ids is None:
            adapter_ids = hidden_states.new_full((rows,), -1, dtype=torch.int32)
        if self.experts.placed is not None:
            expert_map = None
        self.experts.run(
            hidden_states, *weights, *choice, expert_map, output, workspace, scale, self._adapters,
            adapter_ids[:rows])

    def _find_adapter_ids(self, rows: int) -> Optional[torch.Tensor]:
        """The adapters of the rows; None before vLLM has any."""
        context = self._lora_context
        if context is None:
            return None
        # Over ranks, prepare has dispatched the rows' adapters along.
        if context.local_token_lora_mapping is not None:
            return context.local_token_lora_mapping
        wrapper = context.punica_wrapper
        return wrapper.token_mapping_meta.meta_args(rows, wrapper.lora_config.specialize_active_lora)[0]
