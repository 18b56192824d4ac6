# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slots sorted into blocks of one expert each, and their counts, as inputs of other engines' kernels.

A compiled moe.permute gives the order of slots; the rest is tensor arithmetic on its offsets, on the device."""

from __future__ import annotations

from typing import Optional

import torch

from .. import InvalidArgument
from .arguments import check_count, check_expert_map, check_integers, check_tensor
from .expert_maps import map_ids, read_ids
from .permutation import round_up, sort_slots


#: Elements of a result, a bound on memory.
_MOST_ELEMENTS = 2**31 - 1


def _check_capacity(capacity: int, argument: str) -> None:
    if capacity > _MOST_ELEMENTS:
        raise InvalidArgument(
            f"{argument}: the result would have {capacity} elements; at most {_MOST_ELEMENTS} are accepted")


def _name_blocks(starts: torch.Tensor, blocks: int, block_size: int) -> torch.Tensor:
    """Returns the group of each block, -1 after the last group; group g has positions starts[g] to starts[g + 1] - 1.
    """
    begins = torch.arange(blocks, device=starts.device) * block_size
    groups = torch.searchsorted(starts[1:].contiguous(), begins, right=True)
    return torch.where(begins < starts[-1], groups, -1)


@torch.no_grad()
def moe_align_block_size(
    topk_ids: torch.Tensor,
    block_size: int,
    num_experts: int,
    expert_map: Optional[torch.Tensor] = None,
    pad_sorted_ids: bool = False,
    ignore_invalid_experts: bool = False,
    return_scatter_idx: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Sorts the slots of topk_ids [T, k] by expert and pads the slots of each expert to a multiple of block_size.

    expert_map: i32 [num_experts], global to local ids. With ignore_invalid_experts, slots mapped to -1 are left out and
        expert_ids are local; otherwise all slots are kept, and blocks of experts on other ranks have the id -1.
    pad_sorted_ids: pads the length of sorted_ids to a multiple of block_size.
    return_scatter_idx: adds a fourth result, i32 [T * k, 1]: the slot, or -1 if it was left out.

    Returns sorted_ids, i32 (slots, T * k for padding; long enough for any routing), expert_ids, i32 (one per block, -1
    after the last), and num_tokens_post_pad, i32 [1]. Ids that name no expert are left out. Slots of one expert keep
    their order. Raises InvalidArgument."""
    block_size = check_count(block_size, "block_size")
    num_experts = check_count(num_experts, "num_experts")
    check_tensor(topk_ids, "topk_ids", 2)
    if expert_map is not None:
        check_expert_map(expert_map, topk_ids, num_experts)
    if return_scatter_idx and expert_map is not None and not ignore_invalid_experts:
        raise InvalidArgument(
            "return_scatter_idx: with expert_map it needs ignore_invalid_experts=True"
        )
    ids = read_ids(topk_ids)
    if expert_map is not None and ignore_invalid_experts:
        ids = map_ids(ids, expert_map)
    device, slots = ids.device, ids.numel()
    capacity = slots + num_experts * (block_size - 1)
    if pad_sorted_ids:
        capacity = -(-capacity // block_size) * block_size
    if slots < num_experts:
        capacity = min(slots * block_size, capacity)
    _check_capacity(capacity, "block_size")
    order = sort_slots(ids, num_experts)
    offsets = order.offsets.long()
    starts = torch.zeros_like(offsets)
    torch.cumsum(round_up(offsets.diff(), block_size), 0, out=starts[1:])
    position, flat = order.position.view(-1), ids.reshape(-1).long()
    is_counted = position >= 0
    shift = (starts - offsets)[flat.clamp(0, num_experts - 1)]
    index = torch.where(is_counted, position + shift, capacity)
    slot = torch.arange(slots, dtype=torch.int32, device=device)
    sorted_ids = torch.full((capacity + 1,), slots, dtype=torch.int32, device=device)
    sorted_ids[index] = slot
    expert_ids = _name_blocks(starts, -(-capacity // block_size), block_size)
    if expert_map is not None and not ignore_invalid_experts:
        expert_ids = map_ids(expert_ids, expert_map)
    found = (sorted_ids[:capacity], expert_ids.to(torch.int32), starts[-1:].to(torch.int32))
    if not return_scatter_idx:
        return found
    return (*found, torch.where(is_counted, slot, -1).to(torch.int32).view(-1, 1))


@torch.no_grad()
def batched_moe_align_block_size(
    max_tokens_per_batch: int, block_size: int, expert_num_tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sorts rows of the batched format: row i of expert e has the index e * max_tokens_per_batch + i, and padding has
    the total number of rows.

    expert_num_tokens: [E], the number of valid rows per expert, clamped to 0 .. max_tokens_per_batch.

    Returns the same three tensors as moe_align_block_size()."""
    block_size = check_count(block_size, "block_size")
    max_tokens_per_batch = check_count(max_tokens_per_batch, "max_tokens_per_batch", least=0)
    check_integers(expert_num_tokens, "expert_num_tokens", 1)
    experts, device = expert_num_tokens.shape[0], expert_num_tokens.device
    capacity = experts * (-(-max_tokens_per_batch // block_size) * block_size)
    _check_capacity(capacity, "max_tokens_per_batch")
    counts = expert_num_tokens.long().clamp(0, max_tokens_per_batch)
    starts = torch.zeros(experts + 1, dtype=torch.int64, device=device)
    torch.cumsum(round_up(counts, block_size), 0, out=starts[1:])
    index = torch.arange(capacity, device=device)
    expert = torch.searchsorted(starts[1:].contiguous(), index, right=True).clamp(max=experts - 1)
    row = index - starts[expert]
    padding = experts * max_tokens_per_batch
    is_row = (index < starts[-1]) & (row < counts[expert])
    sorted_ids = torch.where(is_row, expert * max_tokens_per_batch + row, padding)
    expert_ids = _name_blocks(starts, capacity // block_size, block_size)
    return sorted_ids.to(torch.int32), expert_ids.to(torch.int32), starts[-1:].to(torch.int32)


@torch.no_grad()
def count_expert_num_tokens(
    topk_ids: torch.Tensor, num_local_experts: int, expert_map: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Returns the number of slots of each local expert, i32 [num_local_experts]. Ids that name no expert, and ids that
    expert_map maps below 0, are not counted."""
    num_local_experts = check_count(num_local_experts, "num_local_experts")
    ids = read_ids(topk_ids)
    if expert_map is not None:
        ids = map_ids(ids, expert_map)
    return sort_slots(ids.reshape(-1, 1), num_local_experts).offsets.diff()
