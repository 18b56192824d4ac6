# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts with vLLM's LoRA adapters, which layers read from vLLM's stacked tensors in place."""

from __future__ import annotations

from typing import Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig
from vllm.model_executor.layers.fused_moe.experts.lora_context import MoELoRAContext
from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
from vllm.model_executor.layers.quantization.utils import quant_utils as keys

from .. import InvalidArgument
from ..functions.adapters import Adapters
from .experts import MoecExperts


def why_not_adapted(moe: FusedMoEConfig, weight_key: Optional[keys.QuantKey]) -> Optional[str]:
    """Returns the reason why vLLM keeps its kernel for a layer with adapters; None if moec runs it."""
    if weight_key is not None:
        return "LoRA adapters of quantized experts"
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

    _adapters: Optional[Adapters] = None

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
        context = self._lora_context
        if context is None:
            super()._run(output, hidden_states, weights, choice, expert_map, meta, workspace, scale)
            return
        rows = hidden_states.shape[0]
        # Over ranks, prepare has dispatched the rows' adapters along.
        adapter_ids = context.local_token_lora_mapping
        if adapter_ids is None:
            wrapper = context.punica_wrapper
            adapter_ids = wrapper.token_mapping_meta.meta_args(
                rows, wrapper.lora_config.specialize_active_lora)[0]
        if self.experts.placed is not None:
            expert_map = None
        self.experts.run(
            hidden_states, *weights, *choice, expert_map, output, workspace, scale, self._adapters,
            adapter_ids[:rows])
