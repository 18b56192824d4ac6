# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A second implementation of a layer from docs/use/layers.md, in scalar Python.

Tests compare moec.reference with it. It takes the JSON spec and nested lists, loops over everything and does not handle
near ties."""

import math
import struct


def to_f32(x):
    if math.isnan(x) or math.isinf(x):
        return x
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def to_dtype(x, dtype):
    """Rounds to nearest even in exact arithmetic: scale, round the integer, scale back."""
    if dtype == "f32":
        return to_f32(x)
    if x == 0.0 or math.isnan(x) or math.isinf(x):
        return x
    digits, smallest, largest = {"bf16": (8, -133, 2.0**128), "f16": (11, -24, 2.0**16)}[
        dtype
    ]
    exponent = max(math.frexp(x)[1] - digits, smallest)
    rounded = math.ldexp(round(math.ldexp(x, -exponent)), exponent)
    return math.copysign(math.inf, x) if abs(rounded) >= largest else rounded


def sigmoid(x):
    if math.isnan(x):
        return x
    if x < -700.0:
        return 0.0
    return 1.0 / (1.0 + math.exp(-x))


def clamp(x, low, high):
    return low if x < low else high if x > high else x


def activate(spec, g, u):
    a = spec["activation"]
    kind = a["kind"]
    base = kind.removesuffix("_no_mul")
    if base != kind:
        u = 1.0
    if base == "silu":
        if a.get("limit") is not None:
            limit = a["limit"]
            g, u = min(g, limit), clamp(u, -limit, limit)
        return g * sigmoid(g) * u
    if base == "gelu":
        return 0.5 * g * math.erfc(-g / math.sqrt(2.0)) * (u + a.get("beta", 0.0))
    if base == "gelu_tanh":
        inner = math.sqrt(2.0 / math.pi) * (g + 0.044715 * g * g * g)
        return 0.5 * g * (1.0 + math.tanh(inner)) * u
    if base == "relu":
        return (g if g > 0.0 else 0.0) * u
    if base == "relu2":
        return (g * g if g > 0.0 else 0.0) * u
    if base == "swigluoai":
        alpha, limit = a.get("alpha", 1.702), a.get("limit", 7.0)
        g, u = min(g, limit), clamp(u, -limit, limit)
        return (u + 1.0) * (g * sigmoid(alpha * g))
    if base == "swigluoai_uninterleave":
        limit = a.get("limit", math.inf)
        g, u = min(g, limit), clamp(u, -limit, limit)
        return g * sigmoid(a.get("alpha", 1.0) * g) * (u + a.get("beta", 0.0))
    if base == "swiglustep":
        limit = a.get("limit", 7.0)
        return min(g * sigmoid(g), limit) * clamp(u, -limit, limit)
    assert base == "situ"
    beta, linear = a.get("beta", 4.0), a.get("linear_beta", 25.0)
    if linear > 0:
        u = linear * math.tanh(u / linear)
    return beta * math.tanh(g / beta) * sigmoid(g) * u


def norm_row(norm, weights, x, rounded):
    factors = [norm.get("offset", 0.0) + w for w in weights]
    if norm.get("weight_first"):
        x, factors = rounded([v * f for v, f in zip(x, factors)]), [1.0] * len(x)
    root = math.sqrt(sum(v * v for v in x) / len(x) + norm["epsilon"])
    return [v / root * f for v, f in zip(x, factors)]


def score_row(kind, logits):
    if kind == "identity":
        return list(logits)
    if kind == "sigmoid":
        return [sigmoid(l) for l in logits]
    if kind == "sqrtsoftplus":
        out = []
        for l in logits:
            soft = l if l > 20.0 or math.isnan(l) else math.log1p(math.exp(l))
            out.append(math.sqrt(soft))
        return out
    if any(math.isnan(l) or l == math.inf for l in logits):
        return [math.nan] * len(logits)
    top = max(logits)
    if top == -math.inf:
        return [math.nan] * len(logits)
    e = [math.exp(l - top) for l in logits]
    return [x / sum(e) for x in e]


def best(keys, candidates, count):
    return sorted(candidates, key=lambda e: (-keys[e], e))[:count]


def nonfinite_rule(r):
    if "nonfinite" in r:
        return r["nonfinite"]
    if (
        r.get("select") == "sparsemixer"
        or r.get("num_groups", 1) > 1
        or r.get("weight") == "softmax"
    ):
        return "neg_inf"
    return "lowest" if r.get("score") == "sqrtsoftplus" else "zero"


def sparsemixer_row(logits):
    """Returns ids and weights; logits that are not finite are treated as -inf."""
    left = {e: l for e, l in enumerate(logits)}
    ids, weights = [], []
    for _ in range(2):
        top = max(left.values())
        chosen = min(e for e, l in left.items() if l == top)
        total = 0.0
        for l in left.values():
            if l == -math.inf:
                continue
            scale = max(abs(l), top)
            if scale != 0.0 and (top - l) / scale > 0.02:
                continue
            total += math.exp(l - top)
        ids.append(chosen)
        weights.append(1.0 / total if total else 0.0)
        del left[chosen]
    return ids, weights


def route_row(spec, logits, tensors, token):
    """Returns ids and weights of a token."""
    r = spec.get("routing", {})
    k = spec["top_k"]
    routes = len(logits)
    rule = nonfinite_rule(r)
    v = score_row(r.get("score", "softmax"), [l * r.get("logit_scale", 1.0) for l in logits])
    bias = tensors.get("gate.selection_bias", [0.0] * routes)
    bad, keys = [], []
    for e in range(routes):
        is_bad = not math.isfinite(to_f32(v[e]))
        if is_bad and rule == "zero":
            v[e] = 0.0
        key = to_f32(v[e] + bias[e])
        if rule != "zero" and (is_bad or not math.isfinite(key)):
            is_bad = True
            key = -math.inf if rule == "neg_inf" else -1e30
        bad.append(is_bad)
        keys.append(key)
        if is_bad:
            v[e] = 0.0

    select = r.get("select", "top_k")
    groups = r.get("num_groups", 1)
    size = routes // groups
    if select == "hash":
        word = tensors["input_ids"][token]
        table = tensors["gate.hash_table"]
        ids = list(table[word]) if 0 <= word < len(table) else [-1] * k
    elif rule == "neg_inf" and max(keys) == -math.inf:
        return list(range(k)), [1.0 / k] * k
    elif select == "per_group":
        ids = []
        for g in range(groups):
            ids += best(keys, range(g * size, (g + 1) * size), k // groups)
    else:
        candidates = list(range(routes))
        if groups > 1:
            group_score = r.get(
                "group_score", "top2_sum" if r.get("selection_bias") else "max"
            )
            group_keys = []
            for g in range(groups):
                members = sorted(keys[g * size : (g + 1) * size], reverse=True)
                count = 2 if group_score == "top2_sum" else 1
                group_keys.append(to_f32(sum(members[:count])))
            stay = best(group_keys, range(groups), r.get("topk_groups", 1))
            candidates = [e for e in candidates if e // size in stay]
        ids = best(keys, candidates, k)

    ok = [0 <= e < routes and not bad[e] for e in ids]
    values = [v[e] if 0 <= e < routes else 0.0 for e in ids]
    if select == "sparsemixer":
        ids, w = sparsemixer_row([l if math.isfinite(l) else -math.inf for l in logits])
    elif r.get("weight", "score") == "softmax":
        chosen = [x for x, o in zip(values, ok) if o]
        total = sum(math.exp(x - max(chosen)) for x in chosen)
        w = [math.exp(x - max(chosen)) / total if o else 0.0 for x, o in zip(values, ok)]
    elif r.get("weight", "score") == "sigmoid":
        w = [sigmoid(x) if o else 0.0 for x, o in zip(values, ok)]
    else:
        w = values
    if r.get("renormalize"):
        total = sum(w) + r.get("renormalize_epsilon", 0.0)
        w = [x / (total if total != 0.0 else 1.0) for x in w]
    if "gate.expert_scale" in tensors:
        scale = tensors["gate.expert_scale"]
        w = [x * scale[e] if 0 <= e < routes else x for x, e in zip(w, ids)]
    return ids, [x * r.get("scale", 1.0) for x in w]


def dot(matrix, x):
    return [sum(a * b for a, b in zip(row, x)) for row in matrix]


def adapt_row(adapter, name, x):
    """B (A x) of `adapter`: the matrices of one expert by name, or None."""
    return None if adapter is None else dot(adapter[name + "_b"], dot(adapter[name + "_a"], x))


def expert_row(spec, w13, b13, w2, b2, x, adapter=None, plain=None):
    """`plain` are the values of x in the order of the hidden states, for the adapter."""
    dtype = spec["dtype"]
    plain = x if plain is None else plain
    u = dot(w13, x)
    if b13 is not None:
        u = [a + b for a, b in zip(u, b13)]
    order = spec.get("gate_up_order", "gate_up")
    half = len(u) // 2
    if spec["activation"]["kind"].endswith("_no_mul"):
        pairs = [(g, None) for g in u]
    elif order == "gate_up":
        pairs = [(u[i], u[half + i]) for i in range(half)]
    elif order == "up_gate":
        pairs = [(u[half + i], u[i]) for i in range(half)]
    else:
        pairs = [(u[2 * i], u[2 * i + 1]) for i in range(half)]
    if adapter is not None and pairs[0][1] is None:
        pairs = [(g + d, None) for (g, _), d in zip(pairs, adapt_row(adapter, "up", plain))]
    elif adapter is not None:
        deltas = zip(adapt_row(adapter, "gate", plain), adapt_row(adapter, "up", plain))
        pairs = [(g + p, up + q) for (g, up), (p, q) in zip(pairs, deltas)]
    a = [to_dtype(activate(spec, g, up), dtype) for g, up in pairs]
    y = dot(w2, a)
    if adapter is not None:
        y = [p + q for p, q in zip(y, adapt_row(adapter, "down", a))]
    return [p + q for p, q in zip(y, b2)] if b2 is not None else y


def run(spec, tensors):
    """Returns output, ids, weights (lists of rows) and counts; tensors are lists."""
    dtype, experts = spec["dtype"], spec["num_experts"]
    routes = experts + spec.get("num_zero_experts", 0)
    local = spec.get("placement", {}).get("local_experts", list(range(experts)))
    on_input = spec.get("routing", {}).get("weight_on_input", False)
    hidden = tensors["hidden_states"]
    limit = tensors["num_valid_tokens"][0] if "num_valid_tokens" in tensors else len(hidden)
    mask = tensors.get("is_padding", [0] * len(hidden))
    physical, copies = tensors.get("replicas.physical_ids"), tensors.get("replicas.counts")
    if physical is not None:
        local = list(range(spec["replicas"]["num_physical_experts"]))
    out, all_ids, all_weights = [], [], []
    counts = [0] * len(local)
    entry = spec.get("entry", "gate")

    def rounded(row):
        return [to_dtype(x, dtype) for x in row]

    for t, h in enumerate(hidden):
        if entry == "ids":
            ids, weights = tensors["topk_ids"][t], tensors["topk_weights"][t]
        else:
            if entry == "logits":
                logits = tensors["router_logits"][t]
            else:
                rows = h
                if "gate.hidden" in tensors:
                    rows = rounded([math.tanh(v) for v in dot(tensors["gate.hidden"], h)])
                logits = dot(tensors["gate.weight"], rows)
                if "gate.bias" in tensors:
                    logits = [a + b for a, b in zip(logits, tensors["gate.bias"])]
            ids, weights = route_row(spec, logits, tensors, t)
            weights = [to_f32(w) for w in weights]
        is_left_out = t >= limit or mask[t] != 0
        all_ids.append([-1] * len(ids) if is_left_out and "is_padding" in tensors else list(ids))
        all_weights.append(list(weights))
        if is_left_out:
            out.append([0.0] * len(h))
            continue
        x = rounded(dot(tensors["latent.down"], h)) if "latent.down" in tensors else h
        norms = spec.get("norms", {})
        gate = dot(tensors.get("shared_experts.gate", []), h)
        gate = [a + b for a, b in zip(gate, tensors.get("shared_experts.gate_bias", [0.0] * len(gate)))]
        if len(gate) == 2:
            powers = [math.exp(v - max(gate)) for v in gate]
            gate = [v / sum(powers) for v in powers]
            weights = [w * gate[0] for w in weights]
        elif gate:
            gate = [sigmoid(gate[0])]
        if "latent_in" in norms:
            x = rounded(norm_row(norms["latent_in"], tensors["norms.latent_in"], x, rounded))
        r = [0.0] * len(x)
        for e, w in zip(ids, weights):
            if not 0 <= e < routes:
                continue
            is_zero = e >= experts
            if physical is not None and not is_zero:
                n = copies[e]
                e = physical[e][(t * 2654435769 & 0xFFFFFFFF) % n] if 1 <= n <= len(physical[e]) else -1
            xe = rounded([v * w for v in x]) if on_input else x
            if is_zero:
                y = [v * w for v in x]
            elif e in local:
                i = local.index(e)
                counts[i] += 1
                b13 = tensors["experts.w13_bias"][i] if "experts.w13_bias" in tensors else None
                b2 = tensors["experts.w2_bias"][i] if "experts.w2_bias" in tensors else None
                adapter, plain = None, xe
                if "lora" in spec and 0 <= tensors["adapter_ids"][t] < spec["lora"]["adapters"]:
                    own = tensors["adapter_ids"][t]
                    adapter = {
                        name.removeprefix("lora."): tensor[own][i]
                        for name, tensor in tensors.items() if name.startswith("lora.")
                    }
                if "experts.w13_columns" in tensors:
                    xe = [xe[c] for c in tensors["experts.w13_columns"][i]]
                y = expert_row(
                    spec, tensors["experts.w13"][i], b13, tensors["experts.w2"][i], b2, xe, adapter, plain
                )
                if "expert" in norms:
                    y = norm_row(norms["expert"], tensors["norms.expert"], rounded(y), rounded)
                y = rounded(y if on_input else [v * w for v in y])
            else:
                continue
            r = [a + b for a, b in zip(r, y)]
        if "latent.up" in tensors:
            r = rounded(r)
            if "latent_out" in norms:
                r = rounded(norm_row(norms["latent_out"], tensors["norms.latent_out"], r, rounded))
            r = dot(tensors["latent.up"], r)
        if "shared_experts.w13" in tensors:
            hs = h
            if "shared_experts.w13_columns" in tensors:
                hs = [h[c] for c in tensors["shared_experts.w13_columns"][0]]
            s = expert_row(
                spec, tensors["shared_experts.w13"], None, tensors["shared_experts.w2"], None, hs
            )
            if gate:
                s = [v * gate[-1] for v in s]
            r = [a + b for a, b in zip(r, rounded(s))]
        if "output_bias" in tensors:
            r = [a + b for a, b in zip(r, tensors["output_bias"])]
        out.append(rounded(r))
    return out, all_ids, all_weights, counts
