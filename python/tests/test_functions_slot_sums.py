# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums of slots, and the older pair of permutations, of moec.functions."""

from __future__ import annotations

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec.functions import (  # noqa: E402
    _moe_permute,
    _moe_unpermute_and_reduce,
    determine_expert_map,
    moe_sum,
)


def lay_out(rows: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values, contiguous, with slots outermost in memory, or as a part of wider rows."""
    if layout == "contiguous":
        return rows
    if layout == "transposed":
        return rows.transpose(0, 1).contiguous().transpose(0, 1)
    wide = torch.full((*rows.shape[:2], rows.shape[2] + 16), float("nan"), dtype=rows.dtype)
    wide[..., : rows.shape[2]] = rows
    return wide[..., : rows.shape[2]]


def add_plainly(rows: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(rows.shape[0], rows.shape[2])
    for choice in range(rows.shape[1]):
        total += rows[:, choice].float()
    return total.to(rows.dtype)


# parity: P17
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens, top_k, width", [(1, 2, 128), (33, 6, 511), (222, 8, 1024)])
def test_sum(tokens: int, top_k: int, width: int, dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(0)
    rows = torch.randn(tokens, top_k, width).to(dtype)
    out = torch.full((tokens, width), float("nan"), dtype=dtype)
    moe_sum(lay_out(rows, layout), out)
    assert torch.equal(out, add_plainly(rows))
    wide = torch.zeros(tokens, width + 8, dtype=dtype)
    moe_sum(rows, wide[:, :width])
    assert torch.equal(wide[:, :width], out) and not wide[:, width:].any()


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("top_k", [2, 8])
def test_sum_leaves_out_slots_without_an_expert(top_k: int, id_dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ids = torch.randint(-1, 8, (17, top_k), dtype=id_dtype)
    ids[3] = -1
    rows = torch.randn(17, top_k, 64)
    _, expert_map, _ = determine_expert_map(2, 1, 8)
    for kept, table in ((ids >= 0, None), (ids >= 4, expert_map)):
        out = torch.empty(17, 64)
        # Rows of slots that do not count hold anything.
        moe_sum(rows.masked_fill(~kept[..., None], float("nan")), out, ids, table)
        assert torch.equal(out, add_plainly(rows.masked_fill(~kept[..., None], 0)))


def test_sums_that_are_refused() -> None:
    rows, out = torch.zeros(3, 2, 64), torch.zeros(3, 64)
    for wrong, message in (
        ((rows[0], out), r"input: \[T, k, H\] expected"),
        ((rows, out[:2]), r"output: \[3, 64\] of torch.float32"),
        ((rows, out, torch.zeros(2, 2, dtype=torch.int32)), r"topk_ids: \[3, 2\] expected"),
        ((rows, out, None, torch.zeros(8, dtype=torch.int32)), "expert_map: needs topk_ids"),
    ):
        with pytest.raises(moec.InvalidArgument, match=message):
            moe_sum(*wrong)


# parity: P16, P17
@pytest.mark.parametrize("on_input", [False, True])
@pytest.mark.parametrize("ranks", [1, 4])
def test_older_pair(ranks: int, on_input: bool) -> None:
    torch.manual_seed(0)
    tokens, top_k, experts, block = 33, 3, 16, 16
    hidden, scale = torch.randn(tokens, 64), torch.randn(tokens, 2)
    ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(tokens)]).to(torch.int32)
    _, expert_map, _ = determine_expert_map(ranks, 1 % ranks, experts)
    rows, scales, slots, expert_of, inverse = _moe_permute(hidden, scale, ids, experts, expert_map, block)
    assert torch.equal(rows, hidden[slots.long() // top_k]) and torch.equal(scales, scale[slots.long() // top_k])
    assert rows.shape[0] % block == 0 and expert_of.shape == slots.shape
    # Each slot is in a block of its expert.
    wanted = ids.view(-1) if expert_map is None else expert_map[ids.view(-1).long()]
    assert torch.equal(expert_of[inverse], wanted.to(torch.int32))
    assert torch.equal(slots[inverse].long(), torch.arange(tokens * top_k))
    weights = torch.rand(tokens, top_k)
    out = torch.empty(tokens, 64)
    _moe_unpermute_and_reduce(out, rows, inverse, weights, on_input)
    share = torch.full_like(weights[:, :1], top_k) if on_input else weights.sum(1, keepdim=True)
    torch.testing.assert_close(out, hidden * share)
    # Rows that are in the order of slots already.
    _moe_unpermute_and_reduce(out, hidden.repeat_interleave(top_k, 0).view(tokens, top_k, 64), None, weights, on_input)
    torch.testing.assert_close(out, hidden * share)


def test_older_pair_with_ids_of_no_expert() -> None:
    hidden = torch.arange(1.0, 4.0)[:, None].expand(3, 64).contiguous()
    ids = torch.tensor([[0, -1], [1, 9], [1, 0]], dtype=torch.int32)
    rows, _, _, _, inverse = _moe_permute(hidden, None, ids, 2, None, 4)
    out = torch.empty(3, 64)
    _moe_unpermute_and_reduce(out, rows, inverse, torch.ones(3, 2), False)
    assert out[:, 0].tolist() == [1, 2, 6]
