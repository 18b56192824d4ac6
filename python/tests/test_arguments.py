# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments as people write them, and messages in the words of Python."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_layer import SPEC

import moec

MODEL = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "hidden_act": "silu", "norm_topk_prob": True,
    "num_hidden_layers": 2, "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "bfloat16",
}


@pytest.fixture(scope="module")
def layer() -> moec.Layer:
    made = moec.compile(SPEC, device="cpu")
    random = np.random.default_rng(3)
    return made.bind({
        info.name: (random.standard_normal(info.shape) * 0.2).astype(ml_dtypes.bfloat16)
        for info in made.tensors if info.role == "weight"
    })


def make_states(*leading: int) -> np.ndarray:
    states = np.random.default_rng(len(leading)).standard_normal((*leading, SPEC["hidden_size"]))
    return states.astype(ml_dtypes.bfloat16)


def test_takes_batches_of_sequences(layer: moec.Layer) -> None:
    states = make_states(2, 3)
    expected = layer(states.reshape(6, -1))
    found = layer(states)
    assert found.shape == states.shape and (found.reshape(6, -1) == expected).all()
    out = np.zeros_like(states)
    assert layer(hidden_states=states, out=out) is out
    assert (out.reshape(6, -1) == expected).all()


def test_takes_batches_with_ids() -> None:
    made = moec.compile(SPEC, device="cpu", entry="ids")
    random = np.random.default_rng(4)
    made.bind({info.name: (random.standard_normal(info.shape) * 0.2).astype(ml_dtypes.bfloat16)
               for info in made.tensors if info.role == "weight"})
    states = make_states(2, 3)
    ids = random.integers(0, 4, (2, 3, 2)).astype(np.int32)
    weights = random.random((2, 3, 2)).astype(np.float32)
    expected = made(states.reshape(6, -1), topk_ids=ids.reshape(6, 2), topk_weights=weights.reshape(6, 2))
    assert (made(states, None, ids, weights).reshape(6, -1) == expected).all()
    assert (made(states, topk_ids=ids.reshape(6, 2), topk_weights=weights).reshape(6, -1) == expected).all()


def test_a_vector_is_refused(layer: moec.Layer) -> None:
    with pytest.raises(moec.InvalidArgument, match=r"rank 2 expected, shape \[64\] found"):
        layer(make_states())
    with pytest.raises(moec.InvalidArgument, match=r"shape \[tokens, 64\] expected, \[6, 32\] found"):
        layer(np.zeros((2, 3, 32), ml_dtypes.bfloat16))


def test_an_unknown_argument_is_answered_by_those_that_exist(layer: moec.Layer) -> None:
    with pytest.raises(moec.InvalidType, match="no argument 'hidden'; this one has hidden_states, out, stream"):
        layer(hidden=make_states(1))


def test_says_its_dtype_and_the_bytes_of_its_weights(layer: moec.Layer) -> None:
    experts, hidden, size = 4, SPEC["hidden_size"], SPEC["intermediate_size"]
    assert layer.dtype == "bf16"
    assert layer.weight_bytes == 2 * (experts * hidden + experts * 3 * size * hidden)


def test_completion_shows_no_internals(layer: moec.Layer) -> None:
    shown = set(dir(layer))
    assert {"bind", "prepare", "dtype"} <= shown
    assert not {"bind_weight", "operands", "plan_text", "time_calls"} & shown


def test_shows_its_report_in_a_notebook(layer: moec.Layer) -> None:
    page = layer._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "&lt;svg" in page
    closed = layer.clone()
    closed.close()
    assert closed._repr_html_() == "&lt;moec.Layer, closed&gt;"


@pytest.mark.parametrize(("given", "meant"), [("sm_89", "sm_80"), ("sm_120", "sm_80"), ("sm_90", "sm_90a")])
def test_a_gpu_is_a_target(given: str, meant: str) -> None:
    package = moec.compile_package(SPEC, given, use_ptxas=False, cache=False)
    assert package == moec.compile_package(SPEC, meant, use_ptxas=False, cache=False)


def test_an_older_gpu_is_none() -> None:
    with pytest.raises(moec.InvalidArgument, match="^target: target 'sm_75' is unknown; accepted are cpu, sm_80"):
        moec.compile_package(SPEC, "sm_75")


def test_fields_can_be_ignored(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**MODEL, "expert_temperature": 3}))
    with pytest.raises(moec.InvalidArgument, match=r"ignore_fields=\['expert_temperature'\]"):
        moec.compile(config, device="cpu")
    made = moec.compile(config, device="cpu", ignore_fields=["expert_temperature"])
    assert made.spec["num_experts"] == 4
    with pytest.raises(moec.InvalidType, match="^ignore_fields: a list of names expected, str found"):
        moec.compile(config, device="cpu", ignore_fields="expert_temperature")


def test_messages_name_the_arguments_of_python(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MODEL))
    for options, expected in (
        ({"entry": "id"}, "entry: 'id' is not one of gate, logits and ids"),
        ({"layer": 7}, "layer=7: the model has 2 decoder layers"),
        ({"num_experts": 1}, r"\(num_experts\)"),
    ):
        with pytest.raises(moec.InvalidArgument, match=expected) as failure:
            moec.compile(config, device="cpu", **options)
        assert "--" not in str(failure.value) and "moejit" not in str(failure.value)
