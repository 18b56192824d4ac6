# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The list of numeric cases, how a case is added, and fields that several pages of cases use.

By default a case has f32, router logits as its entry and small sizes: errors in formulas show best where rounding is
small and the order of keys does not depend on a gemm.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = {
    "moec_spec": 1,
    "dtype": "f32",
    "entry": "logits",
    "hidden_size": 64,
    "num_experts": 8,
    "top_k": 2,
    "intermediate_size": 48,
    "routing": {"score": "softmax", "renormalize": True},
    "activation": {"kind": "silu"},
}


@dataclass(frozen=True)
class Case:
    name: str
    #: A JSON spec, or a model's configuration.
    model: dict
    tokens: int = 33
    seed: int = 1
    hard: str | None = None


CASES: list[Case] = []
#: Cases of formats that only the CPU supports.
CPU_CASES: list[Case] = []


def case(name: str, tokens: int = 33, seed: int = 1, hard: str | None = None, to=CASES, **spec):
    """Adds a case; `spec` are fields that differ from BASE."""
    model = {key: value for key, value in (BASE | spec).items() if value is not None}
    if model["entry"] == "ids":
        model["routing"] = spec.get("routing", {})
    to.append(Case(name, model, tokens, seed, hard))


def config(name: str, suffix: str = "", to=CASES, **fields):
    """Adds a case of a model family, all sizes small."""
    model = {"hidden_size": 64, "hidden_act": "silu", "torch_dtype": "bfloat16"} | fields
    model = {key: value for key, value in model.items() if value is not None}
    to.append(Case(f"family_{name}{suffix}", {"model_type": name} | model))


LLAMA = {"score": "identity", "weight": "sigmoid", "weight_on_input": True}
DEEPSEEK = {
    "moe_intermediate_size": 48, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1, "moe_layer_freq": 1,
}
LOCAL = {"intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {"moe_intermediate_size": 48, "num_experts": 16, "num_experts_per_tok": 4}
