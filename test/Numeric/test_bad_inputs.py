# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What moe-run says of bad inputs: a message that names file and field, exit
code 1, and no outputs file."""

import copy
import json
import struct
import subprocess

import numpy as np
import pytest
from cases import BASE
from runs import TIMEOUT, binary

from moec.reference import LayerSpec, generate, write_tensors

TOKENS = 5


def write_raw(path, header: bytes, data: bytes = b""):
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def moe_run(tmp_path, model=None, tensors=None, raw=None, options=()):
    """Runs on a model and tensors that differ from good ones; returns messages."""
    spec_path, inputs, outputs = (
        tmp_path / name for name in ("model.json", "in.safetensors", "out.safetensors")
    )
    spec_path.write_text(json.dumps(BASE) if model is None else model)
    if raw is not None:
        raw(inputs)
    else:
        write_tensors(inputs, good_tensors() if tensors is None else tensors)
    command = [binary("moe-run"), spec_path, f"--inputs={inputs}", f"--outputs={outputs}"]
    done = subprocess.run(
        [str(part) for part in (*command, f"--tokens={TOKENS}", *options)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
    )
    messages = done.stdout + done.stderr
    return done.returncode, messages, outputs.exists()


def good_tensors():
    return generate(LayerSpec.from_json(BASE), TOKENS, 1)


def expect_refused(result, *parts):
    returncode, messages, has_outputs = result
    assert returncode == 1, messages
    assert not has_outputs
    for part in parts:
        assert part in messages, messages


def test_good_inputs(tmp_path):
    returncode, messages, has_outputs = moe_run(tmp_path)
    assert returncode == 0 and has_outputs, messages


def test_missing_tensor(tmp_path):
    tensors = good_tensors()
    del tensors["experts.w2"]
    expect_refused(moe_run(tmp_path, tensors=tensors), "in.safetensors", "experts.w2")


def test_misnamed_tensor(tmp_path):
    tensors = good_tensors()
    tensors["experts.w3"] = tensors.pop("experts.w2")
    expect_refused(moe_run(tmp_path, tensors=tensors), "in.safetensors", "experts.w2")


@pytest.mark.parametrize("name", ["hidden_states", "router_logits", "experts.w13"])
def test_wrong_shape(tmp_path, name):
    tensors = good_tensors()
    tensors[name] = tensors[name][..., :-1]
    expect_refused(moe_run(tmp_path, tensors=tensors), "in.safetensors", name)


def test_wrong_rank(tmp_path):
    tensors = good_tensors()
    tensors["experts.w2"] = tensors["experts.w2"].reshape(-1)
    expect_refused(moe_run(tmp_path, tensors=tensors), "in.safetensors", "experts.w2")


def test_wrong_token_count(tmp_path):
    result = moe_run(tmp_path, options=["--tokens=6"])
    expect_refused(result, "in.safetensors", "hidden_states")


def test_wrong_dtype(tmp_path):
    tensors = good_tensors()
    tensors["router_logits"] = tensors["router_logits"].astype(np.int32)
    expect_refused(moe_run(tmp_path, tensors=tensors), "in.safetensors", "router_logits")


def test_missing_file(tmp_path):
    expect_refused(moe_run(tmp_path, raw=lambda path: None), "in.safetensors")


@pytest.mark.parametrize("size", [0, 4, 8, 40, 2000])
def test_truncated_file(tmp_path, size):
    def raw(path):
        write_tensors(path, good_tensors())
        path.write_bytes(path.read_bytes()[:size])

    expect_refused(moe_run(tmp_path, raw=raw), "in.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"hidden_states": 1}',
        b'{"hidden_states": {"dtype": "F32"}}',
        b'{"hidden_states": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [4611686018427387904, 4],'
        b' "data_offsets": [0, 4]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"hidden_states": {"dtype": "F32", "shape": [1], "data_offsets": [0, 99999]}}',
    ],
    ids=range(15),
)
def test_malformed_header(tmp_path, header):
    result = moe_run(tmp_path, raw=lambda path: write_raw(path, header, bytes(4)))
    expect_refused(result, "in.safetensors")


def test_huge_header_length(tmp_path):
    def raw(path):
        path.write_bytes(b"\xff" * 8 + b"{}")

    expect_refused(moe_run(tmp_path, raw=raw), "in.safetensors")


def changed(path, value):
    model = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    target = model
    for parent in parents:
        target = target[parent]
    target[last] = value
    return json.dumps(model, indent=1)


@pytest.mark.parametrize(
    "path,value,named",
    [
        ("colour", 1, "colour"),
        ("top_k", 9, "top_k"),
        ("hidden_size", -64, "hidden_size"),
        ("hidden_size", 2**62, "hidden_size"),
        ("num_experts", 0, "num_experts"),
        ("routing.num_groups", 3, "num_groups"),
        ("routing.score", "tanh", "score"),
        ("activation.alpha", 1, "alpha"),
        ("moec_spec", 2, "moec_spec"),
    ],
)
def test_bad_spec(tmp_path, path, value, named):
    expect_refused(moe_run(tmp_path, model=changed(path, value)), "model.json", named)


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, '{"moec_spec": 1,', '{"model_type": "mixtrel"}', "\x00"]
)
def test_bad_model_file(tmp_path, text):
    expect_refused(moe_run(tmp_path, model=text), "model.json")


@pytest.mark.parametrize("option", ["--tokens=-1", "--tokens=16385", "--tokens=99999999999"])
def test_bad_token_count(tmp_path, option):
    expect_refused(moe_run(tmp_path, options=[option]), "tokens")


def test_outputs_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("no folder")
    result = moe_run(tmp_path, options=[f"--outputs={tmp_path}/file/out.safetensors"])
    expect_refused(result, f"{tmp_path}/file is a file, not a folder")
