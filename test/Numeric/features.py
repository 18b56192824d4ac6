# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Features of the specification that a numeric case exercises.

The features are derived from the case's spec, so that a case cannot claim more than it tests.
docs/reference/coverage.md counts them.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush

from cases import Case

from moec.reference import HARD_INPUTS, LayerSpec
from moec.reference.activations import PARAMETERS
from moec.reference.families import FAMILIES
from moec.reference.quantization import SHORT_NAMES, Quantization

ENTRIES = ("gate", "logits", "ids")
DTYPES = ("f32", "bf16", "f16")
#: Quantizations that have no name of their own.
FORMATS = (
    "fp8_e4m3 by tensor x tensor", "fp8_e4m3 by tensor x static tensor",
    "fp8_e4m3 by tensor x token", "fp8_e4m3 by channel x token",
    "fp8_e4m3 by channel x static tensor", "fp8_e4m3 by tensor, alone",
    "fp8_e4m3 by channel, alone", "fp8_e4m3 by block, alone",
    "fp8_e4m3 by group x group", "fp8_e4m3 by block x token",
    "int4 by group, alone", "int4 by group of bf16, alone", "int4 by group of f16, alone",
    "int4 by group of bf16 with zero points, alone", "int4 by group with zero points, alone",
    "int4 by group of f16 with zero points, alone", "int4 by channel of f16, alone",
    "int4 by channel with zero points, alone", "int8 by channel of bf16, alone",
    "int8 by group of bf16, alone", "int8 by group of f16 with zero points, alone",
    "int8 by channel with zero points, alone", "int8 by channel x token",
    "int8 by tensor x tensor", "int8 by channel x static tensor",
    "fp8_e4m3 by block of e8m0 x group", "fp8_e4m3 by group of e8m0, alone",
    "fp8_e4m3 by channel of bf16 x token", "fp8_e4m3 by tensor of f16, alone",
    "nf4 by group, alone", "fp8_e4m3 by block x group of e8m0",
    "fp4_e2m1 by group of e8m0 x fp8_e4m3 x group of e8m0",
    "fp4_e2m1 by group of e8m0 x fp8_e4m3 x token", "int4 by group of bf16 x fp8_e4m3 x token",
    "int4 by group of f16 x fp8_e4m3 x token",
    "fp8_e4m3 by group of e8m0 x token", "int4 by group of bf16 x int8 x token", "int8 by group, alone",
    "int8 by group of 16, alone", "int8 by group of 16 of bf16 with zero points, alone",
    "fp8_e4m3 by group of 16 of f16 x token", "int4 by group with minima, alone",
    "int8 by group with minima, alone", "int8 by group of 16 of bf16 with minima, alone",
    "int4 by group of f16 with minima x fp8_e4m3 x token",
    "fp4_e2m1 by group of 16 of e4m3 with a global scale x fp8_e4m3 x token",
    "int4 by group of f16 with zero points x fp8_e4m3 x static tensor", "nf4 by group x int8 x token",
)


def _features() -> dict[str, list[str]]:
    """Every feature that must have a case, by section."""
    parameters = [
        f"{kind} with {name}" for kind, names in PARAMETERS.items() for name in names
    ]
    return {
        "entry and dtype": [f"{entry}, {dtype}" for entry in ENTRIES for dtype in DTYPES],
        "score": ["identity", "softmax", "sigmoid", "sqrtsoftplus"],
        "select": [
            "top_k", "top_k, groups by max", "top_k, groups by top2_sum", "per_group",
            "hash", "sparsemixer",
        ],
        "weight": [
            "score", "sigmoid", "softmax", "renormalize", "renormalize_epsilon", "scale",
            "gate_bias", "split_gate", "gate_hidden_size", "selection_bias", "expert_scale", "weight_on_input",
            "logit_scale", "logit_softcap", "logits_dtype",
        ],
        "nonfinite, with such logits": ["zero", "neg_inf", "lowest"],
        "activation": [*PARAMETERS, *parameters],
        "weights": [
            "gate_up", "up_gate", "interleaved", "expert_bias", "output_bias", "expert_columns", "shared_experts",
            "shared_experts with sigmoid gate", "shared_experts with softmax gate", "shared_experts with gate_bias",
            "shared_experts with scale",
            "shared_experts with activation", "shared_experts with quantization", "shared_experts with columns",
            "w13 and w2 quantized otherwise", "latent_size", "norms.latent_in", "norms.expert", "norms.latent_out",
            "lora", "num_zero_experts",
            "placement.local_experts", "replicas", "strided_weights", *SHORT_NAMES, *FORMATS,
        ],
        "tokens": ["0", "1", "2 to 15", "16 to 255", "256 and more", "num_valid_tokens",
                   "padding_mask", "quantized_input"],
        "outputs": ["record_ids", "record_load", "rows of slots"],
        "sizes": [
            "hidden_size not a multiple of 8", "intermediate_size not a multiple of 8",
            "num_experts not a power of two", "num_experts of 512 and more",
            "num_experts of 6200 and more", "top_k of 9 and more", "top_k of 32 and more", "top_k of 1024",
        ],
        "hard inputs": list(HARD_INPUTS),
        "model family": [family for family in FAMILIES if family != "llama4"],
    }


FEATURES = _features()


def format_name(quantization: Quantization) -> str:
    """As FORMATS and SHORT_NAMES have it."""
    weight, activation = quantization.weight, quantization.activation
    for short, meaning in SHORT_NAMES.items():
        if quantization == meaning:
            return short
    name = f"{weight.dtype} by {weight.granularity}"
    # Groups smaller than the number of elements that GPUs dequantize at once.
    if weight.granularity == "group" and weight.columns < 32:
        name += f" of {weight.columns}"
    if weight.scale_dtype != "f32":
        name += f" of {weight.scale_dtype}"
    if weight.zero_point:
        name += " with zero points"
    if weight.minimum:
        name += " with minima"
    if weight.global_scale:
        name += " with a global scale"
    if activation is None:
        return f"{name}, alone"
    if activation.dtype != weight.dtype:
        name += f" x {activation.dtype}"
    name += f" x {'static ' if activation.static else ''}{activation.granularity}"
    return name if activation.scale_dtype == "f32" else f"{name} of {activation.scale_dtype}"


def _of_routing(spec: LayerSpec, hard: str | None) -> set[tuple[str, str]]:
    routing = spec.routing
    tags = {("weight", "weight_on_input")} if routing.weight_on_input else set()
    if spec.entry == "ids":
        return tags
    select = routing.select
    if select == "top_k" and routing.num_groups > 1:
        select += f", groups by {routing.group_score}"
    tags |= {("score", routing.score), ("select", select)}
    if routing.select != "sparsemixer":
        tags.add(("weight", routing.weight))
    given = {
        "renormalize": routing.renormalize,
        "renormalize_epsilon": routing.renormalize_epsilon > 0,
        "scale": routing.scale != 1,
        "gate_bias": routing.gate_bias,
        "split_gate": routing.split_gate,
        "gate_hidden_size": routing.gate_hidden_size is not None,
        "selection_bias": routing.selection_bias,
        "expert_scale": routing.expert_scale,
        "logit_scale": routing.logit_scale != 1,
        "logit_softcap": routing.logit_softcap is not None,
        "logits_dtype": routing.logits_dtype != "f32",
    }
    tags |= {("weight", name) for name, is_given in given.items() if is_given}
    if hard in ("nan_logits", "inf_logits"):
        tags.add(("nonfinite, with such logits", routing.nonfinite))
    return tags


def _of_sizes(spec: LayerSpec, tokens: int) -> set[tuple[str, str]]:
    count = "0" if tokens == 0 else "1" if tokens == 1 else "2 to 15"
    if tokens >= 16:
        count = "16 to 255" if tokens < 256 else "256 and more"
    sizes = {
        "hidden_size not a multiple of 8": spec.hidden_size % 8 != 0,
        "intermediate_size not a multiple of 8": spec.intermediate_size % 8 != 0,
        "num_experts not a power of two": spec.num_experts & (spec.num_experts - 1) != 0,
        "num_experts of 512 and more": spec.num_experts >= 512,
        "num_experts of 6200 and more": spec.num_experts >= 6200,
        "top_k of 9 and more": spec.top_k >= 9,
        "top_k of 32 and more": spec.top_k >= 32,
        "top_k of 1024": spec.top_k == 1024,
    }
    return {("tokens", count)} | {("sizes", name) for name, is_so in sizes.items() if is_so}


def features(case: Case) -> set[tuple[str, str]]:
    """(section, feature) pairs of a case."""
    spec = LayerSpec.from_json(case.model)
    tags = _of_routing(spec, case.hard) | _of_sizes(spec, case.tokens)
    tags.add(("entry and dtype", f"{spec.entry}, {spec.dtype}"))
    kind = spec.activation.kind
    tags.add(("activation", kind))
    for name, default in PARAMETERS[kind].items():
        if getattr(spec.activation, name) != default:
            tags.add(("activation", f"{kind} with {name}"))
    if spec.activation.gated:
        tags.add(("weights", spec.gate_up_order))
    given = {
        "expert_bias": spec.expert_bias,
        "output_bias": spec.output_bias,
        "expert_columns": spec.expert_columns,
        "shared_experts": spec.shared_experts is not None,
        "latent_size": spec.latent_size is not None,
        **{f"norms.{name}": True for name in spec.norms},
        "lora": spec.lora is not None,
        "num_zero_experts": spec.num_zero_experts > 0,
        "placement.local_experts": spec.local_experts is not None,
        "replicas": spec.replicas is not None,
        "strided_weights": spec.strided_weights,
    }
    tags |= {("weights", format_name(quantization)) for quantization in spec.quantizations}
    tags |= {("weights", name) for name, is_given in given.items() if is_given}
    if spec.shared_experts is not None and spec.shared_experts.gate != "none":
        tags.add(("weights", f"shared_experts with {spec.shared_experts.gate} gate"))
    if spec.shared_experts is not None and spec.shared_experts.gate_bias:
        tags.add(("weights", "shared_experts with gate_bias"))
    if spec.shared_experts is not None and spec.shared_experts.scale != 1:
        tags.add(("weights", "shared_experts with scale"))
    if spec.shared_experts is not None and spec.shared_experts.activation is not None:
        tags.add(("weights", "shared_experts with activation"))
    shared = spec.shared_experts
    if shared is not None and shared.columns:
        tags.add(("weights", "shared_experts with columns"))
    if shared is not None and shared.quantization != spec.quantization:
        tags.add(("weights", "shared_experts with quantization"))
    if spec.quantization.w13 != spec.quantization.w2:
        tags.add(("weights", "w13 and w2 quantized otherwise"))
    for name in ("num_valid_tokens", "padding_mask", "quantized_input"):
        if getattr(spec, name):
            tags.add(("tokens", name))
    tags |= {("outputs", name) for name in ("record_ids", "record_load") if getattr(spec, name)}
    if spec.output == "slots":
        tags.add(("outputs", "rows of slots"))
    if case.hard:
        tags.add(("hard inputs", case.hard))
    if "model_type" in case.model:
        tags.add(("model family", case.model["model_type"]))
    return tags


def with_entry(case: Case) -> set[tuple]:
    """The features of a case, each with the case's entry."""
    entry = LayerSpec.from_json(case.model).entry
    return {(entry, feature) for feature in features(case)}


def with_entry_and_dtype(case: Case) -> set[tuple]:
    """The features of a case, each with the case's entry and with its dtype."""
    dtype = LayerSpec.from_json(case.model).dtype
    return with_entry(case) | {(dtype, feature) for feature in features(case)}


def cover(elements: dict[Hashable, set], costs: dict[Hashable, float], seen: set) -> list[Hashable]:
    """Keys that cover all elements not in `seen`, chosen greedily by added elements per cost."""
    seen, kept = set(seen), []
    # The gain of a key can only decrease.
    heap = [(-len(found) / costs[key], index, key) for index, (key, found) in enumerate(elements.items())]
    heapify(heap)
    while heap:
        _, index, key = heappop(heap)
        item = (-len(elements[key] - seen) / costs[key], index, key)
        if item[0] == 0:
            continue
        if heap and item > heap[0]:
            heappush(heap, item)
            continue
        kept.append(key)
        seen |= elements[key]
    return kept


def covering(cases: list[Case]) -> list[Case]:
    """Cases, in their order, that cover each combination of a feature with an entry, and with a dtype, that occurs in
    any case."""
    elements = {case.name: with_entry_and_dtype(case) for case in cases}
    # Most of a case's time on the host is that of starting, compiling and checking, which few cases exceed.
    kept = set(cover(elements, {case.name: 10 + cost(case) for case in cases}, set()))
    return [case for case in cases if case.name in kept]


def multiplications(case: Case) -> int:
    """Multiplications of the routed experts and the router."""
    spec = LayerSpec.from_json(case.model)
    expert = (spec.first_rows(1) + 1) * spec.intermediate_size * spec.width
    return case.tokens * (spec.top_k * expert + spec.num_routes * spec.hidden_size)


def cost(case: Case) -> float:
    """Estimated seconds of a case on the simulator: compilation and four schedules."""
    spec = LayerSpec.from_json(case.model)
    # Quantized products of f32 are multiplied without tensor cores.
    slowness = 3 if spec.dtype == "f32" and spec.quantizations else 1
    return 0.8 + slowness * multiplications(case) / 800_000 + spec.num_experts / 1000
