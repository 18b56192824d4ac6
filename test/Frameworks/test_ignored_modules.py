# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`ignore` of compressed-tensors selects the modules that the library itself selects."""

from __future__ import annotations

import json

import ignored_modules
import moec
import pytest

KNOWN = json.loads(ignored_modules.FILE.read_text())
PREFIX = "model.layers.0.mlp."
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}


def config(ignore: list[str]) -> dict:
    return {
        "model_type": "qwen2_moe", "hidden_size": 64, "moe_intermediate_size": 64, "num_experts": ignored_modules.EXPERTS,
        "num_experts_per_tok": 2, "shared_expert_intermediate_size": 64, "num_hidden_layers": 2,
        "hidden_act": "silu", "norm_topk_prob": False, "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ignore,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": INT4}},
        },
    }


def coverage(experts: str, product: str, left: list[str]) -> str:
    """How many of a gemm's matrices are ignored: "none", "some" or "all"."""
    names = [name for name in ignored_modules.module_names()
             if name.startswith(PREFIX + experts) and name.endswith("down_proj") == (product == "w2")]
    share = sum(name in left for name in names) / len(names)
    return {0: "none", 1: "all"}.get(share, "some")


def read(quantization, product: str) -> str:
    """Likewise for moec's interpretation of a list."""
    if isinstance(quantization, dict) and product in quantization:
        quantization = quantization[product]
    return "none" if quantization else "all"


# A parent that was mistaken for its children: field-bug below.
# field-bug: sglang#32736
@pytest.mark.parametrize("row", KNOWN["rows"], ids=lambda row: ",".join(row["ignore"])[:40])
def test_ignore(row, tmp_path):
    expected = {(experts, product): coverage(experts, product, row["left"])
                for experts in ("experts.", "shared_expert.") for product in ("w13", "w2")}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(row["ignore"])))
    # A gemm whose matrices differ is not quantized: they are dequantized when they are loaded.
    expected = {gemm: "all" if left == "some" else left for gemm, left in expected.items()}
    spec = json.loads(moec.spec(path))
    for (experts, product), left in expected.items():
        quantization = spec.get("quantization")
        if experts == "shared_expert.":
            # If absent it is the layer's.
            quantization = spec["shared_experts"].get("quantization", quantization)
        assert read(quantization, product) == left, (experts, product)


def test_the_library_says_the_same():
    pytest.importorskip("compressed_tensors")
    assert ignored_modules.ask() == KNOWN["rows"]
