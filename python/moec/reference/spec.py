# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The JSON spec of docs/use/layers.md as a checked dataclass."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import families
from .activations import PARAMETERS, Activation
from .fields import Fields, SpecError, read_json
from .quantization import Products, Quantization
from .quantization import parse as _parse_quantization

DTYPES = ("f32", "bf16", "f16")
ENTRIES = ("gate", "logits", "ids")
ORDERS = ("gate_up", "up_gate", "interleaved")
#: Largest widths, numbers of experts and of tokens of a layer.
MAX_WIDTH, MAX_EXPERTS, MAX_TOP_K = 1 << 20, 1 << 16, 1 << 10
MAX_REPLICAS = 1 << 10
MAX_RANK = 1 << 12
MAX_TOKENS = MAX_VOCABULARY = 1 << 24
#: The most experts that recorded or replayed ids can name.
ID_LIMITS = {"int32": 1 << 31, "int16": 1 << 15, "uint8": 1 << 8}
_NAME_LENGTH = 200
_NAME_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
)


@dataclass(frozen=True)
class Routing:
    """Routing from logits to ids and weights; all defaults are resolved."""

    score: str = "softmax"
    select: str = "top_k"
    gate_bias: bool = False
    split_gate: bool = False
    #: Width between the two gemms of a router with a tanh between them.
    gate_hidden_size: int | None = None
    selection_bias: bool = False
    expert_scale: bool = False
    num_groups: int = 1
    topk_groups: int = 1
    group_score: str = "max"
    weight: str = "score"
    renormalize: bool = False
    renormalize_epsilon: float = 0.0
    scale: float = 1.0
    nonfinite: str = "zero"
    weight_on_input: bool = False
    hash_vocab_size: int | None = None
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    logits_dtype: str = "f32"


@dataclass(frozen=True)
class SharedExperts:
    intermediate_size: int
    gate: str = "none"
    gate_bias: bool = False
    scale: float = 1.0
    activation: Activation | None = None
    quantization: Products = Products()
    columns: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Norm:
    """An RMS norm of rows of the routed experts' width."""

    epsilon: float
    offset: float = 0.0
    weight_first: bool = False


@dataclass(frozen=True)
class Lora:
    """Adapters of the routed experts."""

    adapters: int
    rank: int


@dataclass(frozen=True)
class Replicas:
    """Experts whose weights exist several times."""

    num_physical_experts: int
    max_replicas: int


@dataclass(frozen=True)
class LayerSpec:
    """One MoE layer. The constructor checks that the fields are consistent."""

    name: str
    dtype: str
    entry: str
    hidden_size: int
    num_experts: int
    top_k: int
    intermediate_size: int
    routing: Routing
    activation: Activation
    max_tokens: int = 16384
    num_valid_tokens: bool = False
    padding_mask: bool = False
    #: dtypes of recorded and of replayed ids.
    record_ids: str | None = None
    replay_ids: str | None = None
    record_load: bool = False
    batch_invariant: bool = False
    expert_capacity: int | None = None
    #: Whether a loader may round weights.
    round_weights: bool = False
    #: What a token's row of the output is: the weighted sum of its slots' rows, or these one after another.
    output: str = "sum"
    #: Whether the caller has quantized the hidden states, as the gemm with w13 does.
    quantized_input: bool = False
    num_zero_experts: int = 0
    latent_size: int | None = None
    #: By name: latent_in, expert, latent_out.
    norms: dict[str, Norm] = field(default_factory=dict)
    lora: Lora | None = None
    gate_up_order: str = "gate_up"
    expert_bias: bool = False
    output_bias: bool = False
    expert_columns: bool = False
    strided_weights: bool = False
    shared_experts: SharedExperts | None = None
    #: Quantization of the routed experts.
    quantization: Products = Products()
    local_experts: tuple[int, ...] | None = None
    replicas: Replicas | None = None
    #: Ranks sum rows of the output, in the layer's dtype.
    adds_over_ranks: bool = False
    #: The output of a rank is a summand, which the caller adds over the ranks of a group.
    is_summand: bool = False

    def __post_init__(self):
        _check(self)

    @property
    def num_routes(self) -> int:
        """R: rows of the router."""
        return self.num_experts + self.num_zero_experts

    @property
    def width(self) -> int:
        """L: width of the routed experts."""
        return self.latent_size or self.hidden_size

    @property
    def output_width(self) -> int:
        """Columns of the output."""
        return self.hidden_size * (self.top_k if self.output == "slots" else 1)

    @property
    def num_local_experts(self) -> int:
        """Number of experts whose weights are on this rank."""
        if self.replicas is not None:
            return self.replicas.num_physical_experts
        if self.local_experts is None:
            return self.num_experts
        return len(self.local_experts)

    @property
    def expert_weights(self) -> tuple[str, ...]:
        """Names of the weights of experts."""
        routed = ("experts.w13", "experts.w2")
        shared = ("shared_experts.w13", "shared_experts.w2")
        return routed if self.shared_experts is None else routed + shared

    def quantization_of(self, weight: str) -> Quantization | None:
        """Returns the quantization of the gemm with an expert weight; None if it is not quantized."""
        experts, product = weight.split(".")
        owner = self if experts == "experts" else self.shared_experts
        return getattr(owner.quantization, product)

    @property
    def quantizations(self) -> tuple[Quantization, ...]:
        """The quantizations of all quantized gemms."""
        each = map(self.quantization_of, self.expert_weights)
        return tuple(quantization for quantization in each if quantization is not None)

    def first_rows(self, intermediate_size: int) -> int:
        """Rows of w13 for an intermediate size."""
        return 2 * intermediate_size if self.activation.gated else intermediate_size

    def with_overrides(
        self,
        *,
        num_experts: int | None = None,
        entry: str | None = None,
        num_valid_tokens: bool | None = None,
    ) -> "LayerSpec":
        """Returns the spec with command-line overrides.

        Groups, top_k and the rest are kept, so that an inconsistent number of experts is an error. The entry `ids`
        drops the routing fields, since ids and weights are inputs then."""
        changes: dict[str, Any] = {}
        if num_experts is not None:
            changes["num_experts"] = num_experts
        if num_valid_tokens is not None:
            changes["num_valid_tokens"] = num_valid_tokens
        if entry is not None and entry != self.entry:
            if self.entry == "ids":
                raise SpecError(
                    "field 'entry' is 'ids': the spec does not say how to route, "
                    f"so the entry cannot become '{entry}'"
                )
            changes["entry"] = entry
            if entry == "ids":
                on_input = self.routing.weight_on_input
                changes["routing"] = Routing(weight_on_input=on_input)
                changes["record_ids"] = changes["replay_ids"] = None
            elif entry == "logits":
                # Input logits already contain the bias.
                changes["routing"] = dataclasses.replace(
                    self.routing, gate_bias=False, split_gate=False, gate_hidden_size=None
                )
            else:
                # Logits computed by a layer are f32.
                changes["routing"] = dataclasses.replace(self.routing, logits_dtype="f32")
        return dataclasses.replace(self, **changes)

    @staticmethod
    def from_file(path: str | Path) -> "LayerSpec":
        """Reads a JSON spec or a Hugging Face config.json."""
        value = read_json(path)
        try:
            return LayerSpec.from_json(value)
        except SpecError as error:
            raise SpecError(f"{path}: {error}") from None

    @staticmethod
    def from_json(value: Any) -> "LayerSpec":
        fields = Fields(value)
        if "moec_spec" in fields.given():
            return _parse_spec(fields)
        if "model_type" in fields.given():
            return _parse_spec(Fields(families.spec_of_config(value)))
        raise SpecError(
            "neither field 'moec_spec' (a spec) nor 'model_type' (a model's "
            "config.json) is there"
        )


def _parse_spec(fields: Fields) -> LayerSpec:
    if fields.integer("moec_spec") != 1:
        raise SpecError("field 'moec_spec': only version 1 is supported")
    name = fields.raw("name") if fields.has("name") else "layer"
    is_name = isinstance(name, str) and 0 < len(name) <= _NAME_LENGTH
    if not is_name or set(name) - _NAME_CHARACTERS:
        raise SpecError(
            f"field 'name': expected 1 to {_NAME_LENGTH} letters, digits, '_', '.' and '-'"
        )
    entry = fields.choice("entry", ENTRIES, "gate")
    top_k = fields.integer("top_k", required=True)
    quantization = _parse_quantization(fields)
    spec = dict(
        name=name,
        dtype=fields.choice("dtype", DTYPES, required=True),
        entry=entry,
        hidden_size=fields.integer("hidden_size", required=True),
        num_experts=fields.integer("num_experts", required=True),
        top_k=top_k,
        intermediate_size=fields.integer("intermediate_size", required=True),
        routing=_parse_routing(fields.object("routing") or Fields({}, "routing"), entry),
        activation=_require_activation(fields),
        max_tokens=fields.integer("max_tokens", 16384),
        num_valid_tokens=fields.boolean("num_valid_tokens"),
        padding_mask=fields.boolean("padding_mask"),
        record_ids=_parse_ids(fields, "record_ids"),
        replay_ids=_parse_ids(fields, "replay_ids"),
        record_load=fields.boolean("record_load"),
        batch_invariant=fields.boolean("batch_invariant"),
        round_weights=fields.boolean("round_weights"),
        expert_capacity=fields.integer("expert_capacity"),
        output=fields.choice("output", ("sum", "slots"), "sum"),
        quantized_input=fields.boolean("quantized_input"),
        num_zero_experts=fields.integer("num_zero_experts", 0, minimum=0),
        latent_size=fields.integer("latent_size"),
        norms=_parse_norms(fields.object("norms")),
        lora=_parse_lora(fields.object("lora")),
        gate_up_order=fields.choice("gate_up_order", ORDERS, "gate_up"),
        expert_bias=fields.boolean("expert_bias"),
        output_bias=fields.boolean("output_bias"),
        expert_columns=fields.boolean("expert_columns"),
        strided_weights=fields.boolean("strided_weights"),
        shared_experts=_parse_shared(fields.object("shared_experts"), quantization),
        quantization=quantization,
        local_experts=_parse_placement(fields.object("placement")),
        replicas=_parse_replicas(fields.object("replicas")),
        **_parse_parallel(fields.object("parallel")),
    )
    fields.finish()
    return LayerSpec(**spec)


def _parse_norms(fields: Fields | None) -> dict[str, Norm]:
    norms = {}
    if fields is None:
        return norms
    for name in ("latent_in", "expert", "latent_out"):
        own = fields.object(name)
        if own is not None:
            norms[name] = Norm(own.number("epsilon", 0.0), own.number("offset", 0.0), own.boolean("weight_first"))
            own.finish()
    fields.finish()
    return norms


def _parse_lora(fields: Fields | None) -> Lora | None:
    if fields is None:
        return None
    lora = Lora(fields.integer("adapters", required=True), fields.integer("rank", required=True))
    fields.finish()
    return lora


def _parse_ids(fields: Fields, field: str) -> str | None:
    if isinstance(fields.raw(field), str):
        return fields.choice(field, ID_LIMITS)
    return "int32" if fields.boolean(field) else None


def _parse_routing(fields: Fields, entry: str) -> Routing:
    if entry == "ids":
        routing = Routing(weight_on_input=fields.boolean("weight_on_input"))
        for field in fields.given() - {"weight_on_input"}:
            raise SpecError(
                f"field '{fields.name(field)}': with entry 'ids' the routing may "
                "say only weight_on_input"
            )
        return routing
    select = fields.choice(
        "select", ("top_k", "per_group", "hash", "sparsemixer"), "top_k"
    )
    score = fields.choice(
        "score", ("identity", "softmax", "sigmoid", "sqrtsoftplus"), "softmax"
    )
    weight = fields.choice("weight", ("score", "sigmoid", "softmax"), "score")
    num_groups = fields.integer("num_groups", 1)
    selection_bias = fields.boolean("selection_bias")
    if select == "sparsemixer" or num_groups > 1 or weight == "softmax":
        nonfinite = "neg_inf"
    else:
        nonfinite = "lowest" if score == "sqrtsoftplus" else "zero"
    routing = Routing(
        score=score,
        select=select,
        gate_bias=fields.boolean("gate_bias"),
        split_gate=fields.boolean("split_gate"),
        gate_hidden_size=fields.integer("gate_hidden_size"),
        selection_bias=selection_bias,
        expert_scale=fields.boolean("expert_scale"),
        num_groups=num_groups,
        topk_groups=fields.integer("topk_groups", 1),
        group_score=fields.choice(
            "group_score", ("max", "top2_sum"), "top2_sum" if selection_bias else "max"
        ),
        weight=weight,
        renormalize=fields.boolean("renormalize"),
        renormalize_epsilon=fields.number("renormalize_epsilon", 0.0, minimum=0.0),
        scale=fields.number("scale", 1.0),
        nonfinite=fields.choice(
            "nonfinite", ("zero", "neg_inf", "lowest"), nonfinite
        ),
        weight_on_input=fields.boolean("weight_on_input"),
        logit_scale=fields.number("logit_scale", 1.0),
        logit_softcap=fields.number("logit_softcap"),
        logits_dtype=fields.choice("logits_dtype", DTYPES, "f32"),
        hash_vocab_size=fields.integer("hash_vocab_size"),
    )
    fields.finish()
    return routing


def _parse_activation(fields: Fields) -> Activation | None:
    activation = fields.object("activation")
    if activation is None:
        return None
    kind = activation.choice("kind", PARAMETERS, required=True)
    values = {
        parameter: activation.number(parameter, default)
        for parameter, default in PARAMETERS[kind].items()
    }
    activation.finish()
    return Activation(kind, **values)


def _require_activation(fields: Fields) -> Activation:
    activation = _parse_activation(fields)
    if activation is None:
        raise SpecError("field 'activation' is missing")
    return activation


def _parse_shared(fields: Fields | None, quantization: Products) -> SharedExperts | None:
    """Parses shared experts. `quantization` is that of the routed experts."""
    if fields is None:
        return None
    if "quantization" in fields.given():
        quantization = _parse_quantization(fields)
    shared = SharedExperts(
        fields.integer("intermediate_size", required=True),
        fields.choice("gate", ("none", "sigmoid", "softmax"), "none"),
        fields.boolean("gate_bias"),
        fields.number("scale", 1.0),
        _parse_activation(fields),
        quantization,
        fields.boolean("columns"),
        fields.boolean("bias"),
    )
    fields.finish()
    return shared


def _parse_placement(fields: Fields | None) -> tuple[int, ...] | None:
    if fields is None:
        return None
    if fields.integer("num_ranks", 1) != 1:
        raise SpecError("field 'placement.num_ranks': must be 1")
    local = fields.raw("local_experts") if fields.has("local_experts") else None
    fields.finish()
    if local is None:
        return None
    if not isinstance(local, list) or not local:
        raise SpecError("field 'placement.local_experts': expected a list of ids")
    if any(type(expert) is not int for expert in local):
        raise SpecError("field 'placement.local_experts': expected integers")
    return tuple(local)


def _parse_replicas(fields: Fields | None) -> Replicas | None:
    if fields is None:
        return None
    replicas = Replicas(
        fields.integer("num_physical_experts", required=True),
        fields.integer("max_replicas", required=True),
    )
    fields.finish()
    return replicas


def _parse_parallel(fields: Fields | None) -> dict[str, bool]:
    """Whether ranks sum rows, which does not change the result for one rank's tokens, and whether the caller does."""
    if fields is None:
        return {}
    ranks = fields.integer("dp", 1) * fields.integer("pcp", 1) * fields.integer("tp", 1)
    sp = fields.boolean("sp", False)
    reduce = fields.boolean("reduce", True)
    experts = fields.raw("experts") if fields.has("experts") else "linear"
    fields.finish()
    if not isinstance(experts, list) and experts not in ("linear", "round_robin"):
        raise SpecError("field 'parallel.experts': expected \"linear\", \"round_robin\" or lists of ids")
    _require(reduce or not sp, "field 'parallel.reduce': false does not go with 'parallel.sp'")
    return {"adds_over_ranks": ranks > 1, "is_summand": not reduce}


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise SpecError(message)


def _check_limits(spec: LayerSpec) -> None:
    shared, routing = spec.shared_experts, spec.routing
    for field, value, most in (
        ("hidden_size", spec.hidden_size, MAX_WIDTH),
        ("intermediate_size", spec.intermediate_size, MAX_WIDTH),
        ("latent_size", spec.latent_size, MAX_WIDTH),
        ("shared_experts.intermediate_size", shared and shared.intermediate_size, MAX_WIDTH),
        ("num_experts", spec.num_experts, MAX_EXPERTS),
        ("num_zero_experts", spec.num_zero_experts, MAX_EXPERTS),
        ("routing.num_groups", routing.num_groups, MAX_EXPERTS),
        ("routing.topk_groups", routing.topk_groups, MAX_EXPERTS),
        ("top_k", spec.top_k, MAX_TOP_K),
        ("max_tokens", spec.max_tokens, MAX_TOKENS),
        ("routing.hash_vocab_size", routing.hash_vocab_size, MAX_VOCABULARY),
        ("lora.adapters", spec.lora and spec.lora.adapters, MAX_EXPERTS),
        ("lora.rank", spec.lora and spec.lora.rank, MAX_RANK),
    ):
        _require(value is None or value <= most, f"field '{field}' is {value}: at most {most}")


def _check_ids(spec: LayerSpec) -> None:
    """Refuses ids that cannot be recorded or replayed."""
    select = spec.routing.select
    for field in ("record_ids", "replay_ids"):
        dtype = getattr(spec, field)
        if dtype is None:
            continue
        _require(spec.entry != "ids", f"field '{field}': with entry 'ids' the caller already has them")
        most = ID_LIMITS[dtype]
        # Slots without an expert are recorded as 255.
        if field == "record_ids" and dtype == "uint8":
            most -= spec.num_valid_tokens or spec.padding_mask or select == "hash"
        _require(
            spec.num_routes <= most,
            f"field '{field}': {dtype} can name {most} experts, and there are {spec.num_routes}",
        )
    _require(
        spec.record_ids is None or spec.replay_ids is None,
        "field 'record_ids': with 'replay_ids' the caller already has them",
    )
    _require(
        spec.replay_ids is None or select not in ("hash", "sparsemixer"),
        f"field 'replay_ids': not with select '{select}'",
    )


def _check_parameters(activation: Activation, field: str) -> None:
    _require(
        activation.limit is None or activation.limit > 0,
        f"field '{field}.limit': must be above 0",
    )
    _require(
        activation.kind != "situ" or activation.beta != 0,
        f"field '{field}.beta': situ divides by it",
    )



def _check(spec: LayerSpec) -> None:
    """Refuses sizes beyond the limits, and contradictory fields."""
    _check_limits(spec)
    for name, norm in spec.norms.items():
        _require(norm.epsilon > 0, f"field 'norms.{name}.epsilon': must be above 0")
        _require(name == "expert" or spec.latent_size is not None, f"field 'norms.{name}': needs 'latent_size'")
    routes, k, routing = spec.num_routes, spec.top_k, spec.routing
    softcap = spec.routing.logit_softcap
    _require(
        softcap is None or (softcap > 0 and spec.routing.select != "sparsemixer"),
        "field 'routing.logit_softcap': must be above 0, and not with sparsemixer",
    )
    logit_scale = spec.routing.logit_scale
    _require(
        logit_scale > 0 and (logit_scale == 1 or spec.routing.select != "sparsemixer"),
        "field 'routing.logit_scale': must be above 0, and not with sparsemixer",
    )
    shared = spec.shared_experts and spec.shared_experts.activation
    _require(
        shared is None or shared.gated == spec.activation.gated,
        "field 'shared_experts.activation': must have a gate like 'activation' has",
    )
    _require(spec.entry in ENTRIES, f"field 'entry' is {spec.entry!r}")
    _require(spec.num_experts > 0, "field 'num_experts': must be positive")
    _require(
        k <= routes,
        f"field 'top_k' is {k}: there are {routes} experts to choose from",
    )
    if spec.local_experts is not None:
        local = spec.local_experts
        _require(
            len(set(local)) == len(local)
            and all(0 <= expert < spec.num_experts for expert in local),
            "field 'placement.local_experts': expected distinct ids below "
            f"{spec.num_experts}",
        )
    _check_ids(spec)
    if spec.replicas is not None:
        _check_replicas(spec, spec.replicas)
    _require(
        k == 1 or not routing.weight_on_input,
        f"field 'routing.weight_on_input' needs top_k 1, not {k}",
    )
    for field, has in (
        ("shared_experts", spec.shared_experts is not None),
        ("latent_size", spec.latent_size is not None),
        ("num_zero_experts", spec.num_zero_experts > 0),
        ("routing.weight_on_input", routing.weight_on_input),
    ):
        _require(spec.output == "sum" or not has, f"field 'output': 'slots' does not go with '{field}'")
    if spec.quantized_input:
        _check_quantized_input(spec)
    activation = spec.activation
    _check_parameters(activation, "activation")
    if spec.shared_experts and spec.shared_experts.activation:
        _check_parameters(spec.shared_experts.activation, "shared_experts.activation")
    _require(
        activation.gated or spec.gate_up_order == "gate_up",
        f"field 'gate_up_order': {activation.kind} has no gate",
    )
    _require(
        not routing.gate_bias or spec.entry == "gate",
        "field 'routing.gate_bias' needs entry 'gate'",
    )
    _require(
        not routing.split_gate or (spec.entry == "gate" and spec.dtype != "f32" and not routing.gate_bias),
        "field 'routing.split_gate' needs entry 'gate', dtype 'bf16' or 'f16', and no gate_bias",
    )
    _require(
        routing.gate_hidden_size is None or (spec.entry == "gate" and not routing.split_gate),
        "field 'routing.gate_hidden_size' needs entry 'gate', and no split_gate",
    )
    if spec.output_bias:
        for field, has in (
            ("shared_experts", spec.shared_experts is not None),
            ("latent_size", spec.latent_size is not None),
            ("output", spec.output != "sum"),
            ("padding_mask", spec.padding_mask),
            ("parallel", spec.adds_over_ranks),
        ):
            _require(not has, f"field 'output_bias' does not go with '{field}'")
    for field, has in (("latent_size", spec.latent_size is not None), ("num_zero_experts", spec.num_zero_experts > 0)):
        _require(not (spec.is_summand and has), f"field 'parallel.reduce': false does not go with '{field}'")
    if shared := spec.shared_experts:
        _require(shared.gate != "none" or not shared.gate_bias, "field 'shared_experts.gate_bias' needs a gate")
        _require(
            shared.gate != "softmax" or not routing.weight_on_input,
            "field 'shared_experts.gate': 'softmax' does not go with 'routing.weight_on_input'",
        )
    _require(
        routing.logits_dtype == "f32" or spec.entry == "logits",
        "field 'routing.logits_dtype' needs entry 'logits'",
    )
    _require(
        routing.weight != "softmax" or routing.score != "softmax",
        "field 'routing.weight': a softmax of a softmax",
    )
    _require(
        routing.renormalize or routing.renormalize_epsilon == 0.0,
        "field 'routing.renormalize_epsilon' needs renormalize",
    )
    _check_weights(spec)
    _check_selection(spec)


def _check_quantized_input(spec: LayerSpec) -> None:
    first = spec.quantization.w13
    for reason, holds in (
        ("needs entry 'ids'", spec.entry == "ids"),
        ("needs a quantization of w13 with activations", first is not None and first.activation is not None),
        ("does not go with 'shared_experts'", spec.shared_experts is None),
        ("does not go with 'latent_size'", spec.latent_size is None),
        ("does not go with 'num_zero_experts'", spec.num_zero_experts == 0),
        ("does not go with 'expert_columns'", not spec.expert_columns),
        ("does not go with 'routing.weight_on_input'", not spec.routing.weight_on_input),
        ("does not go with 'lora'", spec.lora is None),
    ):
        _require(holds, f"field 'quantized_input': {reason}")


def _check_replicas(spec: LayerSpec, replicas: Replicas) -> None:
    physical, experts = replicas.num_physical_experts, spec.num_experts
    _require(
        experts <= physical <= MAX_EXPERTS,
        f"field 'replicas.num_physical_experts' is {physical}: expected {experts} to {MAX_EXPERTS}",
    )
    most = min(physical - experts + 1, MAX_REPLICAS)
    _require(
        replicas.max_replicas <= most,
        f"field 'replicas.max_replicas' is {replicas.max_replicas}: at most {most}",
    )
    _require(
        spec.local_experts is None, "field 'placement.local_experts' does not go with 'replicas'"
    )


def _check_weights(spec: LayerSpec) -> None:
    """Checks that groups of weights, and pairs of elements in a byte, fill a row."""
    shared = spec.shared_experts
    rows = {
        "experts.w13": ("latent_size" if spec.latent_size else "hidden_size", spec.width),
        "experts.w2": ("intermediate_size", spec.intermediate_size),
        "shared_experts.w13": ("hidden_size", spec.hidden_size),
        "shared_experts.w2": (
            "shared_experts.intermediate_size", shared and shared.intermediate_size,
        ),
    }
    for name in spec.expert_weights:
        quantization = spec.quantization_of(name)
        if quantization is None:
            continue
        weight, (size_name, size) = quantization.weight, rows[name]
        unit = weight.columns if weight.granularity == "group" else 1
        unit = math.lcm(unit, 2 if weight.in_pairs else 1)
        _require(
            size % unit == 0,
            f"field '{size_name}' is {size}: the weights need a multiple of {unit}",
        )


def _check_selection(spec: LayerSpec) -> None:
    routes, k, routing = spec.num_routes, spec.top_k, spec.routing
    groups, select = routing.num_groups, routing.select
    _require(
        (routing.hash_vocab_size is not None) == (select == "hash"),
        "field 'routing.hash_vocab_size' goes with select 'hash', and only with it",
    )
    if select in ("hash", "sparsemixer"):
        _require(groups == 1, f"field 'routing.num_groups': select '{select}' has none")
        _require(
            not routing.selection_bias,
            f"field 'routing.selection_bias': select '{select}' takes none",
        )
    if select == "sparsemixer":
        _require(k == 2, f"field 'top_k' is {k}: sparsemixer needs 2")
        _require(
            routing.score == "identity",
            "field 'routing.score': sparsemixer needs 'identity'",
        )
        _require(
            routing.weight == "score" and routing.nonfinite == "neg_inf",
            "field 'routing.weight' and 'routing.nonfinite': sparsemixer defines its own",
        )
    _require(
        routes % groups == 0,
        f"field 'routing.num_groups' is {groups}: it must divide the {routes} experts",
    )
    size = routes // groups
    if select == "per_group":
        _require(
            k % groups == 0,
            f"field 'top_k' is {k}: per_group needs a multiple of {groups} groups",
        )
        _require(
            routing.topk_groups == 1,
            "field 'routing.topk_groups': per_group takes every group",
        )
    elif select == "top_k":
        kept = routing.topk_groups
        _require(
            kept <= groups,
            f"field 'routing.topk_groups' is {kept}: there are {groups} groups",
        )
        _require(
            k <= kept * size,
            f"field 'top_k' is {k}: {kept} groups hold {kept * size} experts",
        )
        _require(
            groups == 1 or size > 1 or routing.group_score == "max",
            "field 'routing.group_score': top2_sum needs groups of two experts",
        )
