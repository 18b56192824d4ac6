# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments of moec.functions of another kind, rank, device or range are refused by name, and change nothing."""

from __future__ import annotations

import pytest

import moec

torch = pytest.importorskip("torch")
from moec import functions  # noqa: E402

TOKENS, EXPERTS, TOP_K, HIDDEN, WIDTH = 5, 4, 2, 64, 32


def make(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


IDS = torch.tensor([[0, 1], [3, 2], [1, 0], [2, 3], [0, 3]], dtype=torch.int32)
MAP = torch.tensor([0, -1, 1, -1], dtype=torch.int32)
X, WEIGHTS = make(TOKENS, HIDDEN), make(TOKENS, TOP_K, seed=1).abs()
#: A valid call of each function.
CALLS = {
    "fused_topk": {"hidden_states": X, "gating_output": make(TOKENS, EXPERTS), "topk": 2, "renormalize": True},
    "fused_topk_bias": {
        "hidden_states": X, "gating_output": make(TOKENS, EXPERTS), "scoring_func": "sigmoid",
        "e_score_correction_bias": make(EXPERTS), "topk": 2, "renormalize": True},
    "grouped_topk": {
        "hidden_states": X, "gating_output": make(TOKENS, EXPERTS), "topk": 2, "renormalize": True,
        "num_expert_group": 2, "topk_group": 1},
    "fused_experts": {
        "hidden_states": X, "w1": make(EXPERTS, 2 * WIDTH, HIDDEN), "w2": make(EXPERTS, HIDDEN, WIDTH),
        "topk_weights": WEIGHTS, "topk_ids": IDS, "expert_map": torch.arange(EXPERTS)},
    "batched_experts": {
        "hidden_states": make(EXPERTS, 6, HIDDEN), "w1": make(EXPERTS, 2 * WIDTH, HIDDEN),
        "w2": make(EXPERTS, HIDDEN, WIDTH), "expert_num_tokens": torch.tensor([1, 2, 0, 6])},
    "moe_permute": {
        "hidden_states": X, "a1q_scale": make(TOKENS, 2), "topk_ids": IDS, "n_expert": EXPERTS, "n_local_expert": 2,
        "expert_map": MAP, "align_block_size": 4},
    "moe_unpermute": {
        "out": make(TOKENS, HIDDEN), "permuted_hidden_states": make(10, HIDDEN), "topk_weights": WEIGHTS,
        "inv_permuted_idx": torch.arange(10).view(5, 2), "expert_first_token_offset": torch.tensor([0, 10])},
    "moe_align_block_size": {"topk_ids": IDS, "block_size": 4, "num_experts": EXPERTS, "expert_map": MAP},
    "batched_moe_align_block_size": {
        "max_tokens_per_batch": 6, "block_size": 4, "expert_num_tokens": torch.tensor([1, 2, 0, 6])},
    "count_expert_num_tokens": {"topk_ids": IDS, "num_local_experts": 2, "expert_map": MAP},
    "moe_sum": {"input": make(TOKENS, TOP_K, HIDDEN), "output": make(TOKENS, HIDDEN), "topk_ids": IDS},
    "_moe_permute": {
        "curr_hidden_states": X, "a1q_scale": None, "curr_topk_ids": IDS, "global_num_experts": EXPERTS,
        "expert_map": MAP, "block_m": 4},
    "_moe_unpermute_and_reduce": {
        "out": make(TOKENS, HIDDEN), "curr_hidden": make(10, HIDDEN), "inv_perm": torch.arange(10).view(5, 2),
        "topk_weight": WEIGHTS, "apply_router_weight_on_input": False},
    "rebalance_experts": {
        "weight": make(2, EXPERTS).abs(), "num_replicas": 8, "num_groups": 2, "num_nodes": 1, "num_gpus": 2},
    "determine_expert_map": {"ep_size": 2, "ep_rank": 0, "global_num_experts": 5},
    "make_round_robin_tables": {"ep_size": 2, "ep_rank": 0, "global_num_experts": 5},
}
#: Tensors whose shape means nothing, or only their number of rows or elements.
ANY_RANK = {
    *((name, "hidden_states") for name in ("fused_topk", "fused_topk_bias", "grouped_topk")),
    ("moe_permute", "a1q_scale"), ("moe_unpermute", "inv_permuted_idx"), ("count_expert_num_tokens", "topk_ids"),
    ("_moe_unpermute_and_reduce", "curr_hidden"), ("_moe_unpermute_and_reduce", "inv_perm"),
}
ARGUMENTS = [(name, argument) for name, call in CALLS.items() for argument in call]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
def test_other_kinds_are_refused_by_name(name, argument):
    call = getattr(functions, name)
    call(**CALLS[name])
    value = CALLS[name][argument]
    if isinstance(value, torch.Tensor):
        wrong = [value.numpy(), value.tolist(), value.to_sparse()]
        if (name, argument) not in ANY_RANK:
            wrong += [value[None, None], value.reshape(-1)[0]]
    elif isinstance(value, int) and not isinstance(value, bool):
        wrong = ["x", 1.5, [], 2**70, -5]
    else:
        return
    for other in wrong:
        with pytest.raises(moec.Error):
            call(**CALLS[name] | {argument: other})
    call(**CALLS[name])


@pytest.mark.parametrize(("name", "change", "message"), [
    ("moe_permute", {"a1q_scale": make(TOKENS + 1, 2)}, "a1q_scale: 5 rows expected"),
    ("moe_permute", {"align_block_size": 0}, "align_block_size: 0 found, at least 1 expected"),
    ("moe_permute", {"align_block_size": -1}, "align_block_size: -1 found, at least 1 expected"),
    ("moe_permute", {"expert_map": MAP[:3]}, "expert_map: 4 entries expected, one for each expert, 3 found"),
    ("moe_permute", {"expert_map": MAP.float()}, "expert_map: integers expected"),
    ("moe_permute", {"expert_map": MAP.bool()}, "expert_map: integers expected"),
    ("moe_align_block_size", {"expert_map": MAP[:3]}, "expert_map: 4 entries expected"),
    ("moe_align_block_size", {"block_size": 2**31 - 1}, "block_size: the result would have"),
    ("fused_experts", {"expert_map": torch.arange(4.0)}, "expert_map: integers expected"),
    ("fused_experts", {"topk_weights": WEIGHTS + 1j}, "topk_weights: real numbers expected"),
    ("batched_experts", {"expert_num_tokens": torch.ones(4)}, "expert_num_tokens: integers expected"),
    ("fused_topk_bias", {"e_score_correction_bias": make(EXPERTS) * 1j}, "bias: real numbers expected"),
    ("grouped_topk", {"num_expert_group": -2}, "num_expert_group: -2 found, at least 0 expected"),
    ("moe_unpermute", {"topk_weights": WEIGHTS.to("meta")}, "topk_weights: a tensor on cpu expected"),
    ("moe_unpermute", {"inv_permuted_idx": torch.arange(9)}, "inv_permuted_idx: 10 elements expected"),
    ("moe_unpermute", {"out": make(1, HIDDEN).expand(TOKENS, HIDDEN)}, "out: elements share memory"),
    ("_moe_permute", {"curr_hidden_states": make(TOKENS + 1, HIDDEN)}, "curr_topk_ids: 6 rows expected"),
    ("rebalance_experts", {"num_replicas": 2**40}, "num_replicas: 1099511627776 found, at most"),
])
def test_values_that_would_be_read_otherwise(name, change, message):
    with pytest.raises(moec.InvalidArgument, match=message.replace("(", "\\(")):
        getattr(functions, name)(**CALLS[name] | change)


def test_slots_may_share_a_row():
    rows, weights = make(3, HIDDEN), torch.tensor([[0.5, 2.0], [3.0, 0.25], [1.0, 4.0], [7.0, 0.125]])
    index = torch.tensor([[0, 1], [1, 0], [2, 2], [-1, 0]])
    out = torch.empty(4, HIDDEN)
    functions.moe_unpermute(out, rows, weights, index)
    expected = torch.zeros(4, HIDDEN)
    for token in range(4):
        for slot in range(2):
            if index[token, slot] >= 0:
                expected[token] += weights[token, slot] * rows[index[token, slot]]
    assert torch.equal(out, expected)


def test_a_refused_weight_leaves_earlier_ones():
    arguments = CALLS["fused_experts"]
    expected = functions.fused_experts(**arguments)
    # The address and shape are the same, so that the same experts see them.
    for name in ("w1", "w2"):
        weight = arguments[name]
        with pytest.raises(moec.InvalidArgument, match="no overlap"):
            functions.fused_experts(**arguments | {name: weight[:1].expand(weight.shape)})
        assert torch.equal(functions.fused_experts(**arguments), expected)
