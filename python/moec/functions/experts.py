# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Experts with given ids, as a compiled layer of entry "ids"."""

from __future__ import annotations

import collections
import dataclasses
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Optional

import torch

from .. import InvalidArgument, TensorInfo
from ..layer_pool import DTYPES, PooledLayer, as_bytes, check_device, make_key, stamp, where
from .adapters import Adapters
from .arguments import check_count, check_integers, check_numbers, check_tensor
from .expert_maps import describe_placement, map_ids, read_ids
from .outputs import check_output
from .quantization import describe_quantization, is_same

#: Tokens per run of a layer; a larger call is split into several runs.
CHUNK_TOKENS = 16384
#: Number of weight sets for which fused_experts() and batched_experts() keep a layer.
_MOST_EXPERTS = 256

#: Spec fields of activation parameters, and engines' names for them.
_PARAMETERS = {
    "alpha": "gemm1_alpha",
    "beta": "gemm1_beta",
    "limit": "gemm1_clamp_limit",
}
#: The parameters that each kind takes.
_TAKES = {
    "silu": ("limit",),
    "gelu": ("beta",),
    "swigluoai": ("alpha", "limit"),
    "swigluoai_uninterleave": ("alpha", "beta", "limit"),
    "swiglustep": ("limit",),
    "situ": ("beta", "linear_beta"),
}
#: Fields of a quant_config with tensors that a layer binds.
_TENSORS = (
    "w1_scale", "w2_scale", "w1_zp", "w2_zp", "g1_alphas", "g2_alphas", "w1_bias", "w2_bias", "a1_scale", "a2_scale",
)
#: Supported activations.
KINDS = {
    *_TAKES, "gelu_tanh", "relu", "relu2",
    "silu_no_mul", "gelu_no_mul", "gelu_tanh_no_mul", "relu_no_mul", "relu2_no_mul",
}


def describe_activation(
    activation: Any, config: Any = None, parameters: Optional[Mapping[str, float]] = None
) -> dict[str, Any]:
    """Returns `activation` and `gate_up_order` of a spec for an activation's name or vLLM's MoEActivation.

    config: its gemm1_alpha, gemm1_beta and gemm1_clamp_limit are the parameters, if set.
    parameters: alpha, beta, limit and linear_beta; override those of config.

    Raises InvalidArgument for a kind that docs/use/layers.md lacks, and for a parameter that the kind does not take."""
    kind = getattr(activation, "value", activation)
    kind = "gelu_tanh" if kind == "gelu_pytorch_tanh" else kind
    if kind not in KINDS:
        raise InvalidArgument(
            f"activation: {kind!r} found; {', '.join(sorted(KINDS))} are accepted"
        )
    found = parameters
    if found is None:
        found = {
            field: getattr(config, name)
            for field, name in _PARAMETERS.items()
            if getattr(config, name, None) is not None
        }
    for field in found:
        if field not in _TAKES.get(kind, ()):
            raise InvalidArgument(f"activation: {kind!r} takes no {field}, {found[field]} found")
    spec: dict[str, Any] = {"activation": {"kind": kind, **found}}
    if kind == "swigluoai":
        spec["gate_up_order"] = "interleaved"
    return spec


@dataclasses.dataclass
class Held:
    """The tensors that runs read from the weights held by Experts, by their names in the layer."""

    #: Prepared weights.
    prepared: dict[str, torch.Tensor]
    #: Weights that kernels read as they were bound.
    read: dict[str, torch.Tensor]
    #: Storage addresses of the original weights.
    sources: set[int]

    def fits(self, prepared: Iterable[TensorInfo], read: Mapping[str, torch.Tensor]) -> bool:
        """Returns whether a layer that reads these tensors can use the same memory."""
        return (
            {info.name: info.shape for info in prepared} == {
                name: tuple(each.shape) for name, each in self.prepared.items()}
            and {name: _describe_memory(each) for name, each in read.items()} == {
                name: _describe_memory(each) for name, each in self.read.items()}
        )


def _describe_memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


class Experts:
    """Experts whose weights are passed to each call. The first call makes the layer; weights are bound again if a call
    passes others or if they were written to. After hold() the layer keeps its weights, whatever a call passes.

    activation, quant_config, weight_on_input, parameters: as in fused_experts().
    chunk_tokens: tokens per run of the layer.
    batch_invariant: the bits of a row depend on this row and the weights alone.
    output: "slots" for the rows of a token's experts, [T, k * H], neither weighed nor added.
    quantized_input: hidden_states are quantized as quant_config says, and calls give their scales."""

    def __init__(
        self,
        activation: Any = "silu",
        quant_config: Any = None,
        *,
        weight_on_input: bool = False,
        parameters: Optional[Mapping[str, float]] = None,
        chunk_tokens: int = CHUNK_TOKENS,
        batch_invariant: bool = False,
        output: str = "sum",
        quantized_input: bool = False,
    ) -> None:
        self.output = output
        self.quantized_input = quantized_input
        self.activation = describe_activation(activation, quant_config, parameters)
        self.quant_config = quant_config
        self.weight_on_input = weight_on_input
        self.chunk_tokens = chunk_tokens
        self.batch_invariant = batch_invariant
        #: A fixed expert map compiled into the layer instead of a map per call; ids are global then.
        self.placed: Optional[torch.Tensor] = None
        #: The adapters of the layer.
        self._adapters: Optional[Adapters] = None
        self.layer: Optional[PooledLayer] = None
        self._lock = threading.Lock()
        self._stamp: Optional[tuple[Any, ...]] = None
        #: Keeps bound memory alive, so that its addresses are not reused.
        self._sources: tuple[torch.Tensor, ...] = ()
        #: Key of the layer of held weights.
        self._held: Optional[tuple[int, torch.dtype, int]] = None

    def describe(
        self, w1: torch.Tensor, w2: torch.Tensor, hidden: int, dtype: torch.dtype, top_k: int
    ) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Returns the spec, and the weights by their names in the layer. Raises InvalidArgument."""
        if dtype not in DTYPES:
            raise InvalidArgument(f"hidden_states: {dtype} is not supported; float32, bfloat16 and "
                                  "float16 are")
        if w1.dim() != 3 or w2.dim() != 3:
            raise InvalidArgument(
                f"w1: rank 3 expected of both weights, {list(w1.shape)} and {list(w2.shape)} found"
            )
        experts, rows, columns = w1.shape
        is_gated = not self.activation["activation"]["kind"].endswith("_no_mul")
        is_halved = is_gated and "gate_up_order" not in self.activation
        width = rows // 2 if is_gated else rows
        # One element per byte, or two.
        pack = 2 if w1.dtype == torch.uint8 and columns != hidden else 1
        quantization = describe_quantization(self.quant_config, w1, w2, dtype, pack, is_halved)
        if columns * pack != hidden or tuple(w2.shape) != (experts, hidden, width // pack):
            raise InvalidArgument(
                f"w1: [{experts}, {rows}, {hidden // pack}] and w2 [{experts}, {hidden}, "
                f"{width // pack}] expected, {list(w1.shape)} and {list(w2.shape)} found"
            )
        spec = {
            "moec_spec": 1,
            "name": "experts",
            "dtype": DTYPES[dtype],
            "entry": "ids",
            "hidden_size": hidden,
            "num_experts": experts,
            "top_k": top_k,
            "intermediate_size": width,
            "max_tokens": self.chunk_tokens,
            "expert_bias": "experts.w13_bias" in quantization.tensors,
            **self.activation,
        }
        if self.batch_invariant:
            spec["batch_invariant"] = True
        if self.output != "sum":
            spec["output"] = self.output
        if self.quantized_input:
            spec["quantized_input"] = True
        if self.placed is not None:
            spec |= describe_placement(self.placed, experts)
        elif top_k > experts:
            # A token may have more choices than this rank has experts.
            spec["num_experts"] = top_k
            spec["placement"] = {"num_ranks": 1, "local_experts": list(range(experts))}
        if self.weight_on_input:
            spec["routing"] = {"weight_on_input": True}
        if quantization.spec:
            spec["quantization"] = quantization.spec
        adapted: dict[str, torch.Tensor] = {}
        if self._adapters is not None:
            spec |= self._adapters.describe(experts, hidden, width, dtype, is_gated)
            adapted = dict(self._adapters.list())
        if not (w1.is_contiguous() and w2.is_contiguous()):
            if pack == 2:
                raise InvalidArgument("w1: weights of 4 bits with gaps between rows found; pass contiguous() ones")
            spec["strided_weights"] = True
        if w1.dtype == torch.uint8:
            w1, w2 = w1.view(torch.int8), w2.view(torch.int8)
        return spec, {"experts.w13": w1, "experts.w2": w2, **quantization.tensors, **adapted}

    def hold(
        self, w1: torch.Tensor, w2: torch.Tensor, hidden: int, dtype: torch.dtype, top_k: int,
        previous: Optional[Held] = None,
    ) -> Held:
        """Makes the layer and prepares these weights for all following calls. Tensors that are not in the result are
        not read any more: w1, w2 and the tensors of quant_config may be freed, and calls may pass anything as w1 and
        w2. Those of use_adapters() are read, and are not part of the result.

        previous: the result of an earlier call. If it fits, the weights are written to its memory, which captured
            graphs read.

        Raises the exceptions of describe() and compile(); the Experts are unchanged then."""
        spec, weights = self.describe(w1, w2, hidden, dtype, top_k)
        layer = PooledLayer(check_device(w1.device, "w1"), spec)
        weights = {name: as_bytes(each.detach()) for name, each in weights.items()}
        read_by_calls = {info.name for info in layer.layer.tensors if info.read_by_calls}
        # Adapters are read where use_adapters() says, also if the weights keep the memory of earlier ones.
        read = {
            name: each for name, each in weights.items() if name in read_by_calls and not name.startswith("lora.")}
        sources = {each.untyped_storage().data_ptr() for each in read.values()}
        memory = None
        if previous is not None and previous.fits(layer.layer.prepared_tensors, read):
            memory = previous.prepared
            for name, each in read.items():
                previous.read[name].copy_(each)
            read = previous.read
        layer.bind({**weights, **read}, memory)
        if not layer.layer.verifies_runs:
            layer.layer.release_weights()
        with self._lock:
            self.layer, self._held = layer, (hidden, dtype, top_k)
            self._stamp, self._sources = None, ()
        return Held(dict(layer.memory), read, sources)

    def _prepare(
        self, w1: torch.Tensor, w2: torch.Tensor, hidden: int, dtype: torch.dtype, top_k: int
    ) -> PooledLayer:
        """Returns the layer with these weights bound."""
        if self._held is not None:
            assert self.layer is not None
            if self._held != (hidden, dtype, top_k):
                raise InvalidArgument(
                    f"hidden_states: a layer that holds its weights has one hidden size, dtype and top_k, "
                    f"{self._held} expected, {(hidden, dtype, top_k)} found")
            return self.layer
        config = self.quant_config
        scales = [] if config is None else [
            each for each in (getattr(config, name) for name in _TENSORS)
            if isinstance(each, torch.Tensor)
        ]
        scales += self._list_more()
        # Adapters are read in place: writes to them need no binding.
        places = [where(each) for _, each in self._adapters.list()] if self._adapters is not None else []
        found = (hidden, dtype, top_k, *map(stamp, (w1, w2, *scales)), *places)
        if found != self._stamp:
            spec, weights = self.describe(w1, w2, hidden, dtype, top_k)
            device = check_device(w1.device, "w1")
            # A refused weight must not leave a layer that seems to hold those of an earlier call.
            self._stamp = None
            layer = self.layer
            if layer is None or layer.key != make_key(device, spec):
                layer = PooledLayer(device, spec)
            layer.bind({name: each.detach() for name, each in weights.items()})
            self.layer = layer
            self._stamp, self._sources = found, tuple(each.detach() for each in (w1, w2, *scales))
        return self.layer

    def use_adapters(self, adapters: Optional[Adapters]) -> None:
        """Makes the following workspace_bytes() and hold() those of a layer with adapters, or of one without. After
        hold(), adapters of the same sizes may replace others."""
        with self._lock:
            self._take_adapters(adapters)

    def _take_adapters(self, adapters: Optional[Adapters]) -> None:
        if self._held is not None and adapters is not self._adapters:
            if adapters is None or self._adapters is None:
                raise InvalidArgument(
                    "adapters: a layer that holds its weights has adapters in all calls or in none; call use_adapters() "
                    "ahead of hold()")
            assert self.layer is not None
            self.layer.layer.bind(dict(adapters.list()))
        self._adapters = adapters

    def _list_more(self) -> list[torch.Tensor]:
        """Returns further tensors that are part of the layer's key."""
        return [] if self.placed is None else [self.placed]

    def workspace_bytes(
        self, tokens: int, w1: torch.Tensor, w2: torch.Tensor, hidden: int, dtype: torch.dtype,
        top_k: int,
    ) -> int:
        """Returns the workspace size in bytes, on a GPU, of a run of up to this many tokens."""
        with self._lock:
            layer = self._prepare(w1, w2, hidden, dtype, top_k).layer
            return layer.workspace_bytes(min(tokens, self.chunk_tokens))

    def run(
        self,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        expert_map: Optional[torch.Tensor] = None,
        out: Optional[torch.Tensor] = None,
        workspace: Optional[torch.Tensor] = None,
        scale: Optional[torch.Tensor] = None,
        adapters: Optional[Adapters] = None,
        adapter_ids: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Runs fused_experts() with these weights.

        workspace: uint8 memory of the caller on a GPU.
        scale: with quantized_input, f32 [T, n], or one element for all rows; None with a static scale. `out` is given
            then, in the dtype of the layer."""
        if hidden_states.dim() != 2 or topk_ids.dim() != 2 or topk_ids.shape != topk_weights.shape:
            raise InvalidArgument(
                f"topk_ids: hidden_states [T, H], topk_ids and topk_weights [T, k] expected, "
                f"{list(hidden_states.shape)}, {list(topk_ids.shape)} and "
                f"{list(topk_weights.shape)} found"
            )
        if self.weight_on_input and topk_ids.shape[1] != 1:
            raise InvalidArgument(
                f"apply_router_weight_on_input: topk_ids has {topk_ids.shape[1]} columns, and weights "
                "on the input need 1"
            )
        ids = read_ids(topk_ids) if expert_map is None else map_ids(topk_ids, expert_map)
        ids = ids.contiguous()
        if (adapters is None) != (adapter_ids is None):
            raise InvalidArgument("adapter_ids: goes together with adapters")
        if adapter_ids is not None:
            if adapter_ids.shape != ids.shape[:1]:
                raise InvalidArgument(
                    f"adapter_ids: [{ids.shape[0]}] expected, one for each token, {list(adapter_ids.shape)} found")
            adapter_ids = adapter_ids.to(torch.int32).contiguous()
        check_numbers(topk_weights, "topk_weights")
        weights = topk_weights.to(torch.float32).contiguous()
        hidden_states = hidden_states.contiguous()
        tokens, hidden = hidden_states.shape
        width = hidden * ids.shape[1] if self.output == "slots" else hidden
        if out is None or not self.quantized_input:
            check_output(out, "out", (tokens, width), hidden_states)
        if out is None:
            out = hidden_states.new_empty((tokens, width))
        target = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
        for name, weight in (("w1", w1), ("w2", w2)):
            # The layer checks its output itself; `out` is copied to afterwards.
            if target is not out and _overlap(out, weight):
                raise InvalidArgument(f"out: shares memory with {name}; give it its own memory")
        if _overlap(target, hidden_states):
            # Kernels may read input rows after they have written output rows.
            hidden_states = hidden_states.clone()
        with self._lock:
            self._take_adapters(adapters)
            layer = self._prepare(w1, w2, hidden, out.dtype, ids.shape[1])
            layer.run(hidden_states, ids, weights, target, workspace, scale, adapter_ids)
        return out if target is out else out.copy_(target)


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Returns whether the byte ranges from first to last element of both overlap."""
    begins = [first.data_ptr(), second.data_ptr()]
    ends = [
        begin + (sum((size - 1) * stride for size, stride in zip(each.shape, each.stride())) + 1) * each.itemsize
        for begin, each in zip(begins, (first, second))
    ]
    return max(begins) < min(ends) and first.numel() > 0 and second.numel() > 0


#: By weights and options, least recently used first.
_kept: collections.OrderedDict[tuple[Any, ...], Experts] = collections.OrderedDict()
_lock = threading.RLock()


def clear() -> None:
    """Drops all layers of fused_experts() and batched_experts(), and the weights that they keep alive."""
    with _lock:
        _kept.clear()


def _forget(key: tuple[Any, ...]) -> None:
    with _lock:
        _kept.pop(key, None)


class _Keys:
    """Attribute of a weight tensor that drops the experts made for it when the tensor is deleted. (A weak reference to
    the tensor would break torch.utils.swap_tensors(), which moves attributes along.)"""

    def __init__(self) -> None:
        self.keys: set[tuple[Any, ...]] = set()

    def __del__(self, is_finalizing=sys.is_finalizing, forget=_forget) -> None:
        if not is_finalizing():
            for key in self.keys:
                forget(key)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the tensor has no experts. torch.load(weights_only=True) accepts this class.
        return collections.OrderedDict, ()


def _watch(tensor: torch.Tensor, key: tuple[Any, ...]) -> None:
    found = getattr(tensor, "_moec_keys", None)
    if not isinstance(found, _Keys):
        found = tensor._moec_keys = _Keys()
    found.keys.add(key)


def _find(w1: torch.Tensor, w2: torch.Tensor, config: Any, *options: Any) -> Experts:
    """Returns the experts for these weights and options. They are dropped when the weight tensor, or the tensor that it
    is a view of, is deleted, since a layer keeps its weights' memory alive."""
    key = (w1.data_ptr(), w2.data_ptr(), w1.shape, w1.dtype, *options)
    with _lock:
        found = _kept.get(key)
        if found is None or not is_same(found.quant_config, config):
            activation, weight_on_input, parameters, chunk_tokens, _ = options
            found = Experts(
                activation,
                config,
                weight_on_input=weight_on_input,
                parameters=None if parameters is None else dict(parameters),
                chunk_tokens=chunk_tokens,
            )
            if key not in _kept:
                _watch(w1 if w1._base is None else w1._base, key)
            _kept[key] = found
            while len(_kept) > _MOST_EXPERTS:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
    return found


def _freeze(parameters: Optional[Mapping[str, float]]) -> Optional[tuple[tuple[str, float], ...]]:
    return None if parameters is None else tuple(sorted(parameters.items()))


def _check_tensors(**tensors: torch.Tensor) -> None:
    """Raises InvalidType or InvalidArgument for what is no strided tensor, or requires a gradient."""
    is_enabled = torch.is_grad_enabled()
    for name, tensor in tensors.items():
        check_tensor(tensor, name)
        if is_enabled and tensor.requires_grad:
            raise InvalidArgument(
                f"{name}: requires a gradient, and a layer has no backward pass; call it under "
                "torch.no_grad(), or detach the tensor"
            )


def fused_experts(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    activation: Any = "silu",
    apply_router_weight_on_input: bool = False,
    global_num_experts: int = -1,
    expert_map: Optional[torch.Tensor] = None,
    quant_config: Any = None,
    *,
    activation_parameters: Optional[Mapping[str, float]] = None,
    out: Optional[torch.Tensor] = None,
    chunk_tokens: int = CHUNK_TOKENS,
    adapters: Optional[Adapters] = None,
    adapter_ids: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Returns the weighted sum of the selected experts' outputs, [T, H] (docs/use/layers.md, formulas 6 to 9).

    hidden_states: [T, H], f32, bf16 or f16.
    w1: [E, N, H], gate rows first.
    w2: [E, H, I].
    topk_weights, topk_ids: [T, k]. An id that names no local expert contributes nothing.
    activation: a kind of docs/use/layers.md, or vLLM's MoEActivation.
    apply_router_weight_on_input: only for k = 1.
    global_num_experts: the length of expert_map, if there is one.
    expert_map: i32, from the ids in topk_ids to indices of w1; -1 for experts on other ranks.
    quant_config: a QuantConfig, or vLLM's FusedMoEQuantConfig.
    activation_parameters: alpha, beta, limit, linear_beta; override those of quant_config.
    out: the output tensor; may be hidden_states.
    chunk_tokens: tokens per run; a larger call is split into several runs. (With one dynamic activation scale per
        tensor, each run has its own.)
    adapters: LoRA adapters of the experts, read in place.
    adapter_ids: [T], the adapter of each token; -1 for none.

    Weights are bound without a copy. Layers of recently used sets of weights are kept while their tensors live (clear()
    drops them). Raises InvalidArgument for anything that a layer cannot express."""
    _check_tensors(hidden_states=hidden_states, topk_weights=topk_weights, topk_ids=topk_ids, w1=w1, w2=w2)
    if expert_map is not None:
        check_integers(expert_map, "expert_map", 1, hidden_states)
    chunk_tokens = check_count(chunk_tokens, "chunk_tokens")
    if expert_map is not None and global_num_experts not in (-1, expert_map.shape[0]):
        raise InvalidArgument(
            f"expert_map: {global_num_experts} entries expected, as global_num_experts says, "
            f"{expert_map.shape[0]} found"
        )
    found = _find(
        w1, w2, quant_config, activation, apply_router_weight_on_input,
        _freeze(activation_parameters), chunk_tokens, adapters is not None,
    )
    with torch.no_grad():
        return found.run(
            hidden_states, w1, w2, topk_weights, topk_ids, expert_map, out, adapters=adapters, adapter_ids=adapter_ids)


def count_to_ids(expert_num_tokens: torch.Tensor, rows: int) -> torch.Tensor:
    """Returns the expert of each row of the batched format [E, rows], -1 for rows beyond an expert's count: i32 [E *
    rows, 1]."""
    experts = torch.arange(expert_num_tokens.shape[0], device=expert_num_tokens.device)
    row = torch.arange(rows, device=expert_num_tokens.device)
    ids = torch.where(row < expert_num_tokens[:, None].to(torch.int64), experts[:, None], -1)
    return ids.to(torch.int32).view(-1, 1)


def batched_experts(
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    expert_num_tokens: torch.Tensor,
    activation: Any = "silu",
    quant_config: Any = None,
    *,
    activation_parameters: Optional[Mapping[str, float]] = None,
    out: Optional[torch.Tensor] = None,
    chunk_tokens: int = CHUNK_TOKENS,
) -> torch.Tensor:
    """Applies each expert to its own rows, without routing weights: the batched format of engines.

    hidden_states: [E, M, H]; expert e has expert_num_tokens[e] valid rows, and other rows are ignored.
    expert_num_tokens: [E], on the device.

    Other arguments are those of fused_experts(). Returns [E, M, H] with zeros in the other rows. Raises
    InvalidArgument."""
    _check_tensors(hidden_states=hidden_states, w1=w1, w2=w2)
    check_tensor(hidden_states, "hidden_states", 3)
    check_tensor(w1, "w1", 3)
    check_integers(expert_num_tokens, "expert_num_tokens", 1, hidden_states)
    chunk_tokens = check_count(chunk_tokens, "chunk_tokens")
    experts, rows, hidden = hidden_states.shape
    if experts != w1.shape[0] or expert_num_tokens.shape != (experts,):
        raise InvalidArgument(
            f"expert_num_tokens: [{w1.shape[0]}] and as many batches expected, "
            f"{list(expert_num_tokens.shape)} and {experts} found"
        )
    found = _find(
        w1, w2, quant_config, activation, False, _freeze(activation_parameters), chunk_tokens, False
    )
    with torch.no_grad():
        return run_batched(found, hidden_states, w1, w2, expert_num_tokens, out)


def run_batched(
    experts: Experts,
    hidden_states: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    expert_num_tokens: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    workspace: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Implements batched_experts() for existing Experts."""
    count, rows, hidden = hidden_states.shape
    ids = count_to_ids(expert_num_tokens, rows)
    weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device)
    check_output(out, "out", hidden_states.shape, hidden_states)
    # An output with gaps between its rows is written by a copy.
    flat = out.view(-1, hidden) if out is not None and out.is_contiguous() else None
    result = experts.run(
        hidden_states.reshape(-1, hidden), w1, w2, weights, ids, None, flat, workspace
    ).view(count, rows, hidden)
    return result if out is None or flat is not None else out.copy_(result)
