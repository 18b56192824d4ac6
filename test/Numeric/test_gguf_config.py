# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files that describe their layers themselves, by metadata and tensors, against a definition in float64."""

import json
import re
import shutil
import struct
import subprocess

import moec
import numpy as np
import pytest
from moec.commands.fit import fit
from moec.commands.model import read_model
from runs import TIMEOUT, binary
from test_gguf import sigmoid, silu, string, value

TOKENS, EXPERTS, TOP_K, HIDDEN, WIDTH = 6, 8, 2, 256, 256
#: Number, elements and bytes of a block.
KINDS = {"F32": (0, 1, 4), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "MXFP4": (39, 32, 17)}
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E2M1 = np.concatenate([E2M1, -E2M1])


def read_q4_k(blocks, factor, factor_of_minima):
    first, second, third = np.split(blocks[..., 4:16], 3, axis=-1)
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    halves = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 1, 32)
    codes = np.concatenate([halves & 15, halves >> 4], axis=-2).reshape(*blocks.shape[:-1], 8, 32)
    return (factor * scales)[..., None] * codes - (factor_of_minima * minima)[..., None]


def read_q6_k(blocks, factor):
    low = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 2, 32)
    low = np.concatenate([low & 15, low >> 4], axis=-2)
    high = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32) >> np.array([[0], [2], [4], [6]], np.uint8)
    codes = (low | (high & 3) << 4).astype(np.int64).reshape(*blocks.shape[:-1], 16, 16) - 32
    return (factor * blocks[..., 192:208].view(np.int8))[..., None] * codes


class Model:
    """The tensors of block 1 of a file, and what they mean in float64."""

    def __init__(self):
        self.rng = np.random.default_rng(8)
        self.stored, self.meant = {}, {}

    def add(self, name, *shape, kind="F32", size=0.25):
        data = (self.rng.standard_normal(shape) * size).astype(np.float32)
        # Values of bf16, as converters store routers and biases.
        data = (data.view(np.uint32) & 0xFFFF0000).view(np.float32)
        meant = data.astype(np.float64)
        if kind != "F32":
            _, elements, width = KINDS[kind]
            data = self.rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, width), dtype=np.uint8)
            meant = self.fill(data, kind).reshape(shape)
        self.stored[name] = kind, shape, data.tobytes()
        self.meant[name.removesuffix(".weight")] = meant

    def fill(self, blocks, kind):
        """Gives blocks of random codes scales near a small number; returns their values."""
        def scale(at, size):
            half = (self.rng.uniform(0.5, 1, blocks.shape[:-1]) * size).astype(np.float16)
            blocks[..., at : at + 2] = half[..., None].view(np.uint8)
            return half.astype(np.float64)[..., None]

        if kind == "Q8_0":
            return scale(0, 1 / 256) * blocks[..., 2:].view(np.int8)
        if kind == "MXFP4":
            blocks[..., 0] = 124
            codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], axis=-1)
            return E2M1[codes] / 8
        if kind == "Q4_K":
            return read_q4_k(blocks, scale(0, 1 / 2048), scale(2, 1 / 2048))
        return read_q6_k(blocks, scale(208, 1 / 65536))

    def add_experts(self, gate, up, down, bias=False):
        self.add("ffn_gate_inp.weight", EXPERTS, HIDDEN)
        self.add("ffn_gate_exps.weight", EXPERTS, WIDTH, HIDDEN, kind=gate)
        self.add("ffn_up_exps.weight", EXPERTS, WIDTH, HIDDEN, kind=up)
        self.add("ffn_down_exps.weight", EXPERTS, HIDDEN, WIDTH, kind=down)
        if bias:
            self.add("ffn_gate_inp.bias", EXPERTS)
            self.add("ffn_gate_exps.bias", EXPERTS, WIDTH)
            self.add("ffn_up_exps.bias", EXPERTS, WIDTH)
            self.add("ffn_down_exps.bias", EXPERTS, HIDDEN)

    def write(self, path, architecture, keys, *, dense="ffn_up", cut=0):
        keys = {"general.architecture": architecture, **{f"{architecture}.{key}": item for key, item in keys.items()}}
        # Block 0 has no experts.
        tensors = {f"blk.0.{dense}.weight": ("F32", (1,), b"abcd")}
        tensors |= {f"blk.1.{name}": tensor for name, tensor in self.stored.items()}
        head, blobs = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)), b""
        for key, item in keys.items():
            number, data = (8, string(item)) if isinstance(item, str) else value(item)
            head += string(key) + struct.pack("<I", number) + data
        for name, (kind, shape, data) in tensors.items():
            head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
            head += struct.pack("<IQ", KINDS[kind][0], len(blobs))
            blobs += data + b"\0" * (-len(data) % 32)
        data = head + b"\0" * (-len(head) % 32) + blobs
        path.write_bytes(data[: len(data) - cut])


KEYS = {"embedding_length": HIDDEN, "block_count": 2, "expert_count": EXPERTS, "expert_used_count": TOP_K}


def top(keys, count):
    return np.argsort(-keys, kind="stable")[:count]


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def route_qwen3(logits, w):
    weights = softmax(logits)
    ids = top(weights, TOP_K)
    return ids, weights[ids] / weights[ids].sum()


def route_deepseek(logits, w):
    scores = sigmoid(logits)
    keys = (scores + w["exp_probs_b.bias"]).reshape(4, 2)
    kept = top(keys.sum(axis=1), 2)
    keys = np.where(np.isin(np.arange(4), kept)[:, None], keys, -np.inf).ravel()
    ids = top(keys, TOP_K)
    return ids, 2.5 * scores[ids] / scores[ids].sum()


def route_gpt_oss(logits, w):
    ids = top(logits + w["ffn_gate_inp.bias"], TOP_K)
    return ids, softmax((logits + w["ffn_gate_inp.bias"])[ids])


def swiglu_oai(gate, up):
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return gate * sigmoid(1.702 * gate) * (up + 1)


def make_qwen3():
    model = Model()
    model.add_experts("Q4_K", "Q4_K", "Q6_K")
    return model, {}


def make_deepseek():
    model = Model()
    model.add_experts("F32", "F32", "F32")
    model.add("exp_probs_b.bias", EXPERTS, size=1)
    for name, shape in (("gate", (2 * WIDTH, HIDDEN)), ("up", (2 * WIDTH, HIDDEN)), ("down", (HIDDEN, 2 * WIDTH))):
        model.add(f"ffn_{name}_shexp.weight", *shape)
    keys = {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_group_count": 4,
            "expert_group_used_count": 2, "expert_shared_count": 2, "expert_feed_forward_length": WIDTH,
            "leading_dense_block_count": 1}  # fmt: skip
    return model, keys


def make_gpt_oss():
    model = Model()
    model.add_experts("MXFP4", "MXFP4", "MXFP4", bias=True)
    return model, {"expert_feed_forward_length": WIDTH}


def make_llama():
    model = Model()
    model.add_experts("Q8_0", "Q8_0", "Q8_0")
    return model, {"feed_forward_length": WIDTH}


def write_bf16(path, name, array):
    data = (array.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    head = json.dumps({name: {"dtype": "BF16", "shape": array.shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def read_output(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    info = json.loads(data[8 : 8 + size])["output"]
    first, last = (8 + size + offset for offset in info["data_offsets"])
    if info["dtype"] == "F32":
        return np.frombuffer(data[first:last], np.float32).reshape(info["shape"])
    return (np.frombuffer(data[first:last], np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(info["shape"])


def run(path, *options, command="moe-run"):
    return subprocess.run([binary(command), path, *options], text=True, capture_output=True, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("architecture", "make", "route", "act"),
    [
        ("qwen3moe", make_qwen3, route_qwen3, lambda gate, up: silu(gate) * up),
        ("deepseek2", make_deepseek, route_deepseek, lambda gate, up: silu(gate) * up),
        ("gpt-oss", make_gpt_oss, route_gpt_oss, swiglu_oai),
        ("llama", make_llama, route_qwen3, lambda gate, up: silu(gate) * up),
    ],
)
def test_file_describes_its_layer(architecture, make, route, act, tmp_path):
    model, keys = make()
    model.write(tmp_path / "model.gguf", architecture, KEYS | keys)
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((TOKENS, HIDDEN)).astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    if architecture == "deepseek2":
        head = json.dumps({"hidden_states": {"dtype": "F32", "shape": x.shape, "data_offsets": [0, x.nbytes]}}).encode()
        (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + x.tobytes())
    else:
        write_bf16(tmp_path / "x.safetensors", "hidden_states", x)
    done = run(tmp_path / "model.gguf", "--layer=1", "--check", f"--tokens={TOKENS}",
               f"--hidden-states={tmp_path / 'x.safetensors'}", f"--outputs={tmp_path / 'y.safetensors'}")  # fmt: skip
    assert done.returncode == 0 and "ok: relative error" in done.stdout + done.stderr, done.stdout + done.stderr

    w, expected = model.meant, np.zeros((TOKENS, HIDDEN))
    for t in range(TOKENS):
        for e, weight in zip(*route(w["ffn_gate_inp"] @ x[t], w), strict=True):
            gate, up, down = (
                [w[f"ffn_{name}_exps"][e], w.get(f"ffn_{name}_exps.bias", np.zeros((EXPERTS, 1)))[e]]
                for name in ("gate", "up", "down")
            )
            expected[t] += weight * (down[0] @ act(gate[0] @ x[t] + gate[1], up[0] @ x[t] + up[1]) + down[1])
        if "ffn_up_shexp" in w:
            expected[t] += w["ffn_down_shexp"] @ (silu(w["ffn_gate_shexp"] @ x[t]) * (w["ffn_up_shexp"] @ x[t]))
    output = read_output(tmp_path / "y.safetensors")
    error = np.abs(output - expected).max() / np.abs(expected).max()
    assert error < (1e-5 if architecture == "deepseek2" else 2e-2), error
    if architecture == "deepseek2":
        layer = moec.Layer.from_pretrained(tmp_path / "model.gguf", layer=1, device="cpu")
        assert np.array_equal(layer(x), output)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama") / "model.gguf"
    model, keys = make_llama()
    model.write(path, "llama", KEYS | keys)
    return path


def test_split_file_is_one_layer(llama, tmp_path):
    """The description is that of the whole model, whichever of its files is given, and the same as by config.json."""
    model, keys = make_llama()
    names = [tmp_path / f"model-0000{i}-of-00002.gguf" for i in (1, 2)]
    tensors = dict(model.stored)
    model.stored = {"ffn_down_exps.weight": tensors.pop("ffn_down_exps.weight")}
    model.write(names[0], "llama", KEYS | keys)
    model.stored = tensors
    model.write(names[1], "llama", {}, dense="ffn_gate")

    def describe(path):
        return json.loads(run(path, "--emit=spec", command="moe-compile").stdout)

    spec, split = describe(llama), describe(names[1])
    assert split | {"name": "model"} == spec
    config = {"model_type": "mixtral", "hidden_size": HIDDEN, "num_local_experts": EXPERTS, "num_hidden_layers": 2,
              "num_experts_per_tok": TOP_K, "intermediate_size": WIDTH, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    described = describe(tmp_path / "config.json")
    # The router has values of bf16.
    assert {key for key in spec | described if spec.get(key) != described.get(key)} == {"name", "quantization"}
    assert spec["quantization"]["weight"] == {"dtype": "int8", "scale": {"group": 32}, "scale_dtype": "f16"}


def test_folder_of_one_model_is_its_file(llama, tmp_path):
    """A folder has one GGUF model, split or not, beside a file of vision; moec fit counts the bytes of its tensors."""
    shutil.copy(llama, tmp_path / "some.gguf")
    (tmp_path / "mmproj-some.gguf").write_bytes(b"no model")
    done = run(tmp_path, "--check", "--tokens=3")
    assert done.returncode == 0 and "ok: relative error" in done.stdout, done.stdout + done.stderr
    assert moec.Layer.from_pretrained(tmp_path, device="cpu").spec["num_experts"] == EXPERTS
    model, keys = make_llama()
    stored = sum(len(data) for _, _, data in model.stored.values())
    for path in (tmp_path, tmp_path / "some.gguf"):
        read = read_model(str(path))
        (kind,) = read.kinds
        assert kind.layers == (1,) and (read.layer_bytes, read.weight_bytes) == (stored, stored + 4)
    assert fit(read, "h200", tokens=[1]).memory.other == 4
    tensors = dict(model.stored)
    for i in (1, 2):
        model.stored = {name: tensor for name, tensor in tensors.items() if ("down" in name) == (i == 1)}
        model.write(tmp_path / f"split-0000{i}-of-00002.gguf", "llama", KEYS | keys if i == 1 else {},
                    dense=f"ffn_{i}")  # fmt: skip
    several = r"error: holds several GGUF models, '.*some.gguf' and '.*split-00001-of-00002.gguf'; give the path of one"
    assert re.search(several, run(tmp_path).stderr)
    (tmp_path / "some.gguf").unlink()
    assert "ok: relative error" in run(tmp_path, "--check", "--tokens=3").stdout
    # A config.json comes first.
    (tmp_path / "config.json").write_text("{}")
    assert "'model_type' is missing" in run(tmp_path).stderr


@pytest.mark.parametrize(
    ("architecture", "keys", "options", "message"),
    [
        ("mamba9", {}, (), r"model.gguf: error: 'general.architecture' is 'mamba9', whose layers are not known; known "
         r"are afmoe, .*, deepseek2, .*Describe the layer in a spec, .*--inputs=model.gguf"),
        ("llama", {}, ("--layer=0",), r"--layer=0: this decoder layer has no experts; those with experts are 1$"),
        ("llama", {"expert_weights_scale": 2.5}, (), r"key 'llama.expert_weights_scale' is 2.5 in layer 1, but the "
         r"description says 'routing.scale': 1\.00; .*model_type \"mixtral\""),
        ("llama", {"expert_gating_func": 2}, (), r"'llama.expert_gating_func' is 2 \(sigmoid\)"),
        ("llama", {"expert_used_count": None}, (), r"'llama.expert_used_count' is missing; it is 'num_experts_per_tok'"),
        ("llama", {"expert_count": "8, \"top_k\": 1"}, (), r"'llama.expert_count' must be a number"),
        ("llama", {"expert_used_count": [2]}, (), r"'llama.expert_used_count' has 1 values, and layer 1 has experts"),
    ],
)  # fmt: skip
def test_file_that_describes_no_layer_is_refused(architecture, keys, options, message, tmp_path):
    model, own = make_llama()
    keys = {key: item for key, item in (KEYS | own | keys).items() if item is not None}
    model.write(tmp_path / "model.gguf", architecture, keys)
    done = run(tmp_path / "model.gguf", *options)
    assert done.returncode == 1 and re.search(message, done.stderr, re.MULTILINE), done.stdout + done.stderr


SOFTMAX, SIGMOID, OF_CHOSEN = ("softmax", "score"), ("sigmoid", "score"), ("identity", "softmax")
#: Score and weight of an architecture, and whether weights are divided by their sum.
ARCHITECTURES = {
    "afmoe": (SIGMOID, True), "arctic": (SOFTMAX, True), "bailingmoe": (SOFTMAX, True), "bailingmoe2": (SIGMOID, True),
    "cohere2moe": (("identity", "sigmoid"), True), "dbrx": (SOFTMAX, True),
    "deepseek": (SOFTMAX, False), "deepseek2": (SOFTMAX, False), "deepseek2-ocr": (SOFTMAX, False),
    "deepseek32": (SIGMOID, True), "deepseek4": (("sqrtsoftplus", "score"), True),
    "dots1": (SIGMOID, False), "ernie4_5-moe": (SOFTMAX, True), "exaone-moe": (SIGMOID, True),
    "gemma4": (SOFTMAX, True), "glm-dsa": (SIGMOID, True), "glm4moe": (SIGMOID, True), "gpt-oss": (OF_CHOSEN, False),
    "granitehybrid": (OF_CHOSEN, False), "granitemoe": (OF_CHOSEN, False), "grok": (SOFTMAX, False),
    "grovemoe": (SOFTMAX, True), "hunyuan-moe": (SOFTMAX, True), "hy_v3": (SIGMOID, True), "jamba": (SOFTMAX, False),
    "kimi-k3": (SIGMOID, True), "kimi-linear": (SIGMOID, True), "laguna": (SIGMOID, True), "lfm2moe": (SIGMOID, True),
    "llada-moe": (SOFTMAX, False), "llama": (SOFTMAX, True), "llama-embed": (SOFTMAX, True),
    "llama4": (("identity", "sigmoid"), False), "mellum": (SOFTMAX, True), "mimo2": (SIGMOID, True),
    "minicpm": (SOFTMAX, True), "minimax-m2": (SIGMOID, True), "minimax-m3": (SIGMOID, True),
    "mistral3": (SOFTMAX, True), "mistral4": (SOFTMAX, True), "nemotron_h_moe": (SIGMOID, True),
    "nomic-bert-moe": (SOFTMAX, False), "olmoe": (SOFTMAX, False), "phimoe": (("identity", "score"), False),
    "qwen2moe": (SOFTMAX, False), "qwen35moe": (SOFTMAX, True), "qwen3moe": (SOFTMAX, True),
    "qwen3next": (SOFTMAX, True), "qwen3vlmoe": (SOFTMAX, True), "rnd1": (SOFTMAX, True), "smallthinker": (SIGMOID, True),
    "step35": (SIGMOID, True),
}  # fmt: skip


def test_every_architecture_is_read(tmp_path):
    """llama.cpp's rules of routing, by what it calls build_moe_ffn() with; a family's defaults are those of the model."""
    model, keys = make_llama()
    for name in ("gate", "up", "down"):
        model.add(f"ffn_{name}_shexp.weight", WIDTH, HIDDEN)
    keys |= {"expert_group_count": 4, "expert_group_used_count": 4, "moe_every_n_layers": 2}
    for architecture, expected in ARCHITECTURES.items():
        keys["expert_used_count"] = 1 if architecture == "llama4" else TOP_K
        model.write(tmp_path / "model.gguf", architecture, KEYS | keys)
        done = run(tmp_path / "model.gguf", "--emit=spec", command="moe-compile")
        assert done.returncode == 0, done.stdout + done.stderr
        routing = json.loads(done.stdout).get("routing", {})
        found = routing.get("score", "softmax"), routing.get("weight", "score")
        assert (found, routing.get("renormalize", False)) == expected, architecture
    model.write(tmp_path / "model.gguf", "none", KEYS | keys)
    known = re.search(r"known are (.*)\. Describe", run(tmp_path / "model.gguf").stderr)[1]
    assert known.split(", ") == list(ARCHITECTURES)


def test_dense_and_truncated_files_are_refused(tmp_path):
    dense = Model()
    dense.write(tmp_path / "model.gguf", "llama", {"embedding_length": HIDDEN, "block_count": 2})
    assert "model.gguf: error: the model has no experts" in run(tmp_path / "model.gguf").stderr
    model, keys = make_llama()
    model.write(tmp_path / "model.gguf", "llama", KEYS | keys, cut=100)
    assert re.search(r"model.gguf: error: tensor .* it is truncated", run(tmp_path / "model.gguf").stderr)


def test_files_without_groups_have_none(tmp_path):
    model, keys = make_deepseek()
    del keys["expert_group_count"], keys["expert_group_used_count"]
    model.write(tmp_path / "model.gguf", "deepseek2", KEYS | keys)
    done = run(tmp_path / "model.gguf", "--emit=spec", command="moe-compile")
    assert "num_groups" not in json.loads(done.stdout)["routing"]
    assert "remark: 'deepseek2.expert_group_count' is missing; experts are chosen from all" in done.stderr


def test_router_with_digits_beyond_bf16_is_split(tmp_path):
    model, keys = make_llama()
    kind, shape, data = model.stored["ffn_gate_inp.weight"]
    router = np.frombuffer(data, np.float32).copy()
    router[-1] = 0.1
    model.stored["ffn_gate_inp.weight"] = kind, shape, router.tobytes()
    model.write(tmp_path / "model.gguf", "llama", KEYS | keys)
    done = run(tmp_path / "model.gguf", "--emit=spec", command="moe-compile")
    assert json.loads(done.stdout)["routing"]["split_gate"] is True


def test_blocks_of_several_kinds_in_a_weight_are_dequantized(tmp_path):
    model = Model()
    model.add_experts("Q8_0", "MXFP4", "MXFP4")
    model.write(tmp_path / "model.gguf", "llama", KEYS)
    done = run(tmp_path / "model.gguf", "--layers=all", "--check", "--tokens=3")
    assert done.returncode == 0 and "1 layers with experts of 2, 0 failed" in done.stdout, done.stdout + done.stderr
    assert ("'blk.1.ffn_gate_exps.weight' has blocks of q8_0 and 'blk.1.ffn_up_exps.weight' has blocks of mxfp4; "
            "'experts.w13' is dequantized to bf16 when it is loaded") in done.stderr  # fmt: skip
