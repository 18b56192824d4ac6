# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts that the layer selects from router logits: a compiled layer of entry "logits"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional

import torch

from .. import InvalidArgument
from ..layer_pool import DTYPES
from .experts import CHUNK_TOKENS, Experts


class SelectingExperts(Experts):
    """Experts with a router.

    routing: `routing` of a spec (docs/use/layers.md).
    num_experts: columns of the logits.
    top_k: experts per token.
    selection_bias: [num_experts], if the routing has one.
    logits_dtype: dtype of the next call's logits, or of the last call's.
    records: whether calls write the selected ids."""

    def __init__(
        self,
        activation: Any,
        quant_config: Any,
        *,
        routing: Mapping[str, Any],
        num_experts: int,
        top_k: int,
        selection_bias: Optional[torch.Tensor] = None,
        logits_dtype: torch.dtype = torch.float32,
        parameters: Optional[Mapping[str, float]] = None,
        chunk_tokens: int = CHUNK_TOKENS,
        batch_invariant: bool = False,
        records: bool = False,
    ) -> None:
        super().__init__(
            activation, quant_config, parameters=parameters, chunk_tokens=chunk_tokens, batch_invariant=batch_invariant
        )
        self.routing = dict(routing, selection_bias=selection_bias is not None)
        self.num_experts = num_experts
        self.top_k = top_k
        self.selection_bias = selection_bias
        self.logits_dtype = logits_dtype
        self.records = records
        #: Default for is_padding.
        self._no_padding: Optional[torch.Tensor] = None

    def describe(
        self, w1: torch.Tensor, w2: torch.Tensor, hidden: int, dtype: torch.dtype, top_k: int
    ) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        spec, weights = super().describe(w1, w2, hidden, dtype, top_k)
        if spec["num_experts"] != self.num_experts:
            raise InvalidArgument(
                f"w1: {self.num_experts} experts expected, as the router has, {spec['num_experts']} found"
            )
        spec["entry"] = "logits"
        spec["routing"] = {**self.routing, "logits_dtype": DTYPES[self.logits_dtype]}
        spec["padding_mask"] = True
        if self.records:
            spec["record_ids"] = "int16"
        if self.selection_bias is not None:
            weights["gate.selection_bias"] = self.selection_bias.float().contiguous()
        if self._no_padding is None:
            self._no_padding = torch.zeros(self.chunk_tokens, dtype=torch.int8, device=w1.device)
        return spec, weights

    def _list_more(self) -> list[torch.Tensor]:
        bias = self.selection_bias
        return super()._list_more() + ([] if bias is None else [bias])

    def _read_logits(self, logits: torch.Tensor) -> torch.Tensor:
        """Converts logits for the layer. A layer that holds its weights is compiled for one dtype; other dtypes are
        converted if that is exact."""
        if logits.dtype == self.logits_dtype:
            return logits
        if self._held is None:
            self.logits_dtype, self._stamp = logits.dtype, None
        elif torch.promote_types(logits.dtype, self.logits_dtype) != self.logits_dtype:
            raise InvalidArgument(
                f"router_logits: {self.logits_dtype} expected, for which the weights are prepared, {logits.dtype} found; in vLLM "
                "state router_logits_dtype of the model's layers, or set MOEC_VLLM_ROUTER=0"
            )
        return logits.to(self.logits_dtype)

    def _read_padding(self, is_padding: Optional[torch.Tensor], tokens: int) -> torch.Tensor:
        if is_padding is not None:
            return is_padding.view(torch.int8)
        assert self._no_padding is not None
        if tokens <= self.chunk_tokens:
            return self._no_padding[:tokens]
        return self._no_padding.new_zeros(tokens)

    def _make_records(self, recorded_ids: Optional[torch.Tensor], like: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the outputs of a layer that records ids. No caller wants the weights."""
        if not self.records:
            if recorded_ids is not None:
                raise InvalidArgument("recorded_ids: the experts record none; make them with records=True")
            return {}
        shape = (like.shape[0], self.top_k)
        if recorded_ids is None:
            recorded_ids = like.new_empty(shape, dtype=torch.int16)
        elif tuple(recorded_ids.shape) != shape or recorded_ids.dtype != torch.int16:
            raise InvalidArgument(
                f"recorded_ids: {list(shape)} of int16 expected, {list(recorded_ids.shape)} of {recorded_ids.dtype} found"
            )
        return {"topk_ids": recorded_ids, "topk_weights": like.new_empty(shape, dtype=torch.float32)}

    def select_and_run(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        router_logits: torch.Tensor,
        is_padding: Optional[torch.Tensor] = None,
        find_workspace: Callable[[int], Optional[torch.Tensor]] = lambda size: None,
        recorded_ids: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Returns the output, [T, H].

        hidden_states: [T, H].
        router_logits: [T, E], f32, bf16 or f16.
        is_padding: bool [T], tokens that contribute nothing.
        find_workspace: called with a size in bytes; returns uint8 memory of the caller on a GPU, or None.
        recorded_ids: int16 [T, k], receives the selected ids; -1 for padding.

        Raises InvalidArgument."""
        tokens, hidden = hidden_states.shape
        if tuple(router_logits.shape) != (tokens, self.num_experts) or router_logits.dtype not in DTYPES:
            raise InvalidArgument(
                f"router_logits: [{tokens}, {self.num_experts}] of float32, bfloat16 or float16 expected, "
                f"{list(router_logits.shape)} of {router_logits.dtype} found"
            )
        if is_padding is not None and (tuple(is_padding.shape) != (tokens,) or is_padding.dtype != torch.bool):
            raise InvalidArgument(
                f"is_padding: [{tokens}] of bool expected, {list(is_padding.shape)} of {is_padding.dtype} found"
            )
        records = self._make_records(recorded_ids, hidden_states)
        hidden_states = hidden_states.contiguous()
        out = torch.empty_like(hidden_states)
        with self._lock:
            router_logits = self._read_logits(router_logits)
            layer = self._prepare(w1, w2, hidden, hidden_states.dtype, self.top_k)
            workspace = find_workspace(layer.layer.workspace_bytes(min(tokens, self.chunk_tokens)))
            inputs = {
                "router_logits": router_logits.contiguous(), "is_padding": self._read_padding(is_padding, tokens),
                **records,
            }
            return layer.call(hidden_states, inputs, out, workspace)
