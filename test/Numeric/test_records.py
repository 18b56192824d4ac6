# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ids and weights that a layer records give the same bits when they are replayed, ids alone too, and replicas of experts get the
slots that the published vectors say, on every target."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import BASE, HASH, HUGE, ROUTINGS, SIGMOID, TINY
from runs import ROOT, SEEDS, TIMEOUT, binary
from safetensors import safe_open

from moec.reference import LayerSpec, generate, write_tensors
from moec.reference.check import check

sys.path.append(str(ROOT / "python" / "tests"))
from replica_vectors import VECTORS  # noqa: E402

TARGETS = {
    "cpu": (),
    "sm_80": ("--target=sm_80", f"--device=sim:0-{SEEDS - 1}"),
    "sm_90a": ("--target=sm_90a", f"--device=sim:0-{SEEDS - 1}"),
}
CALLS = ("hidden_states", "router_logits", "topk_ids", "is_padding")
#: Fields that differ from BASE, tokens, kinds of inputs.
LAYERS = {
    "gate": ({"entry": "gate", "dtype": "bf16", "shared_experts": {"intermediate_size": 40}}, 33, None),
    "everything": ({"routing": ROUTINGS["everything"], "dtype": "f16"}, 9, None),
    "padding": ({"num_valid_tokens": True, "padding_mask": True}, 21, "padding"),
    "hash": ({"routing": HASH}, 17, "out_of_range_ids"),
    "most_experts": ({"num_experts": 1024, "top_k": 32, "dtype": "bf16", **TINY}, 7, "ties"),
    "one_token": ({"num_experts": 200, "top_k": 5, "dtype": "bf16", **TINY}, 1, None),
    "streamed": ({**{key: HUGE[key] for key in HUGE if key != "tokens"}, "top_k": 3}, 3, None),
}
#: Layers whose router weighs recorded ids, as those of LAYERS.
REPLAYS = {
    "softmax": ({"entry": "gate", "dtype": "bf16", "batch_invariant": True}, 33, None, "uint8"),
    "softmax_ranked": ({"num_experts": 200, "top_k": 5, **TINY}, 9, None, "int16"),
    "sigmoid_bias": ({"routing": ROUTINGS["everything"], "num_experts": 255, "top_k": 8, "padding_mask": True, **TINY},
                     21, "padding", "uint8"),
    "grouped": ({"routing": {**SIGMOID, "num_groups": 6, "topk_groups": 3, "scale": 2.5}, "num_experts": 120,
                 "top_k": 8, **TINY}, 9, None, "int16"),
    "softmax_after_top_k": ({"routing": ROUTINGS["weight_softmax"], "num_experts": 96, "top_k": 6, **TINY}, 9,
                            "nan_logits", True),
    "many_slots": ({"routing": {"renormalize": True, "expert_scale": True}, "num_experts": 90, "top_k": 34, **TINY},
                   5, None, "int16"),
    "streamed": ({**{key: HUGE[key] for key in HUGE if key != "tokens"}, "top_k": 3}, 3, None, "int16"),
}


def run(folder: Path, model: dict, tensors: dict, tokens: int, options: tuple[str, ...]) -> dict[str, np.ndarray]:
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps(model))
    write_tensors(folder / "in.safetensors", tensors)
    command = [str(binary("moe-run")), str(folder / "model.json"), f"--tokens={tokens}",
               f"--max-tokens={max(tokens, 1)}", f"--inputs={folder / 'in.safetensors'}",
               f"--outputs={folder / 'out.safetensors'}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    with safe_open(str(folder / "out.safetensors"), framework="np") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


@pytest.mark.one_of(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LAYERS)
def test_replayed_bits(name, target, tmp_path):
    fields, tokens, hard = LAYERS[name]
    model = BASE | fields | {"record_ids": True, "record_load": True}
    tensors = generate(LayerSpec.from_json(model), tokens, 1, hard)
    first = run(tmp_path / "first", model, tensors, tokens, TARGETS[target])
    again = {key: value for key, value in model.items() if key not in ("record_ids", "routing")} | {"entry": "ids"}
    given = {key: value for key, value in tensors.items()
             if not key.startswith("gate.") and key not in ("router_logits", "input_ids")}
    given |= {key: first[key] for key in ("topk_ids", "topk_weights")}
    second = run(tmp_path / "second", again, given, tokens, TARGETS[target])
    for key in ("output", "expert_offsets"):
        assert first[key].tobytes() == second[key].tobytes(), key


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name, target", [
    (name, target) for name in REPLAYS
    for target in (("cpu", "sm_80") if name in ("many_slots", "streamed") else ("sm_80", "cpu"))
])
def test_the_router_weighs_replayed_ids(name, target, tmp_path):
    """The rows come in another order and without the first ones, ids as a caller stores them."""
    fields, tokens, hard, dtype = REPLAYS[name]
    model = BASE | fields
    tensors = generate(LayerSpec.from_json(model), tokens, 1, hard)
    first = run(tmp_path / "first", model | {"record_ids": dtype}, tensors, tokens, TARGETS[target])
    assert first["topk_ids"].itemsize == {"uint8": 1, "int16": 2, True: 4}[dtype]
    rows = np.arange(tokens)[:0:-1]
    given = tensors | {"topk_ids": first["topk_ids"]}
    given = {key: value[rows] if key in CALLS else value for key, value in given.items()}
    again = run(tmp_path / "again", model | {"replay_ids": dtype}, given, len(rows), TARGETS[target])
    assert again["output"].tobytes() == first["output"][rows].tobytes()
    # Other ids than the router's own, one of none.
    ids = given["topk_ids"] = np.roll(given["topk_ids"], 1, axis=0)
    (ids.view(np.uint8) if dtype == "uint8" else ids)[0, 0] = model["num_experts"]
    other = run(tmp_path / "other", model | {"replay_ids": dtype}, given, len(rows), TARGETS[target])
    report = check(LayerSpec.from_json(model | {"replay_ids": dtype}), given, {"output": other["output"]})
    assert report.ok, report.summary()


@pytest.mark.parametrize("level", ("moe", "plan", "tile"))
def test_levels_weigh_replayed_ids(level, tmp_path):
    fields, tokens, hard, dtype = REPLAYS["sigmoid_bias"]
    model = BASE | fields | {"replay_ids": dtype}
    spec = LayerSpec.from_json(model)
    tensors = generate(spec, tokens, 1, hard)
    found = run(tmp_path / "run", model, tensors, tokens, (f"--level={level}",))
    report = check(spec, tensors, {"output": found["output"]})
    assert report.ok, report.summary()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", VECTORS)
def test_replicas(name, target, tmp_path):
    vector = VECTORS[name]
    tokens = len(vector.ids)
    model = BASE | TINY | {
        "entry": "ids", "routing": {}, "num_experts": len(vector.table), "top_k": 2, "num_valid_tokens": True,
        "record_load": True,
        "replicas": {"num_physical_experts": vector.physical, "max_replicas": vector.padded_table.shape[1]},
    }
    tensors = generate(LayerSpec.from_json(model), tokens, 1) | {
        "topk_ids": vector.ids.astype(np.int32), "num_valid_tokens": np.array([vector.valid], np.int32),
        "replicas.physical_ids": vector.padded_table, "replicas.counts": vector.counts,
    }
    found = run(tmp_path / "run", model, tensors, tokens, TARGETS[target])
    assert np.diff(found["expert_offsets"]).tolist() == vector.load
