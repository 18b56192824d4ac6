# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numeric cases: a spec, a token count, a seed and perhaps hard inputs.

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


# -- entry points and dtypes

for entry in ("gate", "logits", "ids"):
    for dtype in ("f32", "bf16", "f16"):
        case(f"entry_{entry}_{dtype}", entry=entry, dtype=dtype)
    # field-bug: sglang#38773, sglang#22455
    for tokens in (0, 1, 7):
        case(f"entry_{entry}_tokens_{tokens}", tokens=tokens, entry=entry, dtype="bf16")
    # field-bug: aiter#4530
    case(
        f"entry_{entry}_padding",
        entry=entry,
        hard="padding",
        num_valid_tokens=True,
        shared_experts={"intermediate_size": 40},
    )
    case(f"entry_{entry}_valid_tokens", entry=entry, num_valid_tokens=True)

# -- scores, weights and what follows them

ROUTINGS = {
    "softmax": {"score": "softmax"},
    "sigmoid": {"score": "sigmoid"},
    "sqrtsoftplus": {"score": "sqrtsoftplus"},
    "identity": {"score": "identity"},
    "sigmoid_renormalize": {"score": "sigmoid", "renormalize": True},
    "sqrtsoftplus_renormalize": {
        "score": "sqrtsoftplus", "renormalize": True, "scale": 1.5,
    },
    "weight_softmax": {"score": "identity", "weight": "softmax"},
    "weight_sigmoid": {"score": "identity", "weight": "sigmoid"},
    "weight_sigmoid_renormalize": {
        "score": "identity", "weight": "sigmoid", "renormalize": True,
    },
    "epsilon": {"renormalize": True, "renormalize_epsilon": 0.25},
    "scale": {"score": "sigmoid", "scale": 2.5},
    "selection_bias": {"score": "sigmoid", "selection_bias": True, "renormalize": True},
    "softmax_selection_bias": {
        "score": "softmax", "selection_bias": True, "renormalize": True,
        "renormalize_epsilon": 1e-12,
    },
    "sqrtsoftplus_selection_bias": {
        "score": "sqrtsoftplus", "selection_bias": True, "renormalize": True,
        "scale": 1.5,
    },
    "expert_scale": {"renormalize": True, "expert_scale": True},
    "everything": {
        "score": "sigmoid", "selection_bias": True, "expert_scale": True,
        "renormalize": True, "renormalize_epsilon": 1e-20, "scale": 2.5,
    },
    "sparsemixer": {"score": "identity", "select": "sparsemixer"},
}
# field-bug: sglang#8511, vllm#45037, vllm#24119, kvcache-ai/sglang#86, sglang#35152
for name, routing in ROUTINGS.items():
    case(f"route_{name}", routing=routing)
for name in ("softmax", "everything", "sparsemixer", "weight_softmax"):
    for dtype in ("bf16", "f16"):
        case(f"route_{name}_{dtype}", entry="gate", dtype=dtype, routing=ROUTINGS[name])
case("gate_bias", entry="gate", routing={"gate_bias": True, "renormalize": True})
case(
    "gate_bias_weight_softmax",
    entry="gate",
    dtype="bf16",
    routing={"score": "identity", "weight": "softmax", "gate_bias": True},
)
for name in ("softmax", "sqrtsoftplus_renormalize", "weight_softmax", "sparsemixer"):
    case(f"wide_{name}", routing=ROUTINGS[name], hard="wide_logits")

# -- shapes of the published routing tests; the experts themselves are tiny

TINY = {"hidden_size": 16, "intermediate_size": 8}
SIGMOID = {"score": "sigmoid", "selection_bias": True, "renormalize": True}

for experts, top_k, tokens in ((6, 3, 1), (6, 4, 33), (16, 3, 56), (16, 4, 33)):
    case(
        f"topk_{experts}_{top_k}_tokens_{tokens}",
        tokens=tokens, num_experts=experts, top_k=top_k, **TINY,
    )
for experts, top_k, groups, kept in (
    (16, 2, 8, 2), (128, 2, 8, 2), (256, 8, 8, 4), (384, 8, 1, 1), (512, 22, 1, 1),
    (64, 6, 8, 4), (32, 6, 4, 2),
):
    sizes = {"num_experts": experts, "top_k": top_k, **TINY}
    grouped = {"num_groups": groups, "topk_groups": kept}
    name = f"groups_{experts}_{top_k}_{groups}_{kept}"
    case(
        f"{name}_softmax", tokens=64, **sizes,
        routing={"score": "softmax", "group_score": "max", **grouped, "scale": 16},
    )
    case(
        f"{name}_sigmoid", tokens=64, **sizes,
        routing={**SIGMOID, **grouped, "renormalize_epsilon": 1e-20, "scale": 2.5},
    )
for experts, top_k in (
    (129, 8), (385, 8), (512, 9), (512, 16), (513, 9), (769, 9), (895, 9), (896, 16),
    (897, 9), (1024, 9), (1024, 16), (1024, 32),
):
    case(
        f"many_sigmoid_{experts}_{top_k}",
        tokens=7, num_experts=experts, top_k=top_k, **TINY, routing=SIGMOID,
    )
# field-bug: TileGym#24, zml#786
for experts, top_k in ((128, 4), (128, 5), (161, 8), (512, 17), (512, 23), (577, 9), (1024, 32)):
    case(
        f"many_softmax_{experts}_{top_k}",
        tokens=7, num_experts=experts, top_k=top_k, **TINY,
    )
for experts, top_k in ((128, 6), (256, 6), (384, 8), (512, 16)):
    case(
        f"many_sqrtsoftplus_{experts}_{top_k}",
        num_experts=experts, top_k=top_k, **TINY,
        routing={"score": "sqrtsoftplus", "renormalize": True, "scale": 1.5},
    )
case("top_k_is_all", num_experts=6, top_k=6)
case("one_routed_expert", num_experts=1, top_k=1)
case("groups_max_with_bias", num_experts=16, top_k=4, routing={
    **SIGMOID, "num_groups": 4, "topk_groups": 2, "group_score": "max",
})
case("groups_top2_without_bias", num_experts=16, top_k=4, routing={
    "num_groups": 4, "topk_groups": 2, "group_score": "top2_sum",
})
for score in ("softmax", "sigmoid"):
    case(f"per_group_{score}", num_experts=16, top_k=8, routing={
        "score": score, "select": "per_group", "num_groups": 4, "renormalize": True,
    })

# More slots than lanes, with weights computed by a formula.
case("many_slots_weight_sigmoid", tokens=3, num_experts=40, top_k=34, **TINY,
     routing={"score": "softmax", "weight": "sigmoid"})
# -- rows of experts, and slots of a token, that do not fit into a GPU's shared memory

HUGE = {"num_experts": 6208, "hidden_size": 4, "intermediate_size": 4, "tokens": 3}
# field-bug: sglang#21610
case("huge_softmax", top_k=5, **HUGE)
case("huge_everything", top_k=4, **HUGE, routing=ROUTINGS["everything"])
case("huge_ties", top_k=3, **HUGE, hard="ties", routing=SIGMOID)
case("huge_weight_softmax", top_k=4, **HUGE, routing=ROUTINGS["weight_softmax"])
case("huge_sparsemixer", **HUGE, routing=ROUTINGS["sparsemixer"])
case("huge_groups", top_k=3, **HUGE, routing={
    **SIGMOID, "num_groups": 4, "topk_groups": 2, "scale": 2.5,
})
case("huge_groups_max", top_k=2, **HUGE, hard="ties", routing={
    "num_groups": 97, "topk_groups": 2, "group_score": "max",
})
case("huge_per_group", top_k=4, **HUGE, routing={
    "select": "per_group", "num_groups": 2, "renormalize": True,
})
for hard in (None, "out_of_range_ids"):
    case(f"huge_hash_{hard}", top_k=6, **HUGE, hard=hard, routing={
        "score": "softmax", "select": "hash", "hash_vocab_size": 50, "expert_scale": True,
    })
for rule in ("zero", "neg_inf", "lowest"):
    case(f"huge_nan_{rule}", top_k=2, **HUGE, hard="nan_logits", routing={
        "score": "sigmoid", "nonfinite": rule, "renormalize": True,
    })
case("huge_padding", top_k=2, **HUGE, num_valid_tokens=True, hard="padding")
case("huge_ids", top_k=3, **HUGE, entry="ids", hard="minus_one_ids")
case("huge_local_experts", top_k=3, **HUGE, num_zero_experts=8, placement={
    "local_experts": list(range(6000, 300, -1)),
})
case("huge_many_slots", top_k=40, **{**HUGE, "tokens": 1},
     routing={**ROUTINGS["weight_softmax"], "expert_scale": True, "renormalize": True})
case("most_slots", tokens=1, num_experts=1030, top_k=1024, hidden_size=4,
     intermediate_size=4, routing={"score": "softmax", "expert_scale": True})

# -- hash routing

HASH = {
    "score": "sqrtsoftplus", "select": "hash", "hash_vocab_size": 50,
    "renormalize": True, "scale": 2.5,
}
case("hash", routing=HASH, num_experts=16, top_k=6)
case("hash_gate_bf16", routing=HASH, entry="gate", dtype="bf16")
for hard in ("out_of_range_ids", "one_expert", "empty_experts"):
    case(f"hash_{hard}", routing=HASH, hard=hard)
case("hash_padding", routing=HASH, hard="padding", num_valid_tokens=True)
case("hash_nan", routing=HASH, hard="nan_logits")

# -- ties and scores that are not finite

for experts in (8, 512, 896, 1024):
    case(f"ties_{experts}", num_experts=experts, top_k=min(experts // 2, 16), **TINY,
         tokens=17, hard="ties", routing=SIGMOID)
case("ties_gate", entry="gate", num_experts=16, top_k=4, hard="ties")
# field-bug: AstrAI#57
case("ties_gate_bf16", entry="gate", dtype="bf16", num_experts=16, top_k=4, hard="ties")
case("ties_groups", num_experts=32, top_k=4, hard="ties", **TINY,
     routing={"num_groups": 8, "topk_groups": 3})
case("ties_groups_top2", num_experts=32, top_k=4, hard="ties", **TINY,
     routing={**SIGMOID, "num_groups": 8, "topk_groups": 3})
case("ties_per_group", num_experts=16, top_k=8, hard="ties", **TINY,
     routing={"select": "per_group", "num_groups": 4})
case("ties_sparsemixer", num_experts=16, hard="ties", routing=ROUTINGS["sparsemixer"])
case("ties_weight_softmax", num_experts=16, top_k=4, hard="ties",
     routing=ROUTINGS["weight_softmax"])

for hard in ("nan_logits", "inf_logits"):
    for rule in ("zero", "neg_inf", "lowest"):
        for score in ("softmax", "sigmoid", "sqrtsoftplus"):
            case(f"{hard}_{rule}_{score}", hard=hard, top_k=3, num_experts=6, **TINY,
                 routing={"score": score, "nonfinite": rule, "renormalize": True})
    for name in ("identity", "weight_softmax", "weight_sigmoid", "sparsemixer",
                 "everything"):
        case(f"{hard}_{name}", hard=hard, num_experts=16, routing=ROUTINGS[name], **TINY)
    case(f"{hard}_gate", hard=hard, entry="gate",
         routing={"score": "sigmoid", "renormalize": True})
    case(f"{hard}_groups", hard=hard, num_experts=16, top_k=4, **TINY,
         routing={**SIGMOID, "num_groups": 4, "topk_groups": 2})
    case(f"{hard}_per_group", hard=hard, num_experts=16, top_k=8, **TINY,
         routing={"select": "per_group", "num_groups": 4, "renormalize": True})
    case(f"{hard}_many", hard=hard, num_experts=896, top_k=16, tokens=9, **TINY,
         routing={**SIGMOID, "nonfinite": "neg_inf"})

# -- where tokens go, and ids that mean nothing

for entry in ("gate", "logits", "ids"):
    for hard in ("one_expert", "empty_experts"):
        case(f"{hard}_{entry}", entry=entry, hard=hard, dtype="bf16", tokens=70)
# field-bug: aiter#4636, pytorch#193633
for hard in ("minus_one_ids", "out_of_range_ids", "nan_weights"):
    for dtype in ("f32", "bf16"):
        case(f"{hard}_{dtype}", entry="ids", hard=hard, dtype=dtype)
    case(f"{hard}_shared", entry="ids", hard=hard, top_k=3,
         shared_experts={"intermediate_size": 40, "gate": "sigmoid"})
    case(f"{hard}_zero_experts", entry="ids", hard=hard, top_k=4, num_zero_experts=4)

# -- activations

ACTIVATIONS = {
    "silu": {},
    "silu_limit": {"kind": "silu", "limit": 0.75},
    "gelu": {},
    "gelu_offset": {"kind": "gelu", "beta": 1},
    "gelu_tanh": {},
    "relu": {},
    "relu2": {},
    "swigluoai": {},
    "swigluoai_parameters": {"kind": "swigluoai", "alpha": 1.1, "limit": 0.75},
    "swigluoai_uninterleave": {},
    "swigluoai_uninterleave_parameters": {
        "kind": "swigluoai_uninterleave", "alpha": 1.702, "beta": 1, "limit": 0.75,
    },
    "swiglustep": {},
    "swiglustep_limit": {"kind": "swiglustep", "limit": 0.5},
    "situ": {},
    "situ_parameters": {"kind": "situ", "beta": 0.75, "linear_beta": 1.5},
    "situ_linear": {"kind": "situ", "linear_beta": 0},
    "silu_no_mul": {},
    "gelu_no_mul": {},
    "gelu_tanh_no_mul": {},
    "relu_no_mul": {},
    "relu2_no_mul": {},
}
# field-bug: sglang#39939, onnxruntime#27221
for name, parameters in ACTIVATIONS.items():
    activation = {"kind": name} | parameters
    case(f"activation_{name}", activation=activation, intermediate_size=40)
    if not parameters:
        case(f"activation_{name}_bf16", activation=activation, dtype="bf16",
             shared_experts={"intermediate_size": 24})
        case(f"activation_{name}_wide", activation=activation, dtype="bf16",
             hard="wide_hidden")
for name in ("silu", "swigluoai", "relu2_no_mul"):
    case(f"activation_{name}_f16", activation={"kind": name}, dtype="f16",
         intermediate_size=40)

# -- weights: order, biases, shared experts, latent width, zero experts

for order in ("gate_up", "up_gate", "interleaved"):
    for dtype in ("f32", "bf16", "f16"):
        case(f"order_{order}_{dtype}", gate_up_order=order, dtype=dtype,
             shared_experts={"intermediate_size": 40})
    case(f"order_{order}_bias", gate_up_order=order, expert_bias=True)
    case(f"order_{order}_bias_bf16", gate_up_order=order, expert_bias=True, dtype="bf16")
for dtype in ("f32", "bf16", "f16"):
    case(f"expert_bias_{dtype}", expert_bias=True, dtype=dtype)
    for gate in ("none", "sigmoid"):
        case(f"shared_{gate}_{dtype}", entry="gate", dtype=dtype,
             shared_experts={"intermediate_size": 72, "gate": gate})
    case(f"latent_{dtype}", latent_size=32, dtype=dtype)
    case(f"zero_experts_{dtype}", num_zero_experts=4, top_k=4, dtype=dtype)
case("expert_bias_no_gate", expert_bias=True, activation={"kind": "relu2_no_mul"})
case("shared_own_activation", dtype="bf16", activation={"kind": "silu", "limit": 0.5},
     shared_experts={"intermediate_size": 40, "scale": 0.5,
                     "activation": {"kind": "gelu_tanh"}})
# field-bug: sglang#28237
case("shared_gate_scale", entry="gate", activation={"kind": "silu", "limit": 2.0},
     shared_experts={"intermediate_size": 40, "gate": "sigmoid", "scale": 0.25,
                     "activation": {"kind": "silu", "limit": 0.5}})
for name, softcapped in {
    "softmax": {"score": "softmax", "renormalize": True},
    "sigmoid": {"score": "sigmoid", "selection_bias": True, "renormalize": True},
    "selected": {"score": "identity", "weight": "softmax"},
}.items():
    case(f"softcap_{name}", entry="gate" if name == "softmax" else "logits",
         routing={**softcapped, "logit_softcap": 1.5}, dtype="bf16")
case("logit_scale", entry="gate", dtype="bf16",
     routing={"score": "sigmoid", "selection_bias": True, "renormalize": True, "logit_scale": 0.25})
# A router in f32, as two weights of the layer's dtype.
for dtype, count in (("bf16", 37), ("f16", 16)):
    # parity: R3
    case(f"split_gate_{dtype}", entry="gate", num_experts=count, dtype=dtype,
         routing={"score": "sigmoid", "selection_bias": True, "renormalize": True, "split_gate": True})
# Logits in 16 bits. One row of 37 experts ends in a part of a vector.
# parity: R4, L25
for logits_dtype, dtype in (("bf16", "bf16"), ("f16", "bf16"), ("bf16", "f32")):
    case(f"logits_{logits_dtype}_in_{dtype}", entry="logits", num_experts=37, dtype=dtype,
         routing={"score": "softmax", "renormalize": True, "logits_dtype": logits_dtype})
case("logits_bf16_groups", entry="logits", num_experts=16, dtype="bf16",
     routing={"score": "sigmoid", "selection_bias": True, "num_groups": 4, "topk_groups": 2, "logits_dtype": "bf16"})
# Columns of each expert's first gemm in a separate order.
for dtype in ("f32", "bf16", "f16"):
    case(f"expert_columns_{dtype}", expert_columns=True, dtype=dtype)
case("expert_columns_latent", expert_columns=True, latent_size=24, dtype="bf16", entry="gate", expert_bias=True,
     shared_experts={"intermediate_size": 40})
case("expert_columns_many", expert_columns=True, num_experts=37, top_k=3, tokens=9, hard="empty_experts", entry="ids",
     dtype="bf16")
case("expert_columns_local", expert_columns=True, placement={"local_experts": [6, 1, 3]}, entry="ids", dtype="bf16",
     gate_up_order="interleaved")
case("expert_columns_weighed", expert_columns=True, top_k=1, routing={"score": "sigmoid", "weight_on_input": True})
for group in (32, 128):
    case(f"expert_columns_int4_{group}", expert_columns=True, dtype="bf16", hidden_size=256, intermediate_size=128,
         tokens=40, quantization={"weight": {"dtype": "int4", "scale": {"group": group}, "scale_dtype": "f16",
                                             "zero_point": group == 128}})
# The shared expert's weights, too.
for dtype in ("f32", "bf16", "f16"):
    case(f"shared_columns_{dtype}", dtype=dtype, entry="gate",
         shared_experts={"intermediate_size": 72, "gate": "sigmoid", "columns": True})
case("shared_columns_odd", hidden_size=75, dtype="bf16", expert_columns=True, num_valid_tokens=True,
     shared_experts={"intermediate_size": 40, "columns": True})
case("shared_columns_latent", latent_size=24, expert_columns=True, dtype="bf16",
     shared_experts={"intermediate_size": 40, "columns": True})
case("shared_columns_int4", expert_columns=True, dtype="bf16", hidden_size=256, intermediate_size=128, tokens=40,
     shared_experts={"intermediate_size": 256, "columns": True},
     quantization={"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "f16", "zero_point": True}})
# Before a quantization, whose groups consist of neighbours in this order.
E4M3 = {"dtype": "fp8_e4m3"}
for name, quantization in {
    "fp8_block": "fp8_block128",
    "mxfp8": "mxfp8",
    "token": {"weight": E4M3 | {"scale": "channel"}, "activation": E4M3 | {"scale": "token"}},
    "tensor": {"weight": E4M3 | {"scale": "tensor"}, "activation": E4M3 | {"scale": "tensor"}},
    "static": {"weight": E4M3 | {"scale": "tensor"}, "activation": E4M3 | {"scale": "tensor", "static": True}},
    "int8": {"weight": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "bf16"},
             "activation": {"dtype": "int8", "scale": "token"}},
}.items():
    case(f"columns_{name}", expert_columns=True, dtype="bf16", hidden_size=256, intermediate_size=128, tokens=21,
         num_valid_tokens=name == "tensor", quantization=quantization,
         shared_experts={"intermediate_size": 128, "columns": True})
case("shared_wide", shared_experts={"intermediate_size": 160})
case("latent_shared", latent_size=32, dtype="bf16",
     shared_experts={"intermediate_size": 72, "gate": "sigmoid"})
case("latent_no_gate", latent_size=24, dtype="bf16", entry="gate",
     activation={"kind": "relu2_no_mul"}, routing=SIGMOID,
     shared_experts={"intermediate_size": 72})
# Kimi K3, Muse Spark, and an odd width.
case("latent_norm", latent_size=32, dtype="bf16", norms={"latent_out": {"epsilon": 1e-5}},
     shared_experts={"intermediate_size": 40})
case("latent_norms", latent_size=32, dtype="bf16", entry="gate", routing={"score": "sigmoid", "renormalize": True},
     norms={"latent_in": {"epsilon": 1e-5, "offset": 1},
            "expert": {"epsilon": 1e-8, "offset": 1, "weight_first": True}})
case("norms_odd", latent_size=75, dtype="f32", expert_bias=True, num_valid_tokens=True, hard="padding",
     norms={"latent_in": {"epsilon": 1e-5}, "expert": {"epsilon": 0.5, "offset": 2}, "latent_out": {"epsilon": 1e-3}})
# The bias of the experts' sum, alone and beside padding.
case("output_bias", dtype="bf16", output_bias=True, num_valid_tokens=True, hard="padding")
case("output_bias_odd", hidden_size=75, dtype="f32", output_bias=True)
# Shares of the experts' sum and of the shared expert, with a router and with given weights.
case("shared_softmax_bf16", entry="gate", dtype="bf16", routing=SIGMOID,
     shared_experts={"intermediate_size": 40, "gate": "softmax", "gate_bias": True})
case("shared_softmax_ids", entry="ids", dtype="f32", num_zero_experts=2, hidden_size=75,
     shared_experts={"intermediate_size": 40, "gate": "softmax"})
case("shared_gate_bias", dtype="f16", shared_experts={"intermediate_size": 40, "gate": "sigmoid", "gate_bias": True})
# A router of two gemms.
for dtype in ("f32", "bf16", "f16"):
    case(f"gate_hidden_{dtype}", entry="gate", dtype=dtype,
         routing={"score": "softmax", "renormalize": True, "gate_hidden_size": 24, "gate_bias": dtype == "f16"})
case("norm_of_experts_wide", hidden_size=1200, dtype="f16", norms={"expert": {"epsilon": 1e-5}})
# Adapters: of one and several, of a rank that fills no vector, on each kind of quantization.
case("lora_one", lora={"adapters": 1, "rank": 8})
case("lora_bf16", dtype="bf16", entry="gate", lora={"adapters": 4, "rank": 16}, expert_bias=True,
     shared_experts={"intermediate_size": 40})
case("lora_odd", dtype="f16", lora={"adapters": 3, "rank": 5}, gate_up_order="interleaved", hidden_size=72,
     intermediate_size=44, num_valid_tokens=True, hard="padding")
case("lora_no_gate", dtype="bf16", lora={"adapters": 4, "rank": 16}, activation={"kind": "relu2_no_mul"},
     latent_size=36, norms={"expert": {"epsilon": 1e-5}})
case("lora_columns", dtype="bf16", lora={"adapters": 2, "rank": 64}, gate_up_order="up_gate", expert_columns=True,
     num_zero_experts=2, num_experts=300, top_k=4)
for name, quantization in {
    "fp8": "fp8_block128", "int4": {"weight": {"dtype": "int4", "scale": {"group": 32}}},
    "mxfp4": "mxfp4",
}.items():
    case(f"lora_{name}", dtype="bf16", hidden_size=256, intermediate_size=192 if name == "fp8" else 128, tokens=21,
         lora={"adapters": 4, "rank": 16}, quantization=quantization)
case("latent_zero_experts", latent_size=32, num_zero_experts=8, top_k=4)
case("latent_padding", latent_size=32, num_valid_tokens=True, hard="padding")
case("zero_experts_many", num_zero_experts=24, top_k=6, entry="gate",
     routing={"selection_bias": True, "scale": 6})
case("zero_experts_shared", num_zero_experts=8, top_k=4, dtype="bf16",
     shared_experts={"intermediate_size": 40})

# -- padding anywhere among the rows, what is recorded, replicas of experts

for entry in ("gate", "logits", "ids"):
    case(f"mask_{entry}", entry=entry, dtype="bf16", padding_mask=True, hard="padding",
         shared_experts={"intermediate_size": 40, "gate": "sigmoid"})
for dtype in ("f32", "f16"):
    case(f"mask_shared_{dtype}", dtype=dtype, padding_mask=True, hard="padding",
         shared_experts={"intermediate_size": 40})
case("mask_and_count", padding_mask=True, num_valid_tokens=True, hard="padding", tokens=70)
case("mask_latent", padding_mask=True, hard="padding", latent_size=32, dtype="bf16",
     shared_experts={"intermediate_size": 72, "gate": "sigmoid"})
case("mask_latent_alone", padding_mask=True, hard="padding", latent_size=32, entry="ids")
case("mask_hash", padding_mask=True, hard="padding", routing=HASH)
case("mask_zero_experts", padding_mask=True, hard="padding", num_zero_experts=8, top_k=4)
case("mask_everything", padding_mask=True, hard="padding", num_experts=896, top_k=16, tokens=9, **TINY,
     routing=ROUTINGS["everything"])
case("mask_huge", padding_mask=True, hard="padding", top_k=2, **HUGE)
for entry, routing in (
    ("gate", {"score": "softmax", "renormalize": True}), ("logits", ROUTINGS["everything"]), ("logits", HASH),
):
    case(f"record_{entry}_{routing.get('select', routing['score'])}", entry=entry, dtype="bf16", routing=routing,
         record_ids=True, record_load=True, num_valid_tokens=True, hard="padding")
case("record_ids_alone", record_ids=True)
case("record_bytes", record_ids="uint8", num_experts=255, num_valid_tokens=True, hard="padding", tokens=9, **TINY)
case("replay_bytes", replay_ids="uint8", num_experts=256, top_k=5, tokens=9, routing=ROUTINGS["everything"], **TINY)
for dtype in ("f32", "bf16"):
    case(f"slots_{dtype}", dtype=dtype, output="slots", expert_bias=True, record_ids=True, num_valid_tokens=True,
         hard="padding", top_k=3)
# parity: M16
case("slots_ids", entry="ids", output="slots", hard="minus_one_ids", placement={"local_experts": [7, 0, 5]})
case("record_load_ids", entry="ids", record_load=True, hard="minus_one_ids")
case("record_load_local", record_load=True, dtype="bf16", top_k=4, placement={"local_experts": [7, 0, 5]})
case("record_masked", record_ids=True, record_load=True, padding_mask=True, hard="padding")
for entry in ("gate", "logits", "ids"):
    case(f"replicas_{entry}", entry=entry, dtype="bf16", record_load=True,
         replicas={"num_physical_experts": 13, "max_replicas": 4})
case("replicas_zero_experts", top_k=4, num_zero_experts=6, dtype="bf16", record_load=True,
     replicas={"num_physical_experts": 12, "max_replicas": 3})
case("replicas_zero_experts_padding", padding_mask=True, num_valid_tokens=True, hard="padding", entry="ids",
     num_zero_experts=5, replicas={"num_physical_experts": 12, "max_replicas": 3}, latent_size=32)
case("replicas_masked", padding_mask=True, num_valid_tokens=True, hard="padding", entry="ids", record_load=True,
     replicas={"num_physical_experts": 16, "max_replicas": 3}, shared_experts={"intermediate_size": 40})
case("replicas_out_of_range", entry="ids", hard="out_of_range_ids", record_load=True,
     replicas={"num_physical_experts": 9, "max_replicas": 2})
case("replicas_one_expert", hard="one_expert", tokens=70, expert_bias=True, record_ids=True, record_load=True,
     replicas={"num_physical_experts": 15, "max_replicas": 8})

# -- weight on the input, placement

LLAMA = {"score": "identity", "weight": "sigmoid", "weight_on_input": True}
for dtype in ("f32", "bf16", "f16"):
    case(f"weight_on_input_{dtype}", top_k=1, dtype=dtype, entry="gate", routing=LLAMA,
         shared_experts={"intermediate_size": 48})
case("weight_on_input_ids", top_k=1, entry="ids", routing={"weight_on_input": True})
case("weight_on_input_minus_one", top_k=1, entry="ids", hard="nan_weights",
     routing={"weight_on_input": True})
case("weight_on_input_latent", top_k=1, latent_size=32, routing=LLAMA)
case("weight_on_input_zero_experts", top_k=1, num_zero_experts=8, dtype="bf16",
     routing={"weight_on_input": True})
case("weight_on_input_nan", top_k=1, hard="nan_logits", routing=LLAMA)
case("local_experts", placement={"local_experts": [2, 3, 4, 5]})
case("local_experts_shuffled", entry="gate", dtype="bf16", top_k=4,
     placement={"num_ranks": 1, "local_experts": [7, 0, 5]})
# field-bug: sglang#30272
case("local_experts_ids", entry="ids", hard="minus_one_ids", expert_bias=True,
     placement={"local_experts": [1, 6]})
case("local_experts_zero_experts", num_zero_experts=4, top_k=4,
     placement={"local_experts": [3]})
for dtype in ("f32", "bf16", "f16"):
    # None or few of a token's rows are on this rank.
    for slots in (8, 10):
        case(f"local_experts_few_rows_{slots}_{dtype}", entry="ids", dtype=dtype, num_experts=24,
             top_k=slots, tokens=19, placement={"local_experts": [7, 0, 5]})
case("local_experts_few_rows_shared", entry="ids", dtype="bf16", num_experts=24, top_k=8, tokens=19,
     hard="minus_one_ids", placement={"local_experts": [7, 0, 5]},
     shared_experts={"intermediate_size": 40})
for dtype in ("f32", "bf16", "f16"):
    case(f"strided_{dtype}", dtype=dtype, entry="gate", strided_weights=True, latent_size=32,
         tokens=9, num_valid_tokens=True, hard="padding",
         shared_experts={"intermediate_size": 40, "gate": "sigmoid"})
for dtype in ("bf16", "f16"):
    case(f"strided_odd_{dtype}", tokens=5, dtype=dtype, hidden_size=51, intermediate_size=37,
         strided_weights=True, gate_up_order="interleaved", expert_bias=True)
case("local_experts_none_chosen", hard="one_expert", seed=2, top_k=1, num_experts=64,
     placement={"local_experts": [63]})

# A token's only row, of one vector, is rounded or omitted.
case("one_vector_of_a_row", dtype="bf16", entry="gate", tokens=5, num_experts=1, top_k=1, latent_size=8,
     hidden_size=3, intermediate_size=2)
# -- sizes that fit no tile, and those of published layer tests

# field-bug: vllm#49591
for hidden, intermediate, experts, top_k in (
    (511, 96, 6, 3), (33, 17, 5, 2), (1, 1, 3, 2), (7, 130, 6, 4), (2880, 40, 4, 4),
    (100, 1, 6, 2), (129, 257, 3, 1),
):
    for dtype in ("f32", "bf16"):
        case(f"sizes_{hidden}_{intermediate}_{experts}_{top_k}_{dtype}",
             entry="gate" if hidden > 30 else "logits", dtype=dtype,
             hidden_size=hidden, intermediate_size=intermediate,
             num_experts=experts, top_k=top_k)
for dtype in ("bf16", "f16"):
    case(f"sizes_odd_everything_{dtype}", hidden_size=45, intermediate_size=19, latent_size=13,
         num_experts=7, top_k=3, dtype=dtype, entry="gate", expert_bias=True,
         gate_up_order="interleaved",
         shared_experts={"intermediate_size": 11, "gate": "sigmoid"})
# Several tiles in every direction, and a partial tile at each end.
for dtype in ("f32", "bf16", "f16"):
    case(f"sizes_tails_{dtype}", dtype=dtype, entry="gate", tokens=190, hidden_size=328,
         intermediate_size=136, num_experts=3, top_k=2, expert_bias=True,
         shared_experts={"intermediate_size": 264, "gate": "sigmoid"})
for tokens, intermediate, hidden, experts, top_k in (
    (1, 128, 128, 8, 2), (1, 2048, 128, 8, 2), (33, 2048, 128, 8, 6), (64, 1024, 511, 8, 2),
    (1, 128, 128, 64, 6), (33, 128, 128, 192, 6), (300, 128, 256, 64, 6),
    (2, 2048, 511, 8, 1), (222, 512, 256, 8, 2), (1, 128, 128, 256, 2),
):
    case(f"conformance_{tokens}_{intermediate}_{hidden}_{experts}_{top_k}",
         tokens=tokens, intermediate_size=intermediate, hidden_size=hidden,
         num_experts=experts, top_k=top_k, dtype="bf16")
case("many_tokens", tokens=2000, dtype="bf16", top_k=4, **TINY)
case("many_tokens_padding", tokens=1500, top_k=4, hard="padding", num_valid_tokens=True,
     num_zero_experts=2, placement={"local_experts": [6, 1, 3]}, **TINY)

# -- model families, by configuration

DEEPSEEK = {
    "moe_intermediate_size": 48, "n_routed_experts": 16, "num_experts_per_tok": 4,
    "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1, "moe_layer_freq": 1,
}
LOCAL = {"intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {"moe_intermediate_size": 48, "num_experts": 16, "num_experts_per_tok": 4}
SHARED = {"shared_expert_intermediate_size": 80}
config("mixtral", **LOCAL)
config("qwen2_moe", **QWEN, **SHARED, intermediate_size=100)
config("qwen3_moe", **QWEN, norm_topk_prob=True)
config("qwen3_next", **QWEN, **SHARED, norm_topk_prob=True)
config("olmoe", intermediate_size=48, num_experts=16, num_experts_per_tok=4)
config("deepseek_v2", **DEEPSEEK, topk_method="group_limited_greedy",
       scoring_func="softmax", norm_topk_prob=False)
config("deepseek_v3", **DEEPSEEK, topk_method="noaux_tc", scoring_func="sigmoid",
       norm_topk_prob=True)
config("kimi_k2", **DEEPSEEK | {"n_group": 1, "topk_group": 1}, scoring_func="sigmoid",
       topk_method="noaux_tc", norm_topk_prob=True)
config("glm4_moe", **DEEPSEEK, norm_topk_prob=True)
config("minimax_m2", **LOCAL, scoring_func="sigmoid", use_routing_bias=True)
config("nemotron_h", **DEEPSEEK | {"n_shared_experts": 1, "first_k_dense_replace": None,
                                   "moe_layer_freq": None},
       moe_shared_expert_intermediate_size=80, mlp_hidden_act="relu2", hidden_act=None,
       norm_topk_prob=True, moe_latent_size=32)
config("gpt_oss", **LOCAL, swiglu_limit=7.0)
config("llama4_text", **LOCAL | {"num_experts_per_tok": 1}, intermediate_size_mlp=96)
config("ernie4_5_moe", moe_intermediate_size=48, moe_num_experts=16, moe_k=4,
       moe_num_shared_experts=2)
# Gemms that count ids: with local experts; with more of them than a section of the table, and more ids than threads;
# with more k tiles than are copied ahead. (A row of only -1 must not be the only one.)
for tokens, hard in ((0, "minus_one_ids"), (1, None), (8, "minus_one_ids"), (64, "minus_one_ids")):
    case(f"count_ids_{tokens}", tokens=tokens, entry="ids", hard=hard, dtype="bf16",
         hidden_size=192, intermediate_size=136, num_experts=24, top_k=4,
         placement={"local_experts": [7, 0, 5, 23, 11, 2]})
case("count_ids_many", tokens=300, entry="ids", dtype="bf16", num_experts=700, top_k=6,
     intermediate_size=32)
case("count_ids_deep", tokens=3, entry="ids", dtype="bf16", hidden_size=640,
     intermediate_size=1280)
# So many slots that a separate launch counts them before the sort.
for dtype, fields in (
    ("f32", {"hard": "padding", "num_valid_tokens": True}),
    ("bf16", {"entry": "gate", "num_zero_experts": 3}),
    ("f16", {"entry": "ids", "hard": "minus_one_ids",
             "placement": {"local_experts": [7, 0, 5, 11, 2]}}),
):
    case(f"many_slots_{dtype}", tokens=2100, dtype=dtype, num_experts=16, top_k=8, **TINY, **fields)

# -- block fp8

FP8 = {"quantization": {"weight": "fp8_block128"}}


def fp8(name: str, tokens: int = 11, **fields):
    """A case with parts of blocks at the ends of both dimensions."""
    sizes = {"hidden_size": 200, "intermediate_size": 144}
    case(f"fp8_{name}", tokens=tokens, **sizes, **FP8, **fields)


for entry in ("gate", "logits", "ids"):
    for dtype in ("f32", "bf16", "f16"):
        fp8(f"{entry}_{dtype}", entry=entry, dtype=dtype,
            shared_experts={"intermediate_size": 100})
for order in ("gate_up", "up_gate", "interleaved"):
    for dtype in ("f32", "bf16"):
        fp8(f"order_{order}_{dtype}", gate_up_order=order, dtype=dtype, expert_bias=True,
            shared_experts={"intermediate_size": 130, "gate": "sigmoid"})
# Rows of whole chunks of 16 bytes, with parts of blocks; tiles of several values of BLOCK_M.
for order in ("gate_up", "up_gate", "interleaved"):
    case(f"fp8_chunks_{order}", tokens=150, hidden_size=400, intermediate_size=208, num_experts=3,
         entry="ids", dtype="bf16", gate_up_order=order, **FP8,
         shared_experts={"intermediate_size": 144})
fp8("no_gate", activation={"kind": "relu2_no_mul"}, dtype="bf16")
fp8("swigluoai", activation={"kind": "swigluoai"}, dtype="bf16")
fp8("latent", latent_size=136, dtype="bf16", num_zero_experts=4, top_k=4, tokens=8,
    shared_experts={"intermediate_size": 72})
fp8("weight_on_input", top_k=1, entry="gate", routing=LLAMA, dtype="bf16",
    shared_experts={"intermediate_size": 48})
fp8("local_experts", placement={"local_experts": [7, 0, 5]}, dtype="bf16")
# Experts with one scale each, adjacent in memory.
# field-bug: vllm#57092
case("fp8_single_scales", tokens=3, hidden_size=1, intermediate_size=16, num_experts=33,
     activation={"kind": "relu2_no_mul"}, entry="ids", **FP8)
# parity: L77
fp8("strided", strided_weights=True, dtype="bf16", shared_experts={"intermediate_size": 40})
# field-bug: tt-metal#50669
for tokens in (0, 1, 33, 90):
    fp8(f"tokens_{tokens}", tokens=tokens, dtype="bf16")
# field-bug: DeepGEMM#20, DeepGEMM#38
for hard in ("empty_experts", "one_expert", "minus_one_ids", "nan_weights", "nan_hidden",
             "zero_groups", "ue8m0_scales"):
    fp8(hard, entry="ids", hard=hard, dtype="bf16", shared_experts={"intermediate_size": 72})
for tokens, hard in ((1, None), (64, "minus_one_ids")):
    fp8(f"count_ids_{tokens}", tokens=tokens, entry="ids", hard=hard, dtype="bf16",
        num_experts=24, top_k=4, placement={"local_experts": [7, 0, 5, 23, 11, 2]})
# field-bug: flashinfer#3650
fp8("padding", num_valid_tokens=True, hard="padding", dtype="bf16",
    shared_experts={"intermediate_size": 72})
# field-bug: vllm#54178, ATOM#1944
for hidden, intermediate in (
    (1, 1), (5, 15), (16, 17), (64, 48), (127, 129), (128, 128), (384, 257), (300, 500),
):
    case(f"fp8_sizes_{hidden}_{intermediate}", hidden_size=hidden, dtype="bf16",
         intermediate_size=intermediate, **FP8)
# Published layer tests of block fp8: tokens, intermediate size, hidden size, experts, top_k.
for tokens, intermediate, hidden, experts, top_k in (
    (1, 128, 128, 2, 1), (1, 128, 128, 8, 2), (1, 128, 128, 16, 6), (1, 128, 7168, 2, 1),
    (1, 1024, 7168, 2, 2), (1, 4608, 128, 8, 2), (83, 128, 128, 8, 6), (83, 512, 512, 16, 6),
    (83, 4608, 512, 2, 2), (128, 512, 512, 8, 2), (2048, 128, 128, 8, 6), (8192, 128, 128, 2, 1),
):
    case(f"fp8_conformance_{tokens}_{intermediate}_{hidden}_{experts}_{top_k}", tokens=tokens,
         intermediate_size=intermediate, hidden_size=hidden, num_experts=experts,
         top_k=top_k, dtype="bf16", **FP8)
PUBLISHED = {"quantization_config": {
    "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}}
config("deepseek_v3", "_fp8", **DEEPSEEK, topk_method="noaux_tc", scoring_func="sigmoid",
       norm_topk_prob=True, **PUBLISHED)
# A published configuration that does not quantize the shared expert.
# field-bug: sglang#31174, sglang#19644, sglang#33759
config("kimi_k2", "_plain_shared", **DEEPSEEK | {"n_group": 1, "topk_group": 1}, scoring_func="sigmoid",
       topk_method="noaux_tc", norm_topk_prob=True, quantization_config=PUBLISHED["quantization_config"] | {
           "modules_to_not_convert": ["lm_head", "re:.*shared_experts.*"]})
config("qwen3_moe", "_fp8", **QWEN, norm_topk_prob=True, **PUBLISHED)
config("minimax_m2", "_fp8", **LOCAL, scoring_func="sigmoid", use_routing_bias=True, **PUBLISHED)

# -- fp8 of other granularities


def e4m3(scale, **fields) -> dict:
    return {"dtype": "fp8_e4m3", "scale": scale} | fields


FORMS = {
    "tensor": {"weight": e4m3("tensor"), "activation": e4m3("tensor")},
    "static": {"weight": e4m3("tensor"), "activation": e4m3("tensor", static=True)},
    "tensor_token": {"weight": e4m3("tensor"), "activation": e4m3("token")},
    "channel": {"weight": e4m3("channel"), "activation": e4m3("token")},
    "channel_static": {"weight": e4m3("channel"), "activation": e4m3("tensor", static=True)},
    "weights_tensor": {"weight": e4m3("tensor")},
    "weights_channel": {"weight": e4m3("channel")},
    "weights_block": {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]}}},
}
# field-bug: vllm#37394
for form, quantization in FORMS.items():

    def formed(name: str, tokens: int = 11, form=form, quantization=quantization, **fields):
        sizes = {"hidden_size": 200, "intermediate_size": 144, "dtype": "bf16"} | fields
        case(f"{form}_{name}", tokens=tokens, quantization=quantization, **sizes)

    for order in ("gate_up", "up_gate", "interleaved"):
        formed(f"order_{order}", gate_up_order=order, expert_bias=True,
               shared_experts={"intermediate_size": 130, "gate": "sigmoid"})
    formed("f32", dtype="f32", entry="gate", shared_experts={"intermediate_size": 72})
    formed("one_token", tokens=1)
    formed("empty_experts", entry="ids", hard="empty_experts")
    formed("zeros", entry="ids", hard="zero_groups", shared_experts={"intermediate_size": 72})
    formed("nan", entry="ids", hard="nan_hidden", shared_experts={"intermediate_size": 72})
    formed("padding", num_valid_tokens=True, hard="padding",
           shared_experts={"intermediate_size": 72})
    formed("masked", padding_mask=True, hard="padding", shared_experts={"intermediate_size": 72})
    formed("tokens_90", tokens=90, hidden_size=272, intermediate_size=136, dtype="f16")
SMALL = {
    "group32": {"weight": {"dtype": "fp8_e4m3", "scale": {"group": 32}},
                "activation": {"dtype": "fp8_e4m3", "scale": {"group": 64}}},
    "block16": {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [24, 16]}},
                "activation": e4m3("token")},
}
for form, quantization in SMALL.items():
    for order in ("gate_up", "interleaved"):
        case(f"{form}_{order}", tokens=11, hidden_size=160, intermediate_size=96, dtype="bf16",
             quantization=quantization, gate_up_order=order, to=CPU_CASES,
             shared_experts={"intermediate_size": 64})
for form in ("tensor", "static", "channel"):
    fields = {"hidden_size": 200, "intermediate_size": 144, "dtype": "bf16",
              "quantization": FORMS[form]}
    case(f"{form}_tokens_0", tokens=0, **fields)
    case(f"{form}_no_gate", activation={"kind": "relu2_no_mul"}, **fields)
    case(f"{form}_wide", hard="wide_hidden", tokens=9, **fields)
    case(f"{form}_latent", latent_size=136, num_zero_experts=4, top_k=4, tokens=8,
         shared_experts={"intermediate_size": 72}, **fields)
    case(f"{form}_weight_on_input", top_k=1, entry="gate", routing=LLAMA, **fields)
    case(f"{form}_local_experts", entry="ids", hard="minus_one_ids",
         placement={"local_experts": [7, 0, 5]}, **fields)
    case(f"{form}_conformance", tokens=83, hidden_size=512, intermediate_size=512,
         num_experts=16, top_k=6, **{key: value for key, value in fields.items()
                                    if key not in ("hidden_size", "intermediate_size")})

# -- weights of 4 bits and of bytes, and scales of 16 and 8 bits


def weights(dtype: str, scale, **fields) -> dict:
    return {"weight": {"dtype": dtype, "scale": scale} | fields}


def groups(dtype: str, size: int, scale_dtype: str = "bf16", **fields) -> dict:
    return weights(dtype, {"group": size}, scale_dtype=scale_dtype, **fields)


INT8 = {"dtype": "int8", "scale": "channel"}
#: Activations that the caller quantizes: groups, rows, one for all, computed by the caller or given with the weights.
for name, quantization in {
    "groups": "fp8_block128",
    "rows": weights("int8", "channel") | {"activation": {"dtype": "int8", "scale": "token"}},
    "tensor": weights("fp8_e4m3", "tensor") | {"activation": e4m3("tensor")},
    "static": weights("fp8_e4m3", "tensor") | {"activation": e4m3("tensor", static=True)},
}.items():
    case(f"quantized_input_{name}", entry="ids", quantized_input=True, dtype="bf16", hidden_size=200,
         intermediate_size=144, quantization=quantization, hard="minus_one_ids", expert_bias=True)
#: Groups whose scales are powers of two.
POWERS = {"dtype": "fp8_e4m3", "scale": {"group": 128}, "scale_dtype": "e8m0"}
#: A form, and the number that K must be a multiple of.
DECODED = {
    "mxfp4": (32, {"weight": "mxfp4"}),
    "nvfp4": (32, {"weight": "nvfp4"}),
    "int4_group32": (32, groups("int4", 32)),
    "int4_points": (128, groups("int4", 128, "f16", zero_point=True)),
    "int8_weights": (32, weights("int8", "channel", scale_dtype="bf16")),
    "int8_points": (32, groups("int8", 32, "f16", zero_point=True)),
    "int4_minima": (32, groups("int4", 32, "f32", minimum=True)),
    "int8_token": (32, {"weight": INT8, "activation": {"dtype": "int8", "scale": "token"}}),
    "int8_tensor": (32, {"weight": INT8 | {"scale": "tensor"},
                         "activation": {"dtype": "int8", "scale": "tensor"}}),
    "int8_static": (32, {"weight": INT8, "activation": {"dtype": "int8", "scale": "tensor",
                                                        "static": True}}),
    "ue8m0_block": (32, {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]},
                                    "scale_dtype": "e8m0"},
                         "activation": {"dtype": "fp8_e4m3", "scale": {"group": 128}}}),
}
#: Likewise for fewer cases: each differs from one of those in a single property.
DECODED_TOO = {
    "int4_group64": (64, groups("int4", 64, "f32")),
    "int4_points_f32": (64, groups("int4", 64, "f32", zero_point=True)),
    "int4_points32": (32, groups("int4", 32, zero_point=True)),
    "int4_channel": (32, weights("int4", "channel", scale_dtype="f16")),
    "int4_channel_points": (32, weights("int4", "channel", zero_point=True)),
    "int4_f16": (128, groups("int4", 128, "f16")),
    "int8_group128": (128, groups("int8", 128)),
    "int8_group64": (64, groups("int8", 64, "f32")),
    "int8_channel_points": (32, weights("int8", "channel", zero_point=True)),
    "int8_group16": (32, groups("int8", 16, "f32")),
    "int8_minima": (32, groups("int8", 32, "f32", minimum=True)),
    "int8_minima16": (32, groups("int8", 16, minimum=True)),
    "int4_minima_e4m3": (128, groups("int4", 128, "f16", minimum=True) | {"activation": e4m3("token")}),
    "int8_points16": (32, groups("int8", 16, zero_point=True)),
    "e4m3_group16": (32, groups("fp8_e4m3", 16, "f16") | {"activation": e4m3("token")}),
    "mxfp8": (32, groups("fp8_e4m3", 32, "e8m0")),
    "e4m3_bf16": (32, {"weight": e4m3("channel", scale_dtype="bf16"),
                       "activation": e4m3("token")}),
    "e4m3_f16": (32, {"weight": e4m3("tensor", scale_dtype="f16")}),
    "nf4": (64, weights("nf4", {"group": 64})),
    "ue8m0_inputs": (128, {"weight": e4m3({"block": [128, 128]}), "activation": POWERS}),
    "mxfp8_inputs": (32, {"weight": "mxfp8"}),
    "mxfp4_mxfp8": (32, groups("fp4_e2m1", 32, "e8m0") | {
        "activation": POWERS | {"scale": {"group": 32}}}),
    "mxfp4_e4m3": (32, groups("fp4_e2m1", 32, "e8m0") | {"activation": e4m3("token")}),
    "mxfp8_e4m3": (32, groups("fp8_e4m3", 32, "e8m0") | {"activation": e4m3("token")}),
    "int4_group32_e4m3": (32, groups("int4", 32) | {"activation": e4m3("token")}),
    "int4_group32_f16_e4m3": (32, groups("int4", 32, "f16") | {"activation": e4m3("token")}),
    "int4_e4m3": (128, groups("int4", 128) | {"activation": e4m3("token")}),
    "int4_int8": (32, groups("int4", 32) | {"activation": INT8 | {"scale": "token"}}),
    "nvfp4_e4m3": (128, groups("fp4_e2m1", 16, "e4m3", global_scale=True) | {"activation": e4m3("token")}),
    "int4_points_e4m3": (128, groups("int4", 128, "f16", zero_point=True) | {"activation": e4m3("tensor", static=True)}),
    "nf4_int8": (64, weights("nf4", {"group": 64}) | {"activation": INT8 | {"scale": "token"}}),
}
for form, (unit, quantization) in (DECODED | DECODED_TOO).items():

    def decoded(name: str, tokens: int = 11, form=form, unit=unit, quantization=quantization,
                **fields):
        # Multiples of 32 that no larger power of two divides, where the form allows it.
        few = unit == 32
        # With the other seed a sum of integers is 0, for which the two references compute different residues, beside a
        # tie.
        seed = 2 if form == "int8_static" else 1
        sizes = {"hidden_size": 160 if few else 2 * unit, "dtype": "bf16",
                 "intermediate_size": 96 if few else unit}
        case(f"{form}_{name}", tokens=tokens, seed=seed, quantization=quantization, **sizes | fields)

    shared = {"intermediate_size": 2 * unit}
    decoded("order_gate_up", gate_up_order="gate_up", expert_bias=True,
            shared_experts=shared | {"gate": "sigmoid"})
    decoded("f32", dtype="f32", entry="gate", gate_up_order="up_gate", shared_experts=shared)
    if form in DECODED_TOO:
        continue
    for order in ("up_gate", "interleaved"):
        decoded(f"order_{order}", gate_up_order=order, expert_bias=True,
                shared_experts=shared | {"gate": "sigmoid"})
    decoded("one_token", tokens=1)
    decoded("tokens_0", tokens=0)
    decoded("no_gate", activation={"kind": "relu2_no_mul"}, shared_experts=shared)
    decoded("empty_experts", entry="ids", hard="empty_experts")
    decoded("zeros", entry="ids", hard="zero_groups", shared_experts=shared)
    decoded("zero_weights", entry="ids", hard="zero_weights", shared_experts=shared)
    decoded("nan", entry="ids", hard="nan_hidden", shared_experts=shared)
    decoded("padding", num_valid_tokens=True, hard="padding", shared_experts=shared)
    decoded("tokens_90", tokens=90, dtype="f16", hidden_size=288 if unit == 32 else 3 * unit,
            intermediate_size=160 if unit == 32 else 2 * unit)
    decoded("latent", latent_size=max(64, unit), num_zero_experts=4, top_k=4, tokens=8,
            shared_experts=shared)
    decoded("weight_on_input", top_k=1, entry="gate", routing=LLAMA, gate_up_order="interleaved")
    decoded("local_experts", entry="ids", hard="minus_one_ids",
            placement={"local_experts": [7, 0, 5]})
    # With scales of whole rows, zeros are no special case.
    if unit == 128 or form in ("mxfp4", "nvfp4", "int4_group32", "int8_points", "int4_minima", "ue8m0_block"):
        for dtype in ("f32", "bf16", "f16"):
            # field-bug: flashinfer#2595
            decoded(f"scale_ends_{dtype}", entry="ids", dtype=dtype, hard="scale_ends",
                    shared_experts=shared)
        # field-bug: vllm#47303, flashinfer#3103
        decoded("nan_scales", entry="ids", hard="nan_scales", tokens=17)
    if "points" in form:
        for dtype in ("f32", "bf16"):
            decoded(f"ends_{dtype}", entry="ids", dtype=dtype, hard="zero_point_ends",
                    shared_experts=shared)
# In code books zero is an ordinary value; a NaN scale is not a power of two.
for name, hard in (("nf4", "zero_weights"), ("ue8m0_inputs", "zero_groups"), ("ue8m0_inputs", "nan_hidden")):
    unit, quantization = DECODED_TOO[name]
    case(f"{name}_{hard}", tokens=11, entry="ids", dtype="f16" if name == "nf4" else "bf16", hard=hard,
         hidden_size=2 * unit, intermediate_size=unit, quantization=quantization,
         shared_experts={"intermediate_size": unit})
# Groups of 16, as in q6_K: one of the two instructions that are dequantized at once.
for name, tokens, fields in (("one_token", 1, {}), ("tokens_90", 90, {"dtype": "f16", "intermediate_size": 160}),
                             ("scale_ends", 11, {"hard": "scale_ends"}), ("nan_scales", 17, {"hard": "nan_scales"})):
    case(f"int8_group16_{name}", tokens=tokens, **{"entry": "ids", "dtype": "bf16", "hidden_size": 288,
                                                   "intermediate_size": 96} | fields,
         quantization=DECODED_TOO["int8_group16"][1], shared_experts={"intermediate_size": 48})
# Scales of 0 with any quantized values: rows, blocks and experts that were never trained.
# field-bug: Model-Optimizer#2276
for name, quantization in (
    ("fp8", FP8["quantization"]), *((form, FORMS[form]) for form in ("tensor", "static", "channel", "weights_channel")),
    *((form, DECODED[form][1]) for form in ("nvfp4", "int8_weights", "int8_token", "int8_tensor")),
    ("nf4", DECODED_TOO["nf4"][1]),
):
    case(f"{name}_zero_scales", tokens=17, entry="ids", dtype="bf16", hard="zero_scales", hidden_size=256,
         intermediate_size=128, quantization=quantization, shared_experts={"intermediate_size": 128})
# NaN among quantized values: multiplied natively, dequantized and prepacked.
for name, quantization in (("channel", FORMS["channel"]), ("weights_channel", FORMS["weights_channel"]),
                           ("mxfp8", DECODED_TOO["mxfp8"][1]), ("fp8", FP8["quantization"])):
    case(f"{name}_nan_codes", tokens=17, entry="ids", dtype="bf16", hard="nan_codes", hidden_size=256,
         intermediate_size=128, quantization=quantization)
for dtype in ("f32", "bf16"):
    case(f"mxfp4_least_scales_{dtype}", tokens=11, entry="ids", dtype=dtype, hidden_size=160,
         intermediate_size=96, hard="least_scales", quantization={"weight": "mxfp4"},
         shared_experts={"intermediate_size": 64})
# -- gemms with separate quantizations

INT8_TOKEN = DECODED["int8_token"][1]
#: Quantization of the layer, and of its shared expert where that is not the layer's.
MIXED = {
    "int4_plain_shared": (groups("int4", 32), {"quantization": None}),
    "block_plain_shared": ("fp8_block128", {"quantization": None}),
    "channel_int8_shared": (FORMS["channel"], {"quantization": INT8_TOKEN}),
    # Hidden states are quantized once, or with the routed experts' static scale.
    "alike_shared": (FORMS["channel"], {"quantization": FORMS["tensor_token"]}),
    "static_found_shared": (FORMS["static"], {"quantization": FORMS["tensor"]}),
    "plain_mxfp4_shared": (None, {"quantization": "mxfp4"}),
    "mxfp4_first": ({"weight": "mxfp4", "w2": None}, {}),
    "int8_second": (FORMS["channel"] | {"w2": DECODED["int8_tensor"][1]},
                    {"quantization": {"weight": "nvfp4", "w13": None}}),
    "nvfp4_int4": ({"weight": "nvfp4", "w2": DECODED["int8_points"][1], "w13": groups("int4", 32)}, {}),
}
for form, (quantization, own) in MIXED.items():

    def mixed(name: str, tokens: int = 11, quantization=quantization, form=form, **fields):
        sizes = {"hidden_size": 160, "intermediate_size": 96, "dtype": "bf16"}
        # The kernels are those of other layers in other combinations: GPUs need one case of each form.
        case(f"mixed_{form}_{name}", tokens=tokens, quantization=quantization,
             to=CASES if name == "order_gate_up" else CPU_CASES, **sizes | fields)

    shared = {"intermediate_size": 64} | own
    for order in ("gate_up", "interleaved"):
        mixed(f"order_{order}", gate_up_order=order, expert_bias=True,
              shared_experts=shared | {"gate": "sigmoid"})
    mixed("f32", dtype="f32", entry="gate", gate_up_order="up_gate", shared_experts=shared)
    mixed("one_token", tokens=1, shared_experts=shared)
    mixed("no_gate", activation={"kind": "relu2_no_mul"}, shared_experts=shared)
    mixed("padding", num_valid_tokens=True, hard="padding", shared_experts=shared)
    mixed("latent", latent_size=64, num_zero_experts=4, top_k=4, tokens=8, shared_experts=shared)
    mixed("tokens_90", tokens=90, dtype="f16", hidden_size=288, intermediate_size=160,
          shared_experts=shared)
    mixed("zero_weights", entry="ids", hard="zero_weights", shared_experts=shared)
    mixed("on_input", top_k=1, entry="gate", routing=LLAMA, shared_experts=shared)
# Layers like those of gpt-oss: published tests of tokens, intermediate size, hidden size, experts.
GPT_OSS = {
    "dtype": "bf16", "entry": "gate", "top_k": 4, "gate_up_order": "interleaved",
    "expert_bias": True, "quantization": {"weight": "mxfp4"},
    "routing": {"score": "identity", "weight": "softmax", "gate_bias": True},
    "activation": {"kind": "swigluoai"},
}
for tokens, intermediate, hidden, experts in (
    (1, 512, 384, 32), (2, 512, 384, 32), (2, 512, 384, 128), (16, 320, 2880, 8), (2, 2880, 320, 8),
):
    # field-bug: flashinfer#3334
    case(f"gpt_oss_mxfp4_{tokens}_{intermediate}_{hidden}_{experts}", tokens=tokens,
         intermediate_size=intermediate, hidden_size=hidden, num_experts=experts, **GPT_OSS)
# Published tests of int4 and int8 weights: tokens, intermediate size, hidden size, experts, top_k.
for tokens, intermediate, hidden, experts, top_k in (
    (1, 128, 128, 8, 2), (32, 2048, 128, 8, 6), (222, 256, 1024, 8, 2), (1, 128, 128, 64, 6),
):
    # field-bug: vllm#47281
    for name, quantization in (("u4b8", groups("int4", 128)),
                               ("u4", groups("int4", 64, zero_point=True)),
                               ("u8b128", groups("int8", 64))):
        case(f"{name}_conformance_{tokens}_{intermediate}_{hidden}_{experts}_{top_k}",
             tokens=tokens, intermediate_size=intermediate, hidden_size=hidden,
             num_experts=experts, top_k=top_k, dtype="bf16", quantization=quantization)
for tokens, gate in ((2, "silu"), (64, "swiglustep")):
    case(f"nvfp4_conformance_{tokens}", tokens=tokens, intermediate_size=256, hidden_size=512,
         num_experts=40, top_k=6, dtype="bf16", activation={"kind": gate},
         quantization={"weight": "nvfp4"})
for scheme in ("static", "dynamic"):
    config("mixtral", f"_fp8_{scheme}", **LOCAL, to=CPU_CASES, quantization_config={
        "quant_method": "fp8", "activation_scheme": scheme})
SCHEME = {"num_bits": 8, "type": "float", "symmetric": True}
config("qwen3_moe", "_compressed", **QWEN, norm_topk_prob=True, to=CPU_CASES, quantization_config={
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": SCHEME | {"strategy": "channel", "dynamic": False},
        "input_activations": SCHEME | {"strategy": "token", "dynamic": True},
    }},
})

# -- joined gemms on sm_90a

JOIN = {"dtype": "bf16", "hidden_size": 72, "intermediate_size": 40, "top_k": 2}
JOIN_LOCAL = {"entry": "ids", "placement": {"local_experts": [7, 0, 5]}}
for name, tokens, hard, fields in (
    ("gate_1", 1, None, {"entry": "gate", "top_k": 8}),
    ("gate_40", 40, None, {"entry": "gate"}),
    ("gate_300", 300, None, {"entry": "gate", "top_k": 4}),
    ("gate_5_f16", 5, None, {"entry": "gate", "dtype": "f16", "top_k": 1}),
    ("logits_40_f16", 40, None, {"dtype": "f16", "top_k": 4}),
    ("ids_0", 0, None, {"entry": "ids"}),
    ("ids_5", 5, None, {"entry": "ids", "top_k": 8}),
    ("ids_40_f16", 40, None, {"entry": "ids", "dtype": "f16", "top_k": 1}),
    ("few_ids_1", 1, "duplicate_ids", {"entry": "ids", "top_k": 10, "num_experts": 16}),
    ("few_ids_3", 3, "duplicate_ids", {"entry": "ids", "top_k": 10, "num_experts": 16}),
    ("local_1", 1, None, JOIN_LOCAL | {"top_k": 4}),
    ("local_40", 40, "minus_one_ids", JOIN_LOCAL),
    ("local_300_f16", 300, "minus_one_ids", JOIN_LOCAL | {"dtype": "f16", "top_k": 4}),
    ("plain_40", 40, None, {"entry": "ids", "activation": {"kind": "relu2_no_mul"}}),
    ("bias_5", 5, None, {"expert_bias": True, "activation": {"kind": "swigluoai"}}),
):
    case(f"join_{name}", tokens=tokens, hard=hard, **JOIN | fields)
