# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What experts leave to finalize: nothing, or the weights and the sum over the experts of a token. Names and calls are
those of vLLM, whose finalize may call them, and whose objects OverRanks and NoEP accept."""

from __future__ import annotations

import abc
from typing import Any, Optional

import torch

from .. import InvalidArgument
from ..functions.expert_maps import map_ids, read_ids
from ..functions.outputs import check_output
from ..functions.permutation import sum_slots
from .formats import find_rows


class TopKWeightAndReduce(abc.ABC):
    """Weights and sum of the rows of experts."""

    @abc.abstractmethod
    def apply(
        self,
        output: Optional[torch.Tensor],
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
    ) -> torch.Tensor:
        """Returns [T, H], in `output` if it is given. With apply_router_weight_on_input the weights count as 1. Raises
        InvalidArgument for rows of another shape."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _make_output(
    output: Optional[torch.Tensor], topk_ids: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    shape = (topk_ids.shape[0], rows.shape[-1])
    check_output(output, "output", shape, rows)
    return rows.new_empty(shape) if output is None else output


def _get_weights(topk_weights: torch.Tensor, on_input: bool) -> torch.Tensor:
    return torch.ones_like(topk_weights) if on_input else topk_weights


class TopKWeightAndReduceDelegate(TopKWeightAndReduce):
    """The choice is finalize's, which knows the format of the rows."""

    def apply(
        self,
        output: Optional[torch.Tensor],
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
    ) -> torch.Tensor:
        """Returns [T, H], in `output` if it is given. Raises InvalidArgument for rows of another shape."""
        raise InvalidArgument("weight_and_reduce_impl: Delegate found, in whose place finalize chooses another")


class TopKWeightAndReduceNoOP(TopKWeightAndReduce):
    """The experts have weighed and added rows: [T, H]."""

    def apply(
        self,
        output: Optional[torch.Tensor],
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
    ) -> torch.Tensor:
        """Returns [T, H], in `output` if it is given. Raises InvalidArgument for rows of another shape."""
        if output is None or output is fused_expert_output:
            return fused_expert_output
        check_output(output, "output", fused_expert_output.shape, fused_expert_output)
        return output.copy_(fused_expert_output, non_blocking=True)


class TopKWeightAndReduceContiguous(TopKWeightAndReduce):
    """Rows of slots: [T, k, H] or [T * k, H]. Sums are those of docs/use/layers.md, formulas 8 and 9."""

    def apply(
        self,
        output: Optional[torch.Tensor],
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
    ) -> torch.Tensor:
        """Returns [T, H], in `output` if it is given. Raises InvalidArgument for rows of another shape."""
        tokens, top_k = topk_ids.shape
        if fused_expert_output.numel() != tokens * top_k * fused_expert_output.shape[-1]:
            raise InvalidArgument(
                f"fused_expert_output: [{tokens}, {top_k}, H] expected, {list(fused_expert_output.shape)} found")
        output = _make_output(output, topk_ids, fused_expert_output)
        rows = fused_expert_output.reshape(tokens * top_k, -1)
        slots = torch.arange(tokens * top_k, dtype=torch.int32, device=rows.device).view(tokens, top_k)
        sum_slots(output, rows, _get_weights(topk_weights, apply_router_weight_on_input), slots)
        return output


class TopKWeightAndReduceNaiveBatched(TopKWeightAndReduce):
    """Rows of batches: [E, M, H] of the experts of a rank, whose ids begin at rank * E.

    rank: this rank, among ranks with as many experts each.
    expert_map: i32, from ids to local experts, in place of `rank`."""

    def __init__(self, rank: int, expert_map: Optional[torch.Tensor] = None) -> None:
        self.rank = rank
        self.expert_map = expert_map

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.rank == other.rank and self.expert_map is other.expert_map

    def apply(
        self,
        output: Optional[torch.Tensor],
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
    ) -> torch.Tensor:
        """Returns [T, H], in `output` if it is given. Raises InvalidArgument for rows of another shape."""
        if fused_expert_output.dim() != 3:
            raise InvalidArgument(f"fused_expert_output: [E, M, H] expected, {list(fused_expert_output.shape)} found")
        experts, rows, hidden = fused_expert_output.shape
        ids = read_ids(topk_ids)
        ids = ids - experts * self.rank if self.expert_map is None else map_ids(ids, self.expert_map)
        row, _ = find_rows(ids, experts)
        flat = fused_expert_output.reshape(-1, hidden)
        output = _make_output(output, topk_ids, flat)
        # A token that names an expert twice reads its row twice.
        slots = flat[torch.where(row < 0, 0, ids * rows + row).long().reshape(-1)]
        numbers = torch.arange(row.numel(), dtype=torch.int32, device=row.device).view_as(row)
        weights = _get_weights(topk_weights, apply_router_weight_on_input)
        sum_slots(output, slots, weights, torch.where(row < 0, -1, numbers))
        return output


def is_kind(impl: Any, kind: type[TopKWeightAndReduce]) -> bool:
    """Returns whether an object is of a kind, of this module or of vLLM's of the same name."""
    return any(each.__name__ == kind.__name__ for each in type(impl).__mro__)
