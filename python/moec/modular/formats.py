# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Activation formats between prepare, experts and finalize, and the way from one to the other."""

from __future__ import annotations

import enum
from typing import Optional

import torch

from .. import InvalidArgument
from ..functions.expert_maps import map_ids, read_ids
from ..functions.permutation import sort_slots
from .metadata import ExpertTokensMetadata


class ActivationFormat(enum.Enum):
    """Rows of tokens [T, H] (Standard), or rows of each expert [E, M, H] with counts (BatchedExperts)."""

    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


def find_rows(topk_ids: torch.Tensor, num_local_experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the row of each slot within its expert's batch, i32 [T, k], -1 for ids of no local expert; and the number
    of rows of each expert, i32 [E]. Tokens keep their order, and a token that names an expert twice has one row."""
    ids = read_ids(topk_ids)
    ids = torch.where((ids >= 0) & (ids < num_local_experts), ids, -1)
    top_k = ids.shape[1]
    # The first slot with the id of each slot.
    first = (ids[:, :, None] == ids[:, None, :]).int().argmax(2)
    is_first = first == torch.arange(top_k, device=ids.device)
    order = sort_slots(torch.where(is_first, ids, -1), num_local_experts)
    begin = order.offsets[ids.clamp(min=0).long()]
    row = (order.position - begin).gather(1, first)
    return torch.where(ids < 0, -1, row).to(torch.int32), order.offsets.diff()


def to_batches(
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    num_local_experts: int,
    max_num_tokens: int,
    expert_map: Optional[torch.Tensor] = None,
    scale: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, Optional[torch.Tensor], ExpertTokensMetadata]:
    """Lays the rows of tokens [T, H] into the batches of their experts.

    topk_ids: [T, k], of any type of integers.
    max_num_tokens: rows of a batch; at least T, since a token has at most one row in it.
    expert_map: i32, from ids to local experts; -1 for those of other ranks.
    scale: [T, ...] of quantized rows; one for all rows stays as it is.

    Returns [E, M, H] with zeros in the other rows, scales [E, M, ...], and the counts. Raises InvalidArgument."""
    tokens = hidden_states.shape[0]
    if tokens > max_num_tokens:
        raise InvalidArgument(
            f"max_num_tokens: at least {tokens} expected, as hidden_states has rows, {max_num_tokens} found")
    ids = topk_ids if expert_map is None else map_ids(read_ids(topk_ids), expert_map)
    row, counts = find_rows(ids, num_local_experts)
    # Slots of no local expert write to a row behind all batches.
    batch = torch.where(row < 0, num_local_experts * max_num_tokens, read_ids(ids) * max_num_tokens + row)
    batch = batch.long().reshape(-1)
    token = torch.arange(tokens, device=row.device).repeat_interleave(row.shape[1])

    def lay(rows: torch.Tensor) -> torch.Tensor:
        made = rows.new_zeros((num_local_experts * max_num_tokens + 1, *rows.shape[1:]))
        # Types of 8 bits have no kernels for indices.
        as_bytes = rows.view(torch.uint8) if rows.element_size() == 1 else rows
        target = made.view(torch.uint8) if rows.element_size() == 1 else made
        target[batch] = as_bytes[token]
        return made[:-1].view(num_local_experts, max_num_tokens, *rows.shape[1:])

    has_rows = scale is not None and scale.dim() > 1 and scale.shape[0] == tokens
    return lay(hidden_states), lay(scale) if has_rows else scale, ExpertTokensMetadata(counts, None)


def from_batches(
    batches: torch.Tensor, topk_ids: torch.Tensor, expert_map: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Takes the rows of slots out of batches [E, M, H] that to_batches() has laid: [T, k, H], zeros for slots of no
    local expert."""
    experts, rows, hidden = batches.shape
    ids = read_ids(topk_ids) if expert_map is None else map_ids(read_ids(topk_ids), expert_map)
    row, _ = find_rows(ids, experts)
    at = torch.where(row < 0, 0, ids * rows + row).long()
    slots = batches.reshape(-1, hidden)[at.reshape(-1)].view(*row.shape, hidden)
    return torch.where(row[..., None] < 0, torch.zeros((), dtype=slots.dtype, device=slots.device), slots)
