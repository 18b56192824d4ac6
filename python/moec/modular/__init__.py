# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepare, experts and finalize as parts that mix (docs/design/parts.md), with the names and calls of vLLM's modular
kernel.

    from moec import ranks
    from moec.modular import Experts, ModularKernel, OverRanks

    communicator = ranks.connect(dp=2)
    kernel = ModularKernel(OverRanks(communicator, num_experts=128), Experts("silu", quant_config))
    output = kernel.apply(hidden_states, w13, w2, weights, ids, global_num_experts=128, expert_map=expert_map)

Each part can be called alone, and stand beside one of vLLM's."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError("moec.modular needs PyTorch; install it, as with pip install torch") from error

from .exchange import Exchange
from .experts import BatchedExperts, Experts
from .formats import ActivationFormat, from_batches, to_batches
from .input_quantization import quantize_input
from .kernel import ModularKernel
from .metadata import ExpertTokensMetadata, SharedResizableBuffer
from .over_ranks import OverRanks, OverRanksLogits
from .prepare_finalize import InBatches, NoEP, NoEPLogits, PrepareAndFinalize
from .shared_experts import SharedExperts
from .weight_and_reduce import (
    TopKWeightAndReduce,
    TopKWeightAndReduceContiguous,
    TopKWeightAndReduceDelegate,
    TopKWeightAndReduceNaiveBatched,
    TopKWeightAndReduceNoOP,
)

__all__ = [
    "ActivationFormat",
    "BatchedExperts",
    "Exchange",
    "ExpertTokensMetadata",
    "Experts",
    "InBatches",
    "ModularKernel",
    "NoEP",
    "NoEPLogits",
    "OverRanks",
    "OverRanksLogits",
    "PrepareAndFinalize",
    "SharedExperts",
    "SharedResizableBuffer",
    "TopKWeightAndReduce",
    "TopKWeightAndReduceContiguous",
    "TopKWeightAndReduceDelegate",
    "TopKWeightAndReduceNaiveBatched",
    "TopKWeightAndReduceNoOP",
    "from_batches",
    "quantize_input",
    "to_batches",
]

del torch
