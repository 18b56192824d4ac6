# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions that engines call around their experts, with the engines' names and signatures.

    from moec.functions import fused_experts, fused_topk

    weights, ids, _ = fused_topk(hidden_states, router_logits, topk=8, renormalize=True)
    output = fused_experts(hidden_states, w13, w2, weights, ids)

Each function runs a layer, or a part of one, compiled for the shapes and options of the call (docs/use/engines.md has the
list). Compiled layers are kept and reused by description. Tensors are PyTorch tensors on the CPU or on a GPU, where all
work is enqueued on the current stream."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError(
        "moec.functions needs PyTorch; install it, as with pip install torch"
    ) from error

from .adapters import Adapters
from .alignment import (
    batched_moe_align_block_size,
    count_expert_num_tokens,
    moe_align_block_size,
)
from .balancing import rebalance_experts
from .experts import batched_experts, clear, fused_experts
from .expert_maps import determine_expert_map, make_round_robin_tables
from .permutation import moe_permute, moe_unpermute
from .quantization import QuantConfig
from .quantization_configs import (
    biased_moe_quant_config,
    fp8_w8a16_moe_quant_config,
    fp8_w8a8_moe_quant_config,
    gptq_marlin_moe_quant_config,
    int4_w4a16_moe_quant_config,
    int4_w4afp8_moe_quant_config,
    int8_w8a16_moe_quant_config,
    int8_w8a8_moe_quant_config,
    mxfp4_moe_quant_config,
    mxfp4_mxfp8_moe_quant_config,
    mxfp4_w4a16_moe_quant_config,
    mxfp4_w4a8_moe_quant_config,
    nvfp4_moe_quant_config,
    nvfp4_w4a16_moe_quant_config,
    ocp_mx_moe_quant_config,
)
from .routing import fused_topk, fused_topk_bias, grouped_topk
from .slot_sums import _moe_permute, _moe_unpermute_and_reduce, moe_sum

__all__ = [
    "Adapters",
    "QuantConfig",
    "_moe_permute",
    "_moe_unpermute_and_reduce",
    "batched_experts",
    "batched_moe_align_block_size",
    "biased_moe_quant_config",
    "clear",
    "count_expert_num_tokens",
    "determine_expert_map",
    "fp8_w8a16_moe_quant_config",
    "fp8_w8a8_moe_quant_config",
    "fused_experts",
    "fused_topk",
    "fused_topk_bias",
    "gptq_marlin_moe_quant_config",
    "grouped_topk",
    "int4_w4a16_moe_quant_config",
    "int4_w4afp8_moe_quant_config",
    "int8_w8a16_moe_quant_config",
    "int8_w8a8_moe_quant_config",
    "make_round_robin_tables",
    "moe_align_block_size",
    "moe_permute",
    "moe_sum",
    "moe_unpermute",
    "mxfp4_moe_quant_config",
    "mxfp4_mxfp8_moe_quant_config",
    "mxfp4_w4a16_moe_quant_config",
    "mxfp4_w4a8_moe_quant_config",
    "nvfp4_moe_quant_config",
    "nvfp4_w4a16_moe_quant_config",
    "ocp_mx_moe_quant_config",
    "rebalance_experts",
]

del torch
