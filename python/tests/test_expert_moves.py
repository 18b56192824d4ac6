# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves of experts between ranks while a layer runs: loads, a map for them, and the layer with the new map."""

import numpy as np
import pytest
from rank_threads import MODEL, RANKS, on_ranks

import moec
import moec.ranks
from moec.reference import LayerSpec, decide, evaluate, generate

PHYSICAL, MOST, TOKENS = 12, 4, 16
EXPERTS = MODEL["num_experts"]
#: One expert per token, so that the order of sums does not depend on the map.
SPEC = MODEL | {
    "top_k": 1, "entry": "ids", "routing": {}, "record_load": True, "parallel": {"dp": RANKS, "experts": "linear"},
    "replicas": {"num_physical_experts": PHYSICAL, "max_replicas": MOST},
}
#: Layer on one rank, with the tokens of all.
PLAIN = {key: value for key, value in SPEC.items() if key not in ("parallel", "replicas", "record_load")} | {
    "max_tokens": RANKS * TOKENS,
}
OLD = [place % EXPERTS for place in range(PHYSICAL)]
EACH = PHYSICAL // RANKS


@pytest.fixture(scope="module")
def inputs():
    tensors = generate(LayerSpec.from_json(PLAIN), RANKS * TOKENS, 1)
    # Expert 5 gets half of the tokens.
    tensors["topk_ids"][::2] = 5
    return tensors


def weights(rank, tensors, logical):
    """Returns the weights of a rank for a map."""
    own = logical[rank * EACH:(rank + 1) * EACH]
    table, counts = moec.ranks.replica_tables(logical, EXPERTS, MOST)
    return {
        "experts.w13": np.ascontiguousarray(tensors["experts.w13"][own]),
        "experts.w2": np.ascontiguousarray(tensors["experts.w2"][own]),
        "replicas.physical_ids": np.array(table, np.int32), "replicas.counts": np.array(counts, np.int32),
    }


def spare_of(rank, tensors):
    return {name: np.zeros_like(value) for name, value in weights(rank, tensors, OLD).items()}


class Rank:
    def __init__(self, rank, communicators, tensors):
        self.rank, self.tensors = rank, tensors
        self.layer = moec.compile(SPEC, device="cpu", cache=False)
        placed = np.full(PHYSICAL, -1, np.int32)
        placed[rank * EACH:(rank + 1) * EACH] = np.arange(EACH)
        self.weights = weights(rank, tensors, OLD)
        self.layer.bind(self.weights | {"placement.local_ids": placed})
        self.layer.use_communicator(communicators[rank])
        self.loads = np.zeros(EACH, np.int64)

    def call(self):
        rows = slice(self.rank * TOKENS, (self.rank + 1) * TOKENS)
        offsets = np.zeros(EACH + 1, np.int32)
        own = {name: self.tensors[name][rows].copy() for name in ("hidden_states", "topk_ids", "topk_weights")}
        output = self.layer(**own, expert_offsets=offsets)
        self.loads += np.diff(offsets)
        return np.asarray(output).copy()


def together(work):
    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_experts_go_where_their_loads_are(inputs):
    layers, moves = moec.ranks.local(RANKS, device="cpu"), moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        own = Rank(rank, layers, inputs)
        before = own.call()
        loads = moec.ranks.sum_loads(own.layer, moves[rank], own.loads.tolist(), OLD)
        new = moec.ranks.balance(loads, PHYSICAL, num_ranks=RANKS, max_replicas=MOST)
        spare = spare_of(rank, inputs)
        move = moec.ranks.move_experts(own.layer, moves[rank], OLD, new, spare)
        assert move.steps == EACH
        while move.steps:
            move.step()
            np.testing.assert_array_equal(own.call(), before)
        move.switch()
        # The previous memory of the layer is not read any more.
        for value in own.weights.values():
            value.fill(77)
        own.loads[:] = 0
        np.testing.assert_array_equal(own.call(), before)
        for name, value in weights(rank, inputs, new).items():
            np.testing.assert_array_equal(spare[name], value)
        after = moec.ranks.sum_loads(own.layer, moves[rank], own.loads.tolist(), new)
        return before, loads, new, after, own.loads.sum()

    results = together(work)
    spec = LayerSpec.from_json(PLAIN)
    expected = evaluate(spec, inputs, decide(spec, inputs))
    np.testing.assert_allclose(np.concatenate([result[0] for result in results]), expected, rtol=1e-4, atol=1e-5)
    counts = np.bincount(inputs["topk_ids"].ravel(), minlength=EXPERTS)
    for _, loads, new, after, own in results:
        assert loads == after == counts.tolist()
        assert new.count(5) == MOST and new == results[0][2]
        # About half of the slots on each.
        assert abs(own - counts.sum() / RANKS) <= counts.sum() / 8


def test_a_rank_that_fails_leaves_the_old_map(inputs):
    layers, moves = moec.ranks.local(RANKS, device="cpu"), moec.ranks.local(RANKS, device="cpu", limit=0.3)
    new = OLD[::-1]

    def work(rank):
        own = Rank(rank, layers, inputs)
        before = own.call()
        move = moec.ranks.move_experts(own.layer, moves[rank], OLD, new, spare_of(rank, inputs))
        move.step()
        if rank == 0:
            with pytest.raises(moec.Unavailable, match="step 2 of 6.*rank 1 did not come within 0.3 s"):
                move.step()
            with pytest.raises(moec.Unavailable, match="rank 1 did not come"):
                move.switch()
        for name, value in weights(rank, inputs, OLD).items():
            np.testing.assert_array_equal(own.weights[name], value)
        np.testing.assert_array_equal(own.call(), before)

    together(work)


def test_what_is_wrong_is_named(inputs):
    layers = moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        own = Rank(rank, layers, inputs)

        def refused(match, old=OLD, new=OLD, spare=None, kind=moec.InvalidArgument, layer=own.layer):
            with pytest.raises(kind, match=match):
                moec.ranks.move_experts(
                    layer, layers[rank], old, new, spare_of(rank, inputs) if spare is None else spare
                )

        refused("new: 12 experts expected, as in old, 11 found", new=OLD[1:])
        refused("to: the map has expert 0 nowhere", new=[1 + place % 7 for place in range(PHYSICAL)])
        refused("from: 'replicas.physical_ids' has physical expert", old=OLD[::-1])
        refused("memory for 'replicas.counts' is needed", spare={
            name: value for name, value in spare_of(rank, inputs).items() if name != "replicas.counts"
        })
        refused("memory that the layer is bound to", spare=own.weights)
        refused("experts.w9: the layer has no such weight", spare={"experts.w9": np.zeros(1)})
        refused("spare: a dict of tensors", spare=[], kind=moec.InvalidType)
        refused("layer: a moec.Layer expected", layer=3, kind=moec.InvalidType)
        refused("old: a sequence of numbers", old=3, kind=moec.InvalidType)
        read_only = spare_of(rank, inputs)
        read_only["experts.w2"].flags.writeable = False
        refused("experts.w2", spare=read_only)
        with pytest.raises(moec.InvalidArgument, match="sumLoads: 5 loads on each of 2 ranks"):
            moec.ranks.sum_loads(own.layer, layers[rank], [1] * 5, OLD)
        move = moec.ranks.move_experts(own.layer, layers[rank], OLD, OLD, spare_of(rank, inputs))
        with pytest.raises(moec.InvalidArgument, match="6 of 6 steps are left"):
            move.switch()
        own.layer.close()
        with pytest.raises(moec.InvalidArgument, match="closed"):
            move.step()

    together(work)


@pytest.mark.parametrize(("loads", "physical", "options", "match"), [
    ([1] * 12, 11, {"num_ranks": 1}, "num_physical: 11 found, one at least for each of 12 experts"),
    ([1] * 12, 16, {"num_ranks": 6}, "num_ranks: 6 found; it has to divide num_physical, 16"),
    ([1] * 12, 16, {"num_ranks": 8, "max_replicas": 1}, "max_replicas: 1 found"),
    ([-1.0] * 2, 2, {"num_ranks": 1}, "the load of expert 0 is"),
    ([], 2, {"num_ranks": 1}, "num_physical: 2 found"),
])
def test_wrong_balances(loads, physical, options, match):
    with pytest.raises(moec.InvalidArgument, match=match):
        moec.ranks.balance(loads, physical, **options)


def test_wrong_tables():
    with pytest.raises(moec.InvalidArgument, match="the map has expert 1 nowhere"):
        moec.ranks.replica_tables([0, 0], 2, 1)
    with pytest.raises(moec.InvalidArgument, match="max_replicas is 9"):
        moec.ranks.replica_tables([0, 1], 2, 9)
    with pytest.raises(moec.InvalidType, match="loads"):
        moec.ranks.balance(3, 2, num_ranks=1)
    assert moec.ranks.replica_tables([2, 0, 2, 1], 3, 2) == ([[1, -1], [3, -1], [0, 2]], [1, 1, 2])
