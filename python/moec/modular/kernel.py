# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepare, experts and finalize put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import torch

from .. import InvalidArgument
from ..functions.quantization import QuantConfig
from .input_quantization import describe_input
from .metadata import SharedResizableBuffer
from .shared_experts import SharedExperts
from .weight_and_reduce import TopKWeightAndReduceDelegate


def _get_format(part: Any) -> str:
    """The name of the activation format: a property of prepare, a method of experts, of moec or vLLM."""
    found = part.activation_format
    return (found() if callable(found) else found).name


def _is_of_vllm(part: Any) -> bool:
    return type(part).__module__.startswith("vllm.")


def check_parts(prepare_finalize: Any, fused_experts: Any) -> None:
    """Raises InvalidArgument for parts that do not fit, with both by name."""
    names = f"{type(prepare_finalize).__name__} and {type(fused_experts).__name__}"
    formats = _get_format(prepare_finalize), _get_format(fused_experts)
    if formats[0] != formats[1]:
        raise InvalidArgument(
            f"{names}: rows of {formats[0]} and of {formats[1]}; give experts of that format, or InBatches(...) around "
            "prepare and finalize")
    most, dispatchers = (getattr(fused_experts, name, None) for name in ("max_num_tokens", "num_dispatchers"))
    given = prepare_finalize.max_num_tokens_per_rank()
    if most is not None and given is not None and most != given:
        raise InvalidArgument(f"{names}: max_num_tokens is {given} and {most}; give both the same")
    if dispatchers is not None and dispatchers != prepare_finalize.num_dispatchers():
        raise InvalidArgument(
            f"{names}: num_dispatchers is {prepare_finalize.num_dispatchers()} and {dispatchers}; give both the same")
    config = fused_experts.quant_config
    if not _is_of_vllm(prepare_finalize):
        _check_scales(names, config, fused_experts.expects_unquantized_inputs)
    elif isinstance(config, QuantConfig):
        raise InvalidArgument(
            f"{names}: the first reads more of a quant_config than a QuantConfig has; give the experts vLLM's "
            "FusedMoEQuantConfig")


def _check_scales(names: str, config: Any, is_deferred: bool) -> None:
    """Raises InvalidArgument for experts that take rows and scales which moec's prepare does not make."""
    if is_deferred:
        return
    try:
        describe_input(config, hidden=1)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{names}: {error}, or by the experts, with expects_unquantized_inputs") from None


class _Memory:
    """Memory of the experts' output and of their workspaces."""

    def __init__(self) -> None:
        self._output, self._first, self._second = (SharedResizableBuffer() for _ in range(3))

    def get(
        self, shapes: Sequence[tuple[int, ...]], device: torch.device, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the output and both workspaces, in the order of workspace_shapes(): the output is the last shape."""
        first, second, shape = shapes
        output = self._output.get(shape, device, dtype)
        workspaces = (
            buffer.get(each, device, dtype) if math.prod(each) else output.new_empty(0)
            for buffer, each in ((self._first, first), (self._second, second)))
        return output, *workspaces


class ModularKernel:
    """A kernel of any prepare/finalize and any experts that fit, moec's or vLLM's. Parts that do not fit raise
    InvalidArgument here.

    micro_batches: has the functions of the module vllm.v1.worker.ubatching, which may be given. Where its threads run
        micro-batches in turn, a call hands its hooks to the next micro-batch, and yields to it while rows move."""

    def __init__(self, prepare_finalize: Any, fused_experts: Any, micro_batches: Any = None) -> None:
        check_parts(prepare_finalize, fused_experts)
        if micro_batches is not None and not prepare_finalize.supports_dbo():
            raise InvalidArgument(
                f"micro_batches: {type(prepare_finalize).__name__} runs no two of them in turn; give a prepare/finalize "
                "with prepare_async, such as OverRanks, or no micro_batches")
        self.prepare_finalize = prepare_finalize
        self.fused_experts = fused_experts
        self.micro_batches = micro_batches
        #: By micro-batch, since one writes while another's rows are on their way.
        self._memory: dict[int, _Memory] = {}
        prepare_finalize.post_init_setup(fused_experts)

    def output_is_reduced(self) -> bool:
        """Returns whether ranks that share tokens have nothing left to add."""
        return self.prepare_finalize.output_is_reduced()

    def _find_reduction(self) -> Any:
        """What the experts leave to finalize. vLLM's finalize knows its own Delegate only."""
        impl = self.fused_experts.finalize_weight_and_reduce_impl()
        if _is_of_vllm(self.prepare_finalize) and isinstance(impl, TopKWeightAndReduceDelegate):
            from vllm.model_executor.layers.fused_moe import topk_weight_and_reduce

            return topk_weight_and_reduce.TopKWeightAndReduceDelegate()
        return impl

    def _prepare(self, arguments: tuple[Any, ...]) -> Any:
        is_deferred = self.fused_experts.expects_unquantized_inputs
        arguments = (*arguments, self.fused_experts.quant_config, is_deferred)
        if not self.prepare_finalize.supports_async():
            return self.prepare_finalize.prepare(*arguments)
        if self.micro_batches is not None:
            self.micro_batches.dbo_maybe_run_recv_hook()
        return self._receive(self.prepare_finalize.prepare_async(*arguments))

    def _receive(self, pending: Any) -> Any:
        """Waits for a receiver, or a pair of hook and receiver, after another micro-batch has had its turn."""
        hook, receive = pending if isinstance(pending, tuple) else (None, pending)
        if hook is not None and self.micro_batches is not None and self.micro_batches.dbo_enabled():
            self.micro_batches.dbo_register_recv_hook(hook)
            self.micro_batches.dbo_yield()
        elif hook is not None:
            hook()
        return receive()

    def _get_memory(self) -> _Memory:
        number = 0 if self.micro_batches is None else self.micro_batches.dbo_current_ubatch_id()
        return self._memory.setdefault(number, _Memory())

    def _run_experts(
        self, dtype: torch.dtype, rows: torch.Tensor, scale: Any, weights: tuple[torch.Tensor, torch.Tensor],
        choice: tuple[torch.Tensor, torch.Tensor], activation: Any, global_num_experts: int, expert_map: Any, meta: Any,
        on_input: bool,
    ) -> torch.Tensor:
        experts = self.fused_experts
        _, M, N, K, top_k = experts.moe_problem_size(rows, *weights, choice[1])
        if M == 0:
            return rows.new_empty((*rows.shape[:-1], experts.output_hidden_dim(K)), dtype=dtype)
        shapes = experts.workspace_shapes(M, N, K, top_k, global_num_experts, weights[0].shape[0], meta, activation)
        output, first, second = self._get_memory().get(shapes, rows.device, experts.workspace_dtype(dtype))
        experts.apply(
            output=output, hidden_states=rows, w1=weights[0], w2=weights[1], topk_weights=choice[0], topk_ids=choice[1],
            activation=activation, global_num_experts=global_num_experts, expert_map=expert_map, a1q_scale=scale,
            a2_scale=getattr(experts.quant_config, "a2_scale", None), workspace13=first, workspace2=second,
            expert_tokens_meta=meta, apply_router_weight_on_input=on_input,
        )
        return output

    @torch.no_grad()
    def apply(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: Any = "silu",
        global_num_experts: int = -1,
        expert_map: Optional[torch.Tensor] = None,
        apply_router_weight_on_input: bool = False,
        shared_experts: Optional[Callable[[torch.Tensor], torch.Tensor]] = None,
        shared_experts_input: Optional[torch.Tensor] = None,
    ) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Returns the output for hidden_states [T, H], or with shared_experts a pair: theirs, and the routed one.

        w1, w2: the weights of this rank's experts.
        topk_ids: ids of all ranks' experts.
        global_num_experts: experts of all ranks; -1: those of w1.
        expert_map: i32 [global_num_experts], this rank's experts; -1 for those of others.
        shared_experts: called while rows return, with shared_experts_input, else hidden_states; SharedExperts may run on
            a stream of their own.

        Raises InvalidArgument, and the communicator's exception if a rank does not come."""
        total = w1.shape[0] if global_num_experts == -1 else global_num_experts
        given = hidden_states if shared_experts_input is None else shared_experts_input
        begun = shared_experts.start(given) if isinstance(shared_experts, SharedExperts) else None
        rows, scale, meta, ids, weights = self._prepare(
            (hidden_states, topk_weights, topk_ids, total, expert_map, apply_router_weight_on_input))
        choice = topk_weights if weights is None else weights, topk_ids if ids is None else ids
        made = self._run_experts(
            hidden_states.dtype, rows, scale, (w1, w2), choice, activation, total, expert_map, meta,
            apply_router_weight_on_input)
        width = self.fused_experts.output_hidden_dim(hidden_states.shape[-1])
        output = hidden_states.new_empty((*hidden_states.shape[:-1], width))
        arguments = (
            output, made, *choice, apply_router_weight_on_input, self._find_reduction())
        pending = None
        if self.prepare_finalize.supports_async():
            pending = self.prepare_finalize.finalize_async(*arguments)
        else:
            self.prepare_finalize.finalize(*arguments)
        shared = None
        if shared_experts is not None:
            shared = shared_experts(given) if begun is None else begun()
        if pending is not None:
            self._receive(pending)
        return output if shared_experts is None else (shared, output)
