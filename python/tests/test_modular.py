# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels put together from parts, on two ranks that are threads of the CPU, against the float64 reference."""

from __future__ import annotations

import contextlib
import threading
import time
import types
from typing import Any, Optional

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from experts_case import Case  # noqa: E402
from rank_threads import RANKS, on_ranks  # noqa: E402

import moec  # noqa: E402
from moec import ranks  # noqa: E402
from moec.functions import QuantConfig, determine_expert_map  # noqa: E402
from moec.reference import decide, evaluate  # noqa: E402
from moec.modular import (  # noqa: E402
    BatchedExperts,
    Exchange,
    Experts,
    InBatches,
    ModularKernel,
    NoEP,
    OverRanks,
    OverRanksLogits,
    SharedExperts,
    TopKWeightAndReduceNoOP,
)

TOKENS, EXPERTS = 5, 8
LOCAL = EXPERTS // RANKS
OWNERS = torch.arange(EXPERTS, dtype=torch.int32) // LOCAL
SIZES = {"hidden_size": 256, "intermediate_size": 128}
#: Quantizations: the spec's field, and how a QuantConfig describes activations.
QUANTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "none": (None, {}),
    "block": ("fp8_block128", {"quant_dtype": torch.float8_e4m3fn, "block_shape": [128, 128]}),
    "token": ({"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}},
              {"quant_dtype": torch.int8, "per_act_token_quant": True}),
    "static": ({"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}},
               {"quant_dtype": torch.float8_e4m3fn}),
    "tensor": ({"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
                "activation": {"dtype": "fp8_e4m3", "scale": "tensor"}},
               {"quant_dtype": torch.float8_e4m3fn}),
}


def run_ranks(work: Any) -> list[Any]:
    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def verify(case: Case, output: torch.Tensor, factor: float) -> None:
    """Compares with the reference, as often as close as bf16 layers are."""
    expected = evaluate(case.spec, case.tensors, decide(case.spec, case.tensors))
    found = output.double().numpy()
    bound = factor * (2e-2 if case.spec.quantizations else 3e-3)
    for each, wanted in ((found, expected), *zip(found, expected)):
        assert np.linalg.norm(each - wanted) <= (bound if each is found else 3 * bound) * np.linalg.norm(wanted)


class RankCase(Case):
    """A layer of all ranks' experts, cut for each rank."""

    def __init__(self, quant: str = "none", **changes: Any) -> None:
        spec, self.described = QUANTS[quant]
        quantization = {} if spec is None else {"quantization": spec}
        super().__init__(RANKS * TOKENS, 1, **SIZES, **quantization, **changes)
        self.quant = quant

    def verify(self, output: torch.Tensor, factor: float = 1) -> None:
        verify(self, output, factor)

    def own(self, rank: int, name: str, count: int = TOKENS) -> torch.Tensor:
        return self[name][rank * TOKENS:rank * TOKENS + count].clone()

    def held(self, rank: int, name: str) -> torch.Tensor:
        return self[name][rank * LOCAL:(rank + 1) * LOCAL].contiguous()

    def config(self, rank: int) -> Optional[QuantConfig]:
        if self.quant == "none":
            return None
        scales = {"w1_scale": self.held(rank, "experts.w13_scale"), "w2_scale": self.held(rank, "experts.w2_scale")}
        if self.quant == "static":
            scales |= {"a1_scale": self["experts.w13_input_scale"], "a2_scale": self["experts.w2_input_scale"]}
        return QuantConfig(**self.described, **scales)

    def apply(self, kernel: ModularKernel, rank: int, **named: Any) -> Any:
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        return kernel.apply(
            self.own(rank, "hidden_states"), self.held(rank, "experts.w13"), self.held(rank, "experts.w2"),
            self.own(rank, "topk_weights"), self.own(rank, "topk_ids"), "silu", EXPERTS, expert_map, **named)


def make_parts(
    form: str, communicator: Any, config: Optional[QuantConfig], is_deferred: bool, **options: Any
) -> tuple[Any, Any]:
    over = OverRanks(communicator, EXPERTS, max_tokens=16, owners=OWNERS if form == "owners" else None)
    if form == "batches":
        experts: Any = BatchedExperts(
            "silu", config, max_num_tokens=16, num_dispatchers=RANKS, expects_unquantized_inputs=is_deferred, **options)
        return InBatches(over, 16, LOCAL, communicator.rank), experts
    experts = Experts(
        "silu", config, reduces=form != "slots", expects_unquantized_inputs=is_deferred, **options)
    return over, experts


# parity: M2, M49, N1, N5, N18
@pytest.mark.parametrize(("form", "quant", "is_deferred"), [
    ("sums", "none", False), ("sums", "block", False), ("sums", "block", True), ("sums", "token", False),
    ("sums", "static", False), ("sums", "tensor", False), ("sums", "tensor", True), ("slots", "none", False), ("slots", "block", False), ("owners", "block", False),
    ("batches", "none", False), ("batches", "token", False)])
def test_kernel_over_ranks(form: str, quant: str, is_deferred: bool) -> None:
    case, communicators = RankCase(quant), ranks.local(RANKS)

    def work(rank: int) -> torch.Tensor:
        parts = make_parts(form, communicators[rank], case.config(rank), is_deferred, chunk_tokens=4)
        return case.apply(ModularKernel(*parts), rank)

    # Rows of slots are rounded before their weights multiply them, and once more behind them. One scale for all rows of
    # the second product is one for each rank, which rounds other elements than the reference's.
    case.verify(torch.cat(run_ranks(work)), 1 if form in ("sums", "owners") and quant != "tensor" else 3)


# parity: M24, M54
def test_shared_experts_beside_the_way_back() -> None:
    case, communicators = RankCase(), ranks.local(RANKS)

    def work(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        kernel = ModularKernel(*make_parts("sums", communicators[rank], None, False))
        return case.apply(kernel, rank, shared_experts=lambda rows: rows * 2)

    pairs = run_ranks(work)
    case.verify(torch.cat([routed for _, routed in pairs]))
    assert torch.equal(torch.cat([shared for shared, _ in pairs]), case["hidden_states"] * 2)


# parity: R7
def test_stream_of_shared_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: behind the caller's work, and ahead of what follows the kernel; switched off, and not with many rows."""
    order: list[Any] = []

    def make_stream(name: str) -> Any:
        return types.SimpleNamespace(name=name, wait_stream=lambda stream: order.append((name, "waits for", stream.name)))

    def make_rows(count: int) -> Any:
        return types.SimpleNamespace(
            device=torch.device("cuda:0"), shape=(count, 64),
            record_stream=lambda stream: order.append(("kept for", stream.name)))

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: make_stream("caller"))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: make_stream("own"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext(order.append(("on", stream.name))))
    made = make_rows(4)
    shared = SharedExperts(lambda rows: made, stream_tokens=4)
    receive = shared.start(make_rows(4))
    assert receive is not None
    assert order == [("own", "waits for", "caller"), ("kept for", "own"), ("on", "own")]
    assert receive() is made and order[3:] == [("caller", "waits for", "own"), ("kept for", "caller")]
    assert shared.start(make_rows(5)) is None
    assert SharedExperts(lambda rows: made, stream_tokens=0).start(make_rows(1)) is None
    assert SharedExperts(lambda rows: made).start(torch.zeros(1, 64)) is None


def test_shared_experts_that_have_begun() -> None:
    case, notes = Case(**SIZES), []

    class Begun(SharedExperts):
        def start(self, rows: torch.Tensor) -> Any:
            notes.append("start")
            return lambda: notes.append("receive") or rows * 3

    names = ("hidden_states", "experts.w13", "experts.w2", "topk_weights", "topk_ids")
    kernel = ModularKernel(NoEP(), Experts("silu"))
    shared, output = kernel.apply(*(case[name] for name in names), shared_experts=Begun(lambda rows: rows))
    verify(case, output, 1)
    assert torch.equal(shared, case["hidden_states"] * 3) and notes == ["start", "receive"]


def test_weights_on_the_input() -> None:
    case = RankCase(top_k=1, routing={"weight_on_input": True})
    communicators = ranks.local(RANKS)

    def work(rank: int) -> torch.Tensor:
        kernel = ModularKernel(*make_parts("sums", communicators[rank], None, False))
        return case.apply(kernel, rank, apply_router_weight_on_input=True)

    case.verify(torch.cat(run_ranks(work)))


# parity: M17, M23, M27, N7, N9
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint32])
def test_prepare_and_finalize_alone(dtype: torch.dtype) -> None:
    """Ranks with other numbers of rows, tensors of the caller's own, and each type of ids."""
    case, communicators = RankCase(), ranks.local(RANKS)
    counts = [TOKENS, 3]

    def work(rank: int) -> None:
        over = OverRanks(communicators[rank], EXPERTS, max_tokens=16, topk_indices_dtype=dtype)
        over.rows = TOKENS
        count = counts[rank]
        loras = torch.arange(count) + 100 * rank
        over.extra_tensors = [loras, torch.full((count, 3), rank, dtype=torch.float64)]
        rows, scale, meta, ids, weights = over.prepare(
            case.own(rank, "hidden_states", count), case.own(rank, "topk_weights", count),
            case.own(rank, "topk_ids", count), EXPERTS, None, False, None)
        assert (scale, meta, ids.dtype) == (None, None, dtype)
        for other, number in enumerate(counts):
            part = slice(other * TOKENS, other * TOKENS + number)
            assert torch.equal(rows[part], case["hidden_states"][part])
            assert torch.equal(ids[part].long(), case["topk_ids"][part].long())
            assert torch.equal(weights[part], case["topk_weights"][part])
            assert over.received_tensors[0][part].tolist() == [100 * other + t for t in range(number)]
            assert over.received_tensors[1][part].eq(other).all()
        if dtype != torch.uint32:
            assert (ids[TOKENS + 3:] == -1).all()
        output = torch.empty(count, 256, dtype=torch.bfloat16)
        partial = torch.full_like(rows, 1.5) * (rank + 1)
        over.finalize(output, partial, weights, ids, False, TopKWeightAndReduceNoOP())
        assert (output == 4.5).all()

    run_ranks(work)


# parity: N18
def test_one_scale_of_all_ranks() -> None:
    """Ranks have other numbers of rows, one of them none; only one has the largest magnitude."""
    communicators, counts = ranks.local(RANKS), [3, 0]
    rows = torch.randn(3, 64) * 5
    config = QuantConfig(quant_dtype=torch.float8_e4m3fn)
    wanted = (rows.abs().max() / 448).view(1)

    def work(rank: int) -> None:
        over = OverRanks(communicators[rank], EXPERTS, max_tokens=16)
        over.rows = TOKENS
        own, choice = rows[:counts[rank]], (torch.ones(counts[rank], 1), torch.zeros(counts[rank], 1, dtype=torch.int32))
        come, scale, *_ = over.prepare(own, *choice, EXPERTS, None, False, config)
        assert scale is not None and torch.allclose(scale, wanted, rtol=1e-6)
        assert torch.equal(come[:3].float(), (rows / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float())

    run_ranks(work)


# parity: R4
def test_router_logits_go_along() -> None:
    communicators = ranks.local(RANKS)
    rows = torch.randn(RANKS * TOKENS, 64, dtype=torch.bfloat16)
    logits = torch.randn(RANKS * TOKENS, EXPERTS)

    def work(rank: int) -> torch.Tensor:
        over = OverRanksLogits(communicators[rank], EXPERTS, max_tokens=16)
        own = slice(rank * TOKENS, (rank + 1) * TOKENS)
        come, scale, chosen = over.prepare(rows[own], logits[own], None)
        assert torch.equal(come, rows) and torch.equal(chosen, logits) and scale is None
        return over.finalize(come * (rank + 1))

    assert torch.allclose(torch.cat(run_ranks(work)).float(), 3 * rows.float(), rtol=1e-2)


# parity: M21, M22
def test_receivers_in_any_order() -> None:
    """Hooks that are not called hold nothing up, and a receiver is called once."""
    communicators = ranks.local(RANKS, limit=5)
    given = torch.randn(2, RANKS * TOKENS, 64)
    weights, ids = torch.ones(TOKENS, 2), torch.zeros(TOKENS, 2, dtype=torch.int32)

    def work(rank: int) -> None:
        over = OverRanks(communicators[rank], EXPERTS, max_tokens=16)
        own = slice(rank * TOKENS, (rank + 1) * TOKENS)
        pending = [over.prepare_async(rows[own], weights, ids, EXPERTS, None, False, None) for rows in given]
        third = over.prepare_async(given[0][own], weights, ids, EXPERTS, None, False, None)
        (_, first), (hook, second) = pending
        hook()
        assert torch.equal(second()[0], given[1]) and torch.equal(first()[0], given[0])
        with pytest.raises(moec.InvalidArgument, match="receiver: called twice"):
            second()
        # Neither its hook nor its receiver is called.
        del third
        assert torch.equal(over.prepare(given[1][own], weights, ids, EXPERTS, None, False, None)[0], given[1])

    run_ranks(work)


def test_sums_in_any_order() -> None:
    """The same for finalize: a receiver without its hook, one that is called twice, and one that is not called."""
    communicators = ranks.local(RANKS, limit=5)

    def work(rank: int) -> None:
        over = OverRanks(communicators[rank], EXPERTS, max_tokens=16)
        weights, ids = torch.ones(RANKS * TOKENS, 2), torch.zeros(RANKS * TOKENS, 2, dtype=torch.int32)
        outputs = [torch.zeros(TOKENS, 64) for _ in range(3)]
        (_, first), (hook, second), _ = [
            over.finalize_async(
                output, torch.full((RANKS * TOKENS, 64), float(number + 1)), weights, ids, False, TopKWeightAndReduceNoOP())
            for number, output in enumerate(outputs)]
        hook()
        second()
        first()
        assert (outputs[0] == RANKS).all() and (outputs[1] == 2 * RANKS).all()
        with pytest.raises(moec.InvalidArgument, match="receiver: called twice"):
            first()
        over.finalize(outputs[0], torch.ones(RANKS * TOKENS, 64), weights, ids, False, TopKWeightAndReduceNoOP())
        assert (outputs[2] == 3 * RANKS).all()

    run_ranks(work)


def test_rank_that_leaves_ahead_of_the_sum() -> None:
    """The kernel of the other rank ends with an error that names it, and so does its next call."""
    case, communicators = RankCase(), ranks.local(RANKS, limit=1)

    def work(rank: int) -> None:
        prepare, experts = make_parts("sums", communicators[rank], None, False)
        if rank == 1:
            prepare.prepare(
                case.own(1, "hidden_states"), case.own(1, "topk_weights"), case.own(1, "topk_ids"), EXPERTS, None, False,
                None)
            return
        kernel = ModularKernel(prepare, experts)
        begin = time.monotonic()
        for _ in range(2):
            with pytest.raises(moec.Error, match="rank 1"):
                case.apply(kernel, rank)
        assert time.monotonic() - begin < 10

    run_ranks(work)


def test_rank_that_leaves() -> None:
    communicators = ranks.local(RANKS, limit=0.5)
    rows, weights, ids = torch.zeros(TOKENS, 64), torch.ones(TOKENS, 2), torch.zeros(TOKENS, 2, dtype=torch.int32)
    over = OverRanks(communicators[0], EXPERTS, max_tokens=16)
    begin = time.monotonic()
    hook, receive = over.prepare_async(rows, weights, ids, EXPERTS, None, False, None)
    with pytest.raises(moec.Error, match="rank 1"):
        receive()
    # An exchange that is not received hands its error to the next one.
    over.prepare_async(rows, weights, ids, EXPERTS, None, False, None)
    with pytest.raises(moec.Error, match="rank 1"):
        for _ in range(100):
            over.prepare_async(rows, weights, ids, EXPERTS, None, False, None)
            time.sleep(0.05)
    assert time.monotonic() - begin < 5


def test_two_objects_of_one_exchange() -> None:
    communicators = ranks.local(RANKS)
    logits = torch.randn(RANKS * TOKENS, EXPERTS)
    rows = torch.randn(RANKS * TOKENS, 64)
    barrier = threading.Barrier(RANKS)

    def work(rank: int) -> None:
        exchange = Exchange(communicators[rank])
        over, routed = OverRanks(exchange, EXPERTS), OverRanksLogits(exchange, EXPERTS)
        own = slice(rank * TOKENS, (rank + 1) * TOKENS)
        barrier.wait()
        _, receive = over.prepare_async(
            rows[own], torch.ones(TOKENS, 2), torch.zeros(TOKENS, 2, dtype=torch.int64), EXPERTS, None, False, None)
        assert torch.equal(routed.prepare(rows[own], logits[own], None)[2], logits)
        assert torch.equal(receive()[0], rows)

    run_ranks(work)


def test_one_rank() -> None:
    case = Case(**SIZES)
    names = ("hidden_states", "experts.w13", "experts.w2", "topk_weights", "topk_ids")
    for prepare, experts in (
        (NoEP(), Experts("silu", reduces=False)),
        (InBatches(NoEP(), 8, EXPERTS), BatchedExperts("silu", max_num_tokens=8)),
    ):
        verify(case, ModularKernel(prepare, experts).apply(*(case[name] for name in names)), 3)


def test_parts_that_do_not_fit() -> None:
    over = OverRanks(ranks.local(RANKS)[0], EXPERTS)
    for prepare, experts, message in (
        (NoEP(), BatchedExperts(max_num_tokens=8), "NoEP and BatchedExperts: rows of Standard and of BatchedExperts"),
        (InBatches(NoEP(), 8, 4), Experts(), "InBatches and Experts: rows of BatchedExperts and of Standard"),
        (InBatches(NoEP(), 8, 4), BatchedExperts(max_num_tokens=9), "max_num_tokens is 8 and 9"),
        (InBatches(over, 8, 4), BatchedExperts(max_num_tokens=8), "num_dispatchers is 2 and 1"),
        (over, Experts("silu", QuantConfig(quant_dtype="nvfp4")), "OverRanks and Experts: quant_config: quant_dtype: nvfp4"),
    ):
        with pytest.raises(moec.InvalidArgument, match=message):
            ModularKernel(prepare, experts)
    with pytest.raises(moec.InvalidArgument, match="standard format expected, BatchedExperts found"):
        InBatches(InBatches(NoEP(), 8, 4), 8, 4)
    with pytest.raises(moec.InvalidArgument, match="communicator: .* dp 1 x tp 2 found"):
        OverRanks(ranks.local(1, 2)[0], EXPERTS)
    with pytest.raises(moec.InvalidArgument, match=r"owners: \[8\] expected, \[3\] found"):
        OverRanks(ranks.local(RANKS)[0], EXPERTS, owners=OWNERS[:3])


def test_calls_that_do_not_fit() -> None:
    over = OverRanks(ranks.local(RANKS)[0], EXPERTS, max_tokens=4)
    rows, weights, ids = torch.zeros(5, 64), torch.ones(5, 2), torch.zeros(5, 2, dtype=torch.int32)
    with pytest.raises(moec.InvalidArgument, match="a1: 5 rows found, .* at most max_tokens = 4"):
        over.prepare(rows, weights, ids, EXPERTS, None, False, None)
    with pytest.raises(moec.InvalidArgument, match="weights on the input need 1"):
        over.prepare(rows, weights, ids, EXPERTS, None, True, None)
    with pytest.raises(moec.InvalidArgument, match="num_experts: 8 expected, 9 found"):
        over.prepare(rows, weights, ids, 9, None, False, None)
    case = Case(**SIZES)
    experts = Experts("silu", QuantConfig(quant_dtype=torch.float8_e4m3fn, block_shape=[128, 128]))
    with pytest.raises(moec.InvalidArgument, match="hidden_states: torch.float8_e4m3fn and scales expected from prepare"):
        experts.apply(
            torch.empty(5, 256), case["hidden_states"], case["experts.w13"], case["experts.w2"], case["topk_weights"],
            case["topk_ids"], "silu", EXPERTS, None, None, None, torch.empty(0), torch.empty(0), None, False)
    with pytest.raises(moec.InvalidArgument, match="activation: 'silu' expected"):
        Experts().apply(*[case["hidden_states"]] * 6, "gelu", EXPERTS, *[None] * 6, False)


def test_exchange_on_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a part runs on a stream of its own: behind the caller's work, and ahead of what follows the hook."""
    order: list[Any] = []
    current = types.SimpleNamespace(name="current", wait_event=lambda event: order.append(("wait", event.of)))
    own = types.SimpleNamespace(
        name="own", cuda_stream=7, wait_stream=lambda stream: order.append(("behind", stream.name)))
    event = types.SimpleNamespace(of=None)
    event.record = lambda stream: setattr(event, "of", stream.name)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: own)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: order.append(("kept", stream.name)))
    part = types.SimpleNamespace(run=lambda rows, tensors, stream: order.append(("run", rows, list(tensors), stream)))
    exchange = Exchange(ranks.local(RANKS)[0])
    pending = exchange._start_on_stream(part, 3, {"rows": torch.zeros(3)}, lambda: "rows", torch.device("cuda:0"))
    assert order == [("behind", "current"), ("kept", "own"), ("run", 3, ["rows"], 7)]
    assert pending.receive() == "rows" and order[3:] == [("wait", "own")]
