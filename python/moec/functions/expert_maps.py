# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps from global to local expert ids of a rank, computed once on the host."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import InvalidArgument
from .arguments import check_count, check_expert_map, check_tensor


#: More experts than any model has.
_MOST_EXPERTS = 2**20


def _count_local(ep_size: int, ep_rank: int, num_experts: int) -> int:
    ep_size = check_count(ep_size, "ep_size")
    ep_rank = check_count(ep_rank, "ep_rank", least=0)
    num_experts = check_count(num_experts, "global_num_experts", most=_MOST_EXPERTS)
    if ep_rank >= ep_size:
        raise InvalidArgument(f"ep_rank: {ep_rank} found; 0 to {ep_size - 1} are accepted")
    if num_experts < ep_size:
        raise InvalidArgument(
            f"global_num_experts: {num_experts} found, at least one for each of {ep_size} ranks expected"
        )
    return num_experts // ep_size + (ep_rank < num_experts % ep_size)


def determine_expert_map(
    ep_size: int,
    ep_rank: int,
    global_num_experts: int,
    expert_placement_strategy: str = "linear",
    num_fused_shared_experts: int = 0,
    return_expert_mask: bool = False,
) -> tuple[int, Optional[torch.Tensor], Optional[torch.Tensor]]:
    """Returns the number of experts on a rank and their map, i32 [global_num_experts]: the local id of each global
    expert, or -1 if it is on another rank. If the division has a remainder, the first ranks hold one more.

    expert_placement_strategy: "linear" (consecutive ids) or "round_robin" (expert g on rank g mod ep_size).
    num_fused_shared_experts: number of shared experts that each rank holds after its own; they are appended to the map,
        with return_expert_mask.
    return_expert_mask: adds a third result, i32 [global_num_experts + num_fused_shared_experts + 1]: 1 for local
        experts, and 0 at the end.

    Returns None as map with one rank. Raises InvalidArgument."""
    local = _count_local(ep_size, ep_rank, global_num_experts)
    ep_size, ep_rank, global_num_experts = int(ep_size), int(ep_rank), int(global_num_experts)
    if ep_size == 1:
        return global_num_experts, None, None
    if expert_placement_strategy == "linear":
        base, more = divmod(global_num_experts, ep_size)
        begin = ep_rank * base + min(ep_rank, more)
        held = torch.arange(begin, begin + local)
    elif expert_placement_strategy == "round_robin":
        held = torch.arange(ep_rank, global_num_experts, ep_size)
    else:
        raise InvalidArgument(
            f'expert_placement_strategy: {expert_placement_strategy!r} found; "linear" and '
            '"round_robin" are accepted'
        )
    expert_map = torch.full((global_num_experts,), -1, dtype=torch.int32)
    expert_map[held] = torch.arange(local, dtype=torch.int32)
    if not return_expert_mask:
        return local, expert_map, None
    shared = torch.arange(local, local + num_fused_shared_experts, dtype=torch.int32)
    expert_map = torch.cat([expert_map, shared])
    mask = torch.cat([(expert_map >= 0).to(torch.int32), torch.zeros(1, dtype=torch.int32)])
    return local, expert_map, mask


def make_round_robin_tables(
    ep_size: int, ep_rank: int, global_num_experts: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns tables for a dispatch that assumes consecutive ids per rank, for experts placed round-robin.

    Returns three i64 tensors: the physical id of each global one ([E]: the rank's first id plus the local id), the
    global id of each physical one ([E]), and the global ids of this rank's experts ([E_local])."""
    _count_local(ep_size, ep_rank, global_num_experts)
    ep_size, ep_rank, global_num_experts = int(ep_size), int(ep_rank), int(global_num_experts)
    ids = torch.arange(global_num_experts)
    base, more = divmod(global_num_experts, ep_size)
    rank, local = ids % ep_size, ids // ep_size
    physical = rank * base + rank.clamp(max=more) + local
    inverse = torch.empty_like(physical)
    inverse[physical] = ids
    return physical, inverse, ids[ep_rank::ep_size]


def describe_placement(expert_map: torch.Tensor, num_local: int) -> dict[str, Any]:
    """Returns the `num_experts` and `placement` fields of a spec for a rank that holds some of the experts.
    Synchronizes with the device to read the map. Raises InvalidArgument if a local id occurs twice or not at all."""
    local = expert_map.tolist()
    held = sorted((at, expert) for expert, at in enumerate(local) if at >= 0)
    if [at for at, _ in held] != list(range(num_local)):
        raise InvalidArgument(
            f"expert_map: the local ids 0 to {num_local - 1} expected, each once, {[at for at, _ in held]} found"
        )
    return {
        "num_experts": len(local), "placement": {"num_ranks": 1, "local_experts": [expert for _, expert in held]},
    }


def read_ids(topk_ids: torch.Tensor) -> torch.Tensor:
    """Returns ids as i32. Ids outside i32 name no expert and become -1 or the largest i32. Raises InvalidArgument for
    ids that are not integers."""
    check_tensor(topk_ids, "topk_ids")
    if topk_ids.dtype == torch.int32:
        return topk_ids
    if topk_ids.is_floating_point() or topk_ids.is_complex() or topk_ids.dtype == torch.bool:
        raise InvalidArgument(f"topk_ids: integers expected, {topk_ids.dtype} found")
    return topk_ids.to(torch.int64).clamp(-1, torch.iinfo(torch.int32).max).to(torch.int32)


def map_ids(topk_ids: torch.Tensor, expert_map: torch.Tensor) -> torch.Tensor:
    """Returns the local ids of global ones, i32; -1 for experts on other ranks and for invalid ids. Does not
    synchronize: the map may change between replays of a CUDA graph."""
    ids = read_ids(topk_ids).long()
    check_expert_map(expert_map, ids)
    count = expert_map.shape[0]
    local = expert_map[ids.clamp(0, count - 1)]
    return torch.where((ids >= 0) & (ids < count), local, -1).to(torch.int32)
