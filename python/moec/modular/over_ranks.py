# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepare and finalize over the ranks of a communicator, which decides how rows move: all-gather and reduce-scatter,
peer memory, or messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

import torch

from .. import InvalidArgument
from ..functions.expert_maps import read_ids
from ..functions.outputs import check_output
from .exchange import Exchange, Pending, as_rows, names, pad_rows, write_combine, write_dispatch
from .formats import ActivationFormat
from .input_quantization import InputQuantization, describe_input, find_tensor_scale
from .prepare_finalize import PrepareAndFinalize, PrepareResult, reduce_rows, weigh_input

#: Rows of a rank in one exchange, unless the caller says otherwise.
MAX_TOKENS = 16384




class _Gather:
    """The dispatch of rows, and of what goes along with them."""

    def __init__(
        self, exchange: Exchange, max_tokens: int, num_experts: int, owners: Optional[torch.Tensor],
        rows: Optional[int],
    ) -> None:
        self.exchange = exchange
        self.max_tokens = max_tokens
        self.num_experts = num_experts
        self.owners = owners
        self.rows = rows

    def find_quantization(self, a1: torch.Tensor, quant_config: Any, is_deferred: bool) -> Optional[InputQuantization]:
        """Returns how rows travel; None if they travel as they are. One scale for all rows of a call is that of all
        ranks' rows: an exchange of its own finds it, which runs ahead of those that are started next."""
        found = None if is_deferred else describe_input(quant_config, a1.shape[1])
        if found is None or found.columns or found.given is not None:
            return found
        own = find_tensor_scale(a1, found).view(1, 1)
        every = own.new_empty((self.exchange.ranks, 1))
        text = write_dispatch({"scale": own}, None, self.exchange.ranks, self.num_experts, self.max_tokens, None)
        self.exchange.start(text, None, 1, {"scale": own, "all_scale": every}, lambda: None).receive()
        return dataclasses.replace(found, given=every.max().view(1))

    def start(
        self, a1: torch.Tensor, quantization: Optional[InputQuantization], beside: dict[str, torch.Tensor], result: Any
    ) -> Pending:
        """Starts it. `result` gets the rows, their scales, and by name what has come beside them."""
        own, rows = a1.shape[0], a1.shape[0] if self.rows is None else self.rows
        if not own <= rows <= self.max_tokens:
            raise InvalidArgument(
                f"a1: {own} rows found, where this exchange has {rows} of each rank; at most max_tokens = "
                f"{self.max_tokens} are accepted")
        # Padding has no experts.
        given = {"hidden_states": pad_rows(as_rows(a1), rows)} | {
            name: pad_rows(as_rows(each), rows, -1 if name == "ids" else 0) for name, each in beside.items()}
        choice = "ids" if self.owners is not None else None
        text = write_dispatch(given, quantization, self.exchange.ranks, self.num_experts, self.max_tokens, choice)
        total = self.exchange.ranks * rows
        made = {f"all_{name}": each.new_empty((total, each.shape[1])) for name, each in given.items()}
        inputs = dict(given)
        if quantization is not None:
            del made["all_hidden_states"]
            made["all_quantized"] = a1.new_empty((total, a1.shape[1]), dtype=quantization.dtype)
            if quantization.columns:
                made["all_scale"] = a1.new_empty((total, quantization.columns), dtype=torch.float32)
            else:
                assert quantization.given is not None
                inputs["tensor_scale"] = quantization.given.to(torch.float32).reshape(1)

        def receive() -> Any:
            moved = made.get("all_quantized", made.get("all_hidden_states"))
            scale = made.get("all_scale", inputs.get("tensor_scale"))
            come = {
                name: made[f"all_{name}"].view(each.dtype).view(total, *each.shape[1:]) for name, each in beside.items()}
            return result(moved, scale, come)

        return self.exchange.start(text, self.owners, rows, inputs | made, receive)


def _start_combine(gather: _Gather, rows: torch.Tensor, output: torch.Tensor, ids: Optional[torch.Tensor]) -> Pending:
    """Starts the sum of the ranks' [ranks * T, H], of which each rank gets its own rows."""
    exchange, total = gather.exchange, rows.shape[0]
    own = total // exchange.ranks
    if total != own * exchange.ranks or output.shape[0] > own:
        raise InvalidArgument(
            f"fused_expert_output: rows of {exchange.ranks} ranks expected, with output of {output.shape[0]} rows, "
            f"{total} found")
    check_output(output, "output", (output.shape[0], rows.shape[1]), rows)
    tensors = {"partial": rows.contiguous()}
    if gather.owners is not None and ids is not None:
        tensors["all_ids"] = read_ids(ids).contiguous()
        first = exchange.communicator.rank * own
        # Tensors on a GPU begin at multiples of 16 bytes.
        tensors["ids"] = tensors["all_ids"][first:first + own].clone()
    top_k = tensors["ids"].shape[1] if "ids" in tensors else None
    text = write_combine(
        rows.shape[1], rows.dtype, exchange.ranks, gather.num_experts, gather.max_tokens, top_k)
    is_whole = output.shape[0] == own and output.is_contiguous()
    target = output if is_whole else rows.new_empty((own, rows.shape[1]))
    tensors["output"] = target

    def receive() -> None:
        if target is not output:
            output.copy_(target[: output.shape[0]])

    return exchange.start(text, gather.owners if top_k is not None else None, own, tensors, receive)


class OverRanks(PrepareAndFinalize):
    """Rows of all ranks for the experts of each. All ranks call it alike, with as many rows.

    communicator: of moec.ranks, or the Exchange of another OverRanks, whose exchanges run in turn with these.
    num_experts: experts of all ranks.
    max_tokens: most rows of a rank.
    owners: i32 [num_experts], the rank of each expert; rows then go to ranks that have one of their experts, where the
        communicator can, and are undefined on others.
    topk_indices_dtype: dtype of the ids that experts get: torch.int32, int64 or uint32; None: that of the caller.

    extra_tensors, set ahead of prepare(), go along with the rows, a row or an element per token; received_tensors has
    what came, of all ranks. rows, if set, is the number of rows of each rank in the next exchanges, at least as many as
    any rank has; fewer are padded with rows that have no experts."""

    activation_format = ActivationFormat.Standard

    def __init__(
        self,
        communicator: Any,
        num_experts: int,
        *,
        max_tokens: int = MAX_TOKENS,
        owners: Optional[torch.Tensor] = None,
        topk_indices_dtype: Optional[torch.dtype] = None,
    ) -> None:
        if topk_indices_dtype not in (None, torch.int32, torch.int64, torch.uint32):
            raise InvalidArgument(
                f"topk_indices_dtype: {topk_indices_dtype} found; torch.int32, torch.int64 and torch.uint32 are accepted")
        if owners is not None and tuple(owners.shape) != (num_experts,):
            raise InvalidArgument(f"owners: [{num_experts}] expected, {list(owners.shape)} found")
        self.exchange = communicator if isinstance(communicator, Exchange) else Exchange(communicator)
        self.num_experts = num_experts
        self.max_tokens = max_tokens
        self.owners = None if owners is None else owners.to(torch.int32)
        self.extra_tensors: Sequence[torch.Tensor] = ()
        self.received_tensors: list[torch.Tensor] = []
        self.rows: Optional[int] = None
        self._indices = topk_indices_dtype

    def topk_indices_dtype(self) -> Optional[torch.dtype]:
        """Returns the dtype of the ids that experts get; None: that of the caller."""
        return self._indices

    def num_dispatchers(self) -> int:
        """Returns the number of ranks whose rows come."""
        return self.exchange.ranks

    def supports_async(self) -> bool:
        """Returns whether prepare_async and finalize_async exist."""
        return True

    def _gather(self) -> _Gather:
        return _Gather(self.exchange, self.max_tokens, self.num_experts, self.owners, self.rows)

    def _start_prepare(
        self,
        a1: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        num_experts: int,
        expert_map: Optional[torch.Tensor],
        apply_router_weight_on_input: bool,
        quant_config: Any,
        defer_input_quant: bool = False,
    ) -> Pending:
        if num_experts not in (-1, self.num_experts):
            raise InvalidArgument(f"num_experts: {self.num_experts} expected, {num_experts} found")
        rows = weigh_input(a1, topk_weights, apply_router_weight_on_input)
        gather = self._gather()
        quantization = gather.find_quantization(rows, quant_config, defer_input_quant)
        extras = dict(zip(names(self.extra_tensors, "extra"), self.extra_tensors))
        beside = {"ids": read_ids(topk_ids), "weights": topk_weights.to(torch.float32), **extras}
        indices = self._indices or topk_ids.dtype

        def receive(
            moved: torch.Tensor, scale: Optional[torch.Tensor], come: dict[str, torch.Tensor]
        ) -> PrepareResult:
            self.received_tensors = [come[name] for name in extras]
            return moved, scale, None, come["ids"].to(indices), come["weights"].to(topk_weights.dtype)

        return gather.start(rows, quantization, beside, receive)

    def prepare(self, *arguments: Any, **named: Any) -> PrepareResult:
        """Quantizes rows, unless experts do (defer_input_quant), and brings them to the experts."""
        return self._start_prepare(*arguments, **named).receive()

    def prepare_async(self, *arguments: Any, **named: Any) -> Any:
        """Starts prepare(). Returns a hook, which waits for it, and a receiver, which returns its result, once."""
        pending = self._start_prepare(*arguments, **named)
        return pending.hook, pending.receive

    def _start_finalize(
        self,
        output: torch.Tensor,
        fused_expert_output: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        apply_router_weight_on_input: bool,
        weight_and_reduce_impl: Any,
    ) -> Pending:
        rows = reduce_rows(
            weight_and_reduce_impl, None, fused_expert_output, topk_weights, topk_ids, apply_router_weight_on_input)
        return _start_combine(self._gather(), rows, output, topk_ids)

    def finalize(self, *arguments: Any, **named: Any) -> None:
        """Weighs and adds what experts have left, and writes `output`."""
        self._start_finalize(*arguments, **named).receive()

    def finalize_async(self, *arguments: Any, **named: Any) -> Any:
        """Starts finalize(). Returns a hook and a receiver, after which the output is valid."""
        pending = self._start_finalize(*arguments, **named)
        return pending.hook, pending.receive


class OverRanksLogits:
    """What OverRanks is for experts that route themselves: router logits go along with the rows. Arguments and rows are
    those of OverRanks."""

    activation_format = ActivationFormat.Standard

    def __init__(self, communicator: Any, num_experts: int, *, max_tokens: int = MAX_TOKENS) -> None:
        self.exchange = communicator if isinstance(communicator, Exchange) else Exchange(communicator)
        self.num_experts = num_experts
        self.max_tokens = max_tokens
        self.rows: Optional[int] = None

    def num_dispatchers(self) -> int:
        """Returns the number of ranks whose rows come."""
        return self.exchange.ranks

    def _gather(self) -> _Gather:
        return _Gather(self.exchange, self.max_tokens, self.num_experts, None, self.rows)

    def prepare(
        self, a1: torch.Tensor, router_logits: torch.Tensor, quant_config: Any, defer_input_quant: bool = False
    ) -> tuple[torch.Tensor, Optional[torch.Tensor], torch.Tensor]:
        """Returns rows, their scales and the logits, of all ranks."""
        gather = self._gather()
        quantization = gather.find_quantization(a1, quant_config, defer_input_quant)
        pending = gather.start(
            a1, quantization, {"logits": router_logits}, lambda rows, scale, come: (rows, scale, come["logits"]))
        return pending.receive()

    def finalize(self, fused_expert_output: torch.Tensor) -> torch.Tensor:
        """Returns the sums of this rank's rows."""
        own = fused_expert_output.shape[0] // self.exchange.ranks
        output = fused_expert_output.new_empty((own, fused_expert_output.shape[1]))
        _start_combine(self._gather(), fused_expert_output, output, None).receive()
        return output
