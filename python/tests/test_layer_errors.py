# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Invalid arguments raise exceptions that name the argument and the remedy."""

from __future__ import annotations

import numpy as np
import pytest
from small_layer import CALLS, SPEC, Case, shared_case

import moec


def change(array: np.ndarray, dtype: object) -> np.ndarray:
    return array.astype(np.float32).astype(dtype)


@pytest.mark.parametrize(
    ("entry", "argument", "make", "error", "message"),
    [
        ("gate", "hidden_states", lambda x: change(x, np.float16), TypeError,
         "dtype bf16 expected, f16 found; convert the tensor"),
        ("gate", "hidden_states", lambda x: x[0], ValueError, r"rank 2 expected, shape \[64\] found"),
        ("gate", "hidden_states", lambda x: x[:, ::2], ValueError, r"\[5, 32\] found"),
        ("gate", "hidden_states", lambda x: x.T.copy().T, ValueError, "make the tensor contiguous"),
        ("gate", "hidden_states", lambda x: x.tolist(), TypeError,
         r"a tensor \(with __dlpack__\) expected, list found"),
        ("gate", "hidden_states", lambda x: None, TypeError, "is missing"),
        ("gate", "router_logits", lambda x: np.zeros((5, 4), np.float32), ValueError,
         'the layer takes none; its entry is "gate"; .* entry="logits"'),
        ("gate", "topk_ids", lambda x: np.zeros((5, 2), np.int32), ValueError, 'entry="ids"'),
        ("gate", "num_valid_tokens", lambda x: 3, ValueError, "num_valid_tokens=True"),
        ("gate", "stream", lambda x: 0, ValueError, "a layer on the CPU has no stream"),
        ("gate", "out", lambda x: np.zeros((4, 64), x.dtype), ValueError, "5 rows expected"),
        ("gate", "out", lambda x: np.zeros((5, 64), np.float32), TypeError, "dtype bf16 expected"),
        ("gate", "out", lambda x: np.zeros((5, 32), x.dtype), ValueError, r"\[5, 32\] found"),
        ("gate", "out", lambda x: 3, TypeError, r"a tensor \(with __dlpack__\) expected, int found"),
        ("logits", "router_logits", lambda x: None, TypeError, "is missing"),
        ("logits", "router_logits", lambda x: x[:4], ValueError,
         r"5 rows expected, as in hidden_states, shape \[4, 4\] found"),
        ("logits", "router_logits", lambda x: x[:, :3].copy(), ValueError, r"\[5, 3\] found"),
        ("logits", "router_logits", lambda x: x.astype(np.float64), TypeError, "f64 found"),
        ("ids", "topk_ids", lambda x: x.astype(np.int64), TypeError,
         r"dtype i32 expected, i64 found; convert it, as with .to\(torch.int32\)"),
        ("ids", "topk_ids", lambda x: x.astype(np.float32), TypeError, "i32 expected, f32 found"),
        ("ids", "topk_weights", lambda x: None, TypeError, "is missing"),
        ("ids", "topk_weights", lambda x: change(x, np.float16), TypeError, "f16 found"),
    ],
)
def test_arguments_of_a_call(entry, argument, make, error, message) -> None:
    case, layer = shared_case(entry)
    arguments = dict(case.arguments)
    arguments[argument] = make(arguments.get(argument, arguments["hidden_states"]))
    with pytest.raises(error, match=f"^{argument}: .*{message}") as failure:
        layer(**arguments)
    assert isinstance(failure.value, moec.Error) and failure.value.code
    case.verify(layer(**case.arguments))


def test_ids_out_of_range_contribute_nothing() -> None:
    case = Case(entry="ids")
    case.tensors["topk_ids"][:, 0] = [-1, 4, 2**31 - 1, -(2**31), 0]
    case.verify(case.compile()(**case.arguments))


def test_an_output_of_its_own() -> None:
    case, layer = shared_case("logits")
    hidden = case.arguments["hidden_states"]
    memory = np.zeros((8, 64), hidden.dtype)
    memory[:5] = hidden
    for out in (memory[:5], memory[3:]):
        with pytest.raises(moec.InvalidArgument, match="out: shares memory with the input 'hidden_states'"):
            layer(memory[:5], case.arguments["router_logits"], out=out)
    logits = np.zeros((40, 4), np.float32)
    with pytest.raises(moec.InvalidArgument, match="out: shares memory with the input 'router_logits'"):
        layer(hidden, logits[:5], out=logits.view(hidden.dtype).reshape(5, 64))


def test_arguments_by_name_and_place() -> None:
    case, layer = shared_case()
    hidden = case.arguments["hidden_states"]
    with pytest.raises(TypeError, match="takes up to 4 arguments by position, 5 found"):
        layer(hidden, None, None, None, None)
    with pytest.raises(TypeError, match="hidden_states: is given twice"):
        layer(hidden, hidden_states=hidden)
    with pytest.raises(TypeError, match="a layer has no argument 'hidden'"):
        layer(hidden=hidden)
    with pytest.raises(TypeError, match="cannot create '.*Layer' instances"):
        moec.Layer()


def test_numbers_of_valid_tokens() -> None:
    case = Case(tokens=4, num_valid_tokens=True)
    layer = case.compile()
    hidden = case.arguments["hidden_states"]
    for value, error, message in (
        (-1, ValueError, "from 0 to 2147483647 expected, -1 found"),
        (2**40, ValueError, "expected, 1099511627776 found"),
        (2**80, ValueError, "one beyond 64 bits found"),
        (True, TypeError, "an int expected, bool found"),
        (1.5, TypeError, "float found"),
        (np.array([1, 2], np.int32), ValueError, r"shape \[1\] expected"),
        (np.array([1], np.int64), TypeError, "i64 found"),
    ):
        with pytest.raises(error, match=f"num_valid_tokens: .*{message}"):
            layer(hidden, num_valid_tokens=value)


def test_weights() -> None:
    case = Case()
    layer = moec.compile(SPEC, device="cpu")
    hidden = case.arguments["hidden_states"]
    with pytest.raises(moec.InvalidArgument, match="weight 'gate.weight' is not bound; bind it"):
        layer(hidden)
    w2 = case.tensors["experts.w2"]
    for name, tensor, error, message in (
        ("experts.w4", w2, ValueError, "has no such weight; it has gate.weight, experts.w13"),
        ("hidden_states", hidden, ValueError, "has no such weight"),
        ("experts.w2", w2[:3], ValueError, r"shape \[4, 64, 32\] expected, \[3, 64, 32\] found"),
        ("experts.w2", w2.transpose(0, 2, 1), ValueError, "expected"),
        ("experts.w2", change(w2, np.float32), TypeError, "or compile the layer for its dtype"),
        ("experts.w2", "w2", TypeError, "str found"),
    ):
        with pytest.raises(error, match=f"^{name}: .*{message}"):
            layer.bind({name: tensor})
    with pytest.raises(moec.InvalidType, match="tensors: a mapping expected, list found"):
        layer.bind([("experts.w2", w2)])


@pytest.mark.parametrize("entry", CALLS)
def test_nothing_runs_before_all_is_checked(entry: str) -> None:
    case, layer = shared_case(entry)
    arguments = dict(case.arguments)
    out = np.full_like(arguments["hidden_states"], 7)
    arguments[CALLS[entry][-1]] = arguments[CALLS[entry][-1]][:, :1].copy()
    with pytest.raises(moec.InvalidArgument):
        layer(**arguments, out=out)
    assert (out == 7).all()


def test_sources_and_options() -> None:
    for source, error, message in (
        (SPEC | {"top_k": 9}, ValueError, "layer.json:1:.*'top_k'"),
        (SPEC | {"colour": 1}, ValueError, "colour"),
        ({}, ValueError, "moec_spec"),
        ({1: object()}, TypeError, "source: the key 1 is no text"),
        ({"top_k": object()}, TypeError, "source: 'top_k': object found"),
        ({"a": float("nan")}, ValueError, ""),
        (7, TypeError, "source: a path or a dict expected, int found"),
        (b"layer.json", ValueError, "source: a path of text"),
        ("a\0b.json", ValueError, "source: a path of text without NUL"),
        ("/nowhere/config.json", LookupError, "cannot be read"),
        ("layer.txt", LookupError, "no file or folder 'layer.txt'; give a model's folder"),
        ("Qwen/Qwen3-30B-A3B", LookupError, "no file or folder 'Qwen/Qwen3-30B-A3B'.*`hf download Qwen/Qwen3-30B-A3B` "),
        ("nowhere/config.json", LookupError, "cannot be read"),
    ):
        with pytest.raises(error, match=message) as failure:
            moec.compile(source, device="cpu")
        assert isinstance(failure.value, moec.Error)
    for option, value, error, message in (
        ("max_tokens", 0, ValueError, "max_tokens: 0 found; 1 to"),
        ("max_tokens", 2**40, ValueError, "max_tokens: 1099511627776 found"),
        ("max_tokens", "8", TypeError, "max_tokens: an int expected, str found"),
        ("num_experts", True, TypeError, "num_experts: an int expected, bool found"),
        ("num_experts", 1, ValueError, "'top_k'"),
        ("entry", "router", ValueError, "entry: 'router' is not one of gate, logits and ids"),
        ("entry", 3, TypeError, "entry: .* int found"),
        ("layer", -1, ValueError, "layer: an int from 0"),
        ("layer", "3", TypeError, "layer: an int expected, str found"),
    ):
        with pytest.raises(error, match=message):
            moec.compile(SPEC, device="cpu", **{option: value})


def test_without_a_driver_the_error_names_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOERT_CUDA_LIBRARY", "/nowhere/libcuda.so.1")
    with pytest.raises(moec.Unavailable, match='install the NVIDIA driver, or give device="cpu"'):
        moec.compile(SPEC, device="cuda:7")


def test_errors_have_a_code() -> None:
    """Exceptions raised in Python have a code too."""
    codes = {"Error": "internal", "InvalidArgument": "invalid_argument", "InvalidType": "invalid_argument",
             "NotFound": "not_found", "Unavailable": "unavailable", "ResourceExhausted": "resource_exhausted"}
    for name, code in codes.items():
        assert getattr(moec, name)("text").code == code
    with pytest.raises(moec.InvalidArgument) as failure:
        shared_case()[1].ir("machine code")
    assert failure.value.code == "invalid_argument"


@pytest.mark.parametrize(("call", "message"), [
    (lambda layer: moec.compile(SPEC, device="cpu", progress=5), "progress: True, False or a function expected, int"),
    (lambda layer: moec.compile_package(SPEC, ["sm_90a"]), "target: one name of a target expected, .* list found"),
    (lambda layer: moec.compile_package(SPEC, None), "target: one name of a target expected, .* NoneType found"),
    (lambda layer: moec.Layer.from_package(5), "package: a path or bytes expected, int found"),
    (lambda layer: layer.prepare(memory=5), "memory: a mapping expected, int found"),
])
def test_kinds_of_other_arguments(call, message) -> None:
    with pytest.raises(moec.InvalidType, match=f"^{message}"):
        call(shared_case("gate")[1])


def test_an_empty_path_is_named() -> None:
    layer = shared_case("gate")[1]
    for call in (layer.save_prepared, layer.load_prepared):
        with pytest.raises(moec.Error, match="^the path of a file is empty"):
            call("")
