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
    ids = ids.contiguous()
    device = ids.device
    found = SortedSlots(
        torch.zeros(num_groups + 1, dtype=torch.int32, device=device), torch.empty_like(ids)
    )
    # The sorted weights are not used, so any bits are valid.
    tensors = {"topk_ids": ids, "topk_weights": ids.view(torch.float32)}
    text = write_function(inputs, outputs, body, round_tokens(tokens))
    run(text, tokens, tensors | found._asdict(), "topk_ids")
    return found


def round_up(numbers: torch.Tensor, multiple: int) -> torch.Tensor:
    return (numbers + (multiple - 1)) // multiple * multiple


def _check_rows(tensor: torch.Tensor, argument: str) -> None:
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
    tokens, top_k = topk_ids.shape
    if hidden_states.shape[0] != tokens:
        raise InvalidArgument(
            f"topk_ids: {hidden_states.shape[0]} rows expected, as hidden_states has, {tokens} found"
        )
    local = n_expert if n_local_expert == -1 else n_local_expert
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
    rows, width = permuted_hidden_states.shape
    tokens, top_k = topk_weights.shape
    if out.shape != (tokens, width) or out.dtype != permuted_hidden_states.dtype:
        raise InvalidArgument(
            f"out: [{tokens}, {width}] of {permuted_hidden_states.dtype} expected, "
            f"{list(out.shape)} of {out.dtype} found"
        )
    if rows < tokens:
        raise InvalidArgument(
            f"permuted_hidden_states: at least {tokens} rows expected, {rows} found"
        )
    dtype = element(out.dtype, "out")
    position = read_ids(inv_permuted_idx).view(tokens, top_k)
    position = torch.where(position < rows, position, -1)
    if expert_first_token_offset is not None:
        position = torch.where(position < expert_first_token_offset[-1], position, -1)
    # Rows without a slot keep the weight 0; ignored slots write after the last row.
    row_weight = torch.zeros(rows + 1, 1, dtype=torch.float32, device=out.device)
    order = torch.where(position < 0, rows, position).long().view(-1)
    row_weight[order, 0] = topk_weights.float().view(-1)
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
    weighted = torch.empty_like(permuted_hidden_states)
    tensors = {"rows": permuted_hidden_states.contiguous(), "row_weight": row_weight[:rows]}
    run(weigh, rows, tensors | {"weighted": weighted}, "permuted_hidden_states")
    positions = f"tensor<?x{top_k}xi32>"
    # There are more rows than tokens, so the part is compiled for the number of rows.
    reduce = write_function(
        {"rows": matrix, "position": positions},
        {"output": matrix},
        f"  %output = moe.unpermute %rows, %position : {matrix}, {positions} -> {matrix}",
        round_tokens(max(rows, tokens)),
    )
    target = out if out.is_contiguous() else torch.empty_like(out).contiguous()
    tensors = {"rows": weighted, "position": position.contiguous(), "output": target}
    run(reduce, tokens, tensors, "out")
    if target is not out:
        out.copy_(target)
