# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts between prepare and finalize, as compiled layers. Signatures are those of vLLM 0.33's
FusedMoEExpertsModular, whose comments say what the arguments are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

import torch

from .. import InvalidArgument
from ..functions import experts as layers
from ..functions.adapters import Adapters
from ..functions.experts import count_to_ids
from ..functions.quantization import QuantConfig
from .formats import ActivationFormat
from .input_quantization import describe_input
from .metadata import ExpertTokensMetadata
from .weight_and_reduce import (
    TopKWeightAndReduce,
    TopKWeightAndReduceContiguous,
    TopKWeightAndReduceDelegate,
    TopKWeightAndReduceNoOP,
)


class _Experts:
    """What experts of both formats share.

    activation, quant_config, activation_parameters, chunk_tokens: as in moec.functions.fused_experts().
    expects_unquantized_inputs: whether prepare leaves the quantization of rows to the layer."""

    def __init__(
        self,
        activation: Any = "silu",
        quant_config: Any = None,
        *,
        expects_unquantized_inputs: bool = False,
        activation_parameters: Optional[Mapping[str, float]] = None,
        chunk_tokens: int = layers.CHUNK_TOKENS,
        output: str = "sum",
    ) -> None:
        self.quant_config = QuantConfig() if quant_config is None else quant_config
        self.expects_unquantized_inputs = expects_unquantized_inputs
        self.chunk_tokens = chunk_tokens
        self._activation = activation
        is_quantized = not expects_unquantized_inputs and self.quant_config.quant_dtype is not None
        self._layer = layers.Experts(
            activation, quant_config, parameters=activation_parameters, chunk_tokens=chunk_tokens, output=output,
            quantized_input=is_quantized,
        )
        self._weights: Optional[tuple[torch.Tensor, torch.Tensor]] = None

    @property
    def takes_quantized_inputs(self) -> bool:
        """Whether prepare has to quantize rows."""
        return self._layer.quantized_input

    def moe_problem_size(
        self, a1: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, topk_ids: torch.Tensor
    ) -> tuple[int, int, int, int, int]:
        """Returns the numbers of experts, of rows (of a batch), of rows of w1, of columns of a1 and of slots."""
        # workspace_shapes() is called next, for the layer of these weights.
        self._weights = (w1, w2)
        return w1.shape[0], a1.shape[-2], w1.shape[1], a1.shape[-1], topk_ids.shape[1]

    def workspace_dtype(self, act_dtype: torch.dtype) -> torch.dtype:
        """Returns the dtype of the workspaces and of the output."""
        return act_dtype

    def output_hidden_dim(self, hidden_dim: int) -> int:
        """Returns the columns of the output of finalize."""
        return hidden_dim

    def _count_workspace(self, tokens: int, hidden: int, top_k: int, dtype: torch.dtype) -> int:
        """Returns the elements of workspace2. On the CPU a layer has its own memory."""
        if self._weights is None or not self._weights[0].is_cuda:
            return 0
        size = self._layer.workspace_bytes(tokens, *self._weights, hidden, dtype, top_k)
        return -(-size // dtype.itemsize)

    def _run(
        self,
        output: torch.Tensor,
        rows: torch.Tensor,
        weights: tuple[torch.Tensor, torch.Tensor],
        choice: tuple[torch.Tensor, torch.Tensor],
        expert_map: Optional[torch.Tensor],
        scale: Optional[torch.Tensor],
        workspace: torch.Tensor,
        adapted: tuple[Optional[Adapters], Optional[torch.Tensor]] = (None, None),
    ) -> None:
        is_quantized = rows.dtype in (torch.float8_e4m3fn, torch.int8)
        if is_quantized != self.takes_quantized_inputs:
            expected = f"{self.quant_config.quant_dtype} and scales" if self.takes_quantized_inputs else "rows as they are"
            raise InvalidArgument(f"hidden_states: {expected} expected from prepare, {rows.dtype} found")
        if is_quantized:
            quantization = describe_input(self.quant_config, rows.shape[1])
            assert quantization is not None
            scale = None if quantization.given is not None or scale is None else scale.to(torch.float32)
            if scale is not None:
                scale = scale.reshape(1) if not quantization.columns else scale.reshape(rows.shape[0], -1).contiguous()
        memory = None
        if workspace.is_cuda and workspace.numel() and workspace.data_ptr() % 256 == 0:
            memory = workspace.view(-1).view(torch.uint8)
        with torch.no_grad():
            self._layer.run(
                rows, *weights, *choice, expert_map, output, memory, scale if is_quantized else None, *adapted)

    def _check(self, activation: Any) -> None:
        names = [getattr(each, "value", each) for each in (self._activation, activation)]
        if names[0] != names[1]:
            raise InvalidArgument(f"activation: {names[0]!r} expected, as these experts were made with, {names[1]!r} found")


class Experts(_Experts):
    """Rows of tokens. The layer weighs and adds the rows of a token's experts, or, without `reduces`, returns the rows of
    slots, [T, k, H], and leaves that to finalize. Calls of any number of rows run in chunks of chunk_tokens."""

    def __init__(self, activation: Any = "silu", quant_config: Any = None, *, reduces: bool = True, **options: Any) -> None:
        super().__init__(activation, quant_config, output="sum" if reduces else "slots", **options)
        self.reduces = reduces
        self._adapted: tuple[Optional[Adapters], Optional[torch.Tensor]] = (None, None)

    def use_adapters(self, adapters: Optional[Adapters], adapter_ids: Optional[torch.Tensor]) -> None:
        """Applies LoRA adapters in the following calls, or none.

        adapter_ids: [M], the adapter of each row that experts get, which over ranks prepare has to dispatch along."""
        self._adapted = adapters, adapter_ids
        self._layer.use_adapters(adapters)

    @staticmethod
    def activation_format() -> ActivationFormat:
        """Returns the format of rows."""
        return ActivationFormat.Standard

    def finalize_weight_and_reduce_impl(self) -> TopKWeightAndReduce:
        """Returns what finalize has to do."""
        return TopKWeightAndReduceNoOP() if self.reduces else TopKWeightAndReduceContiguous()

    def workspace_shapes(
        self,
        M: int,
        N: int,
        K: int,
        topk: int,
        global_num_experts: int,
        local_num_experts: int,
        expert_tokens_meta: Optional[ExpertTokensMetadata],
        activation: Any,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Returns the shapes of both workspaces and of the output of apply()."""
        output = (M, K) if self.reduces else (M, topk, K)
        dtype = torch.bfloat16 if self._weights is None else _find_dtype(self._weights[0])
        return (0,), (self._count_workspace(M, K, topk, dtype),), output

    def apply(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: Any,
        global_num_experts: int,
        expert_map: Optional[torch.Tensor],
        a1q_scale: Optional[torch.Tensor],
        a2_scale: Optional[torch.Tensor],
        workspace13: torch.Tensor,
        workspace2: torch.Tensor,
        expert_tokens_meta: Optional[ExpertTokensMetadata],
        apply_router_weight_on_input: bool,
    ) -> None:
        """Writes `output`. Raises InvalidArgument for rows of another form than prepare should give."""
        self._check(activation)
        weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
        flat = output.view(output.shape[0], -1)
        self._run(
            flat, hidden_states, (w1, w2), (weights, topk_ids), expert_map, a1q_scale, workspace2, self._adapted)


class BatchedExperts(_Experts):
    """Rows of batches, [E, M, H], of which each expert has as many as expert_num_tokens says. Finalize weighs and adds
    them.

    max_num_tokens: most rows of a rank.
    num_dispatchers: ranks whose rows come; a batch has room for max_num_tokens of each."""

    def __init__(
        self, activation: Any = "silu", quant_config: Any = None, *, max_num_tokens: int, num_dispatchers: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(activation, quant_config, **options)
        self.max_num_tokens = max_num_tokens
        self.num_dispatchers = num_dispatchers

    @staticmethod
    def activation_format() -> ActivationFormat:
        """Returns the format of rows."""
        return ActivationFormat.BatchedExperts

    def finalize_weight_and_reduce_impl(self) -> TopKWeightAndReduce:
        """Returns what finalize has to do: it chooses itself."""
        return TopKWeightAndReduceDelegate()

    def workspace_shapes(
        self,
        M: int,
        N: int,
        K: int,
        topk: int,
        global_num_experts: int,
        local_num_experts: int,
        expert_tokens_meta: Optional[ExpertTokensMetadata],
        activation: Any,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Returns the shapes of both workspaces and of the output of apply()."""
        rows = self.max_num_tokens * self.num_dispatchers
        dtype = torch.bfloat16 if self._weights is None else _find_dtype(self._weights[0])
        size = self._count_workspace(local_num_experts * rows, K, 1, dtype)
        return (0,), (size,), (local_num_experts, rows, K)

    def apply(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: Any,
        global_num_experts: int,
        expert_map: Optional[torch.Tensor],
        a1q_scale: Optional[torch.Tensor],
        a2_scale: Optional[torch.Tensor],
        workspace13: torch.Tensor,
        workspace2: torch.Tensor,
        expert_tokens_meta: Optional[ExpertTokensMetadata],
        apply_router_weight_on_input: bool,
    ) -> None:
        """Writes `output`, zeros in rows beyond the counts. Raises InvalidArgument without counts on the device, and for
        rows of another form than prepare should give."""
        self._check(activation)
        counts = None if expert_tokens_meta is None else expert_tokens_meta.expert_num_tokens
        experts, rows, hidden = hidden_states.shape
        if counts is None or counts.shape[0] < experts:
            raise InvalidArgument(f"expert_tokens_meta: expert_num_tokens of {experts} experts on the device expected")
        ids = count_to_ids(counts[:experts], rows)
        weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
        flat = hidden_states.reshape(-1, hidden)
        self._run(output.view(-1, hidden), flat, (w1, w2), (weights, ids), None, a1q_scale, workspace2)


def _find_dtype(weight: torch.Tensor) -> torch.dtype:
    """The dtype of workspaces for weights: theirs, or bf16 for quantized ones."""
    return weight.dtype if weight.dtype in (torch.float32, torch.float16) else torch.bfloat16
