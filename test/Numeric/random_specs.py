# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random legal specs with inputs, and changed specs that may be illegal.

Every field of docs/spec.schema.json is drawn, with weights that make rare features meet often.
Sizes are small: a run on the simulator takes about a second. The same seed and index make the
same case.
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace

import numpy as np
from cases import Case
from features import multiplications
from runs import count_tokens

from moec.reference import HARD_INPUTS, LayerSpec, SpecError, decide, evaluate, generate
from moec.reference.activations import PARAMETERS
from moec.reference.quantization import SCALE_DTYPES

#: Limits of a case: multiplications of a run, elements of a stack of weights.
_MULTIPLICATIONS = 1_000_000
_ELEMENTS = 1_000_000
#: Attempts to draw inputs for a spec with meaningful outputs.
_INPUTS = 6

#: Features that no draw has, and why; names of features.py first.
NOT_DRAWN = {
    "num_experts of 6200 and more": "a case has at most 1,000,000 multiplications",
    "top_k of 1024": "likewise",
    "256 and more": "likewise: at most 130 tokens",
    "`hidden_size` above 330": "likewise",
    "a model's `config.json`, and checkpoints": "`test_models.py`, `test_gguf.py` and `test/Frameworks` have them",
    "`parallel` with `pcp`, with lists of ids, with experts split over ranks": "`test_ranks.py` has them",
    "`parallel` beside `placement`, `replicas`, padding, records or one activation scale of all rows":
        "the reference of one rank has other inputs or scales",
    "ranks on a GPU": "one rank has the tokens of all",
    "infinities and subnormal numbers among hidden states and plain weights":
        "layers.md does not say what comes of them; NaN, zeros, and such logits, scales and routing weights are drawn",
    "gaps between rows of inputs, several calls of a layer, graphs": "`gpu-test` has them",
    "target sm_100a": "the simulator has no tensor memory for whole layers",
}

_TOKENS = {0: 1, 1: 5, 2: 3, 3: 3, 5: 3, 8: 3, 16: 2, 17: 3, 33: 6, 64: 2, 65: 2, 130: 2}
_EXPERTS = {1: 1, 2: 2, 3: 2, 5: 2, 6: 3, 8: 8, 12: 3, 16: 6, 33: 2, 64: 2, 129: 1, 256: 1, 512: 1, 1024: 1}
_GROUPS = {16: 4, 32: 8, 64: 4, 128: 4, 48: 1, 96: 1, 8: 1, 20: 1}


def pick(rng: random.Random, weights: dict):
    return rng.choices(list(weights), list(weights.values()))[0]


def _size(rng: random.Random, unit: int, largest: int) -> int:
    """A multiple of `unit`; odd ones and whole chunks of 16 bytes are as likely."""
    if unit == 1 and rng.random() < 0.5:
        unit = rng.choice([8, 16, 32])
    return unit * rng.randint(1, max(1, largest // unit))


def _activation(rng: random.Random, gated: bool | None = None) -> dict:
    kinds = [kind for kind in PARAMETERS if gated is None or kind.endswith("_no_mul") != gated]
    kind = rng.choice(kinds)
    activation = {"kind": kind}
    values = {"limit": [0.5, 1, 3.0, 7], "alpha": [0.5, 1.702, 2], "beta": [0.75, 1, 4],
              "linear_beta": [0, 1.5, 25]}
    for name in PARAMETERS[kind]:
        if rng.random() < 0.5:
            activation[name] = rng.choice(values[name])
    return activation


# -- quantization


def _weight(rng: random.Random) -> dict:
    dtype = pick(rng, {"fp8_e4m3": 30, "fp4_e2m1": 20, "nf4": 10, "int8": 25, "int4": 25, "fp8_e5m2": 2})
    kind = pick(rng, {"tensor": 3, "channel": 5, "group": 8, "block": 4})
    scale = kind
    if kind == "group":
        scale = {"group": pick(rng, _GROUPS)}
    elif kind == "block":
        scale = {"block": [rng.choice([1, 7, 16, 32, 64, 128]), pick(rng, _GROUPS)]}
    weight = {"dtype": dtype, "scale": scale}
    scale_dtype = pick(rng, dict.fromkeys(SCALE_DTYPES, 1) | {None: 3})
    if scale_dtype is not None:
        weight["scale_dtype"] = scale_dtype
    if dtype in ("int8", "int4") and rng.random() < 0.4:
        weight["zero_point"] = True
    if kind in ("group", "block") and rng.random() < 0.25:
        weight["global_scale"] = True
    elif kind == "group" and dtype in ("int8", "int4") and scale_dtype in (None, "f32", "bf16", "f16"):
        if "zero_point" not in weight and rng.random() < 0.4:
            weight["minimum"] = True
    return weight


def _quantized_input(rng: random.Random) -> dict:
    dtype = pick(rng, {"fp8_e4m3": 20, "int8": 12, "fp8_e5m2": 1})
    scales = {"tensor": 4, "token": 5} | ({} if dtype == "int8" else {"group": 3})
    scale = pick(rng, scales)
    activation = {"dtype": dtype, "scale": scale}
    if scale == "group":
        activation["scale"] = {"group": pick(rng, _GROUPS)}
        if rng.random() < 0.4:
            activation["scale_dtype"] = "e8m0"
    if scale == "tensor" and rng.random() < 0.5:
        activation["static"] = True
    return activation


#: Operands of checkpoints, or similar ones, for which kernels are written.
_PUBLISHED = (
    {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
     "activation": {"dtype": "fp8_e4m3", "scale": "tensor", "static": True}},
    {"weight": {"dtype": "fp8_e4m3", "scale": "channel"},
     "activation": {"dtype": "fp8_e4m3", "scale": "token"}},
    {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]}, "scale_dtype": "e8m0"},
     "activation": {"dtype": "fp8_e4m3", "scale": {"group": 128}}},
    {"weight": {"dtype": "fp8_e4m3", "scale": {"group": 32}, "scale_dtype": "e8m0"}},
    {"weight": {"dtype": "int8", "scale": "channel"}, "activation": {"dtype": "int8", "scale": "token"}},
    {"weight": {"dtype": "int8", "scale": "channel", "scale_dtype": "bf16"}},
    {"weight": {"dtype": "int4", "scale": {"group": 32}, "scale_dtype": "bf16"}},
    {"weight": {"dtype": "int4", "scale": {"group": 128}, "scale_dtype": "f16", "zero_point": True}},
    {"weight": {"dtype": "int4", "scale": {"group": 64}},
     "activation": {"dtype": "fp8_e4m3", "scale": "token"}},
    {"weight": {"dtype": "nf4", "scale": {"group": 64}}},
    {"weight": {"dtype": "int8", "scale": {"group": 16}}},
    {"weight": {"dtype": "int4", "scale": {"group": 32}, "minimum": True}},
    {"weight": {"dtype": "fp8_e4m3", "scale": {"block": [128, 128]}},
     "activation": {"dtype": "fp8_e4m3", "scale": {"group": 128}, "scale_dtype": "e8m0"}},
)
_WORDS = {"fp8_block128": 3, "mxfp4": 4, "nvfp4": 3, "mxfp8": 2}


def _operands(rng: random.Random) -> dict:
    draw = rng.random()
    if draw < 0.3:
        return {"weight": pick(rng, _WORDS)}
    if draw < 0.6:
        return copy.deepcopy(rng.choice(_PUBLISHED))
    operands = {"weight": _weight(rng)}
    if rng.random() < 0.45:
        operands["activation"] = _quantized_input(rng)
    return operands


def _product(rng: random.Random) -> dict | str | None:
    return pick(rng, {None: 1, "word": 1, "operands": 2}) and (
        pick(rng, _WORDS) if rng.random() < 0.3 else _operands(rng))


def _quantization(rng: random.Random) -> dict | str | None:
    if rng.random() < 0.2:
        return pick(rng, _WORDS | {None: 1})
    quantization = _operands(rng)
    for product in ("w13", "w2"):
        if rng.random() < 0.25:
            quantization[product] = _product(rng)
    return quantization


def _units(model: dict) -> dict[str, int]:
    """Required divisors of each K.

    While the importer is asked, sizes are used that fit any scales.
    """
    large = 1
    for size in _GROUPS:
        large = math.lcm(large, size)
    trial = model | {"hidden_size": large, "intermediate_size": large}
    if "latent_size" in model:
        trial["latent_size"] = large
    if "shared_experts" in model:
        trial["shared_experts"] = model["shared_experts"] | {"intermediate_size": large}
    spec = LayerSpec.from_json(trial)
    units = {"latent_size": 1, "hidden_size": 1, "intermediate_size": 1, "shared": 1}
    for name in spec.expert_weights:
        quantization = spec.quantization_of(name)
        if quantization is None:
            continue
        weight = quantization.weight
        unit = weight.columns if weight.granularity == "group" else 1
        unit = math.lcm(unit, 2 if weight.in_pairs else 1)
        field = {"experts.w2": "intermediate_size", "shared_experts.w13": "hidden_size",
                 "shared_experts.w2": "shared"}.get(name)
        if field is None:
            field = "latent_size" if "latent_size" in model else "hidden_size"
        units[field] = math.lcm(units[field], unit)
    return units


# -- routing


def _divisors(number: int) -> list[int]:
    # Thousands of group keys take one lane of a simulated warp too long.
    return [divisor for divisor in range(2, min(number, 32) + 1) if number % divisor == 0]


def _select(rng: random.Random, routes: int, top_k: int) -> tuple[dict, int]:
    """Fields of how experts are selected, and the top_k that goes with them."""
    kinds = {"top_k": 8, "groups": 5, "per_group": 2, "hash": 3, "sparsemixer": 2}
    kind = pick(rng, kinds)
    if kind == "hash":
        return {"select": "hash", "hash_vocab_size": rng.choice([1, 7, 50])}, top_k
    if kind == "sparsemixer" and routes >= 2:
        return {"select": "sparsemixer", "score": "identity"}, 2
    divisors = _divisors(routes)
    if kind == "per_group" and divisors:
        groups = rng.choice(divisors)
        share = rng.randint(1, min(3, routes // groups))
        return {"select": "per_group", "num_groups": groups}, groups * share
    if kind == "groups" and divisors:
        groups = rng.choice(divisors)
        kept = rng.randint(1, groups)
        return {"num_groups": groups, "topk_groups": kept}, min(top_k, kept * (routes // groups))
    return {}, top_k


def _routing(rng: random.Random, entry: str, routes: int, top_k: int) -> tuple[dict, int]:
    routing, top_k = _select(rng, routes, top_k)
    select = routing.get("select", "top_k")
    if select != "sparsemixer":
        score = pick(rng, {"identity": 2, "softmax": 2, "sigmoid": 3, "sqrtsoftplus": 2, None: 1})
        if score is not None:
            routing["score"] = score
        weights = ["score", "sigmoid"] + (["softmax"] if score not in ("softmax", None) else [])
        if rng.random() < 0.5:
            routing["weight"] = rng.choice(weights)
        if select != "hash" and rng.random() < 0.35:
            routing["selection_bias"] = True
        if rng.random() < 0.2:
            routing["logit_softcap"] = rng.choice([0.5, 2, 30.0])
        if rng.random() < 0.3:
            routing["nonfinite"] = rng.choice(["zero", "neg_inf", "lowest"])
    if entry == "gate" and rng.random() < 0.25:
        routing["gate_bias"] = True
    if rng.random() < 0.2:
        routing["expert_scale"] = True
    groups = routing.get("num_groups", 1)
    if groups > 1 and rng.random() < 0.5:
        scores = ["max", "top2_sum"] if routes // groups > 1 else ["max"]
        routing["group_score"] = rng.choice(scores)
    elif groups > 1 and groups == routes:
        routing["group_score"] = "max"
    if rng.random() < 0.5:
        routing["renormalize"] = True
        if rng.random() < 0.4:
            routing["renormalize_epsilon"] = rng.choice([1e-20, 1e-12, 0.25])
    if rng.random() < 0.3:
        routing["scale"] = rng.choice([0.5, 1.5, 2.5, 16])
    if top_k == 1 and rng.random() < 0.4:
        routing["weight_on_input"] = True
    return routing, top_k


# -- all of it


def _model(rng: random.Random) -> dict:
    entry = pick(rng, {"gate": 2, "logits": 2, "ids": 1})
    experts = pick(rng, _EXPERTS)
    zero = rng.choice([1, 2, 4]) if rng.random() < 0.15 else 0
    routes = experts + zero
    most = min(routes, pick(rng, {2: 4, 4: 3, 8: 3, 12: 1, 32: 1}))
    top_k = most if rng.random() < 0.2 else rng.randint(1, most)
    model = {"moec_spec": 1, "dtype": pick(rng, {"f32": 2, "bf16": 3, "f16": 2}), "entry": entry}
    if entry != "ids":
        routing, top_k = _routing(rng, entry, routes, top_k)
        if routing or rng.random() < 0.5:
            model["routing"] = routing
    elif top_k == 1 and rng.random() < 0.4:
        model["routing"] = {"weight_on_input": True}
    model |= {"num_experts": experts, "top_k": top_k, "activation": _activation(rng)}
    gated = not model["activation"]["kind"].endswith("_no_mul")
    if zero:
        model["num_zero_experts"] = zero
    if rng.random() < 0.15:
        model["latent_size"] = 1
    if gated and rng.random() < 0.6:
        model["gate_up_order"] = rng.choice(["gate_up", "up_gate", "interleaved"])
    shares = {"expert_bias": 0.3, "strided_weights": 0.15, "num_valid_tokens": 0.25, "padding_mask": 0.12,
              "record_ids": 0.12 if entry != "ids" else 0, "record_load": 0.12}
    for field, share in shares.items():
        if rng.random() < share:
            model[field] = True
    quantized = rng.random() < 0.6
    if quantized:
        model["quantization"] = _quantization(rng)
    if rng.random() < 0.35:
        shared = {"intermediate_size": 1}
        if rng.random() < 0.4:
            shared["gate"] = rng.choice(["none", "sigmoid"])
        if rng.random() < 0.3:
            shared["scale"] = rng.choice([0.25, 0.5, 2])
        if rng.random() < 0.3:
            shared["activation"] = _activation(rng, gated)
        if rng.random() < (0.4 if quantized else 0.15):
            shared["quantization"] = _quantization(rng)
        model["shared_experts"] = shared
    if rng.random() < 0.12:
        more = rng.choice([0, 1, 2, 5, 16])
        model["replicas"] = {"num_physical_experts": experts + more, "max_replicas": rng.randint(1, min(more + 1, 4))}
    elif rng.random() < 0.15:
        local = rng.sample(range(experts), rng.randint(1, experts))
        model["placement"] = {"local_experts": local}
        if rng.random() < 0.3:
            model["placement"]["num_ranks"] = 1
    if rng.random() < 0.1:
        model["name"] = rng.choice(["a", "layer.3-b_c"])
    _set_sizes(rng, model)
    if rng.random() < 0.1:
        model["expert_columns"] = True
    if "shared_experts" in model and rng.random() < 0.15:
        model["shared_experts"]["columns"] = True
    if (entry == "gate" and model["dtype"] != "f32" and not model.get("routing", {}).get("gate_bias")
            and rng.random() < 0.3):
        model.setdefault("routing", {})["split_gate"] = True
    return model


def _norm(rng: random.Random) -> dict:
    norm = {"epsilon": rng.choice([1e-6, 1e-5, 0.5])}
    if rng.random() < 0.4:
        norm["offset"] = rng.choice([1, 2])
    if rng.random() < 0.3:
        norm["weight_first"] = True
    return norm


def _is_legal(model: dict) -> bool:
    try:
        LayerSpec.from_json(model)
    except SpecError:
        return False
    return True


def _add_fields(rng: random.Random, model: dict) -> dict:
    """The model with fields that exclude many others, where these are absent."""
    norms = {name: _norm(rng) for name in ("latent_in", "expert", "latent_out")}
    changes = (
        (0.15, lambda: {"routing": model.get("routing", {}) | {"logit_scale": rng.choice([0.25, 1.5, 4])}}),
        (0.5, lambda: {"norms": {name: norms[name] for name in norms if rng.random() < 0.7}}),
        (0.05, lambda: {"norms": {"expert": norms["expert"]}}),
        (0.15, lambda: {"output": "slots"}),
        (0.1, lambda: {"output_bias": True}),
        (0.1, lambda: {"lora": {"adapters": rng.choice([1, 2, 4]), "rank": rng.choice([1, 3, 8, 16])}}),
        (0.1, lambda: {"routing": model.get("routing", {}) | {"gate_hidden_size": rng.randint(1, 40)}}),
        (0.2, lambda: {"shared_experts": model.get("shared_experts", {}) | {"gate": "softmax"}}),
        (0.3, lambda: {"shared_experts": model.get("shared_experts", {}) | {"gate_bias": True}}),
        (0.6, lambda: {"quantized_input": True}),
    )
    for share, change in changes:
        if rng.random() < share and _is_legal(changed := model | change()):
            model = changed
    return model


def _set_sizes(rng: random.Random, model: dict) -> None:
    units = _units(model)
    largest = pick(rng, {40: 3, 100: 4, 200: 2, 330: 1})
    if model["num_experts"] > 64:
        largest = 24
    # Odd and wide divisors together would need large sizes; the importer says which sizes fit.
    model["hidden_size"] = _size(rng, units["hidden_size"], largest)
    model["intermediate_size"] = _size(rng, units["intermediate_size"], largest)
    if "latent_size" in model:
        model["latent_size"] = _size(rng, units["latent_size"], largest)
    if "shared_experts" in model:
        model["shared_experts"]["intermediate_size"] = _size(rng, units["shared"], largest)


def _is_small(case: Case) -> bool:
    spec = LayerSpec.from_json(case.model)
    elements = spec.num_local_experts * spec.first_rows(spec.intermediate_size) * spec.width
    return multiplications(case) <= _MULTIPLICATIONS and elements <= _ELEMENTS


def is_telling(case: Case) -> bool:
    """Whether a case is meaningful for the reference and for a run.

    One row on a near tie would be more than the share that a check allows, and an output of zeros
    would agree with a kernel that does nothing. Where sums overflow, or nearly cancel, the order
    of the terms decides.
    """
    spec = LayerSpec.from_json(case.model)
    if not all(quantization.supported for quantization in spec.quantizations):
        return True
    tokens = count_tokens(case)
    try:
        tensors = generate(spec, tokens, case.seed, case.hard)
    except SpecError:
        return False
    decision = decide(spec, tensors)
    if decision.routing is not None and decision.routing.near.any():
        return False
    # Scores of both signs may nearly cancel, and weights of a row that sums up to `scale` are large then.
    if spec.routing.renormalize and np.abs(decision.weights).max(initial=0.0) > 8 * abs(spec.routing.scale):
        return False
    out = evaluate(spec, tensors, decision)
    lost = np.isnan(out)
    if lost.any() and case.hard not in ("nan_hidden", "nan_scales", "nan_codes"):
        return False
    out = np.where(lost, 0.0, out)
    if np.isinf(out).any() or (case.hard != "wide_hidden" and np.abs(out).max(initial=0.0) > 1e3):
        return False
    return tokens == 0 or bool(out.any())


def _applies(case: Case) -> bool:
    spec = LayerSpec.from_json(case.model)
    if not all(quantization.supported for quantization in spec.quantizations):
        return False
    try:
        generate(spec, case.tokens, case.seed, case.hard)
    except SpecError:
        return False
    return True


def _inputs(rng: random.Random, case: Case) -> Case | None:
    """The case with a seed and hard inputs that fit it."""
    for _ in range(_INPUTS):
        drawn = replace(case, seed=rng.randrange(1000))
        if rng.random() < 0.6:
            hard = [replace(drawn, hard=name) for name in sorted(HARD_INPUTS)]
            rng.shuffle(hard)
            drawn = next(filter(_applies, hard), drawn)
        if is_telling(drawn):
            return drawn
    return None


def _parallel(rng: random.Random, case: Case) -> dict | None:
    """Ranks for the tokens of a case, with whole experts on each, if the layer can have them."""
    spec = LayerSpec.from_json(case.model)
    dp, tp = rng.choice([(2, 1), (1, 2), (4, 1), (2, 2), (3, 1)])
    sp = tp > 1 and rng.random() < 0.4
    shared = spec.shared_experts
    fits = (spec.num_experts % (dp * tp) == 0 and case.tokens > 0 and case.tokens % (dp * (tp if sp else 1)) == 0
            and spec.local_experts is None and spec.replicas is None
            and not (spec.num_valid_tokens or spec.padding_mask or spec.record_ids or spec.record_load)
            and (shared is None or tp == 1 or not shared.quantization and shared.intermediate_size % tp == 0)
            and not any(_shares_scale(quantization) for quantization in spec.quantizations))
    if not fits:
        return None
    return {"dp": dp, "tp": tp, "experts": rng.choice(["linear", "round_robin"])} | ({"sp": True} if sp else {})


def _shares_scale(quantization) -> bool:
    """Whether activations have one scale of all rows, which each rank computes for its own."""
    activation = quantization.activation
    return activation is not None and activation.granularity == "tensor" and not activation.static


def _use_ranks(rng: random.Random, case: Case) -> Case:
    """The case on several ranks, with as many tokens in all."""
    parallel = _parallel(rng, case)
    # A bias of the output, say, is added by one rank.
    if parallel is None or not _is_legal(case.model | {"parallel": parallel}):
        return case
    split = replace(case, model=case.model | {"parallel": parallel}, tokens=1)
    return replace(split, tokens=case.tokens // count_tokens(split))


def draw(seed: int, index: int) -> Case:
    """A legal spec with inputs; which it is depends on `seed` and `index` alone."""
    rng = random.Random(f"{seed} {index}")
    # Separate random numbers: the dtype of logits changes nothing else in a spec.
    of_logits = random.Random(f"{seed} {index} logits")
    # Likewise for how a layer is run.
    of_runs = random.Random(f"{seed} {index} runs")
    of_fields = random.Random(f"{seed} {index} fields")
    while True:
        model, tokens = _model(rng), pick(rng, _TOKENS)
        if model.get("entry") == "logits" and of_logits.random() < 0.3:
            model.setdefault("routing", {})["logits_dtype"] = of_logits.choice(["bf16", "f16"])
        model = _add_fields(of_fields, model)
        # Kernels for more tokens are compiled too.
        model["max_tokens"] = pick(rng, {max(tokens, 1): 6, max(tokens, 1) + 7: 1, 300: 1})
        case = Case(f"random_{seed}_{index}", model, tokens)
        if not _is_small(case):
            continue
        case = _inputs(rng, case)
        if case is None:
            continue
        kind = pick(of_runs, {None: 6, "batch_invariant": 2, "ranks": 2})
        if kind == "batch_invariant":
            return replace(case, model=case.model | {"batch_invariant": True})
        return _use_ranks(of_runs, case) if kind == "ranks" else case


# -- specs that may be wrong


def paths(value, path=()):
    """Every field and element of a spec, as keys from its top."""
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, (dict, list)):
            yield from paths(child, (*path, key))


def _words(schema) -> list[str]:
    """Names and values that the schema has, of any field."""
    found = set()
    if isinstance(schema, dict):
        found |= {word for word in schema.get("enum", []) if isinstance(word, str)}
        properties = schema.get("properties", {})
        found |= set(properties) if isinstance(properties, dict) else set()
        for child in schema.values():
            found |= set(_words(child))
    elif isinstance(schema, list):
        for child in schema:
            found |= set(_words(child))
    return sorted(found)


def mutate(rng: random.Random, model: dict, schema: dict) -> dict:
    """The spec with a field changed, removed or added, which may break it.

    Fields of `parallel` stay: the reference has no ranks, and so no sizes that have to fit them.
    """
    model = copy.deepcopy(model)
    *parents, last = rng.choice([path for path in paths(model) if path[0] != "parallel" or len(path) == 1])
    target = model
    for key in parents:
        target = target[key]
    words = _words(schema)
    value = rng.choice([0, 1, 2, 3, -1, 5, 16, 1.5, 1e-50, 1e39, 2**31, "x", None, True, False, [], {},
                        *(2**bits + extra for bits in (10, 16, 20, 24) for extra in (0, 1)),
                        *rng.sample(words, 8)])
    action = rng.random()
    if action < 0.2:
        del target[last]
    elif action < 0.35 and isinstance(target, dict):
        target[rng.choice(words)] = value
    elif action < 0.6 and type(target[last]) is int:
        target[last] += rng.choice([-1, 1, 7, -target[last], target[last]])
    else:
        target[last] = value
    return model
