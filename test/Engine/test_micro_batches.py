# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dual-batch overlap with vLLM's contexts of micro-batches: two threads of each of two ranks take turns while rows move,
in vLLM's kernel and in moec's."""

from __future__ import annotations

import importlib.util
import threading
import types
from typing import Any, Callable

import pytest
import torch
from checkpoints import list_formats
from test_formats import EXPERTS, compute, load, make_call, make_layer, verify
from test_modular import LOCAL, RANKS, on_ranks, workspaces  # noqa: F401
from vllm.config import VllmConfig
from vllm.model_executor.layers.fused_moe import modular_kernel
from vllm.model_executor.layers.fused_moe.config import FusedMoEQuantConfig
from vllm.model_executor.layers.fused_moe.expert_map_manager import determine_expert_map
from vllm.model_executor.layers.fused_moe.modular_kernel import FusedMoEKernel
from vllm.v1.worker import ubatching

from moec import InvalidArgument, ranks
from moec.modular import ModularKernel, NoEP
from moec.vllm.experts import MoecExperts
from moec.vllm.prepare import MoecPrepareAndFinalize

PLAIN = list_formats()["16 bits"]
HALVES, LAYERS = 2, 2
#: Rows of the halves of a batch.
SIZES = (3, 2)


def load_ubatching() -> types.ModuleType:
    """vLLM's module of micro-batches, without the state of another rank, which is another process in vLLM, and without
    streams, which need a GPU."""
    module = importlib.util.module_from_spec(ubatching.__spec__)
    ubatching.__spec__.loader.exec_module(module)
    event = types.SimpleNamespace(record=lambda stream: None)
    module.torch = types.SimpleNamespace(
        Event=lambda: event, cuda=types.SimpleNamespace(Stream=object, set_stream=lambda stream: None))
    module.forward_context = types.SimpleNamespace(_forward_context=None)
    module.current_stream = lambda: None
    return module


class Halves:
    """Both halves of a rank's batch, run as vLLM's UBatchWrapper does."""

    def __init__(self) -> None:
        self.module = load_ubatching()
        #: The half that a thread runs.
        self.numbers: dict[int, int] = {}

    def run(self, work: Callable[[int], torch.Tensor]) -> torch.Tensor:
        results: list[Any] = [None] * HALVES
        barrier = threading.Barrier(HALVES + 1)
        contexts = self.module.make_ubatch_contexts(HALVES, None, None, [object(), object()], barrier)

        def run_half(number: int) -> None:
            self.numbers[threading.get_ident()] = number
            try:
                with contexts[number]:
                    results[number] = work(number)
            except BaseException as error:  # noqa: BLE001 - handed to the test
                results[number] = error

        threads = [threading.Thread(target=run_half, args=(number,), daemon=True) for number in range(HALVES)]
        for thread in threads:
            thread.start()
        barrier.wait()
        contexts[0].cpu_wait_event.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return torch.cat(results)


@pytest.fixture
def halves(monkeypatch: pytest.MonkeyPatch) -> list[Halves]:
    """Those of each rank. vLLM's kernel calls the functions of the rank whose thread calls it."""
    found = [Halves() for _ in range(RANKS)]

    def call(name: str) -> Callable[..., Any]:
        def of_rank(*arguments: Any) -> Any:
            rank = next(each for each in found if threading.get_ident() in each.numbers)
            return getattr(rank.module, name)(*arguments)

        return of_rank

    for name in ("dbo_enabled", "dbo_maybe_run_recv_hook", "dbo_register_recv_hook", "dbo_yield"):
        monkeypatch.setattr(modular_kernel, name, call(name))
    return found


class Watched(MoecPrepareAndFinalize):
    """Notes what starts, and which micro-batch starts it."""

    def __init__(self, numbers: dict[int, int], *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.notes: list[tuple[str, int]] = []
        self._numbers = numbers

    def _note(self, what: str) -> None:
        self.notes.append((what, self._numbers[threading.get_ident()]))

    def prepare_async(self, *arguments: Any, **named: Any) -> Any:
        self._note("prepare")
        hook, receive = super().prepare_async(*arguments, **named)
        return self._note_hook(hook), receive

    def finalize_async(self, *arguments: Any, **named: Any) -> Any:
        self._note("finalize")
        hook, receive = super().finalize_async(*arguments, **named)
        return self._note_hook(hook), receive

    def _note_hook(self, hook: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self._note("hook")
            hook()

        return run


# parity: M57, R30
@pytest.mark.parametrize("kind", ["vLLM", "moec"])
def test_halves_take_turns(engine: VllmConfig, workspaces: None, halves: list[Halves], kind: str) -> None:  # noqa: F811
    """Two layers one behind the other, so that hooks of the first are called in the second."""
    layer = make_layer(engine, PLAIN)
    numbers, call = load(layer, PLAIN), make_call()
    communicators = ranks.local(RANKS, limit=20)
    notes: dict[int, list[tuple[str, int]]] = {}

    def work(rank: int) -> torch.Tensor:
        module = halves[rank].module
        prepare = Watched(halves[rank].numbers, communicators[rank], EXPERTS, max_tokens=max(SIZES))
        experts = MoecExperts(layer.moe_config, FusedMoEQuantConfig.make())
        kernel = FusedMoEKernel(prepare, experts) if kind == "vLLM" else ModularKernel(prepare, experts, module)
        notes[rank] = prepare.notes
        _, expert_map, _ = determine_expert_map(RANKS, rank, EXPERTS)
        held = slice(rank * LOCAL, (rank + 1) * LOCAL)
        weights = [each[held].contiguous() for each in (layer.w13_weight, layer.w2_weight)]

        def run_half(number: int) -> torch.Tensor:
            rows = slice(number * SIZES[0], number * SIZES[0] + SIZES[number])
            hidden = call[0][rows].clone()
            outputs = [
                kernel.apply(
                    hidden, *weights, topk_weights=call[1][rows], topk_ids=call[2][rows], activation=layer.activation,
                    global_num_experts=EXPERTS, expert_map=expert_map, apply_router_weight_on_input=False)
                for _ in range(LAYERS)]
            assert torch.equal(*outputs)
            return outputs[-1]

        return halves[rank].run(run_half)

    for output in on_ranks(work):
        verify(output, compute(numbers, call), 1e-2)
    turns = [("prepare", 0), ("hook", 1), ("prepare", 1), ("finalize", 0), ("finalize", 1), ("hook", 0)]
    # The last half has the last hook.
    assert notes[0] == notes[1] == LAYERS * turns + [("hook", 1)]


def test_error_of_one_half(halves: list[Halves]) -> None:
    """The other half goes on, and the rank's next batch runs."""
    def work(number: int) -> torch.Tensor:
        halves[0].module.dbo_yield()
        if number == 0:
            raise InvalidArgument("half 0")
        return torch.ones(1)

    with pytest.raises(InvalidArgument, match="half 0"):
        halves[0].run(work)
    assert halves[0].run(lambda number: torch.ones(1)).sum() == 2


def test_parts_without_turns(engine: VllmConfig) -> None:
    experts = MoecExperts(make_layer(engine, PLAIN).moe_config, FusedMoEQuantConfig.make())
    with pytest.raises(InvalidArgument, match="micro_batches: NoEP runs no two of them in turn"):
        ModularKernel(NoEP(), experts, ubatching)
