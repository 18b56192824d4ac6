# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Logical experts with replicas: the physical expert of a token, and the number of slots of each."""

import numpy as np
import pytest
from replica_vectors import VECTORS
from test_reference_spec import spec_json

from moec.reference import LayerSpec, decide, generate
from moec.reference.layer import Decision, Replicas, expert_counts, places


def spec_of(table, physical, top_k):
    return LayerSpec.from_json(
        spec_json(
            entry="ids", num_experts=len(table), top_k=top_k,
            replicas={"num_physical_experts": physical, "max_replicas": max(map(len, table))},
        )
    )


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name):
    vector = VECTORS[name]
    spec = spec_of(vector.table, vector.physical, vector.ids.shape[1])
    valid = np.zeros(vector.ids.shape, bool)
    valid[: vector.valid] = True
    decision = Decision(
        vector.ids, np.ones(vector.ids.shape), valid,
        replicas=Replicas(vector.padded_table, vector.counts, vector.physical),
    )
    np.testing.assert_array_equal(places(spec, decision)[: vector.valid], vector.placed[: vector.valid])
    np.testing.assert_array_equal(expert_counts(spec, decision), vector.load)


@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_hot_experts_stay_balanced(replicas):
    """Tokens cycle through an expert's replicas, except about one token in 64."""
    table = np.arange(replicas)[None, :]
    chosen = Replicas(table, np.array([replicas]), replicas).place(
        np.arange(1024)[:, None], np.zeros((1024, 1), np.int64)
    )
    load = np.bincount(chosen[:, 0], minlength=replicas)
    assert load.min() > 0.9 * 1024 / replicas and load.max() < 1.1 * 1024 / replicas


def test_wrong_maps_reach_nobody():
    """Invalid numbers of replicas and invalid physical ids have no effect."""
    chosen = Replicas(np.array([[0, 9], [-1, 1], [1, 0]]), np.array([2, 1, 3]), 2).place(
        np.arange(2)[:, None], np.array([[0, 1, 2], [0, 1, 2]])
    )
    np.testing.assert_array_equal(chosen, [[0, -1, -1], [-1, -1, -1]])


def test_rows_of_a_part_have_their_numbers_in_the_whole():
    spec = spec_of([[0, 1], [2, 3]], 4, 1)
    tensors = generate(spec, 9, 2)
    whole = places(spec, decide(spec, tensors))
    part = {name: value[5:] if len(value) == 9 else value for name, value in tensors.items()}
    np.testing.assert_array_equal(places(spec, decide(spec, part, first_token=5)), whole[5:])
    assert (places(spec, decide(spec, part)) != whole[5:]).any()
