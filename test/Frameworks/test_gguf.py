# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GGUF files of every architecture with experts that gguf-py has, made by gguf-py's own writer."""

from __future__ import annotations

import math
import re

import gguf
import moec
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

TOKENS, EXPERTS, TOP_K, HIDDEN, WIDTH, NARROW, DENSE, LATENT = 5, 8, 2, 64, 32, 16, 96, 32
Tensor = gguf.MODEL_TENSOR
NAMES = {arch: name for arch, name in gguf.MODEL_ARCH_NAMES.items()}
#: Tensors of a block in gguf-py's table, by architecture.
TABLE = {NAMES[arch]: set(tensors) for arch, tensors in gguf.MODEL_TENSORS.items()
         if {Tensor.FFN_UP_EXP, Tensor.FFN_GATE_UP_EXP} & set(tensors)}  # fmt: skip
PLAIN = {Tensor.FFN_GATE_INP, Tensor.FFN_GATE_EXP, Tensor.FFN_UP_EXP, Tensor.FFN_DOWN_EXP}
SHARED = {Tensor.FFN_GATE_SHEXP, Tensor.FFN_UP_SHEXP, Tensor.FFN_DOWN_SHEXP}
BIAS = {Tensor.FFN_EXP_PROBS_B}
#: Architectures of llama.cpp that gguf-py 0.19 does not have yet, after src/models of llama.cpp.
LATER = {
    "cohere2moe": PLAIN, "deepseek32": PLAIN | SHARED | BIAS, "deepseek4": PLAIN | SHARED,
    "hy_v3": PLAIN | SHARED | BIAS, "kimi-k3": PLAIN | SHARED | BIAS, "laguna": PLAIN | SHARED | BIAS,
    "mellum": PLAIN, "minimax-m3": PLAIN | SHARED | BIAS,
}  # fmt: skip
#: With names for experts in gguf-py, and refused.
REFUSED = {"deci": "its models are dense"}
#: Metadata that converters write, by architecture.
GROUPS = {"expert_group_count": 4, "expert_group_used_count": 2}
STATED = {
    "bailingmoe2": GROUPS, "deepseek32": GROUPS,
    "cohere2moe": {"expert_gating_func": 1}, "deepseek4": {"expert_gating_func": 4, "swiglu_clamp_exp": 10.0},
    "grok": {"router_logit_softcapping": 30.0},
    "grovemoe": {"experts_per_group": 2, "expert_group_scale": 0.05, "expert_chunk_feed_forward_length": NARROW},
    "kimi-k3": {"expert_gating_func": 2, "expert_latent_length": LATENT, "activation.situ_beta": 4.0,
                "activation.situ_linear_beta": 25.0, "attention.layer_norm_rms_epsilon": 1e-5},
    "llama4": {"expert_used_count": 1}, "nomic-bert-moe": {"moe_every_n_layers": 2},
    "smallthinker": {"expert_gating_func": 1},
}  # fmt: skip
#: Tensors that the table has only for dense layers, or has not.
DENSE_PART = {"ffn_gate.weight": (DENSE, HIDDEN), "ffn_up.weight": (DENSE, HIDDEN), "ffn_down.weight": (HIDDEN, DENSE)}
MORE = {
    "deepseek4": {"ffn_gate_tid2eid.weight": (100, TOP_K)},
    "gemma4": {"ffn_down_exps.scale": (EXPERTS,), "ffn_gate_inp.scale": (HIDDEN,), **DENSE_PART},
    "gpt-oss": {"ffn_gate_inp.bias": (EXPERTS,), "ffn_gate_exps.bias": (EXPERTS, WIDTH),
                "ffn_up_exps.bias": (EXPERTS, WIDTH), "ffn_down_exps.bias": (EXPERTS, HIDDEN)},
    "grok": DENSE_PART,
    "kimi-k3": {"ffn_routed_down.weight": (LATENT, HIDDEN), "ffn_routed_up.weight": (HIDDEN, LATENT),
                "ffn_routed_norm.weight": (LATENT,)},
}  # fmt: skip


def get_shapes(architecture):
    narrow = LATENT if architecture == "kimi-k3" else HIDDEN
    shapes = {
        Tensor.FFN_GATE_INP: (EXPERTS, HIDDEN), Tensor.FFN_GATE_UP_EXP: (EXPERTS, 2 * WIDTH, narrow),
        Tensor.FFN_GATE_EXP: (EXPERTS, WIDTH, narrow), Tensor.FFN_UP_EXP: (EXPERTS, WIDTH, narrow),
        Tensor.FFN_DOWN_EXP: (EXPERTS, narrow, WIDTH), Tensor.FFN_GATE_CHEXP: (EXPERTS // 2, NARROW, HIDDEN),
        Tensor.FFN_UP_CHEXP: (EXPERTS // 2, NARROW, HIDDEN), Tensor.FFN_DOWN_CHEXP: (EXPERTS // 2, HIDDEN, NARROW),
        Tensor.FFN_GATE_SHEXP: (WIDTH, HIDDEN), Tensor.FFN_UP_SHEXP: (WIDTH, HIDDEN),
        Tensor.FFN_DOWN_SHEXP: (HIDDEN, WIDTH), Tensor.FFN_GATE_INP_SHEXP: (HIDDEN,), Tensor.FFN_EXP_PROBS_B: (EXPERTS,),
    }  # fmt: skip
    has = (TABLE | LATER)[architecture]
    # A file has gate and up apart, or in one.
    if {Tensor.FFN_GATE_UP_EXP, Tensor.FFN_UP_EXP} <= has:
        has = has - {Tensor.FFN_GATE_UP_EXP}
    end = {Tensor.FFN_EXP_PROBS_B: ".bias"}
    block = {gguf.TENSOR_NAMES[each].removeprefix("blk.{bid}.") + end.get(each, ".weight"): shape
             for each, shape in shapes.items() if each in has}  # fmt: skip
    return block | MORE.get(architecture, {})


def write(path, architecture):
    """Writes a file with experts in block 1; returns its tensors."""
    rng = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, architecture)
    keys = {"embedding_length": HIDDEN, "block_count": 2, "expert_count": EXPERTS, "expert_used_count": TOP_K}
    for key, value in (keys | STATED.get(architecture, {})).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(f"{architecture}.{key}", value)
    tensors = {}
    for name, shape in get_shapes(architecture).items():
        if name == "ffn_gate_tid2eid.weight":
            tensors[name] = (np.arange(200).reshape(shape) % EXPERTS).astype(np.int32)
        else:
            # Values of bf16.
            data = (rng.standard_normal(shape) / 4).astype(np.float32)
            tensors[name] = (data.view(np.uint32) & 0xFFFF0000).view(np.float32)
        writer.add_tensor(f"blk.1.{name}", tensors[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {name.removesuffix(".weight"): data.astype(np.float64) for name, data in tensors.items()}


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def choose(keys):
    return np.argsort(-keys, kind="stable")[:TOP_K]


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / 2**0.5))


def tanh_gelu(x):
    return x * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def mlp(w, x, act, kind="_exps", e=None):
    gate, up, down = (w[f"ffn_{name}{kind}"] if e is None else w[f"ffn_{name}{kind}"][e] for name in ("gate", "up", "down"))
    return down @ (act(gate @ x) * (up @ x))


def grok(w, x, _):
    """Grok-2: a dense part beside the experts, and the sum of both over the square root of 2."""
    weights = softmax(30 * np.tanh(w["ffn_gate_inp"] @ x / 30))
    total = mlp(w, x, erf_gelu, "")
    return (total + sum(weights[e] * mlp(w, x, erf_gelu, e=e) for e in choose(weights))) / 2**0.5


def grovemoe(w, x, _):
    """The model's own code: neighbours share a narrow expert, whose output counts 0.05."""
    weights = softmax(w["ffn_gate_inp"] @ x)
    ids = choose(weights)
    weights = weights[ids] / weights[ids].sum()
    return sum(weight * (mlp(w, x, silu, e=e) + 0.05 * mlp(w, x, silu, "_chexps", e // 2))
               for e, weight in zip(ids, weights, strict=True))  # fmt: skip


def gemma4(w, x, logits):
    weights = softmax(logits)
    ids = choose(weights)
    weights = weights[ids] / weights[ids].sum() * w["ffn_down_exps.scale"][ids]
    both, down = w["ffn_gate_up_exps"], w["ffn_down_exps"]
    return sum(weight * down[e] @ (tanh_gelu(both[e, :WIDTH] @ x) * (both[e, WIDTH:] @ x))
               for e, weight in zip(ids, weights, strict=True))  # fmt: skip


def kimi_k3(w, x, _):
    def situ(gate, up):
        return 4 * np.tanh(gate / 4) / (1 + np.exp(-gate)) * 25 * np.tanh(up / 25)

    scores = 1 / (1 + np.exp(-(w["ffn_gate_inp"] @ x)))
    ids = choose(scores + w["exp_probs_b.bias"])
    latent = w["ffn_routed_down"] @ x
    total = sum(scores[e] / scores[ids].sum() * w["ffn_down_exps"][e]
                @ situ(w["ffn_gate_exps"][e] @ latent, w["ffn_up_exps"][e] @ latent) for e in ids)  # fmt: skip
    total = total / np.sqrt((total**2).mean() + 1e-5) * w["ffn_routed_norm"]
    shared = w["ffn_down_shexp"] @ situ(w["ffn_gate_shexp"] @ x, w["ffn_up_shexp"] @ x)
    return w["ffn_routed_up"] @ total + shared


DEFINED = {"gemma4": gemma4, "grok": grok, "grovemoe": grovemoe, "kimi-k3": kimi_k3}


@pytest.mark.parametrize("architecture", sorted(TABLE | LATER))
def test_file_of_every_architecture_is_a_model(architecture, tmp_path):
    path = tmp_path / "model.gguf"
    w = write(path, architecture)
    if architecture in REFUSED:
        with pytest.raises(moec.Refused, match=f"'{architecture}', whose layers cannot be compiled: {REFUSED[architecture]}"):
            moec.call("moe-run", path)
        return
    # The folder of the only file is the file.
    assert "ok: relative error" in moec.call("moe-run", tmp_path, "--check", f"--tokens={TOKENS}")
    if architecture not in DEFINED:
        return
    rng = np.random.default_rng(2)
    call = {"hidden_states": rng.standard_normal((TOKENS, HIDDEN)).astype(np.float32)}
    if architecture == "gemma4":
        call["router_logits"] = rng.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    save_file(call, tmp_path / "x.safetensors")
    moec.call("moe-run", path, f"--hidden-states={tmp_path / 'x.safetensors'}", f"--tokens={TOKENS}",
              f"--outputs={tmp_path / 'y.safetensors'}")  # fmt: skip
    logits = call.get("router_logits", [None] * TOKENS)
    expected = np.array([DEFINED[architecture](w, x, own)
                         for x, own in zip(call["hidden_states"].astype(np.float64), logits, strict=True)])  # fmt: skip
    whole, row = moec.error(load_file(tmp_path / "y.safetensors")["output"], expected)
    assert whole <= moec.TOLERANCE and row <= moec.ROW_TOLERANCE, (whole, row)


def test_no_architecture_is_unknown(tmp_path):
    """moec's table is that of gguf-py and of later ones; those refused have a reason above."""
    write(tmp_path / "model.gguf", "llama")
    data = (tmp_path / "model.gguf").read_bytes().replace(b"llama", b"nolla", 1)
    (tmp_path / "model.gguf").write_bytes(data)
    with pytest.raises(moec.Refused, match="whose layers are not known") as refused:
        moec.call("moe-run", tmp_path / "model.gguf")
    known = re.search(r"known are (.*)\. Describe", str(refused.value))[1].split(", ")
    assert set(known) == (set(TABLE) - set(REFUSED)) | set(LATER)
    assert not set(LATER) & set(TABLE), "gguf-py has these by now"
