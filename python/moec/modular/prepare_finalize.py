# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What comes before and behind experts on one rank: quantization, the format of rows, weights and sums. Signatures are
those of vLLM 0.33's FusedMoEPrepareAndFinalizeModular, whose comments say what the arguments are."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Optional, Union

import torch

from .. import InvalidArgument
from .formats import ActivationFormat, to_batches
from .input_quantization import quantize_input
from .metadata import ExpertTokensMetadata
from .weight_and_reduce import (
    TopKWeightAndReduceContiguous,
    TopKWeightAndReduceDelegate,
    TopKWeightAndReduceNaiveBatched,
    TopKWeightAndReduceNoOP,
    is_kind,
)

#: Rows, their scales, counts of rows, and ids and weights of the rows; ids and weights are None if they are the caller's.
PrepareResult = tuple[
    torch.Tensor, Optional[torch.Tensor], Optional[ExpertTokensMetadata], Optional[torch.Tensor], Optional[torch.Tensor]
]
Receiver = Callable[[], Any]


def weigh_input(a1: torch.Tensor, topk_weights: torch.Tensor, on_input: bool) -> torch.Tensor:
    """Returns the rows, multiplied by their weights if these are on the input. Raises InvalidArgument for k > 1."""
    if not on_input:
        return a1
    if topk_weights.shape[1] != 1:
        raise InvalidArgument(
            f"apply_router_weight_on_input: topk_weights has {topk_weights.shape[1]} columns, and weights on the input "
            "need 1"
        )
    return a1 * topk_weights.to(a1.dtype)


class PrepareAndFinalize(abc.ABC):
    """Both halves around experts. A subclass implements prepare and finalize, or their async forms too."""

    #: Largest difference of experts and this object that ModularKernel allows: none.
    activation_format = ActivationFormat.Standard

    def post_init_setup(self, fused_experts: Any) -> None:
        """Called with the experts that it is put together with."""

    def max_num_tokens_per_rank(self) -> Optional[int]:
        """Returns the most rows of a call, or None."""
        return None

    def topk_indices_dtype(self) -> Optional[torch.dtype]:
        """Returns the dtype that ids must have; None for any."""
        return None

    def num_dispatchers(self) -> int:
        """Returns the number of ranks whose rows come."""
        return 1

    def output_is_reduced(self) -> bool:
        """Returns whether ranks that share tokens have nothing left to add."""
        return False

    def supports_async(self) -> bool:
        """Returns whether prepare_async and finalize_async exist."""
        return False

    def supports_dbo(self) -> bool:
        """Returns whether two micro-batches may take turns."""
        return self.supports_async()

    @abc.abstractmethod
    def prepare(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> PrepareResult:
        """Quantizes rows, unless experts do (defer_input_quant), and brings them to the experts."""

    def prepare_async(self, *arguments: Any, **named: Any) -> Union[tuple[Callable[[], None], Receiver], Receiver]:
        """Starts prepare(). Returns a hook, which waits for it, and a receiver, which returns its result, once."""
        raise InvalidArgument(f"prepare_async: {type(self).__name__} has none; call prepare()")

    @abc.abstractmethod
    def finalize(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> None:
        """Brings the experts' rows back, weighs and adds what they have left, and writes `output`. The weights and ids
        are those that prepare() has returned."""

    def finalize_async(self, *arguments: Any, **named: Any) -> Union[tuple[Callable[[], None], Receiver], Receiver]:
        """Starts finalize(). Returns a hook and a receiver, after which the output is valid."""
        raise InvalidArgument(f"finalize_async: {type(self).__name__} has none; call finalize()")


def reduce_rows(
    impl: Any, output: Optional[torch.Tensor], rows: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor,
    on_input: bool,
) -> torch.Tensor:
    """Returns [T, H], weighed and added as experts of the standard format have left it."""
    if is_kind(impl, TopKWeightAndReduceDelegate):
        impl = TopKWeightAndReduceContiguous()
    return impl.apply(output, rows, topk_weights, topk_ids, on_input)


class NoEP(PrepareAndFinalize):
    """All experts on this rank, rows in the standard format."""

    def prepare(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> PrepareResult:
        """Quantizes rows, unless experts do (defer_input_quant), and brings them to the experts."""
        rows = weigh_input(a1, topk_weights, apply_router_weight_on_input)
        quantized, scale = (rows, None) if defer_input_quant else quantize_input(rows, quant_config)
        return quantized, scale, None, None, None

    def finalize(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> None:
        """Weighs and adds what experts have left, and writes `output`."""
        reduce_rows(
            weight_and_reduce_impl, output, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input)


class InBatches(PrepareAndFinalize):
    """Another prepare/finalize, such as NoEP() or OverRanks(...), whose rows are laid into batches of local experts.

    max_num_tokens: most rows of a rank.
    rank: this rank, if every rank has num_local_experts with consecutive ids and calls pass no expert_map."""

    activation_format = ActivationFormat.BatchedExperts

    def __init__(self, inner: PrepareAndFinalize, max_num_tokens: int, num_local_experts: int, rank: int = 0) -> None:
        if inner.activation_format is not ActivationFormat.Standard:
            raise InvalidArgument(f"inner: rows in the standard format expected, {inner.activation_format.name} found")
        self.inner = inner
        self.max_num_tokens = max_num_tokens
        self.num_local_experts = num_local_experts
        self.rank = rank
        self._map: Optional[torch.Tensor] = None

    def post_init_setup(self, fused_experts: Any) -> None:
        """Called with the experts that it is put together with."""
        self.inner.post_init_setup(fused_experts)

    def max_num_tokens_per_rank(self) -> Optional[int]:
        """Returns the most rows of a rank."""
        return self.max_num_tokens

    def topk_indices_dtype(self) -> Optional[torch.dtype]:
        """Returns the dtype of the ids that experts get; None: that of the caller."""
        return self.inner.topk_indices_dtype()

    def num_dispatchers(self) -> int:
        """Returns the number of ranks whose rows come."""
        return self.inner.num_dispatchers()

    def supports_async(self) -> bool:
        """Returns whether prepare_async and finalize_async exist."""
        return self.inner.supports_async()

    def prepare(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> PrepareResult:
        """Quantizes rows, unless experts do (defer_input_quant), and brings them to the experts."""
        found = self.inner.prepare(
            a1, topk_weights, topk_ids, num_experts, expert_map, apply_router_weight_on_input, quant_config,
            defer_input_quant)
        return self._lay(found, topk_ids, expert_map)

    def _lay(
        self, found: PrepareResult, topk_ids: torch.Tensor, expert_map: Optional[torch.Tensor]
    ) -> PrepareResult:
        rows, scale, _, ids, weights = found
        given = topk_ids if ids is None else ids
        if expert_map is None:
            given = given.long() - self.rank * self.num_local_experts
        self._map = expert_map
        most = self.max_num_tokens * self.num_dispatchers()
        batches, scale, meta = to_batches(rows, given, self.num_local_experts, most, expert_map, scale)
        return batches, scale, meta, ids, weights

    def prepare_async(self, *arguments: Any, **named: Any) -> Any:
        """Starts prepare(). Returns a hook, which waits for it, and a receiver, which returns its result, once."""
        hook, receive = self.inner.prepare_async(*arguments, **named)
        names = ("a1", "topk_weights", "topk_ids", "num_experts", "expert_map")
        given = dict(zip(names, arguments)) | named
        return hook, lambda: self._lay(receive(), given["topk_ids"], given["expert_map"])

    def _reduce(self, rows: torch.Tensor, choice: tuple[torch.Tensor, torch.Tensor], on_input: bool, impl: Any) -> Any:
        if is_kind(impl, TopKWeightAndReduceDelegate):
            impl = TopKWeightAndReduceNaiveBatched(self.rank, self._map)
        return impl.apply(None, rows, *choice, on_input)

    def finalize(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> None:
        """Weighs and adds what experts have left, and writes `output`."""
        choice = topk_weights, topk_ids
        rows = self._reduce(fused_expert_output, choice, apply_router_weight_on_input, weight_and_reduce_impl)
        self.inner.finalize(output, rows, *choice, apply_router_weight_on_input, TopKWeightAndReduceNoOP())

    def finalize_async(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> Any:
        """Starts finalize(). Returns a hook and a receiver, after which the output is valid."""
        choice = topk_weights, topk_ids
        rows = self._reduce(fused_expert_output, choice, apply_router_weight_on_input, weight_and_reduce_impl)
        return self.inner.finalize_async(output, rows, *choice, apply_router_weight_on_input, TopKWeightAndReduceNoOP())


class NoEPLogits:
    """What NoEP is for experts that route themselves."""

    activation_format = ActivationFormat.Standard

    def prepare(
        self, a1: torch.Tensor, router_logits: torch.Tensor, quant_config: Any, defer_input_quant: bool = False
    ) -> tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor]:
        """Returns rows, their scales and the logits."""
        rows, scale = (a1, None) if defer_input_quant else quantize_input(a1, quant_config)
        return rows, scale, router_logits

    def finalize(self, fused_expert_output: torch.Tensor) -> torch.Tensor:
        """Returns the experts' output."""
        return fused_expert_output
