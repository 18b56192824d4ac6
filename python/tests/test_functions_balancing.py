# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement of replicas: the published example exactly, and invariants of every table."""

from __future__ import annotations

import pytest

import moec

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install torch)")

from moec.functions import rebalance_experts  # noqa: E402

#: Example of DeepSeek's EPLB: 12 experts in 4 groups, 16 replicas on 8 GPUs of 2 nodes.
LOADS = [[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]]
LOGICAL = [[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1], [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]]


def test_published_example() -> None:
    logical, physical, counts = rebalance_experts(torch.tensor(LOADS), 16, 4, 2, 8)
    assert logical.tolist() == LOGICAL
    assert counts.tolist() == [[row.count(expert) for expert in range(12)] for row in LOGICAL]
    assert physical[0, 5].tolist() == [0, 2] and physical[0, 0].tolist() == [12, -1]


@pytest.mark.parametrize(
    ("experts", "replicas", "groups", "nodes", "gpus"),
    [(8, 8, 1, 1, 1), (8, 16, 1, 1, 8), (16, 24, 4, 2, 4), (12, 18, 3, 2, 6), (7, 14, 7, 1, 2), (64, 96, 8, 4, 32)],
)
def test_tables_agree(experts: int, replicas: int, groups: int, nodes: int, gpus: int) -> None:
    torch.manual_seed(0)
    loads = torch.rand(3, experts) ** 4 * 1000
    logical, physical, counts = rebalance_experts(loads, replicas, groups, nodes, gpus)
    assert logical.shape == (3, replicas) and counts.sum(dim=1).tolist() == [replicas] * 3
    assert counts.min() >= 1 and physical.shape == (3, experts, int(counts.max()))
    for layer in range(3):
        for expert in range(experts):
            count = int(counts[layer, expert])
            places = physical[layer, expert].tolist()
            assert sorted(places[:count]) == (logical[layer] == expert).nonzero()[:, 0].tolist()
            assert places[count:] == [-1] * (len(places) - count)
        if groups % nodes == 0:
            # All experts of a group are on one node.
            node = torch.arange(replicas) // (replicas // nodes)
            for group in range(groups):
                assert len(node[logical[layer] // (experts // groups) == group].unique()) == 1
        if nodes == 1 or groups % nodes:
            # Moving a replica to another expert would not lower the largest load.
            hottest = (loads[layer] / counts[layer]).max()
            several = counts[layer] > 1
            assert (loads[layer][several] / (counts[layer][several] - 1) >= hottest * 0.999).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_replicas": 11}, "num_replicas: 11 found, one at least for each of 12 experts"),
        ({"num_groups": 5}, "num_groups: 5 found; it has to divide experts, 12"),
        ({"num_nodes": 3}, "num_nodes: 3 found; it has to divide num_gpus, 8"),
        ({"num_gpus": 6, "num_nodes": 1}, "num_gpus: 6 found; it has to divide num_replicas, 16"),
        ({"num_nodes": 0}, "num_nodes: 0 found, at least 1 expected"),
        ({"weight": torch.zeros(12)}, r"weight: \[layers, E\] expected"),
    ],
)
def test_wrong_sizes(change: dict, message: str) -> None:
    given = {"weight": torch.tensor(LOADS), "num_replicas": 16, "num_groups": 4, "num_nodes": 2, "num_gpus": 8}
    with pytest.raises(moec.InvalidArgument, match=message):
        rebalance_experts(**given | change)
