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
WIDTH, EXPERTS = 32, 2
WEIGHTS = {
    "q8_0": {"dtype": "int8", "scale": {"group": 32}, "scale_dtype": "f16"},
    "q4_0": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "f16"},
    "mxfp4": {"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"},
    "q4_K": {"dtype": "int4", "scale": {"group": 32}, "minimum": True},
    "q5_K": {"dtype": "int8", "scale": {"group": 32}, "minimum": True},
    "q6_K": {"dtype": "int8", "scale": {"group": 16}},
    "nvfp4": {"dtype": "fp4_e2m1", "scale": {"group": 16}, "scale_dtype": "e4m3", "global_scale": True},
}
#: Block types of 256 elements, and offsets of their f16 factors: of scales, and of minima.
FACTORS = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (-2,), "IQ4_XS": (0,), "IQ4_NL": (0,),
           "TQ1_0": (52,), "TQ2_0": (64,), "Q1_0": (0,), "IQ1_S": (0,), "IQ1_M": (), "IQ2_XXS": (0,), "IQ2_XS": (0,),
           "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,)}
#: Block types of gate, up and down by layer, in the file of a layer that stores its weights in its dtype.
DECODED = [("Q2_K", "Q3_K", "Q4_1"), ("IQ4_XS", "TQ1_0", "Q5_0"), ("TQ2_0", "Q1_0", "Q5_1"), ("NVFP4", "Q4_K", "IQ4_NL"),
           ("Q5_K", "Q6_K", "MXFP4"), ("Q8_0", "Q4_0", "Q8_0"), ("IQ1_S", "IQ2_XXS", "Q8_0"),
           ("IQ1_M", "IQ2_XS", "Q8_0"), ("IQ2_S", "IQ3_XXS", "Q8_0"), ("IQ3_S", "Q8_0", "Q8_0")]


def quantize(rng, matrices, kind):
    """Blocks; of kinds that the package only reads, any bytes with small scales."""
    if kind.name not in FACTORS and kind.name != "NVFP4":
        return quants.quantize(matrices, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (*matrices.shape[:-1], matrices.shape[-1] // elements, size), np.uint8)
    if kind.name == "NVFP4":
        # Codes of e4m3 around 1/8.
        blocks[..., :4] = rng.integers(0x18, 0x28, blocks[..., :4].shape)
        return blocks.reshape(*matrices.shape[:-1], -1)
    if kind.name == "IQ1_M":
        # The f16 factor has four bits in the upper half of each other byte.
        blocks[..., 49::2] = blocks[..., 49::2] & 15 | np.array([0, 0x80, 0x60, 0], np.uint8)
    for at in FACTORS[kind.name]:
        factor = rng.uniform(1e-4, 2e-4, blocks.shape[:-1]).astype(np.float16)[..., None].view(np.uint8)
        blocks[..., at] = factor[..., 0]
        blocks[..., at + 1] = factor[..., 1]
    return blocks.reshape(*matrices.shape[:-1], -1)


def write(name, weight):
    # Blocks of 256 in the first weights, and others in the second ones, which have rows of 32.
    is_large = name.upper() in FACTORS or name == "nvfp4"
    hidden = 256 if is_large else 64
    second = "q8_0" if is_large else name
    folder = HERE / f"gguf-{name}"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(len(name))
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen3moe")
    writer.add_expert_count(EXPERTS)
    writer.add_embedding_length(hidden)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    # Another layer and another module, which are ignored.
    writer.add_tensor("blk.0.ffn_norm.weight", np.ones(hidden, np.float32))
    writer.add_tensor("blk.1.ffn_gate_inp.weight", rng.standard_normal((EXPERTS, hidden), np.float32))
    expected = {}
    for module, projection, shape, expert in (("gate", "gate_proj", (WIDTH, hidden), 0),
                                              ("up", "up_proj", (WIDTH, hidden), 1),
                                              ("down", "down_proj", (hidden, WIDTH), 1)):
        matrices = rng.standard_normal((EXPERTS, *shape), np.float32) / 8
        # A block of zeros has the scale 0, where scales are numbers.
        if name != "mxfp4":
            matrices[:, 3, :32] = 0
        kind = GGMLQuantizationType[(second if module == "down" else name).upper()]
        packed = quantize(rng, matrices, kind)
        writer.add_tensor(f"blk.1.ffn_{module}_exps.weight", packed, raw_dtype=kind)
        values = quants.dequantize(packed, kind)[expert]
        if kind == GGMLQuantizationType.NVFP4:
            scales = rng.uniform(0.5, 2, EXPERTS).astype(np.float32)
            writer.add_tensor(f"blk.1.ffn_{module}_exps.scale", scales)
            values = values * scales[expert]
        expected[f"experts.{expert}.{projection}"] = values.astype(np.float16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, folder / "expected.safetensors")
    spec = {
        "moec_spec": 1, "dtype": "f32", "hidden_size": hidden, "num_experts": EXPERTS, "top_k": 1,
        "intermediate_size": WIDTH, "activation": {"kind": "silu"}, "quantization": {"weight": weight},
    }
    if is_large:
        spec["quantization"]["w2"] = {"weight": WEIGHTS[second]}
    (folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")


def dequantize(packed, kind):
    """The package does not read q1_0: an f16, and bits that are signs, the lowest first."""
    if kind != GGMLQuantizationType.Q1_0:
        return quants.dequantize(packed, kind)
    blocks = packed.reshape(-1, 18)
    signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") * np.float32(2) - 1
    return (signs * np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)).reshape(*packed.shape[:-1], -1)


def write_decoded():
    """Expected are the first rows of the last expert, which the loader computes in f32 too."""
    hidden, folder, rng = 256, HERE / "gguf-decoded", np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen3moe")
    expected = {}
    for layer, kinds in enumerate(DECODED):
        writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", rng.standard_normal((EXPERTS, hidden), np.float32))
        for module, name in zip(("gate", "up", "down"), kinds):
            shape = (hidden, WIDTH) if module == "down" else (WIDTH, hidden)
            kind = GGMLQuantizationType[name]
            packed = quantize(rng, rng.standard_normal((EXPERTS, *shape), np.float32) / 8, kind)
            writer.add_tensor(f"blk.{layer}.ffn_{module}_exps.weight", packed, raw_dtype=kind)
            expected[f"{layer}.{module}.{name}"] = np.ascontiguousarray(dequantize(packed, kind)[-1, :4], np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expected, folder / "expected.safetensors")
    spec = {"moec_spec": 1, "dtype": "f32", "hidden_size": hidden, "num_experts": EXPERTS, "top_k": 1,
            "intermediate_size": WIDTH, "activation": {"kind": "silu"}}
    (folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")


for name, weight in WEIGHTS.items():
    write(name, weight)
write_decoded()
