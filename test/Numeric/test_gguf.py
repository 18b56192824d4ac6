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
        ("nvfp4", {}, ()),
        ("mxfp4", {}, ()),
        # Blocks of 256 in the first gemms. Minima, and small groups.
        ("q4_K", {}, ()),
        ("q5_K", {}, ()),
        ("q6_K", {}, ()),
        ("q4_K", {"dtype": "bf16", "entry": "logits"}, ("--target=sm_90a", "--device=sim:0")),
        ("q5_K", {"dtype": "f16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        ("q6_K", {"dtype": "bf16", "entry": "ids"}, ("--target=sm_80", "--device=sim:0")),
        # Scales of either sign, and 0: dequantized, and prepacked for Hopper.
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
        head += string(key if "." in key else f"some.{key}") + struct.pack("<I", number) + data
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
    """Runs a layer with every tensor that a block may have; returns the process, and the largest error of its output
    against the definition in float64."""
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
#: The bias selects other experts than the scores alone.
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


# field-bug: llama.cpp#19139, ik_llama.cpp#1408, mobius#575
def test_merged_gate_and_up_in_two_files(tmp_path):
    rng = np.random.default_rng(5)
    router, first = rng.standard_normal((4, 32)), rng.standard_normal((4, 48, 32))
    down, x = rng.standard_normal((4, 32, 24)), rng.standard_normal((TOKENS, 32))
    router, first, down, x = (array.astype(np.float32) for array in (router, first, down, x))
    tensors = {"ffn_gate_inp.weight": router, "ffn_gate_up_exps.weight": first, "ffn_down_exps.weight": down}
    spec = {"moec_spec": 1, "dtype": "f32", "hidden_size": 32, "num_experts": 4, "top_k": 1, "intermediate_size": 24,
            "activation": {"kind": "silu"}, "routing": {"renormalize": True}}  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    save_file({"hidden_states": x}, tmp_path / "x.safetensors")
    names = [tmp_path / f"model-0000{i}-of-00002.gguf" for i in (1, 2)]

    def run():
        command = [binary("moe-run"), tmp_path / "spec.json", f"--inputs={names[0]}", f"--tokens={TOKENS}",
                   f"--hidden-states={tmp_path / 'x.safetensors'}", f"--outputs={tmp_path / 'y.safetensors'}"]  # fmt: skip
        return subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT)

    for path, own in zip(names, (list(tensors)[:1], list(tensors)[1:]), strict=True):
        write_gguf(path, {name: tensors[name] for name in own}, {"split.count": 2})
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    for t, got in enumerate(load_file(tmp_path / "y.safetensors")["output"]):
        e = (router @ x[t]).argmax()
        gate, up = np.split(first[e].astype(np.float64) @ x[t], 2)
        expected = down[e] @ (silu(gate) * up)
        assert np.abs(got - expected).max() < 1e-5 * np.abs(expected).max()
    names[1].unlink()
    assert f"{names[1]}: is missing" in run().stderr


def run_blocks(types, tmp_path):
    """Runs a layer of random blocks; returns also its router, input and weights."""
    gguf = pytest.importorskip("gguf", reason="gguf is not installed (pip install gguf)")
    rng, width = np.random.default_rng(6), 256
    router, x = (rng.standard_normal((4, width)).astype(np.float32) for _ in range(2))
    names = ("ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight")
    tensors, meant = {"ffn_gate_inp.weight": router}, []
    for name, kind in zip(names, types, strict=True):
        scales = SCALES.get(kind, [0])
        kind = gguf.GGMLQuantizationType[kind]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (4 * width * width // elements, size), dtype=np.uint8)
        if kind.name == "NVFP4":
            blocks[:, :4] = rng.integers(0x18, 0x28, (len(blocks), 4))
        if kind.name == "IQ1_M":
            # The f16 scale of a block has four bits in the upper half of each other byte.
            blocks[:, 49::2] = blocks[:, 49::2] & 15 | np.array([0, 0x80, 0x10, 0x20], np.uint8)
        # Scales and minima: f16 numbers near 0.01.
        for at in scales:
            half = (rng.uniform(0.5, 1, len(blocks)) / 100).astype(np.float16)
            blocks[:, at : at + 2] = half.view(np.uint8).reshape(-1, 2)
        tensors[name] = (kind, blocks.reshape(4, width, -1))
        with np.errstate(invalid="ignore"):
            meant.append(gguf.quants.dequantize(blocks.reshape(4, width, -1), kind).astype(np.float64))
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "some")
    for name, tensor in tensors.items():
        kind, data = tensor if isinstance(tensor, tuple) else (None, tensor)
        writer.add_tensor(f"blk.0.{name}", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    spec = {"moec_spec": 1, "dtype": "f32", "hidden_size": width, "num_experts": 4, "top_k": 1,
            "intermediate_size": width, "activation": {"kind": "silu"}, "routing": {"renormalize": True}}  # fmt: skip
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    save_file({"hidden_states": x}, tmp_path / "x.safetensors")
    command = [binary("moe-run"), tmp_path / "spec.json", f"--inputs={tmp_path / 'model.gguf'}", "--tokens=4",
               f"--hidden-states={tmp_path / 'x.safetensors'}", f"--outputs={tmp_path / 'y.safetensors'}"]  # fmt: skip
    return subprocess.run(command, text=True, capture_output=True, timeout=TIMEOUT), router, x, meant


# A layer that states no quantization takes blocks of any kind, another one in each tensor.
# field-bug: TheTom/llama-cpp-turboquant#45
# parity: L46
@pytest.mark.parametrize("types", [("Q4_K", "Q5_K", "Q6_K"), ("Q5_0", "Q4_1", "IQ4_NL"), ("Q2_K", "Q3_K", "Q5_1"),
                                   ("IQ4_XS", "TQ1_0", "TQ2_0"), ("NVFP4", "Q4_0", "Q8_0"),
                                   ("IQ1_S", "IQ1_M", "IQ3_S"), ("IQ2_XXS", "IQ2_XS", "Q8_0"),
                                   ("IQ2_S", "IQ3_XXS", "Q8_0")])  # fmt: skip
def test_blocks_of_any_kind(types, tmp_path):
    done, router, x, meant = run_blocks(types, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for t, got in enumerate(load_file(tmp_path / "y.safetensors")["output"]):
        e = (router @ x[t]).argmax()
        gate, up, down = (matrices[e] for matrices in meant)
        expected = down @ (silu(gate @ x[t]) * (up @ x[t]))
        assert np.abs(got - expected).max() < 2e-5 * np.abs(expected).max()


#: Offsets of the f16 scale and minimum in a block, if they are not at 0.
SCALES = {
    "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
    "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "Q4_0": [0], "Q8_0": [0], "NVFP4": [],
    "IQ1_M": [],
}  # fmt: skip
