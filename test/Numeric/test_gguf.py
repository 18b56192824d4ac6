# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose weights are in GGUF files: those of test/Tools/Inputs/checkpoints, and files made by hand."""

import json
import struct
import subprocess

import numpy as np
import pytest
from runs import ROOT, TIMEOUT, binary
from safetensors.numpy import load_file, save_file

CHECKPOINTS = ROOT / "test" / "Tools" / "Inputs" / "checkpoints"


# field-bug: llama.cpp#4927
@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("block", "fields", "options"),
    [
        ("q8_0", {}, ()),
        ("mxfp4", {}, ()),
        # Blocks of 256 in the first products. Minima, and scales of few elements.
        ("q4_K", {}, ()),
        ("q5_K", {}, ()),
        ("q6_K", {}, ()),
        ("q4_K", {"dtype": "bf16", "entry": "logits"}, ("--target=sm_90a", "--device=sim:0")),
        ("q5_K", {"dtype": "f16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        ("q6_K", {"dtype": "bf16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        # Scales of either sign, and 0: decoded, and brought into the order of Hopper's tensor cores.
        ("q4_0", {}, ()),
        ("q4_0", {"dtype": "bf16", "entry": "logits"}, ("--target=sm_90a", "--device=sim:0")),
    ],
)
def test_gguf(block, fields, options, tmp_path):
    folder = CHECKPOINTS / f"gguf-{block}"
    model = tmp_path / "spec.json"
    model.write_text(json.dumps(json.loads((folder / "spec.json").read_text()) | fields))
    command = [binary("moe-run"), model, f"--inputs={folder / 'model.gguf'}", "--tokens=5", "--check", *options]
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    assert done.returncode == 0 and "ok: relative error" in done.stdout + done.stderr, done.stdout + done.stderr


TOKENS, EXPERTS, TOP_K, HIDDEN, LATENT, WIDTH, SHARED = 6, 8, 2, 32, 16, 24, 40
SPEC = {
    "moec_spec": 1, "dtype": "f32", "hidden_size": HIDDEN, "latent_size": LATENT, "num_experts": EXPERTS,
    "top_k": TOP_K, "intermediate_size": WIDTH, "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": SHARED, "gate": "sigmoid"},
}  # fmt: skip
KEYS = {
    "embedding_length": HIDDEN, "moe_latent_size": LATENT, "expert_count": EXPERTS,
    "expert_used_count": [9, TOP_K], "expert_feed_forward_length": WIDTH, "expert_shared_count": 2,
    "expert_shared_feed_forward_length": SHARED // 2, "expert_gating_func": 2, "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
}  # fmt: skip


def value(item) -> tuple[int, bytes]:
    """A number of the metadata: its type and its bytes."""
    if isinstance(item, list):
        number = value(item[0])[0]
        return 9, struct.pack("<IQ", number, len(item)) + b"".join(value(each)[1] for each in item)
    if isinstance(item, bool):
        return 7, struct.pack("<?", item)
    return (6, struct.pack("<f", item)) if isinstance(item, float) else (4, struct.pack("<I", item))


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def write_gguf(path, tensors, keys):
    """A file of version 3 with tensors of f32 and i32 in block 1."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + 1)
    head += string("general.architecture") + struct.pack("<I", 8) + string("some")
    for key, item in keys.items():
        number, data = value(item)
        head += string(f"some.{key}") + struct.pack("<I", number) + data
    blobs = b""
    for name, array in tensors.items():
        head += string(f"blk.1.{name}") + struct.pack("<I", array.ndim)
        head += struct.pack(f"<{array.ndim}Q", *reversed(array.shape))
        head += struct.pack("<IQ", 26 if array.dtype == np.int32 else 0, len(blobs))
        blobs += array.tobytes() + b"\0" * (-array.nbytes % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + blobs)


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run_whole_layer(tmp_path, routing, expected_ids, more, keys=KEYS):
    """Runs a layer with every part that a block may have; returns the process, and the largest error of its output
    beside the definition in float64."""
    rng = np.random.default_rng(3)

    def draw(*shape):
        return rng.standard_normal(shape).astype(np.float32) / 4

    tensors = {
        "ffn_gate_inp.weight": draw(EXPERTS, HIDDEN) * 4, "ffn_latent_down.weight": draw(LATENT, HIDDEN),
        "ffn_latent_up.weight": draw(HIDDEN, LATENT), "ffn_gate_exps.weight": draw(EXPERTS, WIDTH, LATENT),
        "ffn_up_exps.weight": draw(EXPERTS, WIDTH, LATENT), "ffn_down_exps.weight": draw(EXPERTS, LATENT, WIDTH),
        "ffn_gate_shexp.weight": draw(SHARED, HIDDEN), "ffn_up_shexp.weight": draw(SHARED, HIDDEN),
        "ffn_down_shexp.weight": draw(HIDDEN, SHARED), "ffn_gate_inp_shexp.weight": draw(HIDDEN),
        "ffn_norm.weight": draw(HIDDEN), "attn_q.weight": draw(HIDDEN, HIDDEN), **more,
    }  # fmt: skip
    call = {"hidden_states": draw(TOKENS, HIDDEN) * 4}
    if "hash_vocab_size" in routing:
        call["input_ids"] = np.arange(TOKENS, dtype=np.int32)[::-1].copy()
    write_gguf(tmp_path / "model.gguf", tensors, keys)
    save_file(call, tmp_path / "x.safetensors")
    (tmp_path / "spec.json").write_text(json.dumps(SPEC | {"routing": routing}))
    output = tmp_path / "y.safetensors"
    command = [binary("moe-run"), tmp_path / "spec.json", f"--inputs={tmp_path / 'model.gguf'}",
               f"--hidden-states={tmp_path / 'x.safetensors'}", f"--outputs={output}",
               f"--tokens={TOKENS}"]  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)
    if done.returncode != 0:
        assert not output.exists()
        return done, None

    w = {name.removesuffix(".weight"): array.astype(np.float64) for name, array in tensors.items()}
    x = call["hidden_states"].astype(np.float64)
    scores = sigmoid(x @ w["ffn_gate_inp"].T)
    z, expected = x @ w["ffn_latent_down"].T, np.zeros((TOKENS, LATENT))
    for t in range(TOKENS):
        ids = expected_ids(scores, call, t)
        weights = 2.5 * scores[t, ids] / scores[t, ids].sum()
        for e, weight in zip(ids, weights, strict=True):
            hidden = silu(w["ffn_gate_exps"][e] @ z[t]) * (w["ffn_up_exps"][e] @ z[t])
            expected[t] += weight * (w["ffn_down_exps"][e] @ hidden)
    shared = silu(x @ w["ffn_gate_shexp"].T) * (x @ w["ffn_up_shexp"].T) @ w["ffn_down_shexp"].T
    expected = expected @ w["ffn_latent_up"].T + shared * sigmoid(x @ w["ffn_gate_inp_shexp"])[:, None]
    got = load_file(output)["output"]
    return done, np.abs(got - expected).max() / np.abs(expected).max()


SIGMOID = {"score": "sigmoid", "renormalize": True, "scale": 2.5}
#: It chooses other experts than the scores alone.
BIAS = np.linspace(-2, 2, EXPERTS, dtype=np.float32)


def test_whole_layer_with_selection_bias(tmp_path):
    def ids(scores, call, t):
        return np.argsort(-(scores[t] + BIAS), kind="stable")[:TOP_K]

    done, error = run_whole_layer(tmp_path, SIGMOID | {"selection_bias": True}, ids, {"exp_probs_b.bias": BIAS})
    assert error is not None and error < 1e-5, (error, done.stdout + done.stderr)


def test_whole_layer_with_hash_table(tmp_path):
    table = np.random.default_rng(1).permuted(np.tile(np.arange(EXPERTS, dtype=np.int32), (TOKENS, 1)), axis=1)
    table = np.ascontiguousarray(table[:, :TOP_K])
    routing = SIGMOID | {"select": "hash", "hash_vocab_size": TOKENS}
    done, error = run_whole_layer(
        tmp_path, routing, lambda scores, call, t: table[call["input_ids"][t]], {"ffn_gate_tid2eid.weight": table}
    )
    assert error is not None and error < 1e-5, (error, done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("more", "keys", "message"),
    [
        ({"exp_probs_b.bias": BIAS}, {}, "'blk.1.exp_probs_b.bias' is none of this layer's, whose description lacks "
         "'routing.selection_bias'"),
        ({}, {"expert_weights_scale": 1.0}, "'some.expert_weights_scale' is 1 in layer 1, but the description says "
         "'routing.scale': 2.5"),
    ],
)  # fmt: skip
def test_a_layer_that_is_not_the_files_is_refused(more, keys, message, tmp_path):
    done, _ = run_whole_layer(tmp_path, SIGMOID, None, more, KEYS | keys)
    assert done.returncode == 1 and message in done.stderr, done.stdout + done.stderr
