# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The numeric cases of quantized weights, and of joined gemms, which cases.py adds behind its own."""

from case_list import CASES, CPU_CASES, DEEPSEEK, LLAMA, LOCAL, QWEN, case, config

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
