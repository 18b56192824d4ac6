# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Formats of rows, sums of experts' rows, and what parts hand to each other."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

import moec  # noqa: E402
from moec.functions import QuantConfig  # noqa: E402
from moec.modular import (  # noqa: E402
    ExpertTokensMetadata,
    SharedResizableBuffer,
    TopKWeightAndReduceContiguous,
    TopKWeightAndReduceDelegate,
    TopKWeightAndReduceNaiveBatched,
    TopKWeightAndReduceNoOP,
    from_batches,
    quantize_input,
    to_batches,
)

from moec.modular.exchange import write_combine, write_dispatch  # noqa: E402
from moec.modular.input_quantization import describe_input  # noqa: E402

TOKENS, TOP_K, EXPERTS, HIDDEN, ROWS = 7, 3, 4, 32, 9
#: An id of no expert, one of another rank, and an expert that is named twice.
IDS = torch.tensor([[0, 1, 2], [3, -1, 0], [1, 1, 2], [2, 9, 3], [0, 2, 1], [3, 2, 0], [2, 0, 3]], dtype=torch.int64)


def lay(rows: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    batches, counts = torch.zeros(EXPERTS, ROWS, *rows.shape[1:]), [0] * EXPERTS
    for token in range(len(rows)):
        for expert in dict.fromkeys(ids[token].tolist()):
            if 0 <= expert < EXPERTS:
                batches[expert, counts[expert]] = rows[token].float()
                counts[expert] += 1
    return batches, counts


# parity: M8
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
@pytest.mark.parametrize("maps", [False, True])
def test_batches_and_back(dtype: torch.dtype, maps: bool) -> None:
    rows = (torch.randn(TOKENS, HIDDEN) * 8).to(dtype)
    scale = torch.rand(TOKENS, 2)
    expert_map = torch.tensor([-1, 2, 0, 1, -1, -1, -1, -1, -1, 3], dtype=torch.int32) if maps else None
    ids = torch.where(IDS < 0, -1, expert_map[IDS].long()) if expert_map is not None else IDS
    batches, scales, meta = to_batches(rows, IDS, EXPERTS, ROWS, expert_map, scale)
    expected, counts = lay(rows, ids)
    assert torch.equal(batches.float(), expected) and meta.expert_num_tokens.tolist() == counts
    assert torch.equal(scales, lay(scale, ids)[0])
    if dtype.itemsize > 1:
        slots = from_batches(batches, IDS, expert_map)
        is_here = (ids >= 0) & (ids < EXPERTS)
        wanted = torch.where(is_here[..., None], rows[:, None], torch.zeros((), dtype=dtype))
        assert torch.equal(slots, wanted)


def test_batches_that_are_too_small() -> None:
    with pytest.raises(moec.InvalidArgument, match="max_num_tokens: at least 7 expected, .* 6 found"):
        to_batches(torch.zeros(TOKENS, HIDDEN), IDS, EXPERTS, 6)


def weigh(slots: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (slots.double() * weights.double()[..., None]).sum(1)


# parity: M11
@pytest.mark.parametrize("on_input", [False, True])
def test_sums_of_slots(on_input: bool) -> None:
    slots, weights = torch.randn(TOKENS, TOP_K, HIDDEN), torch.rand(TOKENS, TOP_K)
    expected = weigh(slots, torch.ones_like(weights) if on_input else weights).float()
    impl = TopKWeightAndReduceContiguous()
    for rows in (slots, slots.view(-1, HIDDEN)):
        output = torch.empty(TOKENS, HIDDEN)
        assert impl.apply(output, rows, weights, IDS, on_input) is output
        torch.testing.assert_close(output, expected)
    torch.testing.assert_close(impl.apply(None, slots, weights, IDS, on_input), expected)
    with pytest.raises(moec.InvalidArgument, match=r"fused_expert_output: \[7, 3, H\] expected"):
        impl.apply(None, slots[:5], weights, IDS, on_input)


# parity: M15
@pytest.mark.parametrize("rank", [0, 1])
def test_sums_of_batches(rank: int) -> None:
    """The experts of a rank, among 8 of two ranks."""
    ids = torch.where(IDS < 0, IDS, IDS + rank * EXPERTS)
    batches, _, _ = to_batches(torch.randn(TOKENS, HIDDEN), ids - rank * EXPERTS, EXPERTS, ROWS)
    weights = torch.rand(TOKENS, TOP_K)
    expected = weigh(from_batches(batches, ids - rank * EXPERTS), weights).float()
    impl = TopKWeightAndReduceNaiveBatched(rank)
    torch.testing.assert_close(impl.apply(None, batches, weights, ids, False), expected)
    placed = torch.full((EXPERTS * 2,), -1, dtype=torch.int32)
    placed[rank * EXPERTS:(rank + 1) * EXPERTS] = torch.arange(EXPERTS, dtype=torch.int32)
    by_map = TopKWeightAndReduceNaiveBatched(0, placed)
    torch.testing.assert_close(by_map.apply(torch.empty(TOKENS, HIDDEN), batches, weights, ids, False), expected)
    assert impl == TopKWeightAndReduceNaiveBatched(rank) and impl != by_map


def test_nothing_left_to_add() -> None:
    rows, output = torch.randn(TOKENS, HIDDEN), torch.empty(TOKENS, HIDDEN)
    impl, weights = TopKWeightAndReduceNoOP(), torch.rand(TOKENS, TOP_K)
    assert impl.apply(None, rows, weights, IDS, False) is rows
    assert torch.equal(impl.apply(output, rows, weights, IDS, False), rows)
    with pytest.raises(moec.InvalidArgument, match="output: "):
        impl.apply(output[:3], rows, weights, IDS, False)
    with pytest.raises(moec.InvalidArgument, match="Delegate found, in whose place finalize chooses"):
        TopKWeightAndReduceDelegate().apply(None, rows, weights, IDS, False)
    assert TopKWeightAndReduceNoOP() == impl != TopKWeightAndReduceDelegate()


def test_counts_and_memory() -> None:
    meta = ExpertTokensMetadata.make_from_list([3, 0, 5], "cpu")
    assert meta.expert_num_tokens.tolist() == meta.expert_num_tokens_cpu.tolist() == [3, 0, 5]
    assert meta.expert_num_tokens.dtype == torch.int32
    buffer = SharedResizableBuffer()
    first = buffer.get((4, 8), "cpu", torch.float32)
    assert buffer.get((2, 3), "cpu", torch.float32).data_ptr() == first.data_ptr()
    assert buffer.get((5, 8), "cpu", torch.float32).shape == (5, 8)
    assert buffer.get((2,), "cpu", torch.int32).dtype == torch.int32
    with pytest.raises(moec.InvalidArgument, match="shape: one or more sizes expected"):
        buffer.get((), "cpu", torch.float32)


@pytest.mark.parametrize(("config", "columns"), [
    ({"quant_dtype": torch.float8_e4m3fn, "block_shape": [128, 128]}, 2),
    ({"quant_dtype": torch.float8_e4m3fn, "per_act_token_quant": True}, 1),
    ({"quant_dtype": torch.int8, "per_act_token_quant": True}, 1),
    ({"quant_dtype": torch.float8_e4m3fn}, 0),
    ({"quant_dtype": torch.float8_e4m3fn, "a1_scale": torch.tensor([0.01])}, 0),
    ({"quant_dtype": "mxfp8"}, 8),
])
def test_quantized_rows(config: dict, columns: int) -> None:
    rows = torch.randn(TOKENS, 256, dtype=torch.bfloat16)
    quantized, scale = quantize_input(rows, QuantConfig(**config))
    assert quantized.dtype == (torch.int8 if config["quant_dtype"] is torch.int8 else torch.float8_e4m3fn)
    assert tuple(scale.shape) == ((TOKENS, columns) if columns else (1,))
    each = scale.repeat_interleave(256 // columns, 1) if columns else scale
    # Half a step of e4m3 is a 16th.
    torch.testing.assert_close(quantized.float() * each, rows.float(), rtol=0.07, atol=0.02)
    if columns and config["quant_dtype"] != "mxfp8":
        largest = 127 if quantized.dtype == torch.int8 else 448
        groups = rows.float().abs().view(TOKENS, columns, -1).amax(2)
        torch.testing.assert_close(scale, groups / largest)


def test_rows_that_are_not_quantized() -> None:
    rows = torch.randn(TOKENS, 256)
    assert quantize_input(rows, None) == (rows, None) or quantize_input(rows, None)[0] is rows
    with pytest.raises(moec.InvalidArgument, match="quant_config: quant_dtype: nvfp4 found"):
        quantize_input(rows, QuantConfig(quant_dtype="nvfp4"))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_exchanges_compile_for_gpus(tmp_path: Path, target: str) -> None:
    rows = {"hidden_states": torch.zeros(2, 256, dtype=torch.bfloat16), "ids": torch.zeros(2, 8, dtype=torch.int32),
            "weights": torch.zeros(2, 8)}
    block = describe_input(QuantConfig(quant_dtype=torch.float8_e4m3fn, block_shape=[128, 128]), 256)
    source = tmp_path / "part.mlir"
    for text in (
        write_dispatch(rows, None, 4, 64, 1024, None), write_dispatch(rows, block, 4, 64, 1024, "ids"),
        write_combine(256, torch.bfloat16, 4, 64, 1024, None), write_combine(256, torch.bfloat16, 4, 64, 1024, 8),
    ):
        source.write_text(text)
        assert moec.compile_package(source, target, cache=False, use_ptxas=False)
