# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Routers: a compiled moe.route selects expert ids and weights from logits."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import InvalidArgument
from .arguments import check_count, check_numbers, check_tensor
from .sublayers import describe_routing, element, round_tokens, run, write_function

_SCORES = ("softmax", "sigmoid", "sqrtsoftplus")
_INDICES = (torch.int32, torch.int64, torch.uint32)
#: dtypes of replayed ids in IR.
_REPLAYED = {torch.int32: "i32", torch.int16: "i16", torch.uint8: "i8"}


def describe_topk(scoring_func: str, renormalize: bool, scale: float = 1.0) -> dict[str, Any]:
    """Returns `routing` of a spec for fused_topk() and fused_topk_bias()."""
    return {"score": scoring_func, "renormalize": bool(renormalize), "scale": scale}


def describe_grouped_topk(
    scoring_func: str, renormalize: bool, scale: float, groups: int, kept: int
) -> dict[str, Any]:
    """Returns `routing` of a spec for grouped_topk(); 0 or 1 group means no groups."""
    routing = describe_topk(scoring_func, renormalize, scale) | {"nonfinite": "neg_inf"}
    if renormalize:
        routing["renormalize_epsilon"] = 1e-20
    if groups > 1:
        routing |= {"num_groups": groups, "topk_groups": kept}
    return routing


def _route(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    top_k: int,
    routing: dict[str, Any],
    bias: Optional[torch.Tensor],
    indices_type: Optional[torch.dtype],
    replay_ids: Optional[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    check_tensor(gating_output, "gating_output")
    check_tensor(hidden_states, "hidden_states")
    top_k = check_count(top_k, "topk", least=-2**31)
    if hidden_states.dim() < 1:
        raise InvalidArgument("hidden_states: [T, H] expected, a tensor of rank 0 found")
    if gating_output.dim() != 2:
        raise InvalidArgument(
            f"gating_output: rank 2 expected, shape {list(gating_output.shape)} found; reshape it to "
            "one row per token"
        )
    tokens, experts = gating_output.shape
    if hidden_states.shape[0] != tokens:
        raise InvalidArgument(
            f"gating_output: {hidden_states.shape[0]} rows expected, as hidden_states has, {tokens} found"
        )
    if not 1 <= top_k <= experts:
        raise InvalidArgument(f"topk: {top_k} found; 1 to {experts}, the columns of gating_output, are accepted")
    if indices_type is not None and indices_type not in _INDICES:
        raise InvalidArgument(
            f"indices_type: {indices_type} found; torch.int32, int64 and uint32 are accepted"
        )
    if routing["score"] not in _SCORES:
        raise InvalidArgument(
            f"scoring_func: {routing['score']!r} found; {', '.join(_SCORES)} are accepted"
        )
    if bias is not None:
        check_tensor(bias, "e_score_correction_bias", like=gating_output)
        check_numbers(bias, "e_score_correction_bias")
        if bias.shape != (experts,):
            raise InvalidArgument(
                f"e_score_correction_bias: shape [{experts}] expected, {list(bias.shape)} found"
            )
        routing["selection_bias"] = True
    attribute, regions = describe_routing(experts, top_k, routing)
    logits_type = f"tensor<?x{experts}x{element(gating_output.dtype, 'gating_output')}>"
    inputs = {"router_logits": logits_type}
    outputs = {"topk_ids": f"tensor<?x{top_k}xi32>", "topk_weights": f"tensor<?x{top_k}xf32>"}
    operands = ""
    tensors = {"router_logits": gating_output.contiguous()}
    if bias is not None:
        inputs["selection_bias"] = f"tensor<{experts}xf32>"
        operands = f"selection_bias(%selection_bias : tensor<{experts}xf32>) "
        tensors["selection_bias"] = bias.float().contiguous()
    if replay_ids is not None:
        if replay_ids.dtype not in _REPLAYED or replay_ids.shape != (tokens, top_k):
            raise InvalidArgument(
                f"replay_ids: [{tokens}, {top_k}] of int32, int16 or uint8 expected, {list(replay_ids.shape)} of "
                f"{replay_ids.dtype} found"
            )
        inputs["replay_ids"] = f"tensor<?x{top_k}x{_REPLAYED[replay_ids.dtype]}>"
        operands += f"given(%replay_ids : {inputs['replay_ids']}) "
        replay_ids = replay_ids.contiguous()
        tensors["replay_ids"] = replay_ids.view(torch.int8) if replay_ids.dtype == torch.uint8 else replay_ids
    body = (
        f"  %topk_ids, %topk_weights = moe.route %router_logits : {logits_type} "
        f"{operands}{attribute} {regions} -> {outputs['topk_ids']}, {outputs['topk_weights']}"
    )
    device = gating_output.device
    ids = torch.empty(tokens, top_k, dtype=torch.int32, device=device)
    weights = torch.empty(tokens, top_k, dtype=torch.float32, device=device)
    text = write_function(inputs, outputs, body, round_tokens(tokens))
    run(text, tokens, tensors | {"topk_ids": ids, "topk_weights": weights}, "gating_output")
    return weights, ids if indices_type is None else ids.to(indices_type)


@torch.no_grad()
def fused_topk(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    indices_type: Optional[torch.dtype] = None,
    scoring_func: str = "softmax",
    *,
    replay_ids: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Selects the `topk` best experts of each token (docs/use/layers.md, formulas 2 to 5).

    hidden_states: [T, H]; only T is used.
    gating_output: [T, E], f32, bf16 or f16.
    scoring_func: "softmax", "sigmoid" or "sqrtsoftplus".
    indices_type: int32 (default), int64, uint32.
    replay_ids: [T, topk], i32, i16 or u8: ids to weigh instead of a selection; those out of range become -1, weight 0.

    Returns weights [T, topk], f32; ids [T, topk] in descending order of the score, with ties in favour of the lower id;
    and token_expert_indices, i32 [T, topk], which are k * T + t. A score that is not finite is replaced by 0. Raises
    InvalidArgument."""
    weights, ids = _route(
        hidden_states,
        gating_output,
        topk,
        describe_topk(scoring_func, renormalize),
        None,
        indices_type,
        replay_ids,
    )
    tokens, topk = ids.shape
    order = torch.arange(tokens * topk, dtype=torch.int32, device=ids.device)
    return weights, ids, order.view(topk, tokens).t().contiguous()


@torch.no_grad()
def fused_topk_bias(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    scoring_func: str,
    e_score_correction_bias: torch.Tensor,
    topk: int,
    renormalize: bool,
    indices_type: Optional[torch.dtype] = None,
    input_tokens: Optional[torch.Tensor] = None,
    hash_indices_table: Optional[torch.Tensor] = None,
    routed_scaling_factor: float = 1.0,
    bias_vl: Optional[torch.Tensor] = None,
    image_sentinel_lo: int = 0,
    *,
    replay_ids: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Selects the `topk` best experts by score plus bias [E]. Weights are the scores without bias, times
    routed_scaling_factor. replay_ids, weights and ids are as in fused_topk().

    Refused are hash tables (hash_indices_table; compile a layer with select "hash" instead), a separate bias for image
    tokens (bias_vl), and the token ids that both need (input_tokens). image_sentinel_lo has no effect without them."""
    for name, given, remedy in (
        ("hash_indices_table", hash_indices_table,
         'ids of a table are not supported here; compile a layer whose routing.select is "hash"'),
        ("bias_vl", bias_vl, "another bias for image tokens is not supported; select their experts by a call of "
         "their own, with bias_vl as e_score_correction_bias"),
        ("input_tokens", input_tokens, "token ids do not select experts here; leave them out"),
    ):
        if given is not None:
            raise InvalidArgument(f"{name}: {remedy}")
    routing = describe_topk(scoring_func, renormalize, routed_scaling_factor)
    return _route(
        hidden_states, gating_output, topk, routing, e_score_correction_bias, indices_type, replay_ids
    )


def _check_groups(experts: int, top_k: int, groups: int, kept: int, has_bias: bool) -> None:
    size = experts // groups
    if experts % groups:
        raise InvalidArgument(f"num_expert_group: {groups} found, and {experts} experts are not a multiple of it")
    if not 1 <= kept <= groups:
        raise InvalidArgument(f"topk_group: {kept} found; 1 to {groups}, num_expert_group, are accepted")
    if not 1 <= top_k <= kept * size:
        raise InvalidArgument(
            f"topk: {top_k} found; 1 to {kept * size}, the experts of {kept} groups, are accepted"
        )
    if has_bias and size < 2:
        raise InvalidArgument(
            f"num_expert_group: {groups} found, and with a bias a group is chosen by its two best experts; give "
            f"at most {experts // 2}"
        )


@torch.no_grad()
def grouped_topk(
    hidden_states: torch.Tensor,
    gating_output: torch.Tensor,
    topk: int,
    renormalize: bool,
    num_expert_group: int = 0,
    topk_group: int = 0,
    scoring_func: str = "softmax",
    routed_scaling_factor: float = 1.0,
    e_score_correction_bias: Optional[torch.Tensor] = None,
    *,
    replay_ids: Optional[torch.Tensor] = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Selects the `topk` best experts from the `topk_group` best of num_expert_group groups (DeepSeek-V2 and -V3). The
    score of a group is the sum of its two best scores if there is a bias [E], else its best score.

    0 or 1 group means no groups. replay_ids are as in fused_topk(), of any groups. Returns weights, f32 [T, topk], and
    ids, i32, as in fused_topk(). If no score of a row is finite, ids are 0 .. topk - 1 and weights 1 / topk."""
    check_tensor(gating_output, "gating_output", 2)
    groups = max(check_count(num_expert_group, "num_expert_group", least=0), 1)
    topk_group = check_count(topk_group, "topk_group", least=0)
    topk = check_count(topk, "topk", least=-2**31)
    if groups > 1:
        _check_groups(gating_output.shape[-1], topk, groups, topk_group, e_score_correction_bias is not None)
    routing = describe_grouped_topk(scoring_func, renormalize, routed_scaling_factor, groups, topk_group)
    return _route(hidden_states, gating_output, topk, routing, e_score_correction_bias, None, replay_ids)
