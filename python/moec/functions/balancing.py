# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement of expert replicas by load: the expert-parallel load balancer (EPLB) of DeepSeek.

The tables are computed on the host between calls. A layer with `replicas` takes them as `replicas.physical_ids` and
`replicas.counts`, and counts loads with `record_load` (docs/use/layers.md)."""

from __future__ import annotations

import torch

from .. import InvalidArgument, _core
from .arguments import check_count, check_numbers, check_tensor


def rebalance_experts(
    weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Chooses the experts to replicate and the placement of all replicas for the next calls.

    weight: [layers, E], the load of each logical expert.
    num_replicas: number of physical experts P, a multiple of num_gpus.
    num_groups: groups of experts that a token's selection is limited to. If num_nodes divides it, the experts of a
        group stay on one node; otherwise replicas are spread over all GPUs.
    num_nodes, num_gpus: number of nodes, and of GPUs on all nodes together.

    Returns three i64 tensors: the logical expert of each physical one, [layers, P]; the physical experts of each
    logical one, [layers, E, M], padded with -1, where M is the largest number of replicas; the number of replicas,
    [layers, E]. Physical experts are ordered by GPU. Raises InvalidArgument."""
    check_tensor(weight, "weight")
    check_numbers(weight, "weight")
    if weight.is_meta:
        raise InvalidArgument("weight: a tensor with memory expected, one of the meta device found")
    if weight.dim() != 2:
        raise InvalidArgument(f"weight: [layers, E] expected, shape {list(weight.shape)} found")
    experts = weight.shape[1]
    for name, value in (
        ("num_replicas", num_replicas), ("num_groups", num_groups), ("num_nodes", num_nodes), ("num_gpus", num_gpus),
    ):
        check_count(value, name, most=2**24)
    if num_replicas < experts:
        raise InvalidArgument(f"num_replicas: {num_replicas} found, one at least for each of {experts} experts expected")
    for name, value, part, whole in (
        ("num_groups", num_groups, "experts", experts), ("num_nodes", num_nodes, "num_gpus", num_gpus),
        ("num_gpus", num_gpus, "num_replicas", num_replicas),
    ):
        if whole % value:
            raise InvalidArgument(f"{name}: {value} found; it has to divide {part}, {whole}")
    loads = weight.detach().to("cpu", torch.float64).tolist()
    maps = [_core.balance_experts(layer, num_replicas, num_groups, num_nodes, num_gpus, 0) for layer in loads]
    logical = torch.tensor(maps, dtype=torch.int64).view(len(loads), num_replicas)
    counts = torch.stack([row.bincount(minlength=experts) for row in logical]) if maps else logical.new_zeros(0, experts)
    most = int(counts.max()) if counts.numel() else 1
    tables = [_core.replica_tables(layer, experts, most)[0] for layer in maps]
    return logical, torch.tensor(tables, dtype=torch.int64).view(len(loads), experts, most), counts
