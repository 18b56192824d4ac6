# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the small GGUF files of this folder with ggml's own Python package.

  python -m venv V; V/bin/pip install gguf safetensors; V/bin/python make_gguf.py

Each folder has a spec.json, a model.gguf, and an expected.safetensors with some of the matrices as the package
dequantizes them. Nothing of it is needed to run the tests.
"""

import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, quants
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
HIDDEN, WIDTH, EXPERTS = 64, 32, 2
WEIGHTS = {
    "q8_0": {"dtype": "int8", "scale": {"group": 32}, "scale_dtype": "f16"},
    "q4_0": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "f16"},
    "mxfp4": {"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"},
}


def write(name, weight):
    folder = HERE / f"gguf-{name}"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(len(name))
    kind = GGMLQuantizationType[name.upper()]
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen3moe")
    writer.add_expert_count(EXPERTS)
    writer.add_embedding_length(HIDDEN)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    # Another layer and another module, which are passed over.
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(HIDDEN, np.float32))
    writer.add_tensor("blk.1.ffn_gate_inp.weight", rng.standard_normal((EXPERTS, HIDDEN), np.float32))
    expected = {}
    for module, projection, shape, expert in (("gate", "gate_proj", (WIDTH, HIDDEN), 0),
                                              ("up", "up_proj", (WIDTH, HIDDEN), 1),
                                              ("down", "down_proj", (HIDDEN, WIDTH), 1)):
        matrices = rng.standard_normal((EXPERTS, *shape), np.float32) / 8
        # A block of zeros has the scale 0, where scales are numbers.
        if name != "mxfp4":
            matrices[:, 3, :32] = 0
        packed = quants.quantize(matrices, kind)
        writer.add_tensor(f"blk.1.ffn_{module}_exps.weight", packed, raw_dtype=kind)
        expected[f"experts.{expert}.{projection}"] = quants.dequantize(packed, kind)[expert].astype(np.float16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, folder / "expected.safetensors")
    spec = {
        "moec_spec": 1, "dtype": "f32", "hidden_size": HIDDEN, "num_experts": EXPERTS, "top_k": 1,
        "intermediate_size": WIDTH, "activation": {"kind": "silu"}, "quantization": {"weight": weight},
    }
    (folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")


for name, weight in WEIGHTS.items():
    write(name, weight)
