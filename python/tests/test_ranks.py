# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of several ranks in Python, with threads of one process on the CPU."""

import json
import re
import types
from pathlib import Path

import numpy as np
import pytest
from rank_threads import MODEL, RANKS, on_ranks

import moec
import moec.ranks
from moec.reference import LayerSpec, evaluate, decide, generate
from moec.reference.files import write_tensors


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
        "placement.destinations": np.arange(MODEL["num_experts"], dtype=np.int32) // each,
        "experts.w13": np.ascontiguousarray(tensors["experts.w13"][first:first + each]),
        "experts.w2": np.ascontiguousarray(tensors["experts.w2"][first:first + each]),
    }


# parity: R18
@pytest.mark.parametrize("experts", [{}, {"experts": "linear"}], ids=["split", "whole"])
def test_caller_adds_summands(experts, tmp_path):
    """The sum over a group is left to the caller; biases of second gemms are added by one rank."""
    spec = MODEL | {"expert_bias": True, "shared_experts": {"intermediate_size": 16, "bias": True}}
    tensors = generate(LayerSpec.from_json(spec), 5, 1)
    expected = evaluate(LayerSpec.from_json(spec), tensors, decide(LayerSpec.from_json(spec), tensors))
    write_tensors(tmp_path / "model.safetensors", tensors)
    communicators = moec.ranks.local(1, RANKS)
    parallel = {"tp": RANKS, "reduce": False} | experts

    def work(rank):
        layer = moec.compile(spec | {"parallel": parallel}, device="cpu", cache=False)
        layer.load(tmp_path / "model.safetensors", rank=rank)
        layer.use_communicator(communicators[rank])
        return layer(tensors["hidden_states"])

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    assert not np.allclose(results[0], expected, rtol=1e-2)
    np.testing.assert_allclose(sum(results), expected, rtol=1e-4, atol=1e-5)


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



# parity: M41, R12
def test_more_rows_than_a_run_has():
    most, rows = 16, 37
    spec = MODEL | {"parallel": {"dp": RANKS, "experts": "linear"}, "max_tokens": most}
    ranks = [moec.compile(spec, device="cpu", cache=False) for _ in range(RANKS)]
    whole = LayerSpec.from_json(MODEL | {"max_tokens": RANKS * rows})
    tensors = generate(whole, RANKS * rows, 1)
    communicators = moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        ranks[rank].bind(take_weights(rank, tensors))
        ranks[rank].use_communicator(communicators[rank])
        return ranks[rank](np.ascontiguousarray(tensors["hidden_states"][rank * rows:(rank + 1) * rows]))

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    expected = evaluate(whole, tensors, decide(whole, tensors))
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-4, atol=1e-5)
    communicators[0].check()


def test_batches_in_two_halves():
    """Rows have the same bits as in separate calls."""
    tensors = generate(LayerSpec.from_json(MODEL), RANKS * 7, 1)
    spec = MODEL | {"parallel": {"dp": RANKS, "experts": "linear"}}
    communicators = moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        layer = moec.compile(spec, device="cpu", cache=False)
        layer.bind(take_weights(rank, tensors))
        layer.use_micro_batches(6)
        layer.use_communicator(communicators[rank])
        with pytest.raises(moec.InvalidArgument, match="call it before setting a communicator"):
            layer.use_micro_batches(3)
        rows = np.ascontiguousarray(tensors["hidden_states"][rank * 7:rank * 7 + 7])
        assert layer.workspace_bytes(7) >= layer.workspace_bytes(4) + layer.workspace_bytes(3)
        return layer(rows), np.concatenate([layer(rows[:4]), layer(rows[4:])])

    for result in on_ranks(work):
        if isinstance(result, BaseException):
            raise result
        assert result[0].tobytes() == result[1].tobytes()


def test_batches_that_cannot_be_cut(layers):
    counted = moec.compile(MODEL | {"record_load": True, "parallel": {"dp": RANKS, "experts": "linear"}}, device="cpu",
                           cache=False)
    with pytest.raises(moec.InvalidArgument, match="output 'expert_offsets' belongs to the whole batch"):
        counted.use_micro_batches(8)
    with pytest.raises(moec.InvalidArgument, match="the layer has one rank"):
        moec.compile(MODEL, device="cpu", cache=False).use_micro_batches(8)
    with pytest.raises(moec.Error, match="tokens"):
        counted.use_micro_batches(-1)


def test_what_the_page_shows():
    """Runs the lines of docs/use/python.md on ranks that are threads, with stand-ins for launcher and GPUs."""
    page = (Path(__file__).resolve().parents[2] / "docs/use/python.md").read_text()
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
    with pytest.raises(moec.InvalidArgument, match="dp 2 x tp 1; give it a communicator"):
        alone(np.zeros((1, 32), np.float32))
    with pytest.raises(moec.InvalidType, match="a moec.Communicator expected, int found"):
        alone.use_communicator(3)
    with pytest.raises(moec.InvalidArgument, match="the mesh dp 1 x tp 2, but the layer has dp 2 x tp 1"):
        alone.use_communicator(moec.ranks.local(1, 2)[0])


CONFIG = {
    "model_type": "qwen3_moe", "hidden_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "num_hidden_layers": 1, "hidden_act": "silu", "norm_topk_prob": True, "torch_dtype": "float32", "mlp_only_layers": [],
    "decoder_sparse_step": 1, "intermediate_size": 128,
}


def save_model(folder, tensors):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    prefix = "model.layers.0.mlp"
    saved = {f"{prefix}.gate.weight": tensors["gate.weight"]}
    for expert in range(8):
        gate, up = np.split(tensors["experts.w13"][expert], 2)
        for name, value in ("gate_proj", gate), ("up_proj", up), ("down_proj", tensors["experts.w2"][expert]):
            saved[f"{prefix}.experts.{expert}.{name}.weight"] = np.ascontiguousarray(value)
    write_tensors(folder / "model.safetensors", saved)
    return folder


@pytest.mark.parametrize("parallel", [{"dp": 2, "experts": "linear"}, {"dp": 2, "experts": [[7, 1, 3, 5], [0, 2, 4, 6]]},
                                      {"tp": 2}, {"dp": 2}], ids=str)
def test_each_rank_reads_its_part_of_a_checkpoint(parallel, tmp_path):
    spec = LayerSpec.from_json(MODEL)
    groups = parallel.get("dp", 1)
    tensors = generate(spec, groups * 5, 1)
    expected = evaluate(spec, tensors, decide(spec, tensors))
    folder = save_model(tmp_path / "model", tensors)
    communicators = moec.ranks.local(*((2, 1) if groups == 2 else (1, 2)), device="cpu")
    prepared = str(tmp_path / "rank{}.safetensors")

    def work(rank):
        rows = np.ascontiguousarray(np.split(tensors["hidden_states"], groups)[rank % groups])
        outputs = []
        # The first iteration writes the file, the second reads it.
        for _ in range(2):
            layer = moec.Layer.from_pretrained(folder, device="cpu", max_tokens=16, parallel=parallel, rank=rank,
                                               prepared=prepared.format(rank), cache=False)
            layer.use_communicator(communicators[rank])
            outputs.append(layer(rows))
        # The rank is that of the communicator.
        other = moec.compile(folder, device="cpu", max_tokens=16, parallel=parallel)
        other.use_communicator(communicators[rank])
        outputs.append(other.load(folder)(rows))
        return outputs

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    for outputs in zip(*results):
        whole = np.concatenate(outputs) if groups == 2 else outputs[0]
        np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("experts", ["linear", [[7, 1, 3, 5, 0, 2], [0, 2, 4, 6, 1, 7]]], ids=str)
def test_replicas_of_a_checkpoint(experts, tmp_path):
    """Checkpoints contain no replica tables: they follow from the spec's lists, or are those of a linear map."""
    spec = LayerSpec.from_json(MODEL)
    tensors = generate(spec, RANKS * 5, 1)
    expected = evaluate(spec, tensors, decide(spec, tensors))
    folder = save_model(tmp_path / "model", tensors)
    replicas = MODEL | {"replicas": {"num_physical_experts": 12, "max_replicas": 2}}
    communicators = moec.ranks.local(RANKS, device="cpu")

    def work(rank):
        layer = moec.compile(replicas | {"parallel": {"dp": RANKS, "experts": experts}}, device="cpu", cache=False)
        layer.use_communicator(communicators[rank])
        return layer.load(folder, 0)(np.ascontiguousarray(tensors["hidden_states"][rank * 5:rank * 5 + 5]))

    results = on_ranks(work)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    np.testing.assert_allclose(np.concatenate(results), expected, rtol=1e-4, atol=1e-5)
    alone = moec.compile(replicas, device="cpu", cache=False).load(folder, 0)
    np.testing.assert_allclose(alone(tensors["hidden_states"]), expected, rtol=1e-4, atol=1e-5)


def test_prefill_context_parallel():
    """To a communicator, ranks that share a prompt are ordinary groups."""
    spec = MODEL | {"parallel": {"pcp": 2, "experts": "linear"}}
    layer = moec.compile(spec, device="cpu", cache=False)
    assert layer.mesh == (2, 1)
    layer.bind(take_weights(0, generate(LayerSpec.from_json(MODEL), 2, 1)))


def test_whose_weights_these_are_is_known(tmp_path):
    tensors = generate(LayerSpec.from_json(MODEL), 2, 1)
    folder, path = save_model(tmp_path / "model", tensors), tmp_path / "prepared.safetensors"
    parallel = {"dp": 2, "experts": "linear"}
    layer = moec.compile(folder, device="cpu", parallel=parallel)
    with pytest.raises(moec.InvalidArgument, match="give the rank whose weights are read"):
        layer.load(folder)
    with pytest.raises(moec.Error, match="rank is 2; 0 to 1 are those of dp 2 x tp 1"):
        layer.load(folder, rank=2)
    layer.load(folder, rank=1)
    with pytest.raises(moec.InvalidArgument, match="communicator is of rank 0, but the weights are those of rank 1"):
        layer.use_communicator(moec.ranks.local(2, device="cpu")[0])
    layer.save_prepared(path)
    with pytest.raises(moec.InvalidArgument, match="has the weights of rank 1, but this is rank 0"):
        layer.load_prepared(path, rank=0)
    with pytest.raises(moec.InvalidArgument, match="rank is 0, but the weights are those of rank 1"):
        layer.save_prepared(path, rank=0)
    with pytest.raises(moec.NotFound):
        layer.load(tmp_path / "nowhere", rank=0)
    layer.save_prepared(path, rank=1)
    # Weights of another rank.
    layer.load(folder, rank=0).save_prepared(path)
    with pytest.raises(moec.InvalidArgument, match="parallel:1:8: error: 'parallel.dp' must be"):
        moec.compile(folder, device="cpu", parallel={"dp": 0})
    with pytest.raises(moec.InvalidType, match="parallel: a dict expected, int found"):
        moec.compile(folder, device="cpu", parallel=3)


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
