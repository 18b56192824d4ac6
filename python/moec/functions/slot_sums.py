# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums over the slots of a token, and the pair of functions that moe_permute and moe_unpermute replaced in vLLM.

A compiled moe.unpermute computes the sums."""

from __future__ import annotations

from typing import Optional

import torch

from .. import InvalidArgument
from .alignment import moe_align_block_size
from .arguments import check_tensor
from .expert_maps import map_ids, read_ids
from .outputs import check_output
from .permutation import moe_unpermute
from .sublayers import element, round_tokens, run, write_function


@torch.no_grad()
def moe_sum(
    input: torch.Tensor,
    output: torch.Tensor,
    topk_ids: Optional[torch.Tensor] = None,
    expert_map: Optional[torch.Tensor] = None,
) -> None:
    """Computes output[t] = sum over k of input[t, k], in f32 and in order of k, rounded once at the end.

    input: [T, k, H], f32, bf16 or f16, with any strides.
    output: [T, H] of the same dtype.
    topk_ids: [T, k]; slots with a negative id are left out, whatever their rows hold.
    expert_map: i32 [E], with topk_ids: slots whose expert maps to a negative id are left out as well.

    Raises InvalidArgument."""
    check_tensor(input, "input")
    if input.dim() != 3:
        raise InvalidArgument(f"input: [T, k, H] expected, {list(input.shape)} found")
    tokens, top_k, width = input.shape
    check_tensor(output, "output")
    check_output(output, "output", (tokens, width), input)
    position = torch.arange(tokens * top_k, dtype=torch.int32, device=input.device).view(tokens, top_k)
    if topk_ids is not None:
        check_tensor(topk_ids, "topk_ids", like=input)
        if topk_ids.shape != (tokens, top_k):
            raise InvalidArgument(
                f"topk_ids: {[tokens, top_k]} expected, as input has, {list(topk_ids.shape)} found"
            )
        ids = read_ids(topk_ids)
        ids = ids if expert_map is None else map_ids(ids, expert_map)
        position = torch.where(ids < 0, -1, position)
    elif expert_map is not None:
        raise InvalidArgument("expert_map: needs topk_ids")
    dtype = element(input.dtype, "input")
    matrix, positions = f"tensor<?x{width}x{dtype}>", f"tensor<?x{top_k}xi32>"
    # The part is compiled for the number of rows, of which there are at least as many as tokens.
    text = write_function(
        {"rows": matrix, "position": positions},
        {"output": matrix},
        f"  %output = moe.unpermute %rows, %position : {matrix}, {positions} -> {matrix}",
        round_tokens(tokens * top_k),
    )
    target = output if output.is_contiguous() else torch.empty_like(output).contiguous()
    tensors = {"rows": input.contiguous().view(-1, width), "position": position, "output": target}
    run(text, tokens, tensors, "output")
    if target is not output:
        output.copy_(target)


@torch.no_grad()
def _moe_permute(
    curr_hidden_states: torch.Tensor,
    a1q_scale: Optional[torch.Tensor],
    curr_topk_ids: torch.Tensor,
    global_num_experts: int,
    expert_map: Optional[torch.Tensor],
    block_m: int,
) -> tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor, torch.Tensor, torch.Tensor]:
    """Copies rows of curr_hidden_states [T, H] by expert, each expert's padded to a multiple of block_m.

    Returns rows [P, H], a1q_scale with its rows permuted likewise (a scale of all rows as it is), the slot of each row
    (i32 [P]; padding has the last slot), the expert of each row (i32 [P]) and the row of each slot (i64 [T * k]; P for a
    slot whose id names no expert). Raises InvalidArgument."""
    check_tensor(curr_hidden_states, "curr_hidden_states", 2)
    check_tensor(curr_topk_ids, "curr_topk_ids", 2, curr_hidden_states)
    tokens, top_k = curr_topk_ids.shape
    if curr_hidden_states.shape[0] != tokens:
        raise InvalidArgument(
            f"curr_topk_ids: {curr_hidden_states.shape[0]} rows expected, as curr_hidden_states has, {tokens} found")
    if a1q_scale is not None:
        check_tensor(a1q_scale, "a1q_scale", like=curr_hidden_states)
    slots = tokens * top_k
    sorted_ids, expert_ids, _ = moe_align_block_size(
        curr_topk_ids, block_m, global_num_experts, expert_map, pad_sorted_ids=True
    )
    rows = sorted_ids.numel()
    expert_ids = expert_ids.repeat_interleave(int(block_m))[:rows]
    inverse = torch.full((slots + 1,), rows, dtype=torch.int64, device=sorted_ids.device)
    inverse[sorted_ids.long()] = torch.arange(rows, device=sorted_ids.device)
    inverse, sorted_ids = inverse[:slots], sorted_ids.clamp(max=max(slots - 1, 0))
    source = sorted_ids.long() // top_k
    scale = a1q_scale
    if scale is not None and scale.dim() > 1 and scale.shape[0] == tokens:
        scale = scale[source]
    return curr_hidden_states[source], scale, sorted_ids, expert_ids, inverse


@torch.no_grad()
def _moe_unpermute_and_reduce(
    out: torch.Tensor,
    curr_hidden: torch.Tensor,
    inv_perm: Optional[torch.Tensor],
    topk_weight: torch.Tensor,
    apply_router_weight_on_input: bool,
) -> None:
    """Computes out[t] = sum over k of topk_weight[t, k] * curr_hidden[inv_perm[t, k]], without the weights if these
    have been applied to the input. Without inv_perm the rows are those of the slots in order.

    out: [T, H]. curr_hidden: [P, H]. topk_weight: [T, k]. Raises InvalidArgument."""
    check_tensor(topk_weight, "topk_weight", 2)
    check_tensor(out, "out", 2)
    check_tensor(curr_hidden, "curr_hidden")
    if not curr_hidden.dim() or curr_hidden.shape[-1] != out.shape[1]:
        raise InvalidArgument(
            f"curr_hidden: rows of {out.shape[1]} elements expected, as out has, {list(curr_hidden.shape)} found")
    tokens, top_k = topk_weight.shape
    if inv_perm is None:
        inv_perm = torch.arange(tokens * top_k, device=out.device)
    if apply_router_weight_on_input:
        topk_weight = torch.ones_like(topk_weight)
    moe_unpermute(out, curr_hidden.reshape(-1, out.shape[1]), topk_weight, inv_perm)
