# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec's exchange of rows in vLLM's data and expert parallelism, in place of its all-gather and reduce-scatter, around
moec's experts or vLLM's: MOEC_EXCHANGE=1 (docs/use/engines.md)."""

from __future__ import annotations

import functools
import os
from typing import Any, Optional

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.distributed import get_ep_group
from vllm.forward_context import get_forward_context, is_forward_context_available
from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig

from .. import ranks
from ..modular.exchange import Exchange, Pending
from .prepare import MoecPrepareAndFinalize
from .report import tell_exchange


def is_asked() -> bool:
    return os.environ.get("MOEC_EXCHANGE", "0") not in ("", "0")


@functools.cache
def _connect() -> Exchange:
    """The exchange of all layers, which run one after the other."""
    group = get_ep_group().device_group
    # A process group has no communicator of NCCL before its first collective.
    torch.distributed.all_reduce(torch.zeros(1, device=torch.device("cuda", torch.cuda.current_device())), group=group)
    return Exchange(ranks.from_process_group(group))


def count_rows(own: int) -> int:
    """Returns the rows of the rank that has most, as vLLM's forward context knows."""
    metadata = get_forward_context().dp_metadata if is_forward_context_available() else None
    return own if metadata is None else max(own, int(metadata.num_tokens_across_dp_cpu.max()))


class InEngine(MoecPrepareAndFinalize):
    """MoecPrepareAndFinalize for ranks with other numbers of rows."""

    def _start_prepare(self, a1: torch.Tensor, *arguments: Any, **named: Any) -> Pending:
        self.rows = count_rows(a1.shape[0])
        return super()._start_prepare(a1, *arguments, **named)


def find_reason(kernel: mk.FusedMoEKernel, moe: FusedMoEConfig) -> Optional[str]:
    """Returns why vLLM's exchange stays; None if moec's can replace it."""
    parallel = moe.moe_parallel_config
    if not parallel.use_ep or parallel.dp_size != parallel.ep_size:
        return "ranks of one expert-parallel group have the same tokens (tensor parallelism)"
    if parallel.is_sequence_parallel or parallel.pcp_size > 1:
        return "ranks have parts of one sequence"
    if not parallel.use_ag_rs_all2all_kernels:
        return f"--all2all-backend asks for {parallel.all2all_backend}"
    if kernel.is_monolithic:
        return "experts take logits"
    return None


def replace(kernel: mk.FusedMoEKernel, moe: FusedMoEConfig) -> mk.FusedMoEKernel:
    """Returns a kernel with the same experts and moec's exchange, if MOEC_EXCHANGE asks for it and it can be."""
    is_replaced = isinstance(kernel.prepare_finalize, InEngine)
    if is_replaced or not is_asked() or moe.moe_parallel_config.dp_size == 1:
        return kernel
    reason = find_reason(kernel, moe)
    tell_exchange(reason)
    if reason is not None:
        return kernel
    prepare = InEngine(_connect(), moe.num_experts, max_tokens=moe.max_num_tokens)
    return mk.FusedMoEKernel(prepare, kernel.fused_experts)
