# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where replicas of experts go, by how much each expert is used: the expert-parallel load balancer (EPLB) of DeepSeek.
Tables, made on the host between calls; a layer with `replicas` takes them as `replicas.physical_ids` and
`replicas.counts`, and counts loads with `record_load` (docs/layers.md)."""

from __future__ import annotations

import torch

from .. import InvalidArgument, _core


def rebalance_experts(
    weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which experts to replicate and where to put them, for the next calls.

    weight: [layers, E], the load of each logical expert.
    num_replicas: physical experts P, a multiple of num_gpus.
    num_groups: groups of experts that tokens are limited to. Where num_nodes divides it, the experts of a group
        stay on one node; else all replicas are spread over all GPUs alike.
    num_nodes, num_gpus: nodes, and GPUs on all of them together.

    Returns, as i64: the logical expert of each physical one, [layers, P]; the physical experts of each logical one,
    [layers, E, M], -1 behind the last of them, M as many as any has; and how many each has, [layers, E]. Physical
    experts are in the order of their GPUs. Raises InvalidArgument."""
    if weight.dim() != 2:
        raise InvalidArgument(f"weight: [layers, E] expected, shape {list(weight.shape)} found")
    experts = weight.shape[1]
    for name, value in (
        ("num_replicas", num_replicas), ("num_groups", num_groups), ("num_nodes", num_nodes), ("num_gpus", num_gpus),
    ):
        if value < 1:
            raise InvalidArgument(f"{name}: {value} found, at least 1 expected")
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
