# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sorts rows by expert and combines them again.

A compiled moe.permute computes positions; a compiled moe.row_map and moe.unpermute compute the weighted sums. Padding
to blocks is tensor arithmetic on offsets, and rows are copied by PyTorch's index_select, since layer parts have no
separate gather."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

import torch

from .. import InvalidArgument
from .arguments import check_count, check_expert_map, check_integers, check_numbers, check_tensor
from .expert_maps import map_ids, read_ids
from .outputs import check_output
from .sublayers import element, round_tokens, run, write_function


class SortedSlots(NamedTuple):
    """Positions of slots (token, choice) after a stable sort by group."""

    #: i32 [G + 1]: group g has positions offsets[g] to offsets[g + 1] - 1.
    offsets: torch.Tensor
    #: i32 [T, k]: position of a slot, or -1 if its id names no group.
    position: torch.Tensor


def sort_slots(ids: torch.Tensor, num_groups: int) -> SortedSlots:
    """Sorts slots stably by their ids, i32 [T, k]."""
    tokens, top_k = ids.shape
    positions = f"tensor<?x{top_k}xi32>"
    slots = f"tensor<?x{top_k}xf32>"
    inputs = {"topk_ids": positions, "topk_weights": slots}
    outputs = {"offsets": f"tensor<{num_groups + 1}xi32>", "position": positions}
    body = (
        "  %offsets, %position, %source, %row_weight = moe.permute %topk_ids, %topk_weights "
        f"{{num_experts = {num_groups} : i64}} : {positions}, {slots} -> {outputs['offsets']}, "
        f"{positions}, tensor<?xi32>, tensor<?x1xf32>"
    )
    # A view as f32 needs a last dimension without gaps, which one of size 1 may have.
    ids = ids.contiguous().view(-1).view(tokens, top_k)
    device = ids.device
    found = SortedSlots(
        torch.zeros(num_groups + 1, dtype=torch.int32, device=device), torch.empty_like(ids)
    )
    # The sorted weights are not used, so any bits are valid.
    tensors = {"topk_ids": ids, "topk_weights": ids.view(torch.float32)}
    text = write_function(inputs, outputs, body, round_tokens(tokens))
    run(text, tokens, tensors | found._asdict(), "topk_ids")
    return found


#: A bound on groups and on rows of a block.
_MOST_GROUPS = 2**24


def round_up(numbers: torch.Tensor, multiple: int) -> torch.Tensor:
    return (numbers + (multiple - 1)) // multiple * multiple


def _check_rows(tensor: torch.Tensor, argument: str) -> None:
    check_tensor(tensor, argument)
    if tensor.dim() != 2 or tensor.shape[1] * tensor.element_size() % 16:
        raise InvalidArgument(
            f"{argument}: a matrix whose rows are multiples of 16 bytes expected, "
            f"{list(tensor.shape)} of {tensor.dtype} found"
        )


def _check_scratch(scratch: Any, n_expert: int, local: int) -> None:
    if scratch is None:
        return
    try:
        found = scratch.num_experts, scratch.num_local_experts
    except AttributeError:
        raise InvalidArgument(
            f"scratch: vLLM's MoEPermuteScratch expected, {type(scratch).__name__} found; options of moec's "
            "own (align_block_size, fill_invalid_expert) are keywords"
        ) from None
    if found != (n_expert, local):
        raise InvalidArgument(
            f"scratch: one for {n_expert} experts, {local} of them local, expected, "
            f"{found[0]} and {found[1]} found"
        )


def _check_output(output: Any, shape: tuple[int, int], rows: torch.Tensor) -> None:
    if output is not None and not isinstance(output, torch.Tensor):
        raise InvalidArgument(
            f"permuted_hidden_states: a tensor expected, {type(output).__name__} found; align_block_size and "
            "fill_invalid_expert are keywords"
        )
    check_output(output, "permuted_hidden_states", shape, rows)


@torch.no_grad()
def moe_permute(
    hidden_states: torch.Tensor,
    a1q_scale: Optional[torch.Tensor],
    topk_ids: torch.Tensor,
    n_expert: int,
    n_local_expert: int = -1,
    expert_map: Optional[torch.Tensor] = None,
    permuted_hidden_states: Optional[torch.Tensor] = None,
    scratch: Any = None,
    *,
    align_block_size: Optional[int] = None,
    fill_invalid_expert: int = -1,
) -> tuple[Optional[torch.Tensor], ...]:
    """Copies rows of hidden_states [T, H], one per slot of topk_ids [T, k], sorted by local expert; slots of one expert
    keep their order. Slots of experts on other ranks (expert_map, i32 [n_expert]) come after all others, followed by
    slots whose id names no expert.

    a1q_scale: scales of rows, [T, ...], permuted with them; with rank 1 or less it is returned unchanged.
    permuted_hidden_states: [P, H], receives the rows.
    scratch: vLLM's MoEPermuteScratch for as many experts. It is not used: results have their own memory.
    align_block_size: the rows of each expert begin at a multiple of it; rows in between are not written.
    fill_invalid_expert: value of m_indices for rows of no expert.

    Returns rows [P, H], scales, expert_first_token_offset (i64 [n_local_expert + 1]), inv_permuted_idx (i32 [T * k],
    the row of a slot), permuted_idx (i32 [P], the slot of a row, T * k if there is none) and, with align_block_size,
    m_indices (i32 [P], the expert of a row). P is T * k; with align_block_size it is large enough for any routing.
    Raises InvalidArgument."""
    _check_rows(hidden_states, "hidden_states")
    check_tensor(topk_ids, "topk_ids", 2, hidden_states)
    tokens, top_k = topk_ids.shape
    if hidden_states.shape[0] != tokens:
        raise InvalidArgument(
            f"topk_ids: {hidden_states.shape[0]} rows expected, as hidden_states has, {tokens} found"
        )
    n_expert = check_count(n_expert, "n_expert", most=_MOST_GROUPS)
    local = n_expert if n_local_expert == -1 else check_count(n_local_expert, "n_local_expert", 0, n_expert)
    if align_block_size is not None:
        align_block_size = check_count(align_block_size, "align_block_size", most=_MOST_GROUPS)
    check_count(fill_invalid_expert, "fill_invalid_expert", least=-2**31)
    if expert_map is not None:
        check_expert_map(expert_map, hidden_states, n_expert)
    if a1q_scale is not None:
        check_tensor(a1q_scale, "a1q_scale", like=hidden_states)
        if a1q_scale.dim() > 1 and a1q_scale.shape[0] != tokens:
            raise InvalidArgument(
                f"a1q_scale: {tokens} rows expected, as hidden_states has, {a1q_scale.shape[0]} found")
    _check_scratch(scratch, n_expert, local)
    # Groups: local experts, experts on other ranks, invalid ids.
    ids = read_ids(topk_ids)
    is_expert = (ids >= 0) & (ids < n_expert)
    if expert_map is not None:
        mapped = map_ids(ids, expert_map)
        ids = torch.where(mapped < 0, ids + local, mapped)
    ids = torch.where(is_expert, ids, local + n_expert)
    order = sort_slots(ids, local + n_expert + 1)
    slots = tokens * top_k
    device = hidden_states.device
    offsets, inverse = order.offsets[: local + 1].long(), order.position.view(-1)
    rows = slots
    if align_block_size is not None:
        rows = -(-(slots + n_expert * (align_block_size - 1)) // align_block_size) * align_block_size
        aligned = torch.zeros_like(offsets)
        torch.cumsum(round_up(offsets.diff(), align_block_size), 0, out=aligned[1:])
        flat = ids.view(-1).long()
        shift = (aligned - offsets)[flat.clamp(0, local)]
        inverse = torch.where(flat < local, inverse + shift, aligned[-1]).to(torch.int32)
        offsets = aligned
    _check_output(permuted_hidden_states, (rows, hidden_states.shape[1]), hidden_states)
    row_of_slot = torch.where(inverse < offsets[-1], inverse, rows).long()
    permuted_idx = torch.full((rows + 1,), slots, dtype=torch.int32, device=device)
    permuted_idx[row_of_slot] = torch.arange(slots, dtype=torch.int32, device=device)
    permuted_idx[rows] = slots
    permuted_idx = permuted_idx[:rows]
    if align_block_size is None:
        # Rows of experts on other ranks are included.
        source = torch.empty(rows, dtype=torch.int64, device=device)
        source[inverse.long()] = torch.arange(slots, device=device) // top_k
    else:
        source = permuted_idx.clamp(max=max(slots - 1, 0)) // top_k
    permuted = torch.index_select(hidden_states, 0, source, out=permuted_hidden_states)
    if a1q_scale is not None and a1q_scale.dim() > 1:
        a1q_scale = a1q_scale[source]
    found = (permuted, a1q_scale, offsets, inverse, permuted_idx)
    if align_block_size is None:
        return found
    expert = torch.searchsorted(offsets[1:], torch.arange(rows, device=device), right=True)
    m_indices = torch.where(expert < local, expert, fill_invalid_expert).to(torch.int32)
    return (*found, m_indices)


@torch.no_grad()
def moe_unpermute(
    out: torch.Tensor,
    permuted_hidden_states: torch.Tensor,
    topk_weights: torch.Tensor,
    inv_permuted_idx: torch.Tensor,
    expert_first_token_offset: Optional[torch.Tensor] = None,
) -> None:
    """Computes out[t] = sum over k of topk_weights[t, k] * permuted_hidden_states[inv_permuted_idx[t, k]].

    Each product is rounded to the dtype of the rows. The sum is f32, in order of k, and is rounded once at the end
    (docs/use/layers.md, formulas 8 and 9). Rows from the last entry of expert_first_token_offset on are not read and
    contribute nothing, and neither does an index that names no row.

    out: [T, H].
    permuted_hidden_states: [P, H], f32, bf16 or f16.
    topk_weights: [T, k].
    inv_permuted_idx: [T * k] or [T, k].

    Raises InvalidArgument."""
    _check_rows(permuted_hidden_states, "permuted_hidden_states")
    check_tensor(topk_weights, "topk_weights", 2, permuted_hidden_states)
    check_integers(inv_permuted_idx, "inv_permuted_idx", None, permuted_hidden_states)
    rows, width = permuted_hidden_states.shape
    tokens, top_k = topk_weights.shape
    if inv_permuted_idx.numel() != tokens * top_k:
        raise InvalidArgument(
            f"inv_permuted_idx: {tokens * top_k} elements expected, as topk_weights has, "
            f"{inv_permuted_idx.numel()} found")
    _check_sums(out, tokens, permuted_hidden_states)
    position = read_ids(inv_permuted_idx).reshape(tokens, top_k)
    position = torch.where(position < rows, position, -1)
    if expert_first_token_offset is not None:
        check_integers(expert_first_token_offset, "expert_first_token_offset", 1, permuted_hidden_states)
        if not expert_first_token_offset.numel():
            raise InvalidArgument("expert_first_token_offset: at least one element expected, none found")
        position = torch.where(position < expert_first_token_offset[-1], position, -1)
    # Slots may share a row, so each gets a row of its own.
    source = position.clamp(min=0).long().view(-1)
    slots = (permuted_hidden_states.index_select(0, source) if rows
             else permuted_hidden_states.new_zeros(tokens * top_k, width))
    number = torch.arange(tokens * top_k, dtype=torch.int32, device=position.device).view(tokens, top_k)
    sum_slots(out, slots, topk_weights, torch.where(position < 0, -1, number))


def _check_sums(out: torch.Tensor, tokens: int, rows: torch.Tensor) -> None:
    check_tensor(out, "out", 2, rows)
    check_output(out, "out", out.shape, out)
    if out.shape != (tokens, rows.shape[1]) or out.dtype != rows.dtype:
        raise InvalidArgument(
            f"out: [{tokens}, {rows.shape[1]}] of {rows.dtype} expected, {list(out.shape)} of {out.dtype} found")


def sum_slots(
    out: torch.Tensor, slots: torch.Tensor, topk_weights: torch.Tensor, position: torch.Tensor
) -> None:
    """Computes the sums of moe_unpermute() from a row for each slot, [T * k, H].

    position: i32 [T, k], the number of a slot, or -1 if it contributes nothing."""
    check_numbers(topk_weights, "topk_weights")
    tokens, top_k = topk_weights.shape
    rows, width = slots.shape
    _check_sums(out, tokens, slots)
    dtype = element(out.dtype, "out")
    weights = torch.where(position < 0, 0, topk_weights.float()).reshape(-1, 1).contiguous()
    matrix, column = f"tensor<?x{width}x{dtype}>", "tensor<?x1xf32>"
    weigh = write_function(
        {"rows": matrix, "row_weight": column},
        {"weighted": matrix},
        f"  %weighted = moe.row_map %rows : {matrix} rows(%row_weight : {column}) {{\n"
        "  ^bb0(%value: f32, %weight: f32):\n"
        "    %product = arith.mulf %value, %weight : f32\n"
        "    moe.yield %product : f32\n"
        f"  }} -> {matrix}",
        round_tokens(rows),
    )
    weighted = torch.empty_like(slots, memory_format=torch.contiguous_format)
    tensors = {"rows": slots.contiguous(), "row_weight": weights}
    run(weigh, rows, tensors | {"weighted": weighted}, "permuted_hidden_states")
    positions = f"tensor<?x{top_k}xi32>"
    # There are more rows than tokens, so the part is compiled for the number of rows.
    reduce = write_function(
        {"rows": matrix, "position": positions},
        {"output": matrix},
        f"  %output = moe.unpermute %rows, %position : {matrix}, {positions} -> {matrix}",
        round_tokens(rows),
    )
    target = out if out.is_contiguous() else torch.empty_like(out).contiguous()
    tensors = {"rows": weighted, "position": position.contiguous(), "output": target}
    run(reduce, tokens, tensors, "out")
    if target is not out:
        out.copy_(target)
