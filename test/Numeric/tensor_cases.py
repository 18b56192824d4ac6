# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers whose gemms use tensor memory: K is a multiple of 128."""

from cases import Case

BASE = {
    "moec_spec": 1, "dtype": "bf16", "entry": "ids", "hidden_size": 256, "num_experts": 6, "top_k": 2,
    "intermediate_size": 128, "max_tokens": 512, "activation": {"kind": "silu"}, "quantization": "mxfp8",
}


def make(name: str, tokens: int = 11, hard: str | None = None, **fields) -> Case:
    return Case(name=name, model=BASE | fields, tokens=tokens, seed=1, hard=hard)


#: Weights of 4 bits, which threads copy.
FOUR_BITS = {
    "weight": {"dtype": "fp4_e2m1", "scale": {"group": 32}, "scale_dtype": "e8m0"},
    "activation": {"dtype": "fp8_e4m3", "scale": {"group": 32}, "scale_dtype": "e8m0"},
}
CASES = [
    make("plain"),
    make("one_token", tokens=1),
    make("no_tokens", tokens=0),
    # Several tiles of a group, of which the last one has few rows.
    make("tiles", tokens=150, num_experts=2, top_k=1),
    # Several times more k tiles than stages.
    make("deep", tokens=5, hidden_size=1408, intermediate_size=1152, num_experts=2),
    make("up_gate", gate_up_order="up_gate", expert_bias=True),
    make("interleaved", gate_up_order="interleaved", expert_bias=True, dtype="f16"),
    # Partial blocks of columns, and a single k tile.
    make("tails", hidden_size=384, intermediate_size=128, num_experts=3),
    make("f32", dtype="f32", entry="logits"),
    make("shared", entry="gate", shared_experts={"intermediate_size": 128, "gate": "sigmoid"}),
    make("strided", strided_weights=True),
    make("no_gate", activation={"kind": "relu2_no_mul"}),
    make("padding", hard="padding", num_valid_tokens=True, shared_experts={"intermediate_size": 128}),
    make("empty_experts", hard="empty_experts"),
    make("one_expert", hard="one_expert", tokens=40),
    make("zeros", hard="zero_groups"),
    make("nan_hidden", hard="nan_hidden"),
    make("nan_codes", hard="nan_codes", tokens=17),
    make("nan_scales", hard="nan_scales", tokens=17),
    make("scale_ends", hard="scale_ends"),
    make("e2m1", quantization=FOUR_BITS),
    make("e2m1_tiles", tokens=150, num_experts=2, top_k=1, quantization=FOUR_BITS),
    make("e2m1_deep", tokens=5, hidden_size=1408, intermediate_size=1152, num_experts=2, quantization=FOUR_BITS),
    make("e2m1_up_gate", gate_up_order="up_gate", expert_bias=True, quantization=FOUR_BITS),
    make("e2m1_interleaved", gate_up_order="interleaved", hidden_size=384, dtype="f16", quantization=FOUR_BITS),
    make("e2m1_shared", entry="gate", shared_experts={"intermediate_size": 128}, quantization=FOUR_BITS),
]
