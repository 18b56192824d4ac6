#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cases of gpu-test: gpu_cases.py FOLDER writes FOLDER/cases.json and FOLDER/models.

Needs only the standard library. verify/GpuTest/Cases/Case.h describes the entries.

    small/       a layer of tiny sizes under every distribution, also for device host
    numeric/     the cases of test/Numeric, with inputs of the same kinds
    published/   the plain cases of public layer tests, with their tolerances
    routing/     the same for routing: ids exactly, weights closely
    sorting/     the same for permutation, alignment and counts: exactly
    spread/      how tokens spread over experts, at sizes of several tiles
    spread-fp8/  the same of block fp8; spread-mxfp4/ and spread-int4/ of such weights
    hard/        quantized weights at the ends of their values, scales and zero points
    replicas/    several replicas of an expert, padding anywhere among the rows, and what is recorded
    formats/     every format of test/Numeric and of GGUF's blocks, from one token to several tiles
    ordered/     the same with rows that are copied into order, and such layers of other sizes;
                 ordered-fp8/ of block fp8
    raster-groups/  the same with rows in raster groups: with the dynamic scheduler (bf16) and without (f16)
    models/      layers of real models, from one token to 4096, with times
"""

from __future__ import annotations

import itertools
import json
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "Numeric"))

from cases import CASES as NUMERIC  # noqa: E402
from cases import CPU_CASES  # noqa: E402, F401
from quantized_cases import DECODED, DECODED_TOO, FORMS  # noqa: E402

DTYPES = ("bf16", "f16")
RENORMALIZED = {"score": "softmax", "renormalize": True}
SIGMOID = {"score": "sigmoid", "selection_bias": True, "renormalize": True}


def layer(
    hidden: int, size: int, experts: int, top_k: int, dtype: str, entry: str = "logits", **more
) -> dict:
    """A spec."""
    spec = {
        "moec_spec": 1, "dtype": dtype, "entry": entry, "hidden_size": hidden,
        "num_experts": experts, "top_k": top_k, "intermediate_size": size,
        "routing": {} if entry == "ids" else RENORMALIZED, "activation": {"kind": "silu"},
    }
    return spec | more


def case(name: str, tokens: int, spec: dict, **more) -> dict:
    entry = {"name": name, "tokens": tokens, "spec": spec}
    # The default suffices for most cases; the rest share one bound, so that cases share layers.
    return entry | ({"max_tokens": 1 << 18} if tokens > 16384 else {}) | more


def local(experts: int, ranks: int, rank: int) -> dict:
    """Placement of the experts that a rank holds, round robin."""
    if ranks == 1:
        return {}
    return {"placement": {"local_experts": list(range(rank, experts, ranks))}}


# -- distributions of tokens over experts

#: Name, entry, rule of verify/GpuTest/Inputs/HardInputs.cpp and more of the spec.
SPREADS = [
    ("uniform", "ids", None, {}),
    ("uniform_gate", "gate", None, {}),
    ("zipf", "ids", "zipf", {}),
    ("balanced", "ids", "balanced", {}),
    ("one_expert", "ids", "one_expert", {"top_k": 1}),
    ("same_experts", "ids", "one_expert", {}),
    ("same_experts_gate", "gate", "one_expert", {}),
    ("empty_experts", "ids", "empty_experts", {}),
    ("edge_experts", "ids", "edge_experts", {}),
    ("staircase", "ids", "staircase", {}),
    ("duplicate_ids", "ids", "duplicate_ids", {}),
    ("minus_one_10", "ids", ("minus_one_ids", 0.1), {}),
    ("minus_one_50", "ids", ("minus_one_ids", 0.5), {}),
    ("minus_one_90", "ids", ("minus_one_ids", 0.9), {}),
    ("minus_one_100", "ids", ("minus_one_ids", 1.0), {}),
    ("out_of_range_ids", "ids", "out_of_range_ids", {}),
    ("nan_weights", "ids", "nan_weights", {}),
    ("equal_logits", "logits", "equal_logits", {}),
    ("ties", "logits", "ties", {}),
    ("ties_gate", "gate", "ties", {}),
    ("nan_rows", "logits", "nan_rows", {}),
    ("nan_logits", "logits", "nan_logits", {}),
    ("inf_logits", "logits", "inf_logits", {}),
    ("nan_hidden", "ids", "nan_hidden", {}),
    ("padding_nan", "logits", "padding", {"num_valid_tokens": True}),
    ("padding_nan_ids", "ids", "padding", {"num_valid_tokens": True}),
    ("padding_nan_gate", "gate", "padding", {"num_valid_tokens": True}),
    ("only_padding", "ids", "only_padding", {"num_valid_tokens": True}),
    ("masked_nan_gate", "gate", "padding",
     {"padding_mask": True, "num_valid_tokens": True, "record_ids": True, "record_load": True}),
]


def hardness(rule) -> dict:
    if rule is None:
        return {}
    if isinstance(rule, tuple):
        return {"hard": rule[0], "share": rule[1]}
    return {"hard": rule}


def spreads(group: str, tokens: int, hidden: int, size: int, experts: int, top_k: int,
            repeats: int, dtypes: tuple[str, ...] = DTYPES, quantization: dict | None = None,
            **kernels):
    for (name, entry, rule, more), dtype in itertools.product(SPREADS, dtypes):
        spec = layer(hidden, size, experts, more.get("top_k", top_k), dtype, entry)
        spec |= quantization or {}
        shared = {"shared_experts": {"intermediate_size": size}}
        yield case(f"{group}/{name}/{dtype}", tokens, spec | shared | more, repeats=repeats,
                   isolation=True, permutation=True, **hardness(rule), **kernels)


# -- public tests of layers

def published():
    """M, N, K are tokens, intermediate and hidden size; inputs are randn / 10."""
    shapes = ((1, 128, 128), (1, 2048, 128), (33, 2048, 128), (32768, 2048, 511),
              (40000, 1024, 1024))
    grid = itertools.product(shapes, (8, 64, 192), (2, 6), (1, 4), (0, 128), DTYPES)
    for (m, n, k), experts, top_k, ranks, pitch, dtype in grid:
        # The reference is slow for large ones: only a few in f16.
        if m < 32768 or dtype == "bf16" or (experts, top_k) == (8, 2):
            yield fused(m, n, k, experts, top_k, ranks, pitch, dtype)
    for dtype in DTYPES:
        yield fused(100000, 2048, 1024, 8, 6, 1, 0, dtype)
    shapes = ((1, 128, 128), (1, 2048, 128), (2, 2048, 128), (2, 2048, 511))
    grid = itertools.product(shapes, (128, 256), (1, 2), (0, 128), DTYPES)
    for (m, n, k), experts, top_k, pitch, dtype in grid:
        yield fused(m, n, k, experts, top_k, 1, pitch, dtype)
    # Sums over experts.
    for m, top_k, k, dtype in itertools.product((1, 33, 222), (2, 6, 8), (128, 511, 1024),
                                                ("f32", "bf16", "f16")):
        yield case(f"published/sum-m{m}-t{top_k}-k{k}-{dtype}", m,
                   layer(k, 16, 8, top_k, dtype, "ids"), absolute=0.02)
    for top_k, dtype in itertools.product((2, 8), ("f32", "bf16", "f16")):
        yield case(f"published/sum-padded-t{top_k}-{dtype}", 33,
                   layer(256, 16, 8, top_k, dtype, "ids", **local(8, 2, 1)),
                   hard="minus_one_ids", absolute=0.02)
    # Experts without a gate.
    for m, n, k, top_k, kind, dtype in itertools.product(
            (1, 16, 64), (128, 256), (64, 128), (1, 2), ("silu", "gelu", "relu2"), DTYPES):
        yield case(f"published/no-gate-m{m}-n{n}-k{k}-t{top_k}-{kind}-{dtype}", m,
                   layer(k, n, 8, top_k, dtype, activation={"kind": f"{kind}_no_mul"}),
                   deviation=0.1, absolute=0.02)


BLOCK_FP8 = {"quantization": {"weight": "fp8_block128"}}
#: Maximum multiplications of a layer for the reference.
MOST = 10**11


def published_fp8():
    """Block fp8; M, N, K are tokens, intermediate and hidden size."""
    shapes = [(1, 128, 128), (1, 128, 7168), (1, 1024, 7168), (1, 4608, 128), (1, 4608, 7168),
              (83, 128, 128), (83, 512, 512), (83, 4608, 512), (83, 4608, 7168), (128, 512, 512),
              (128, 1024, 7168), (128, 4608, 7168), (192, 512, 512), (192, 1024, 7168),
              (1335, 128, 128), (1335, 4608, 512), (2048, 128, 128), (2048, 1024, 7168),
              (2048, 4608, 512), (8192, 128, 128), (8192, 128, 7168), (8192, 1024, 7168)]
    for (m, n, k), experts, top_k in itertools.product(shapes, (2, 8, 16), (1, 2, 6)):
        if top_k <= experts and 3 * m * n * k * top_k <= MOST:
            yield case(f"published/fp8-m{m}-n{n}-k{k}-e{experts}-t{top_k}", m,
                       layer(k, n, experts, top_k, "bf16", "ids", **BLOCK_FP8), seed=7)


def published_fp8_rows():
    """fp8 of whole tensors or rows; M, N, K are tokens, intermediate and hidden size."""

    def scaled(weight: str, activation: str) -> dict:
        found = {} if activation == "token" else {"static": True}
        return {"quantization": {"weight": {"dtype": "fp8_e4m3", "scale": weight},
                                 "activation": {"dtype": "fp8_e4m3", "scale": activation} | found}}

    shapes = ((2, 1024, 1024), (2, 3072, 1024), (2, 3072, 1536), (7, 3072, 1536), (64, 1024, 1024),
              (64, 1024, 1536), (64, 3072, 1024), (224, 1024, 1024), (224, 3072, 1024),
              (224, 3072, 1536))
    for (m, n, k), experts, top_k, weight, activation in itertools.product(
            shapes, (40, 64), (6, 8), ("tensor", "channel"), ("tensor", "token")):
        if 3 * m * n * k * top_k <= MOST:
            yield case(f"published/fp8-{weight}-{activation}-m{m}-n{n}-k{k}-e{experts}-t{top_k}", m,
                       layer(k, n, experts, top_k, "bf16", **scaled(weight, activation)),
                       seed=7, deviation=0.1, absolute=0.055)
    for m, n, k, top_k, dtype in itertools.product((1, 33), (128, 1024), (256, 4096), (2, 6), DTYPES):
        yield case(f"published/fp8-rows-m{m}-n{n}-k{k}-t{top_k}-{dtype}", m,
                   layer(k, n, 8, top_k, dtype, **scaled("channel", "token")))


def weights(dtype: str, scale, scale_dtype: str = "bf16", **more) -> dict:
    """Only quantized weights; a number is the size of groups."""
    scale = {"group": scale} if isinstance(scale, int) else scale
    weight = {"dtype": dtype, "scale": scale, "scale_dtype": scale_dtype} | more
    return {"quantization": {"weight": weight}}


def by_token(spec: dict, dtype: str) -> dict:
    """Likewise with 8-bit activations."""
    activation = {"dtype": dtype, "scale": "token"}
    return {"quantization": spec["quantization"] | {"activation": activation}}


MXFP4 = {"quantization": {"weight": "mxfp4"}}
NVFP4 = {"quantization": {"weight": "nvfp4"}}
#: Kinds of weights of public tests: with an offset, with zero points, of 8 bits.
KINDS = {
    "u4b8": lambda scale: weights("int4", scale),
    "u4": lambda scale: weights("int4", scale, zero_point=True),
    "u8b128": lambda scale: weights("int8", scale),
    "u8": lambda scale: weights("int8", scale, zero_point=True),
}


def like_gpt_oss(hidden: int, size: int, experts: int) -> dict:
    return layer(hidden, size, experts, 4, "bf16", "gate", gate_up_order="interleaved",
                 expert_bias=True, activation={"kind": "swigluoai"},
                 routing={"score": "identity", "weight": "softmax", "gate_bias": True}, **MXFP4)


def published_weights():
    """Only quantized weights; M, N, K are tokens, intermediate and hidden size."""
    shapes = ((1, 512, 384), (1, 2880, 2880), (2, 512, 384), (2, 2880, 2880), (16, 2880, 2880))
    for (m, n, k), experts in itertools.product(shapes, (32, 128)):
        yield case(f"published/gpt-oss-m{m}-n{n}-k{k}-e{experts}", m, like_gpt_oss(k, n, experts),
                   largest_relative=0.025, rms_relative=0.005)
    shapes = ((1, 128, 128), (1, 1024, 1024), (32, 2048, 128), (222, 2048, 1024))
    for (m, n, k), (experts, top_k, ranks), kind, group in itertools.product(
            shapes, ((8, 2, 1), (64, 6, 1), (64, 6, 4), (192, 2, 1)), KINDS, (64, 128)):
        yield case(f"published/{kind}-g{group}-m{m}-n{n}-k{k}-e{experts}-t{top_k}-ep{ranks}", m,
                   layer(k, n, experts, top_k, "bf16", **KINDS[kind](group),
                         **local(experts, ranks, ranks // 2)),
                   seed=7, deviation=0.1, absolute=0.02)
    shapes = ((1, 128, 256, 5, 2, 1), (1, 1024, 2048, 5, 2, 1), (133, 256, 256, 5, 2, 1),
              (133, 1024, 2048, 12, 3, 1), (128, 256, 256, 5, 2, 1), (128, 1024, 2048, 12, 3, 1),
              (64, 1024, 2048, 12, 3, 4))
    kinds = {f"{kind}-{scale}": KINDS[kind](scale)
             for kind, scale in itertools.product(("u4b8", "u4", "u8b128"), ("channel", 32, 64, 128))}
    kinds |= {"e4m3-channel": weights("fp8_e4m3", "channel"), "e4m3-128": weights("fp8_e4m3", 128),
              "nvfp4": NVFP4, "mxfp4": MXFP4, "mxfp8": weights("fp8_e4m3", 32, "e8m0")}
    kinds |= {f"{kind}-128-{dtype}": by_token(KINDS[kind](128), dtype)
              for kind, dtype in itertools.product(("u4b8", "u4"), ("int8", "fp8_e4m3"))}
    kinds["mxfp4-fp8_e4m3"] = by_token(weights("fp4_e2m1", 32, "e8m0"), "fp8_e4m3")
    for (m, n, k, experts, top_k, ranks), kind in itertools.product(shapes, kinds):
        yield case(f"published/marlin-{kind}-m{m}-n{n}-k{k}-ep{ranks}", m,
                   layer(k, n, experts, top_k, "bf16", **kinds[kind],
                         **local(experts, ranks, ranks // 2)),
                   deviation=0.1, absolute=0.04)
    for m in (1, 256):
        yield case(f"published/marlin-bias-m{m}", m,
                   layer(2048, 2048, 32, 4, "f16", expert_bias=True,
                         **weights("int4", 128, "f16")), deviation=0.1, absolute=0.05)
    for m, size, (experts, top_k) in itertools.product((1, 64, 256), (1024, 2048), ((8, 2), (64, 4))):
        yield case(f"published/marlin-no-gate-m{m}-n{size}-e{experts}", m,
                   layer(size, size, experts, top_k, "bf16", activation={"kind": "relu2_no_mul"},
                         **NVFP4), deviation=0.1, absolute=0.1)
    for m in (1, 33):
        yield case(f"published/mxint4-m{m}", m,
                   layer(7168, 512, 384, 8, "bf16", **weights("int4", 32)))
    shapes = ((2, 1024, 1024), (2, 1024, 1536), (2, 3072, 1024), (64, 1024, 1024),
              (64, 3072, 1024), (64, 2048, 1536), (224, 1024, 1024), (224, 1024, 1536))
    for (m, n, k), experts, top_k in itertools.product(shapes, (40, 64, 256), (1, 6, 8)):
        if 3 * m * n * k * top_k <= MOST:
            yield case(f"published/nvfp4-m{m}-n{n}-k{k}-e{experts}-t{top_k}", m,
                       layer(k, n, experts, top_k, "bf16", **NVFP4), deviation=0.1, absolute=0.1)
    for m, experts, top_k in itertools.product((2, 64, 224), (64, 288), (1, 8)):
        yield case(f"published/nvfp4-step-m{m}-e{experts}-t{top_k}", m,
                   layer(4096, 1280, experts, top_k, "bf16", activation={"kind": "swiglustep"},
                         **NVFP4), deviation=0.1, absolute=0.1)
    # With activations of int8.
    for m, (n, k, experts, top_k) in itertools.product(
            (1, 2, 64, 121), ((256, 512, 8, 2), (768, 2048, 128, 8))):
        quantization = {"weight": {"dtype": "int8", "scale": "channel"},
                        "activation": {"dtype": "int8", "scale": "token"}}
        yield case(f"published/int8-m{m}-n{n}-k{k}-e{experts}-t{top_k}", m,
                   layer(k, n, experts, top_k, "bf16", quantization=quantization), absolute=0.2)


def hard():
    """The rules of verify/GpuTest/Inputs/HardWeights.cpp, at sizes of several tiles."""
    rules = ["zero_weights", "zero_groups", "scale_ends", "nan_scales"]
    formats = {"mxfp4": (MXFP4, ["least_scales"]), "nvfp4": (NVFP4, []),
               "int4": (KINDS["u4"](32), ["zero_point_ends"]), "u4b8": (KINDS["u4b8"](64), []),
               "int8": (KINDS["u8"](32), ["zero_point_ends"]),
               "u4f32": (weights("int4", 64, "f32", zero_point=True), ["zero_point_ends"]),
               "minima": (weights("int4", 32, "f32", minimum=True), []),
               "minima16": (weights("int8", 16, "f32", minimum=True), []),
               "mxfp8": (weights("fp8_e4m3", 32, "e8m0"), ["least_scales", "nan_codes"]),
               "e4m3": (weights("fp8_e4m3", "channel", "f32"), ["nan_codes"])}
    for kind, (quantization, more) in formats.items():
        for rule, dtype in itertools.product(rules + more, DTYPES):
            if rule != "least_scales" or dtype == "bf16":
                yield case(f"hard/{kind}-{rule}-{dtype}", 90,
                           layer(512, 320, 16, 4, dtype, "ids", **quantization,
                                 shared_experts={"intermediate_size": 192}),
                           hard=rule, repeats=3)


#: Quantizations by name: those of the numeric cases, and those of GGUF blocks.
FORMATS = (
    {"block128": {"weight": "fp8_block128"}} | FORMS
    | {name: quantization for name, (_, quantization) in (DECODED | DECODED_TOO).items()}
    | {"q8_0": weights("int8", 32, "f16")["quantization"], "q4_0": weights("int4", 32, "f16")["quantization"]}
)


def replicas():
    """Experts with replicas, at sizes of several tiles. The replica of a token depends on its index."""
    kinds = {"bf16": {}, "fp8": BLOCK_FP8}
    for (kind, more), entry, (tokens, physical, most) in itertools.product(
            kinds.items(), ("ids", "gate"), ((1, 17, 2), (700, 24, 4), (3000, 40, 16))):
        yield case(f"replicas/m{tokens}-p{physical}-{entry}-{kind}", tokens,
                   layer(512, 320, 16, 4, "bf16", entry, record_load=True, padding_mask=True,
                         replicas={"num_physical_experts": physical, "max_replicas": most}, **more),
                   repeats=3, isolation=True, hard="padding" if entry == "ids" else "")


def formats():
    """A single row, a partial tile, more rows than a tile, and several tiles per expert."""
    for (name, quantization), (tokens, entry, dtype) in itertools.product(
            FORMATS.items(),
            ((1, "ids", "bf16"), (16, "gate", "bf16"), (130, "gate", "f16"), (700, "ids", "bf16"))):
        # All rows share a computed scale.
        activation = quantization.get("activation", {})
        alone = activation.get("scale") != "tensor" or "static" in activation
        yield case(f"formats/{name}-m{tokens}-{entry}-{dtype}", tokens,
                   layer(512, 384, 16, 4, dtype, entry, quantization=quantization,
                         shared_experts={"intermediate_size": 256}),
                   repeats=3, isolation=alone, permutation=True)


#: Few tiles per expert, so that groups of uneven distributions have up to eight.
BANDS = ("experts_hidden:block_m=16+48 block_n=32 stages=4 l2_rows=96",
         "experts_out:block_m=16+32 block_n=64 stages=4 l2_rows=64")


def ordered():
    """Choices of the compiler only for many tokens and wide gemms."""
    yield from spreads("ordered", 700, 512, 320, 64, 6, repeats=20, dtypes=("bf16",),
                       permute_rows=True)
    yield from spreads("ordered-fp8", 700, 512, 320, 64, 6, repeats=20, dtypes=("bf16",),
                       quantization=BLOCK_FP8, permute_rows=True)
    for dtype, dynamic_scheduler in (("bf16", "true"), ("f16", "false")):
        yield from spreads("raster-groups", 700, 512, 320, 64, 6, repeats=20, dtypes=(dtype,),
                           configs=[f"{config} dynamic_scheduler={dynamic_scheduler}" for config in BANDS])
    # Rows of scales are 12 bytes each.
    kinds = {"bf16": ("bf16", {}), "f16": ("f16", {}), "fp8": ("bf16", BLOCK_FP8)}
    for tokens, (kind, (dtype, more)), ranks in itertools.product(
            (1, 19, 3000), kinds.items(), (1, 8)):
        yield case(f"ordered/m{tokens}-{kind}" + (f"-ep{ranks}" if ranks > 1 else ""), tokens,
                   layer(272, 144, 16, 4, dtype, "ids", **more, **local(16, ranks, ranks // 2)),
                   repeats=3, permute_rows=True)


def fused(m, n, k, experts, top_k, ranks, pitch, dtype):
    more = local(experts, ranks, 1 if ranks > 1 else 0)
    if pitch:
        more["strided_weights"] = True
    name = f"published/fused-m{m}-n{n}-k{k}-e{experts}-t{top_k}"
    name += (f"-ep{ranks}" if ranks > 1 else "") + ("-strided" if pitch else "")
    return case(f"{name}-{dtype}", m, layer(k, n, experts, top_k, dtype, **more), seed=7,
                deviation=0.1, absolute=0.02, pitch=pitch)


# -- public tests of routing; the experts themselves are tiny

TINY = (16, 8)


def routed(name: str, tokens: int, experts: int, top_k: int, routing: dict, dtype: str = "bf16",
           entry: str = "logits", **more) -> dict:
    return case(f"routing/{name}", tokens,
                layer(*TINY, experts, top_k, dtype, entry, routing=routing), **more)


def routing():
    scores = ("softmax", "sigmoid")
    for tokens, experts, top_k, renormalize, score, bias in itertools.product(
            (1, 33, 56), (6, 16), (3, 4), (False, True), scores, (False, True)):
        rule = {"score": score, "renormalize": renormalize, "selection_bias": bias}
        name = f"m{tokens}-e{experts}-t{top_k}-{score}" + "-renormalized" * renormalize
        yield routed(f"topk-{name}" + "-bias" * bias, tokens, experts, top_k, rule,
                     hard="rounded_logits" if tokens == 56 else "")
    for experts, top_k, hard, score in itertools.product(
            (6, 8, 16), (3, 4), ("nan_logits", "inf_logits"), scores):
        yield routed(f"{hard}-e{experts}-t{top_k}-{score}", 33, experts, top_k,
                     {"score": score, "renormalize": True}, hard=hard)
    sizes = ((16, 2, 8, 2), (128, 2, 8, 2), (256, 8, 8, 4), (384, 8, 1, 1), (512, 22, 1, 1))
    for tokens, (experts, top_k, groups, kept), renormalize, score, scale in itertools.product(
            (1, 33, 64), sizes, (False, True), scores, (1, 2.5)):
        rule = {"score": score, "renormalize": renormalize, "scale": scale,
                "num_groups": groups, "topk_groups": kept, "selection_bias": True}
        name = f"m{tokens}-e{experts}-t{top_k}-g{groups}-{score}-x{scale}"
        yield routed(f"groups-{name}" + "-renormalized" * renormalize, tokens, experts, top_k, rule)
    tiers = [(512, 9), (512, 16), (513, 9), (513, 16), (895, 9), (896, 16), (897, 9), (897, 16),
             (1024, 9), (1024, 16)]
    for experts, top_k in tiers + [(e, 8) for e in (128, 161, 256, 384, 385)] + [(769, 9)]:
        yield routed(f"tier-e{experts}-t{top_k}-sigmoid", 32, experts, top_k, SIGMOID)
    for experts, top_k in ((128, 4), (128, 5), (161, 8), (512, 17), (512, 23), (577, 9)):
        yield routed(f"tier-e{experts}-t{top_k}-softmax", 32, experts, top_k, RENORMALIZED)
    for experts in (512, 896, 1024):
        yield routed(f"ties-e{experts}", 33, experts, 16, SIGMOID, hard="equal_logits")
        yield routed(f"nonfinite-e{experts}", 33, experts, 16,
                     SIGMOID | {"nonfinite": "neg_inf"}, hard="few_finite")
    for tokens, experts, top_k, renormalize, scale in itertools.product(
            (1, 33, 128), (128, 256, 384, 512), (6, 8, 16), (False, True), (1, 1.5)):
        rule = {"score": "sqrtsoftplus", "renormalize": renormalize, "scale": scale,
                "selection_bias": True}
        yield routed(f"sqrtsoftplus-m{tokens}-e{experts}-t{top_k}-x{scale}"
                     + "-renormalized" * renormalize, tokens, experts, top_k, rule)
    for tokens, experts in itertools.product((0, 1, 17, 128), (256, 384)):
        rule = {"score": "sqrtsoftplus", "select": "hash", "hash_vocab_size": 1000,
                "renormalize": True, "scale": 2.5}
        yield routed(f"hash-m{tokens}-e{experts}", tokens, experts, 6, rule)
    for (m, k), top_k, experts, (groups, kept), dtype in itertools.product(
            ((32, 256), (64, 512)), (2, 4, 6), (8, 16, 64), ((1, 1), (4, 2)), DTYPES):
        if top_k > kept * experts // groups:
            continue
        rule = SIGMOID | {"num_groups": groups, "topk_groups": kept, "scale": 1.1}
        yield case(f"routing/router-m{m}-k{k}-e{experts}-t{top_k}-g{groups}-{dtype}", m,
                   layer(k, 8, experts, top_k, dtype, "gate", routing=rule))
    for tokens, dtype in itertools.product((1, 2, 2048, 250000), DTYPES):
        rule = {"score": "softmax", "renormalize": True, "expert_scale": True}
        yield routed(f"expert-scale-m{tokens}-{dtype}", tokens, 128, 8, rule, dtype)
    for experts, dtype in itertools.product((16, 128), DTYPES):
        rule = {"score": "identity", "weight": "sigmoid", "weight_on_input": True}
        yield routed(f"weight-on-input-e{experts}-{dtype}", 33, experts, 1, rule, dtype)


def sorting():
    for tokens, hidden, experts, top_k, ranks in itertools.product(
            (1, 33, 1024, 5000), (2048, 7168), (16, 64, 256), (2, 6, 8), (1, 4, 16)):
        yield case(f"sorting/permute-m{tokens}-k{hidden}-e{experts}-t{top_k}-ep{ranks}", tokens,
                   layer(hidden, 16, experts, top_k, "bf16", "ids",
                         **local(experts, ranks, ranks // 2)), sums=0.02)
    for tokens, top_k, experts in itertools.product(
            (1, 3, 256, 2256, 4096), (1, 2, 16, 32), (32, 160, 256, 257)):
        yield case(f"sorting/align-m{tokens}-e{experts}-t{top_k}", tokens,
                   layer(*TINY, experts, top_k, "bf16", "ids"))
    for tokens, top_k, experts in itertools.product((16, 32, 2048), (2, 4), (8, 64)):
        yield case(f"sorting/align-map-m{tokens}-e{experts}-t{top_k}", tokens,
                   layer(*TINY, experts, top_k, "bf16", "ids", **local(experts, 2, 1)),
                   hard="minus_one_ids")
    for tokens, top_k, ranks in itertools.product(
            (1, 4, 8, 11, 127, 128, 3333, 7317), (2, 6, 8), (1, 2, 4)):
        yield case(f"sorting/counts-m{tokens}-t{top_k}-ep{ranks}", tokens,
                   layer(*TINY, 64, top_k, "bf16", "ids", **local(64, ranks, 0)))
    # At the limit of slots of one launch, and more slots than 128 chunks of 1024.
    for (tokens, top_k), experts, ranks in itertools.product(
            ((2048, 8), (2049, 8), (2185, 8), (16384, 8), (20001, 8), (5461, 3), (5462, 3), (16384, 10),
             (16385, 1)), (60, 512), (1, 4)):
        yield case(f"sorting/counted-m{tokens}-e{experts}-t{top_k}-ep{ranks}", tokens,
                   layer(*TINY, experts, top_k, "bf16", "ids", **local(experts, ranks, ranks // 2)),
                   hard="minus_one_ids" if ranks > 1 else "")
    for valid in ("logits", "gate"):
        yield case(f"sorting/counted-{valid}-valid", 5000,
                   layer(*TINY, 64, 8, "bf16", valid, num_valid_tokens=True), hard="padding")
    for experts, ranks in ((8, 2), (16, 2), (17, 2), (8, 4), (16, 4), (18, 4), (32, 4), (33, 4)):
        for rank in range(ranks):
            yield case(f"sorting/map-e{experts}-ep{ranks}-rank{rank}", 65,
                       layer(*TINY, experts, 2, "bf16", "ids", **local(experts, ranks, rank)))


# -- models

TOKENS = (1, 2, 8, 33, 64, 256, 1024, 4096)


def models(folder: pathlib.Path):
    for path in sorted(folder.glob("*.json")):
        for tokens in TOKENS:
            yield {"name": f"models/{path.stem}/{tokens}", "model": path.stem, "tokens": tokens,
                   "max_tokens": max(TOKENS), "repeats": 2, "isolation": tokens == 33,
                   "permutation": tokens in (33, 1024), "timed": 50}


def everything():
    yield from spreads("small", 45, 32, 24, 6, 2, repeats=3)
    for numeric in NUMERIC:
        yield {"name": f"numeric/{numeric.name}", "spec": numeric.model, "tokens": numeric.tokens,
               "seed": numeric.seed, "hard": numeric.hard or "", "repeats": 1}
    yield from published()
    yield from published_fp8()
    yield from published_fp8_rows()
    yield from routing()
    yield from sorting()
    yield from spreads("spread", 700, 512, 320, 64, 6, repeats=100)
    yield from spreads("spread-fp8", 700, 512, 320, 64, 6, repeats=100, dtypes=("bf16",),
                       quantization=BLOCK_FP8)
    for kind, quantization in (("mxfp4", MXFP4), ("int4", KINDS["u4"](64))):
        yield from spreads(f"spread-{kind}", 700, 512, 320, 64, 6, repeats=20, dtypes=("bf16",),
                           quantization=quantization)
    yield from published_weights()
    yield from hard()
    yield from replicas()
    yield from formats()
    yield from ordered()
    yield from models(ROOT / "test" / "models")


def commit() -> str:
    """The commit of the sources, marked if they have changed since."""
    try:
        run = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT,
                             text=True, capture_output=True)
        return run.stdout.strip() if run.returncode == 0 else ""
    except OSError:
        return ""


def write(path: pathlib.Path, text: str) -> None:
    """Does not rewrite a file with equal contents."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    (folder / "models").mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(entry) for entry in everything())
    write(folder / "cases.json", f'{{"commit": "{commit()}", "cases": [\n{lines}\n]}}\n')
    for path in (ROOT / "test" / "models").glob("*.json"):
        shutil.copyfile(path, folder / "models" / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
