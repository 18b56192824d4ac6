# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments as people write them, and messages in the words of Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from small_layer import SPEC, Case

import moec
from moec.commands import main

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


@pytest.mark.parametrize("leading", [(8, 1), (1, 8), (4, 2)])
def test_takes_ids_of_one_expert(leading: tuple[int, ...]) -> None:
    """The ids [8, 1] of 8 tokens are flat beside hidden states [8, 1, 64], as in a step of decoding."""
    case = Case(tokens=8, top_k=1, entry="ids", padding_mask=True)
    made = case.compile()
    states, ids, weights, padding = (
        case.arguments[name] for name in ("hidden_states", "topk_ids", "topk_weights", "is_padding"))
    expected = made(states, None, ids, weights, is_padding=padding)
    case.verify(expected)
    for shape in ((8, 1), (*leading, 1)):
        for mask in ((8,), leading):
            found = made(
                states.reshape(*leading, 64), None, ids.reshape(shape), weights.reshape(shape),
                is_padding=padding.reshape(mask), out=np.empty_like(states).reshape(*leading, 64))
            assert (found.reshape(8, 64) == expected).all()


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


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    other = tmp_path / "model.txt"
    other.write_text("")
    with pytest.raises(moec.InvalidArgument, match=r"model\.txt: source ends with neither \.json"):
        moec.compile(other, device="cpu")


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
        ({"num_experts": 64}, "num_experts=64 is more than the 4 experts"),
        ({"max_tokens": 2**30}, f"max_tokens must be an integer from 1 to 16777216, not {2**30}"),
        ({"part": "vision"}, "leave out part\n"),
        ({"ignore_fields": ["a.b"]}, r"ignore_fields=\['a.b'\]: no such key"),
    ):
        with pytest.raises(moec.InvalidArgument, match=expected) as failure:
            moec.compile(config, device="cpu", **options)
        assert "--" not in str(failure.value) and "moejit" not in str(failure.value)


def test_messages_about_ir_and_weights_name_the_arguments_of_python(tmp_path: Path) -> None:
    layer = moec.compile(SPEC, device="cpu")
    source = tmp_path / "layer.mlir"
    source.write_text(layer.ir("moe"))
    with pytest.raises(moec.InvalidArgument, match=r"error: max_tokens, batch_invariant=True: only a description in JSON"):
        moec.compile(source, device="cpu", max_tokens=8, batch_invariant=True)
    assert "explain(full=True) prints" in layer.explain()
    rows = SPEC["intermediate_size"], SPEC["hidden_size"]
    weights = {f"model.layers.{number}.mlp.experts.0.{name}.weight": np.zeros(shape, ml_dtypes.bfloat16)
               for number in (3, 4) for name, shape in (("gate_proj", rows), ("up_proj", rows), ("down_proj", rows[::-1]))}
    with pytest.raises(moec.InvalidArgument, match="has experts of layers 3, 4; choose one with layer$"):
        layer.load(weights)


def test_commands_name_their_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**MODEL, "expert_temperature": 3}))
    assert main(["fit", str(config), "--gpu=h200"]) == 1
    assert "with --ignore-field=expert_temperature" in capsys.readouterr().err
    # The rest of the process is not of the command.
    with pytest.raises(moec.InvalidArgument, match=r"with ignore_fields=\['expert_temperature'\]"):
        moec.compile(config, device="cpu")


class _Index:
    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_numbers_of_other_libraries() -> None:
    spec = {
        **SPEC, "hidden_size": np.int64(SPEC["hidden_size"]), "num_experts": np.array(SPEC["num_experts"]),
        "top_k": _Index(SPEC["top_k"]), "routing": {"renormalize": np.bool_(True), "scale": np.float32(0.5)},
        "num_valid_tokens": np.False_,
    }
    made = moec.compile(spec, device="cpu", max_tokens=np.int32(16), num_experts=_Index(3))
    assert made.max_tokens == 16
    found = made.spec
    assert (found["hidden_size"], found["num_experts"], found["top_k"]) == (SPEC["hidden_size"], 3, SPEC["top_k"])
    assert found["routing"]["scale"] == 0.5 and found["routing"]["renormalize"] is True
    parallel = {"dp": np.int64(2), "experts": "linear"}
    assert moec.compile(SPEC, device="cpu", parallel=parallel).mesh[0] == 2
    for value, field, message in (
        (object(), "top_k", "'top_k': object found; text, a number, a bool, None, a list or a dict is accepted"),
        (float("nan"), "top_k", "'top_k': nan found; JSON has only finite numbers"),
        (np.float32("inf"), "top_k", "'top_k': inf found; JSON has only finite numbers"),
        ({"scale": [1, b"x"]}, "routing", r"'routing.scale\[1\]': bytes found"),
        ({3: 4}, "routing", "'routing': the key 3 is no text"),
        (1j, "top_k", "'top_k': complex found"),
    ):
        with pytest.raises((moec.InvalidArgument, moec.InvalidType), match=f"^source: {message}"):
            moec.compile({**SPEC, field: value}, device="cpu")
    for value in (np.bool_(True), True, 2.0, np.float32(2), "2"):
        with pytest.raises(moec.InvalidType, match="^max_tokens: an int expected"):
            moec.compile(SPEC, device="cpu", max_tokens=value)


def test_numbers_may_be_those_of_numpy(layer: moec.Layer) -> None:
    padded = Case(tokens=150, max_tokens=150, num_valid_tokens=True)
    made = moec.compile(padded.source | {"max_tokens": 64}, device="cpu").bind(padded.weights)
    states = padded.arguments["hidden_states"]
    expected = made(states, num_valid_tokens=70)
    assert expected[69].any() and not expected[70:].any()
    for number in (np.int64(70), np.uint8(70)):
        assert (made(states, num_valid_tokens=number) == expected).all()
        assert (made(states[:64], num_valid_tokens=number - 64) == made(states[:64], num_valid_tokens=6)).all()
    for wrong in (True, np.bool_(True)):
        with pytest.raises(moec.InvalidType, match="^num_valid_tokens: "):
            made(states, num_valid_tokens=wrong)
    with pytest.raises(moec.InvalidArgument, match="^num_valid_tokens: an int from 0 .* -1 found"):
        made(states[:64], num_valid_tokens=np.int32(-1))
    assert layer.workspace_bytes(np.int16(3)) == layer.workspace_bytes(3)
    with pytest.raises(moec.InvalidType, match="^tokens: an int expected, ndarray found"):
        layer.workspace_bytes(np.array([3, 4]))
    with pytest.raises(moec.InvalidType, match="^tokens: an int expected, ndarray found"):
        layer.workspace_bytes(np.array(True))
    with pytest.raises(moec.Error, match="^device: .*(cuda:99|CUDA)"):
        moec.compile(SPEC, device=np.int64(99))
    page = layer.report(measured={np.int64(4): np.float32(5e-6)})
    assert page == layer.report(measured={4: float(np.float32(5e-6))})
    with pytest.raises(moec.InvalidArgument, match="^measured: seconds .* at 4 tokens, nan found"):
        layer.report(measured={4: float("nan")})


@pytest.mark.parametrize(("arguments", "error", "message"), [
    ({"threads": -1}, moec.InvalidArgument, "threads: -1 found; 0 to 4294967295 are accepted"),
    ({"threads": 4097}, moec.InvalidArgument, "threads=4097: 0 to 4096 are accepted"),
    ({"threads": "1"}, moec.InvalidType, "threads: an int expected, str found"),
    ({"cache_bytes": -1}, moec.InvalidArgument, "cache_bytes: -1 found; 0 to 18446744073709551615 are accepted"),
    ({"cache_bytes": 1.5}, moec.InvalidType, "cache_bytes: an int expected, float found"),
    ({"cache_directory": 3}, moec.InvalidType, "cache_directory: a path expected, int found"),
    ({"configs": "abc"}, moec.InvalidType, "configs: a list of names expected, str found"),
    ({"configs": ["x"]}, moec.InvalidArgument, "configs: config 'x': write KERNEL:TEXT"),
    ({"device_part": 3}, moec.InvalidType, "device_part: a name or None expected, int found"),
    ({"part": ""}, moec.InvalidType, 'part: a name or None expected, "" found'),
    ({"warn": 3}, moec.InvalidType, "warn: a function or None expected, int found"),
    ({"batch_invariant": "no"}, moec.InvalidType, "batch_invariant: True or False expected, str found"),
    ({"round_weights": None}, moec.InvalidType, "round_weights: True or False expected, NoneType found"),
    ({"num_valid_tokens": 100}, moec.InvalidType, "num_valid_tokens: True or False expected, int found"),
])
def test_options_are_read(arguments: dict[str, object], error: type[moec.Error], message: str) -> None:
    """One of a wrong type was something else: "no" was true, and -1 thread ended the process."""
    with pytest.raises(error, match="^" + re.escape(message)):
        moec.compile_package(SPEC, "sm_90a", use_ptxas=False, **({"cache": False} | arguments))


def test_flags_and_sizes_may_be_those_of_numpy() -> None:
    made = moec.compile_package(
        SPEC, "sm_90a", use_ptxas=False, cache=False, num_valid_tokens=np.bool_(True), threads=np.int64(1))
    assert made == moec.compile_package(SPEC, "sm_90a", use_ptxas=False, cache=False, num_valid_tokens=True)


def test_paths_are_no_descriptors(layer: moec.Layer, tmp_path: Path) -> None:
    for use in (layer.report, lambda path: layer.report(measured=path)):
        with pytest.raises(moec.InvalidType, match="^(path|measured): a path expected, int found"):
            use(1)
    with pytest.raises(moec.InvalidArgument, match="^path: has a NUL"):
        layer.save_prepared(f"{tmp_path}/a\0b")
    assert not list(tmp_path.iterdir())
    for times, message in (({}, "no token count"), ({0: 1.0}, "token counts from 1 on expected, 0 found")):
        with pytest.raises(moec.InvalidArgument, match="^measured: " + message):
            layer.report(measured=times)
    with pytest.raises(moec.InvalidArgument, match="^rows: an int from 1"):
        layer.clone().verify(1, rows=0)
