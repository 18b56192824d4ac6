# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where replicas of experts go, by how much each expert is used: the expert-parallel load balancer (EPLB) of DeepSeek.
Tables, made on the host between calls; a layer with `replicas` takes them as `replicas.physical_ids` and
`replicas.counts`, and counts loads with `record_load` (docs/layers.md)."""

from __future__ import annotations

import torch

from .. import InvalidArgument


def _pack(loads: torch.Tensor, num_packs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The pack of each item and its place there, [layers, items] each: packs of equally many items, heavy items
    first, each to the pack that has least and is not full. Of equal ones the first is taken."""
    layers, items = loads.shape
    size = items // num_packs
    order = loads.sort(dim=1, descending=True, stable=True).indices.tolist()
    pack = torch.zeros(layers, items, dtype=torch.int64)
    place = torch.zeros_like(pack)
    for layer in range(layers):
        weights, counts = [0.0] * num_packs, [0] * num_packs
        for item in order[layer] if size > 1 else range(items):
            open_packs = (each for each in range(num_packs) if counts[each] < size)
            chosen = min(open_packs, key=weights.__getitem__) if size > 1 else item
            pack[layer, item], place[layer, item] = chosen, counts[chosen]
            weights[chosen] += float(loads[layer, item])
            counts[chosen] += 1
    return pack, place


def _replicate(loads: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The expert and the number among its replicas of each of `count` ones, and how many each expert has: one, and
    one more for that whose replicas have the largest loads, again and again."""
    layers, experts = loads.shape
    expert = torch.arange(experts).repeat(layers, 1)
    number = torch.zeros_like(expert)
    replicas = torch.ones_like(expert)
    lines = torch.arange(layers)
    for _ in range(count - experts):
        chosen = (loads / replicas).argmax(dim=1)
        expert = torch.cat([expert, chosen[:, None]], dim=1)
        number = torch.cat([number, replicas[lines, chosen][:, None]], dim=1)
        replicas[lines, chosen] += 1
    return expert, number, replicas


def _invert(order: torch.Tensor) -> torch.Tensor:
    inverse = torch.empty_like(order)
    return inverse.scatter_(1, order, torch.arange(order.shape[1]).expand_as(order))


def _balance(loads: torch.Tensor, physical: int, groups: int, nodes: int, gpus: int):
    """Groups of experts to nodes, replicas inside a node, replicas to its GPUs."""
    layers, experts = loads.shape
    size, on_node, on_gpu = experts // groups, experts // nodes, physical // gpus
    pack, place = _pack(loads.unflatten(1, (groups, size)).sum(dim=2), nodes)
    first = (pack * (groups // nodes) + place) * size
    # Experts in the order of their nodes.
    ordered = (first[:, :, None] + torch.arange(size)).flatten(1)
    original = _invert(ordered)
    per_node = loads.gather(1, original).reshape(-1, on_node)
    expert, number, replicas = _replicate(per_node, physical // nodes)
    pack, place = _pack((per_node / replicas).gather(1, expert), gpus // nodes)
    order = _invert(pack * on_gpu + place)
    begin = torch.arange(0, experts, on_node)[None, :, None]
    expert = (expert.gather(1, order).view(layers, nodes, -1) + begin).flatten(1)
    logical = original.gather(1, expert)
    number = number.gather(1, order).view(layers, -1)
    return logical, number, replicas.view(layers, -1).gather(1, ordered)


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
    loads = weight.detach().to("cpu", torch.float32)
    if num_groups % num_nodes:
        num_groups = num_nodes = 1
    logical, number, counts = _balance(loads, num_replicas, num_groups, num_nodes, num_gpus)
    layers, most = loads.shape[0], int(counts.max()) if counts.numel() else 1
    physical = torch.full((layers, experts * most), -1)
    places = torch.arange(num_replicas).repeat(layers, 1)
    physical.scatter_(1, logical * most + number, places)
    return logical, physical.view(layers, experts, most), counts
