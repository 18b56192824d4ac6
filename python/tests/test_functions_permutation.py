# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Permutation, alignment, counts and expert maps of moec.functions, checked with exact vectors and plain Python."""

from __future__ import annotations

import types

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec.functions import (  # noqa: E402
    batched_experts,
    batched_moe_align_block_size,
    count_expert_num_tokens,
    determine_expert_map,
    fused_experts,
    make_round_robin_tables,
    moe_align_block_size,
    moe_permute,
    moe_unpermute,
)


def make_ids(tokens: int, experts: int, top_k: int) -> torch.Tensor:
    return torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)]).to(torch.int32)


def sort_plainly(ids: torch.Tensor, local: int, experts: int, expert_map: torch.Tensor | None):
    """Returns slots in expert order; those of experts on other ranks come last, by global id."""
    flat = ids.flatten().tolist()
    if expert_map is None:
        keys = flat
    else:
        table = expert_map.tolist()
        keys = [table[each] if table[each] >= 0 else each + experts for each in flat]
    order = sorted(range(len(flat)), key=lambda slot: keys[slot])
    offsets = [sum(key < expert for key in keys) for expert in range(local + 1)]
    return order, offsets, keys


@pytest.mark.parametrize("ranks", [1, 4, 16])
@pytest.mark.parametrize("experts, top_k", [(16, 2), (64, 6), (256, 8)])
@pytest.mark.parametrize("tokens", [1, 33, 1024])
def test_permute_and_unpermute(tokens: int, experts: int, top_k: int, ranks: int) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(tokens, 256).to(torch.bfloat16)
    scale = torch.randn(tokens, 2)
    ids, weights = make_ids(tokens, experts, top_k), torch.rand(tokens, top_k)
    local, expert_map, _ = determine_expert_map(ranks, ranks - 1, experts)
    order, offsets, _ = sort_plainly(ids, local, experts, expert_map)
    rows, scales, first, inverse, permuted = moe_permute(
        hidden, scale, ids, experts, local, expert_map
    )
    assert first.dtype == torch.int64 and first.tolist() == offsets
    wanted = torch.tensor(order)
    assert inverse.dtype == torch.int32 and torch.equal(inverse.long(), torch.argsort(wanted))
    assert torch.equal(rows, hidden[wanted // top_k]) and torch.equal(scales, scale[wanted // top_k])
    here = offsets[-1]
    assert permuted.tolist() == order[:here] + [tokens * top_k] * (tokens * top_k - here)

    rows[here:] = float("nan")
    out = torch.empty_like(hidden)
    moe_unpermute(out, rows, weights, inverse, first)
    is_here = inverse.view(tokens, top_k) < here
    share = (weights * is_here).double().sum(1, keepdim=True)
    torch.testing.assert_close(out.double(), hidden.double() * share, rtol=2e-2, atol=2e-2)


def test_unpermute_is_formulas_8_and_9() -> None:
    torch.manual_seed(0)
    rows, weights = torch.randn(12, 64).to(torch.bfloat16), torch.rand(4, 3)
    inverse = torch.randperm(12).to(torch.int32)
    wide = torch.zeros(4, 128, dtype=torch.bfloat16)
    moe_unpermute(wide[:, :64], rows, weights, inverse)
    products = (rows[inverse.long()].view(4, 3, 64).float() * weights[..., None]).to(torch.bfloat16)
    wanted = torch.zeros(4, 64)
    for choice in range(3):
        wanted += products[:, choice].float()
    assert torch.equal(wide[:, :64], wanted.to(torch.bfloat16)) and not wide[:, 64:].any()


# parity: P6
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("align", [16, 128])
def test_permute_aligned(align: int, ranks: int) -> None:
    torch.manual_seed(0)
    tokens, experts, top_k = 33, 16, 4
    hidden = torch.randn(tokens, 64).to(torch.bfloat16)
    ids = make_ids(tokens, experts, top_k)
    local, expert_map, _ = determine_expert_map(ranks, 0, experts)
    order, offsets, keys = sort_plainly(ids, local, experts, expert_map)
    rows, scales, first, inverse, permuted, m_indices = moe_permute(
        hidden, None, ids, experts, local, expert_map, align_block_size=align,
        fill_invalid_expert=-5,
    )
    assert scales is None
    count = -(-(tokens * top_k + experts * (align - 1)) // align) * align
    places, experts_of, starts = [tokens * top_k] * count, [-5] * count, [0]
    for expert in range(local):
        slots = order[offsets[expert] : offsets[expert + 1]]
        begin = starts[-1]
        places[begin : begin + len(slots)] = slots
        starts.append(begin + -(-len(slots) // align) * align)
        experts_of[begin : starts[-1]] = [expert] * (starts[-1] - begin)
    assert first.tolist() == starts and permuted.tolist() == places
    assert m_indices.tolist() == experts_of
    for slot, place in enumerate(inverse.tolist()):
        if keys[slot] < local:
            assert places[place] == slot and torch.equal(rows[place], hidden[slot // top_k])
        else:
            assert place == starts[-1]


# parity: P7, P11
def test_permute_options() -> None:
    hidden = torch.randn(3, 64).to(torch.bfloat16)
    ids = torch.tensor([[1, 0], [0, 1], [1, 0]])
    given = torch.empty(6, 64, dtype=torch.bfloat16)
    rows, scale, *_ = moe_permute(
        hidden, torch.ones(1), ids, 2, permuted_hidden_states=given
    )
    assert rows is given and torch.equal(given, hidden[[0, 1, 2, 0, 1, 2]]) and scale.shape == (1,)
    empty = moe_permute(hidden[:0], None, ids[:0], 2)
    assert [tuple(each.shape) for each in empty if each is not None] == [(0, 64), (3,), (0,), (0,)]
    with pytest.raises(moec.InvalidArgument, match="rows are multiples of 16 bytes"):
        moe_permute(hidden[:, :7], None, ids, 2)
    with pytest.raises(moec.InvalidArgument, match="topk_ids: 3 rows expected"):
        moe_permute(hidden, None, ids[:2], 2)
    for wrong in (torch.empty(3, 64, dtype=torch.bfloat16), torch.empty(6, 64)):
        with pytest.raises(moec.InvalidArgument, match=r"permuted_hidden_states: \[6, 64\] of torch.bfloat16 on cpu"):
            moe_permute(hidden, None, ids, 2, permuted_hidden_states=wrong)
        assert wrong.shape[0] in (3, 6)
    # In older documentation of engines the seventh argument is align_block_size.
    with pytest.raises(moec.InvalidArgument, match="permuted_hidden_states: .* int found; align_block_size and"):
        moe_permute(hidden, None, ids, 2, 2, None, 128)
    with pytest.raises(moec.InvalidArgument, match="scratch: vLLM's MoEPermuteScratch expected, int found"):
        moe_permute(hidden, None, ids, 2, 2, None, None, 128)
    scratch = types.SimpleNamespace(num_experts=2, num_local_experts=2)
    assert torch.equal(moe_permute(hidden, None, ids, 2, scratch=scratch)[0], given)
    with pytest.raises(moec.InvalidArgument, match="one for 2 experts, 1 of them local, expected, 2 and 2 found"):
        moe_permute(hidden, None, ids, 2, 1, torch.tensor([0, -1], dtype=torch.int32), scratch=scratch)
    with pytest.raises(moec.InvalidArgument, match=r"out: \[3, 64\] of torch.bfloat16 expected"):
        moe_unpermute(torch.empty(3, 64), given, torch.rand(3, 2), torch.arange(6))


def align_plainly(ids, block, experts, expert_map=None, ignore=False):
    """Returns the slots of each expert, in block order."""
    flat = ids.flatten().tolist()
    if expert_map is not None and ignore:
        flat = [int(expert_map[each]) for each in flat]
    blocks = []
    for expert in range(experts):
        slots = [slot for slot, each in enumerate(flat) if each == expert]
        for begin in range(0, len(slots), block):
            part = slots[begin : begin + block]
            blocks.append((expert, part + [len(flat)] * (block - len(part))))
    return blocks


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.parametrize("experts", [32, 160, 256, 257])
@pytest.mark.parametrize("top_k", [1, 2, 16])
def test_align(top_k: int, experts: int, block: int, pad: bool) -> None:
    torch.manual_seed(0)
    for tokens in (1, 3, 256):
        ids = make_ids(tokens, experts, top_k)
        sorted_ids, expert_ids, count = moe_align_block_size(
            ids, block, experts, pad_sorted_ids=pad
        )
        blocks = align_plainly(ids, block, experts)
        slots = tokens * top_k
        capacity = slots + experts * (block - 1)
        capacity = -(-capacity // block) * block if pad else capacity
        capacity = min(slots * block, capacity) if slots < experts else capacity
        assert sorted_ids.shape == (capacity,) and expert_ids.shape == (-(-capacity // block),)
        assert count.tolist() == [len(blocks) * block]
        found = sorted_ids.tolist()
        assert found[: len(blocks) * block] == [slot for _, part in blocks for slot in part]
        assert set(found[len(blocks) * block :]) <= {slots}
        assert expert_ids.tolist() == [expert for expert, _ in blocks] + [-1] * (
            len(expert_ids) - len(blocks)
        )


def test_align_example() -> None:
    ids = torch.tensor([[2, 3, 4], [1, 2, 4], [1, 3, 4], [1, 2, 3]])
    sorted_ids, expert_ids, count = moe_align_block_size(ids, 4, 5)
    assert sorted_ids[:16].tolist() == [3, 6, 9, 12, 0, 4, 10, 12, 1, 7, 11, 12, 2, 5, 8, 12]
    assert expert_ids[:4].tolist() == [1, 2, 3, 4] and count.tolist() == [16]


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("tokens, top_k, experts", [(16, 2, 8), (32, 4, 64), (2048, 4, 8)])
def test_align_with_a_map(tokens: int, top_k: int, experts: int, ignore: bool) -> None:
    torch.manual_seed(0)
    ids = make_ids(tokens, experts, top_k)
    _, expert_map, _ = determine_expert_map(2, 1, experts, "round_robin")
    sorted_ids, expert_ids, count = moe_align_block_size(
        ids, 64, experts, expert_map, ignore_invalid_experts=ignore
    )
    blocks = align_plainly(ids, 64, experts, expert_map, ignore)
    assert count.tolist() == [len(blocks) * 64]
    assert sorted_ids[: len(blocks) * 64].tolist() == [slot for _, part in blocks for slot in part]
    wanted = [expert if ignore else int(expert_map[expert]) for expert, _ in blocks]
    assert expert_ids[: len(blocks)].tolist() == wanted
    if not ignore:
        with pytest.raises(moec.InvalidArgument, match="ignore_invalid_experts=True"):
            moe_align_block_size(ids, 64, experts, expert_map, return_scatter_idx=True)
        return
    *_, scatter = moe_align_block_size(ids, 64, experts, expert_map, False, True, True)
    is_here = expert_map[ids.flatten().long()] >= 0
    slots = torch.arange(ids.numel(), dtype=torch.int32)
    assert torch.equal(scatter[:, 0], torch.where(is_here, slots, -1))


@pytest.mark.parametrize("block", [8, 64])
@pytest.mark.parametrize("rows", [13, 16, 512])
@pytest.mark.parametrize("experts", [8, 64])
def test_batched_align(experts: int, rows: int, block: int) -> None:
    torch.manual_seed(0)
    for counts in (torch.randint(0, rows + 1, (experts,)), torch.zeros(experts), torch.full((experts,), rows)):
        counts = counts.to(torch.int32)
        sorted_ids, expert_ids, count = batched_moe_align_block_size(rows, block, counts)
        wanted, blocks = [], []
        for expert, valid in enumerate(counts.tolist()):
            padding = -valid % block
            wanted += [expert * rows + row for row in range(valid)] + [experts * rows] * padding
            blocks += [expert] * ((valid + padding) // block)
        assert count.tolist() == [len(wanted)]
        assert sorted_ids[: len(wanted)].tolist() == wanted
        assert (sorted_ids[len(wanted) :] == experts * rows).all()
        assert expert_ids.tolist() == blocks + [-1] * (len(expert_ids) - len(blocks))
        assert sorted_ids.numel() == experts * -(-rows // block) * block


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("top_k", [2, 6, 8])
@pytest.mark.parametrize("tokens", [1, 4, 8, 11, 127, 128, 3333])
def test_counts(tokens: int, top_k: int, ranks: int) -> None:
    torch.manual_seed(0)
    ids = torch.randint(-1, 64, (tokens, top_k), dtype=torch.int32)
    local, expert_map, _ = determine_expert_map(ranks, ranks - 1, 64)
    here = ids if expert_map is None else torch.where(
        ids < 0, -1, expert_map[ids.clamp(min=0).long()]
    )
    wanted = [int((here == expert).sum()) for expert in range(local)]
    assert count_expert_num_tokens(ids, local, expert_map).tolist() == wanted


@pytest.mark.parametrize("ranks, experts", [
    (2, 8), (2, 16), (2, 17), (4, 8), (4, 16), (4, 18), (4, 32), (4, 33)
])
def test_round_robin(ranks: int, experts: int) -> None:
    seen = []
    for rank in range(ranks):
        local, expert_map, mask = determine_expert_map(
            ranks, rank, experts, "round_robin", 2, return_expert_mask=True
        )
        held = [expert for expert in range(experts) if expert % ranks == rank]
        assert local == len(held)
        assert expert_map[held].tolist() == list(range(local))
        assert int((expert_map[:experts] < 0).sum()) == experts - local
        assert expert_map[experts:].tolist() == [local, local + 1]
        assert mask.tolist() == [int(each in held) for each in range(experts)] + [1, 1, 0]
        physical, inverse, ids = make_round_robin_tables(ranks, rank, experts)
        assert ids.tolist() == held
        assert torch.equal(physical[inverse], torch.arange(experts))
        begin = int(physical[held[0]])
        assert physical[held].tolist() == list(range(begin, begin + local))
        seen += held
    assert sorted(seen) == list(range(experts))


def test_expert_maps_exactly() -> None:
    assert determine_expert_map(2, 0, 9, "round_robin")[1].tolist() == [0, -1, 1, -1, 2, -1, 3, -1, 4]
    assert determine_expert_map(2, 0, 9)[1].tolist() == [0, 1, 2, 3, 4, -1, -1, -1, -1]
    assert determine_expert_map(2, 1, 9)[1].tolist() == [-1] * 5 + [0, 1, 2, 3]
    assert determine_expert_map(1, 0, 9) == (9, None, None)
    for wrong, message in (((0, 0, 9), "ep_size: 0 found"), ((2, 2, 9), "ep_rank: 2 found"),
                           ((4, 0, 3), "global_num_experts: 3 found"),
                           ((2, 0, 9, "zigzag"), "expert_placement_strategy: 'zigzag'")):
        with pytest.raises(moec.InvalidArgument, match=message):
            determine_expert_map(*wrong)


#: Ids that name none of 8 experts.
NO_EXPERTS = (-1, -7, 8, 100, 2**31 - 1)


# field-bug: sglang#30272, aiter#4636
# parity: P9
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("no_expert", [*NO_EXPERTS, 2**32, 2**32 + 1, -(2**40)])
def test_ids_that_name_no_expert(no_expert: int, dtype: torch.dtype) -> None:
    """Such a slot contributes nothing in any function and is never used as an index."""
    if dtype == torch.int32 and abs(no_expert) >= 2**31:
        pytest.skip("not of i32")
    ids = torch.tensor([[no_expert, 1], [2, 3], [4, 5], [6, 7], [0, 4], [1, 5]], dtype=dtype)
    hidden = torch.arange(1, 7)[:, None].expand(6, 64).to(torch.bfloat16)
    _, expert_map, _ = determine_expert_map(2, 0, 8)
    rows, _, first, inverse, permuted = moe_permute(hidden, None, ids, 8, 4, expert_map)
    assert first.diff().tolist() == [1, 2, 1, 1] and count_expert_num_tokens(ids, 4, expert_map).tolist() == [1, 2, 1, 1]
    assert inverse[0] == 11 and permuted.tolist() == [8, 1, 10, 2, 3] + [12] * 7
    out = torch.empty_like(hidden)
    moe_unpermute(out, rows, torch.ones(6, 2), inverse, first)
    assert out[:, 0].tolist() == [1, 4, 0, 0, 5, 6]
    # Without a map they also come after all others.
    rows, _, first, inverse, permuted = moe_permute(hidden, None, ids, 8)
    assert first.tolist() == [0, 1, 3, 4, 5, 7, 9, 10, 11] and inverse[0] == 11
    assert rows[:, 0].tolist() == [5, 1, 6, 2, 2, 3, 5, 3, 6, 4, 4, 1] and permuted[11] == 12
    moe_unpermute(out, rows, torch.ones(6, 2), inverse, first)
    assert out[:, 0].tolist() == [1, 4, 6, 8, 10, 12]
    aligned = moe_permute(hidden, None, ids, 8, align_block_size=4)
    assert aligned[2].diff().tolist() == [4] * 8 and aligned[3][0] == 32 and aligned[5][:32:4].tolist() == list(range(8))
    sorted_ids, experts, count = moe_align_block_size(ids, 4, 8)
    assert count == 32 and experts[:8].tolist() == list(range(8)) and 0 not in sorted_ids.tolist()


def test_experts_without_rows() -> None:
    torch.manual_seed(0)
    hidden, w1, w2 = torch.randn(4, 64), torch.randn(8, 64, 64) / 8, torch.randn(8, 64, 32) / 8
    weights = torch.rand(4, 2)
    good = torch.tensor([[1, 2], [3, 4], [5, 6], [7, 0]])
    alone = fused_experts(hidden, w1, w2, weights[:, :1].contiguous(), good[:, :1].contiguous())
    for no_expert in (*NO_EXPERTS, 2**32 + 1):
        ids = good.clone()
        ids[:, 1] = no_expert
        assert torch.equal(fused_experts(hidden, w1, w2, weights, ids), alone)
    with pytest.raises(moec.InvalidArgument, match="topk_ids: integers expected, torch.float32 found"):
        fused_experts(hidden, w1, w2, weights, good.float())
    # Counts below 0 mean no rows; counts above the number of rows mean all.
    batches = hidden.expand(8, 4, 64).contiguous()
    whole = batched_experts(batches, w1, w2, torch.full((8,), 4))
    found = batched_experts(batches, w1, w2, torch.tensor([-1, 9, 4, -5, 4, 100, 0, 4]))
    is_kept = torch.tensor([0, 1, 1, 0, 1, 1, 0, 1])[:, None, None]
    assert torch.equal(found, whole * is_kept)
    sorted_ids, experts, count = batched_moe_align_block_size(4, 4, torch.tensor([-3, 9, 2]))
    assert sorted_ids[:8].tolist() == [4, 5, 6, 7, 8, 9, 12, 12] and experts.tolist() == [1, 2, -1] and count == 8


def test_places_that_name_no_row() -> None:
    rows = torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None].expand(4, 16).contiguous()
    out = torch.empty(2, 16)
    for no_row in (-1, 4, 2**31 - 1):
        moe_unpermute(out, rows, torch.ones(2, 2), torch.tensor([0, no_row, 3, 1], dtype=torch.int32))
        assert out[:, 0].tolist() == [1, 6]
