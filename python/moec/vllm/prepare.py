# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec's exchange of rows between ranks as prepare and finalize of vLLM's modular kernel, around any experts."""

from __future__ import annotations

from typing import Any

import vllm.model_executor.layers.fused_moe.modular_kernel as mk

from ..modular import InBatches, OverRanks


class MoecPrepareAndFinalize(OverRanks, mk.FusedMoEPrepareAndFinalizeModular):
    """moec.modular.OverRanks for experts of the standard format, vLLM's or moec's."""

    @property
    def activation_format(self) -> mk.FusedMoEActivationFormat:  # type: ignore[override]
        """Rows of tokens."""
        return mk.FusedMoEActivationFormat.Standard


class MoecBatchedPrepareAndFinalize(InBatches, mk.FusedMoEPrepareAndFinalizeModular):
    """The same for experts of the batched format.

    communicator, num_experts, options: as in moec.modular.OverRanks.
    max_num_tokens, num_local_experts: as in moec.modular.InBatches."""

    def __init__(
        self, communicator: Any, num_experts: int, max_num_tokens: int, num_local_experts: int, **options: Any
    ) -> None:
        over = OverRanks(communicator, num_experts, max_tokens=max_num_tokens, **options)
        super().__init__(over, max_num_tokens, num_local_experts, over.exchange.communicator.rank)

    @property
    def activation_format(self) -> mk.FusedMoEActivationFormat:  # type: ignore[override]
        """Rows of each expert."""
        return mk.FusedMoEActivationFormat.BatchedExperts
