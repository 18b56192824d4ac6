# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shared experts beside the routed ones, on a stream of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional

import torch

#: Rows up to which two streams are faster than one, as in vLLM.
STREAM_TOKENS = 256


class SharedExperts:
    """Any module for ModularKernel.apply(shared_experts=...). On a GPU, calls with few rows run on a stream of their own,
    ahead of prepare and beside it and the routed experts; those with more run while rows return.

    module: called with rows [T, H]; returns a tensor.
    stream_tokens: most rows of a call on a stream of its own; 0: the caller's stream runs all calls."""

    def __init__(self, module: Callable[[torch.Tensor], torch.Tensor], *, stream_tokens: int = STREAM_TOKENS) -> None:
        self.module = module
        self.stream_tokens = stream_tokens
        self._streams: dict[torch.device, Any] = {}

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        return self.module(rows)

    def start(self, rows: torch.Tensor) -> Optional[Callable[[], torch.Tensor]]:
        """Runs the module on a stream of its own. Returns what waits for its result; None if the call has too many
        rows, or no GPU."""
        if rows.device.type != "cuda" or rows.shape[0] > self.stream_tokens:
            return None
        stream = self._streams.get(rows.device)
        if stream is None:
            stream = self._streams[rows.device] = torch.cuda.Stream(rows.device)
        stream.wait_stream(torch.cuda.current_stream(rows.device))
        rows.record_stream(stream)
        with torch.cuda.stream(stream):
            made = self.module(rows)

        def receive() -> torch.Tensor:
            current = torch.cuda.current_stream(rows.device)
            current.wait_stream(stream)
            made.record_stream(current)
            return made

        return receive
