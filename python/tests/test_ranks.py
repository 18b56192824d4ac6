# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of several ranks from Python, as threads of one process on the CPU."""

import re
import types
from pathlib import Path

import numpy as np
import pytest
from rank_threads import MODEL, RANKS, on_ranks

import moec
import moec.ranks
from moec.reference import LayerSpec, evaluate, decide, generate


@pytest.fixture(scope="module")
def layers():
    spec = MODEL | {"parallel": {"dp": RANKS, "experts": "linear"}}
    return [moec.compile(spec, device="cpu", cache=False) for _ in range(RANKS)]


def take_weights(rank, tensors):
    each = MODEL["num_experts"] // RANKS
    first = rank * each
    placed = np.full(MODEL["num_experts"], -1, np.int32)
    placed[first:first + each] = np.arange(each)
    return {
        "gate.weight": tensors["gate.weight"], "placement.local_ids": placed,
        "placement.owners": np.arange(MODEL["num_experts"], dtype=np.int32) // each,
        "experts.w13": np.ascontiguousarray(tensors["experts.w13"][first:first + each]),
        "experts.w2": np.ascontiguousarray(tensors["experts.w2"][first:first + each]),
    }


def test_each_rank_gets_its_rows(layers):
    assert layers[0].mesh == (RANKS, 1) and layers[0].max_tokens == MODEL["max_tokens"]
    spec = LayerSpec.from_json(MODEL)
    tensors = generate(spec, RANKS * 5, 1)
    expected = evaluate(spec, tensors, decide(spec, tensors))
    communicators = moec.ranks.local(RANKS, device="cpu")
    assert [each.rank for each in communicators] == [0, 1]
    assert communicators[0].mesh == (RANKS, 1)

    def work(rank):
        layers[rank].bind(take_weights(rank, tensors))
        layers[rank].use_communicator(communicators[rank])
        rows = np.ascontiguousarray(tensors["hidden_states"][rank * 5:rank * 5 + 5])
        return layers[rank](rows)

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-4, atol=1e-5)
    communicators[0].check()


def test_what_the_page_shows():
    """The lines of docs/python.md, on ranks that are threads: the launcher and the GPUs are stood in for."""
    page = (Path(__file__).resolve().parents[2] / "docs/python.md").read_text()
    (code,) = re.findall(r"## Several GPUs\n\n```python\n(.*?)```", page, re.DOTALL)
    spec = LayerSpec.from_json(MODEL)
    tensors = generate(spec, RANKS * 5, 1)
    communicators = moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        def compile(spec, *, device):
            assert device == f"cuda:{rank}"
            return moec.compile(spec, device="cpu", cache=False)

        def connect(dp, tp):
            assert (dp, tp) == communicators[rank].mesh
            return communicators[rank]

        names = {
            "moec": types.SimpleNamespace(compile=compile, ranks=types.SimpleNamespace(connect=connect)),
            "spec": MODEL | {"parallel": {"dp": 2, "experts": "linear"}}, "local_rank": rank,
            "own_weights": take_weights(rank, tensors),
            "hidden_states": np.ascontiguousarray(tensors["hidden_states"][rank * 5:rank * 5 + 5]),
        }
        exec(code, names)
        return names["output"]

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    expected = evaluate(spec, tensors, decide(spec, tensors))
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-4, atol=1e-5)


def test_a_call_without_a_communicator_is_refused(layers):
    alone = moec.compile(MODEL | {"parallel": {"dp": RANKS}}, device="cpu", cache=False)
    tensors = generate(LayerSpec.from_json(MODEL), 2, 1)
    half = MODEL["intermediate_size"] // RANKS
    alone.bind({"gate.weight": tensors["gate.weight"],
                "experts.w13": np.zeros((8, 2 * half, 32), np.float32), "experts.w2": np.zeros((8, 32, half), np.float32)})
    with pytest.raises(moec.InvalidArgument, match="dp 2 x tp 1; call useCommunicator"):
        alone(np.zeros((1, 32), np.float32))
    with pytest.raises(moec.InvalidType, match="a moec.Communicator expected, int found"):
        alone.use_communicator(3)
    with pytest.raises(moec.InvalidArgument, match="the mesh dp 1 x tp 2, and the layer for dp 2 x tp 1"):
        alone.use_communicator(moec.ranks.local(1, 2)[0])


def test_a_checkpoint_is_not_cut_by_rank(layers, tmp_path):
    with pytest.raises(moec.InvalidArgument, match="a checkpoint is not cut by rank; bind each weight"):
        layers[0].load(tmp_path)


def test_a_rank_that_does_not_come_is_named(layers):
    communicators = moec.ranks.local(RANKS, limit=0.3)
    with pytest.raises(moec.Unavailable, match="rank 1 did not come within"):
        layers[0].use_communicator(communicators[0])
    with pytest.raises(moec.Unavailable, match="rank 1 did not come"):
        communicators[1].check()


@pytest.mark.parametrize(("arguments", "message"), [
    ((0, 1, 1.0), "dp"), ((1, "2", 1.0), "tp"), ((1, 1, 0.0), "limit"), ((1, 1, "x"), "limit"),
])
def test_wrong_meshes_are_refused(arguments, message):
    with pytest.raises((moec.InvalidArgument, moec.InvalidType, TypeError, ValueError), match=message):
        moec.Communicator.from_environment(*arguments)


def test_an_environment_without_a_launcher_is_named(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(moec.Error, match="RANK"):
        moec.ranks.connect(2)
