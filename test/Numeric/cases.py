# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numeric cases: a spec, a token count, a seed and perhaps hard inputs. case_list.py says how one is added, and
quantized_cases.py has those of quantized weights.
"""

from case_list import BASE, CASES, CPU_CASES, DEEPSEEK, LLAMA, LOCAL, QWEN, Case, case, config

__all__ = ["BASE", "CASES", "CPU_CASES", "Case"]

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

# -- quantized weights, behind the others

import quantized_cases  # noqa: E402, F401
