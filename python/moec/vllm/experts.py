# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modular experts: between vLLM's prepare and finalize, in both activation formats."""

from __future__ import annotations

import types
from typing import Any, Optional

import torch
import vllm.envs as envs
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.config import (
    FusedMoEConfig,
    FusedMoEParallelConfig,
    FusedMoEQuantConfig,
)
from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import (
    TopKWeightAndReduceDelegate,
    TopKWeightAndReduceNoOP,
)
from vllm.model_executor.layers.quantization.utils import quant_utils as keys
from vllm.platforms import current_platform

from .. import InvalidArgument
from ..functions.experts import KINDS, Experts, Held, run_batched
from ..layer_pool import DTYPES
from ..modular.input_quantization import describe_input

_SCHEMES = (
    (None, None),
    (keys.kFp8StaticChannelSym, None),
    (keys.kFp8StaticTensorSym, None),
    (keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym),
    (keys.kFp8StaticTensorSym, keys.kFp8DynamicTokenSym),
    (keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym),
    (keys.kFp8StaticTensorSym, keys.kFp8DynamicTensorSym),
    (keys.kInt8StaticChannelSym, keys.kInt8DynamicTokenSym),
    (keys.kInt8StaticChannelSym, None),
    (keys.kInt8Static, None),
    (keys.kInt4Static, None),
    (keys.kInt4StaticAsym, None),
    (keys.kInt4Static, keys.kFp8DynamicTokenSym),
    (keys.kMxfp8Static, None),
    (keys.kMxfp8Static, keys.kMxfp8Dynamic),
    (keys.kMxfp4Static, None),
    (keys.kMxfp4Static, keys.kMxfp8Dynamic),
    (keys.kMxfp4Static, keys.kFp8DynamicTokenSym),
    (keys.kMxfp4Static, keys.kFp8Dynamic128Sym),
    (keys.kNvfp4Static, None),
)
#: The limit in vLLM's SWIGLUOAI kernel, which ignores the model's config.
_SWIGLUOAI_LIMIT = 7.0


#: Columns of blocks of fp8 that kernels take as groups of activations.
_BLOCK_COLUMNS = (32, 64, 128)


def _is_block(key: Optional[keys.QuantKey]) -> bool:
    """Returns whether weights are fp8 with a scale for each block of several rows."""
    if key is None or key.dtype != keys.FP8_DTYPE or key.scale.dtype != torch.float32:
        return False
    shape = key.scale.group_shape
    return key.scale.static and key.symmetric and shape.row > 1 and shape.col in _BLOCK_COLUMNS


def get_parameters(activation: MoEActivation, config: Any) -> dict[str, float]:
    """Returns the parameters of an activation for a spec, resolved as in vLLM (ApplyMoEActivationConfig). Raises
    InvalidArgument if a spec cannot express them."""
    kind, limit = activation.value, config.clamp_limit
    if kind == "swigluoai_uninterleave":
        bound = {} if limit is None else {"limit": limit}
        return {"alpha": config.alpha, "beta": config.beta, **bound}
    if kind == "situ":
        linear = config.activation_situ_linear_beta
        return {"beta": config.activation_situ_beta, "linear_beta": linear or 0.0}
    if limit is None or (kind == "swigluoai" and limit == _SWIGLUOAI_LIMIT):
        return {}
    if kind == "silu":
        return {"limit": limit}
    raise InvalidArgument(f"activation: {kind} with a limit of {limit} is not supported in a layer")


def travels_quantized(moe_config: FusedMoEConfig, quant_config: FusedMoEQuantConfig) -> bool:
    """Returns whether rows are quantized ahead of the experts: they come from other ranks, in half the bytes."""
    parallel = moe_config.moe_parallel_config
    # Adapters read rows as they are.
    if moe_config.is_lora_enabled or parallel.dp_size == 1 or parallel.is_sequence_parallel:
        return False
    if quant_config.quant_dtype not in (keys.FP8_DTYPE, torch.int8):
        return False
    found = describe_input(quant_config, moe_config.hidden_dim)
    # A scale that all rows share is known on all ranks only if it is given.
    return found is not None and (found.columns > 0 or (found.given is not None and found.given.numel() == 1))


def is_batch_invariant() -> bool:
    """Whether vLLM runs in its batch-invariant mode."""
    return bool(envs.VLLM_BATCH_INVARIANT)


class MoecSupport(mk.FusedMoEExperts):
    """Capabilities of layers, for all kinds of experts."""

    @staticmethod
    def is_supported_config(
        cls: type[mk.FusedMoEExperts],
        moe_config: FusedMoEConfig,
        weight_key: Optional[keys.QuantKey],
        activation_key: Optional[keys.QuantKey],
        activation_format: mk.FusedMoEActivationFormat,
    ) -> tuple[bool, Optional[str]]:
        found = mk.FusedMoEExperts.is_supported_config(
            cls, moe_config, weight_key, activation_key, activation_format
        )
        if not found[0]:
            return found
        resolved = types.SimpleNamespace(
            clamp_limit=moe_config.swiglu_limit,
            alpha=moe_config.swiglu_alpha,
            beta=moe_config.swiglu_beta,
            activation_situ_beta=moe_config.activation_situ_beta,
            activation_situ_linear_beta=moe_config.activation_situ_linear_beta,
        )
        try:
            get_parameters(moe_config.activation, resolved)
        except InvalidArgument as error:
            return False, f"kernel does not support {error}"
        if moe_config.in_dtype not in DTYPES:
            return False, f"kernel does not support {moe_config.in_dtype} hidden states"
        if moe_config.hidden_dim * moe_config.in_dtype.itemsize % 16:
            return False, f"kernel does not support a hidden dim of {moe_config.hidden_dim}"
        return True, None

    #: Whether prepare quantizes the inputs.
    takes_quantized = False

    @property
    def expects_unquantized_inputs(self) -> bool:
        # The layer quantizes activations itself, by the formulas of its spec. If nothing is quantized there is nothing
        # to defer, and vLLM's prepare of the batched format refuses to.
        return self.quant_config.quant_dtype is not None and not self.takes_quantized

    @staticmethod
    def _supports_current_device() -> bool:
        return current_platform.is_cuda() and current_platform.has_device_capability((8, 0))

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return True

    @staticmethod
    def _supports_quant_scheme(
        weight_key: Optional[keys.QuantKey], activation_key: Optional[keys.QuantKey]
    ) -> bool:
        if _is_block(weight_key):
            return activation_key in (None, keys.kFp8Dynamic128Sym)
        return (weight_key, activation_key) in _SCHEMES

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return activation.value in KINDS

    @staticmethod
    def _supports_batch_invariance() -> bool:
        return True

    def hold(self, w1: torch.Tensor, w2: torch.Tensor, previous: Optional[Held] = None) -> Held:
        """Calls Experts.hold() for the calls of this configuration."""
        moe = self.moe_config
        # A row of the batched format belongs to one expert.
        is_batched = self.activation_format() is mk.FusedMoEActivationFormat.BatchedExperts
        top_k = 1 if is_batched else moe.experts_per_token
        return self.experts.hold(w1, w2, moe.hidden_dim, moe.in_dtype, top_k, previous)

    def _check(
        self, activation: MoEActivation, a1q_scale: Optional[torch.Tensor]
    ) -> None:
        if a1q_scale is not None and not self.takes_quantized:
            raise InvalidArgument(
                "a1q_scale: unquantized inputs expected"
            )
        if activation != self.moe_config.activation:
            raise InvalidArgument(
                f"activation: {self.moe_config.activation} expected, as moe_config has, "
                f"{activation} found"
            )


class _MoecExperts(MoecSupport, mk.FusedMoEExpertsModular):
    """Common part of both formats. The layer is made by hold(), for fixed weights, or by the first call, for the
    weights of the call. Subclasses give the shape of the output and the elements of workspace2 (_shape), and run the
    layer (_run)."""

    def __init__(
        self,
        moe_config: FusedMoEConfig,
        quant_config: FusedMoEQuantConfig,
        max_num_tokens: Optional[int] = None,
        num_dispatchers: Optional[int] = None,
    ) -> None:
        super().__init__(moe_config, quant_config, max_num_tokens, num_dispatchers)
        parameters = get_parameters(moe_config.activation, self.activation_config)
        is_batched = self.activation_format() is mk.FusedMoEActivationFormat.BatchedExperts
        self.takes_quantized = not is_batched and travels_quantized(moe_config, quant_config)
        # If experts move between ranks, an earlier object may have prepared their weights already.
        self.experts = getattr(quant_config, "moec_experts", None) or Experts(
            moe_config.activation, quant_config, parameters=parameters, batch_invariant=is_batch_invariant(),
            quantized_input=self.takes_quantized,
        )
        self._weights: Optional[tuple[torch.Tensor, torch.Tensor]] = None
        self._ones = torch.empty(0)

    def moe_problem_size(
        self,
        a1: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_ids: torch.Tensor,
    ) -> tuple[int, int, int, int, int]:
        # workspace_shapes() is called next, for the layer of these weights.
        self._weights = (w1, w2)
        return super().moe_problem_size(a1, w1, w2, topk_ids)

    def _count_workspace(self, tokens: int, hidden: int, top_k: int) -> int:
        """Returns the elements of workspace2 for a number of tokens. On the CPU a layer has its own memory."""
        if self._weights is None or not self._weights[0].is_cuda:
            return 0
        dtype = self.moe_config.in_dtype
        size = self.experts.workspace_bytes(tokens, *self._weights, hidden, dtype, top_k)
        return -(-size // self.workspace_dtype(dtype).itemsize)

    def _make_ones(self, weights: torch.Tensor) -> torch.Tensor:
        """Returns ones instead of the weights, filled by the first call, which in vLLM has the most tokens."""
        if self._ones.shape[:1] < weights.shape[:1] or self._ones.device != weights.device:
            self._ones = torch.ones_like(weights)
        return self._ones[: weights.shape[0]]

    def workspace_shapes(
        self,
        M: int,
        N: int,
        K: int,
        topk: int,
        global_num_experts: int,
        local_num_experts: int,
        expert_tokens_meta: Optional[mk.ExpertTokensMetadata],
        activation: MoEActivation,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        output, size = self._shape(M, K, topk, local_num_experts)
        return (0,), (size,), output

    def apply(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: MoEActivation,
        global_num_experts: int,
        expert_map: Optional[torch.Tensor],
        a1q_scale: Optional[torch.Tensor],
        a2_scale: Optional[torch.Tensor],
        workspace13: torch.Tensor,
        workspace2: torch.Tensor,
        expert_tokens_meta: Optional[mk.ExpertTokensMetadata],
        apply_router_weight_on_input: bool,
    ) -> None:
        self._check(activation, a1q_scale)
        if self.post_gemm2_hook is not None:
            raise InvalidArgument("post_gemm2_hook: a layer always sums over the experts")
        if apply_router_weight_on_input:
            # prepare() has already multiplied the input by the weights.
            topk_weights = self._make_ones(topk_weights)
        self._run(
            output, hidden_states, (w1, w2), (topk_weights, topk_ids), expert_map,
            expert_tokens_meta, as_workspace(workspace2), self._read_scale(hidden_states, a1q_scale),
        )

    def _read_scale(self, rows: torch.Tensor, scale: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
        """Returns the scales of quantized rows as a layer takes them; None if it knows the one of all rows."""
        found = describe_input(self.quant_config, rows.shape[1]) if self.takes_quantized else None
        if found is None or scale is None or not found.columns:
            return None
        return scale.to(torch.float32).reshape(rows.shape[0], found.columns).contiguous()


def as_workspace(workspace: torch.Tensor) -> Optional[torch.Tensor]:
    """Returns vLLM's workspace as memory for a layer, or None if a layer cannot use it."""
    if not workspace.is_cuda or not workspace.numel() or workspace.data_ptr() % 256:
        return None
    return workspace.view(-1).view(torch.uint8)


class MoecExperts(_MoecExperts):
    """The format [T, H]. The layer applies the weights and sums over k."""

    #: Local ids of the experts, if the class belongs to one layer.
    expert_map: Optional[torch.Tensor] = None

    @classmethod
    def of(cls, layer: torch.nn.Module) -> type[MoecExperts]:
        """Returns a class for one vLLM layer, whose calls need not map ids first. If experts move, elastic expert
        parallelism changes the map."""
        if layer.expert_map is None or layer.moe_config.moe_parallel_config.enable_eplb:
            return cls
        return type(cls.__name__, (cls,), {"expert_map": layer.expert_map})

    def __init__(
        self,
        moe_config: FusedMoEConfig,
        quant_config: FusedMoEQuantConfig,
        max_num_tokens: Optional[int] = None,
        num_dispatchers: Optional[int] = None,
    ) -> None:
        super().__init__(moe_config, quant_config, max_num_tokens, num_dispatchers)
        self.experts.placed = self.expert_map

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: FusedMoEParallelConfig) -> bool:
        return (
            not moe_parallel_config.use_all2all_kernels
            or moe_parallel_config.use_ag_rs_all2all_kernels
        ) and not moe_parallel_config.use_passthrough_all2all

    def finalize_weight_and_reduce_impl(self) -> mk.TopKWeightAndReduce:
        return TopKWeightAndReduceNoOP()

    def _shape(self, rows: int, hidden: int, top_k: int, experts: int) -> tuple[tuple[int, ...], int]:
        return (rows, hidden), self._count_workspace(rows, hidden, top_k)

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
        if self.experts.placed is not None:
            expert_map = None
        self.experts.run(hidden_states, *weights, *choice, expert_map, output, workspace, scale)


class MoecBatchedExperts(_MoecExperts):
    """The format [E, M, H] with row counts. Rows are not combined: finalize weights and sums them."""

    def __init__(
        self,
        moe_config: FusedMoEConfig,
        quant_config: FusedMoEQuantConfig,
        max_num_tokens: Optional[int] = None,
        num_dispatchers: Optional[int] = None,
    ) -> None:
        if quant_config.quant_dtype is not None:
            raise InvalidArgument(
                f"quant_config: activations of {quant_config.quant_dtype} in the batched format, whose dispatch "
                "rounds them, while a layer rounds them itself"
            )
        super().__init__(moe_config, quant_config, max_num_tokens, num_dispatchers)

    @staticmethod
    def activation_format() -> mk.FusedMoEActivationFormat:
        return mk.FusedMoEActivationFormat.BatchedExperts

    @staticmethod
    def _supports_quant_scheme(
        weight_key: Optional[keys.QuantKey], activation_key: Optional[keys.QuantKey]
    ) -> bool:
        # Dispatch of this format quantizes what it sends, regardless of the experts.
        return activation_key is None and MoecSupport._supports_quant_scheme(weight_key, None)

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: FusedMoEParallelConfig) -> bool:
        return not moe_parallel_config.use_passthrough_all2all

    def finalize_weight_and_reduce_impl(self) -> mk.TopKWeightAndReduce:
        return TopKWeightAndReduceDelegate()

    def _shape(self, rows: int, hidden: int, top_k: int, experts: int) -> tuple[tuple[int, ...], int]:
        assert self.max_num_tokens is not None and self.num_dispatchers is not None
        rows = self.max_num_tokens * self.num_dispatchers
        return (experts, rows, hidden), self._count_workspace(experts * rows, hidden, 1)

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
        if meta is None or meta.expert_num_tokens is None:
            raise InvalidArgument("expert_tokens_meta: expert_num_tokens on the device expected")
        run_batched(
            self.experts, hidden_states, *weights, meta.expert_num_tokens, output, workspace
        )


def choose(
    moe: FusedMoEConfig, weight_key: Optional[keys.QuantKey], activation_key: Optional[keys.QuantKey]
) -> tuple[Optional[type[_MoecExperts]], Optional[str]]:
    """Returns the experts class for a layer, or None and the reason."""
    if moe.moe_backend != "auto":
        return None, f"--moe-backend asks for {moe.moe_backend}"
    is_batched = moe.moe_parallel_config.use_batched_activation_format
    found: type[_MoecExperts] = MoecBatchedExperts if is_batched else MoecExperts
    if moe.is_lora_enabled:
        # The class in lora.py derives from one of this module.
        from .lora import MoecLoRAExperts, why_not_adapted

        if (reason := why_not_adapted(moe)) is not None:
            return None, f"kernel does not support {reason}"
        found = MoecLoRAExperts.of_config(get_current_vllm_config().lora_config)
    supported, reason = found.is_supported_config(
        found, moe, weight_key, activation_key, found.activation_format()
    )
    return (found, None) if supported else (None, reason)
