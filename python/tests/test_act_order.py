# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints in which a column belongs to any group of scales (act-order), compared with a NumPy layer of unquantized
weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rank_threads import RANKS, on_ranks

import moec
import moec.ranks
from moec.reference.files import write_tensors
from moec.reference.layer import decide, evaluate
from moec.reference.spec import LayerSpec

HIDDEN, WIDTH, SHARED, EXPERTS, GROUP, TOKENS = 128, 96, 160, 5, 32, 9
#: Modules of an expert, by intermediate size.
MODULES = {
    width: {"gate_proj": (width, HIDDEN), "up_proj": (width, HIDDEN), "down_proj": (HIDDEN, width)}
    for width in (WIDTH, SHARED)
}


def words(rounded: np.ndarray) -> np.ndarray:
    """Packs 8 consecutive elements of a row per word, the first in the lowest bits."""
    rows, columns = rounded.shape
    shifts = np.arange(8, dtype=np.uint32) * 4
    return (rounded.astype(np.uint32).reshape(rows, columns // 8, 8) << shifts).sum(-1, dtype=np.uint32).view(np.int32)


def pack_gptq(rounded: np.ndarray, zeros: np.ndarray, scales: np.ndarray, groups: np.ndarray) -> dict[str, np.ndarray]:
    less = (words(zeros.T).view(np.uint32) - np.uint32(0x11111111)).view(np.int32)
    return {"qweight": words(rounded).T, "qzeros": less, "scales": scales.T.astype(np.float16), "g_idx": groups}


def pack_compressed(rounded: np.ndarray, zeros: np.ndarray, scales: np.ndarray, groups: np.ndarray) -> dict[str, np.ndarray]:
    return {"weight_packed": words(rounded), "weight_zero_point": words(zeros.T).T, "weight_scale": scales,
            "weight_g_idx": groups}


FORMS = {
    "gptq": (pack_gptq, {
        "quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False,
    }),
    "compressed-tensors": (pack_compressed, {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {
                "num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": False,
                "actorder": "group"}}},
    }),
}


class Model:
    """A model of one layer in a folder, and its weights in float32."""

    def __init__(self, form: str, shared: bool, folder: Path) -> None:
        pack, quantization = FORMS[form]
        rng = np.random.default_rng(11)
        self.router = rng.standard_normal((EXPERTS, HIDDEN), np.float32) / np.float32(8)
        self.gate = rng.standard_normal((1, HIDDEN), np.float32) / np.float32(8)
        block = "model.layers.0.mlp"
        saved = {f"{block}.gate.weight": self.router} | (
            {f"{block}.shared_expert_gate.weight": self.gate} if shared else {})
        self.plain: dict[tuple[str, str], np.ndarray] = {}
        for expert in [f"experts.{e}" for e in range(EXPERTS)] + ["shared_expert"] * shared:
            order = rng.permutation(np.arange(HIDDEN, dtype=np.int32) // GROUP)
            for module, (rows, columns) in MODULES[SHARED if expert == "shared_expert" else WIDTH].items():
                # Gate and up have the same input and so the same column order.
                own = np.arange(columns, dtype=np.int32) // GROUP
                groups = rng.permutation(own) if module == "down_proj" else order
                rounded = rng.integers(0, 16, (rows, columns))
                zeros = rng.integers(1, 16, (rows, columns // GROUP))
                scales = (rng.integers(1, 128, zeros.shape) / 4096).astype(np.float32)
                self.plain[expert, module] = (rounded - zeros[:, groups]) * scales[:, groups]
                for name, tensor in pack(rounded, zeros, scales, groups).items():
                    saved[f"{block}.{expert}.{module}.{name}"] = np.ascontiguousarray(tensor)
        sizes = {"hidden_size": HIDDEN, "num_experts": EXPERTS}
        family = {"model_type": "qwen2_moe", "shared_expert_intermediate_size": SHARED} if shared else {
            "model_type": "qwen3_moe"}
        (folder / "config.json").write_text(json.dumps(sizes | family | {
            "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH, "norm_topk_prob": True,
            "num_hidden_layers": 1, "torch_dtype": "float32", "quantization_config": quantization,
        }))
        write_tensors(folder / "model.safetensors", saved)
        self.hidden = rng.standard_normal((TOKENS, HIDDEN), np.float32)
        self.spec = LayerSpec.from_json(sizes | {
            "moec_spec": 1, "dtype": "f32", "top_k": 2, "intermediate_size": WIDTH,
            "routing": {"renormalize": True}, "activation": {"kind": "silu"},
            **({"shared_experts": {"intermediate_size": SHARED, "gate": "sigmoid"}} if shared else {}),
        })


def evaluate_plain(model: Model, shared: bool) -> np.ndarray:
    """The layer of the model's weights without quantization."""
    plain, hidden, spec = model.plain, model.hidden, model.spec
    firsts, seconds = (
        {expert: np.concatenate([plain[expert, module] for module in modules])
         for expert, module in plain if module == "gate_proj"}
        for modules in (("gate_proj", "up_proj"), ("down_proj",))
    )
    tensors = {"hidden_states": hidden, "gate.weight": model.router}
    if shared:
        tensors |= {"shared_experts.w13": firsts.pop("shared_expert"), "shared_experts.gate": model.gate,
                    "shared_experts.w2": seconds.pop("shared_expert")}
    tensors |= {"experts.w13": np.stack(list(firsts.values())), "experts.w2": np.stack(list(seconds.values()))}
    expected = evaluate(spec, tensors, decide(spec, tensors))
    assert np.abs(expected).max() > 0.1
    return expected


def expect_near(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("shared", [False, True], ids=["routed", "shared"])
@pytest.mark.parametrize("form", FORMS)
def test_computes_what_plain_weights_do(form: str, shared: bool, tmp_path: Path) -> None:
    model = Model(form, shared, tmp_path)
    layer = moec.Layer.from_pretrained(tmp_path, device="cpu", max_tokens=64)
    expect_near(layer(model.hidden), evaluate_plain(model, shared))


# A rank's columns of w2 have groups anywhere in the matrix.
# parity: L33
def test_ranks_have_parts_of_experts(tmp_path: Path) -> None:
    model = Model("gptq", False, tmp_path)
    layers = [moec.Layer.from_pretrained(tmp_path, device="cpu", max_tokens=64, parallel={"tp": RANKS}, rank=rank)
              for rank in range(RANKS)]
    communicators = moec.ranks.local(1, RANKS, device="cpu")

    def work(rank: int) -> np.ndarray:
        layers[rank].use_communicator(communicators[rank])
        return layers[rank](model.hidden)

    expected = evaluate_plain(model, False)
    for result in on_ranks(work):
        if isinstance(result, BaseException):
            raise result
        expect_near(result, expected)
