# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The experts of a module of Transformers' as a layer that reads the module's own parameters.

A module is asked what it computes, its layer is compiled with the first call and bound anew when the
parameters are others. What has no form in a spec is refused by name. There is no backward pass.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import warnings
import weakref
from typing import Any, Optional

import torch

from . import Error, InvalidArgument
from .gates import find_gated, find_ungated
from .layer_pool import DTYPES, PooledLayer, make_key, stamp

#: Tokens of one run of a layer; a call with more is several.
DEFAULT_TOKENS = 8192
_SCALES = {torch.float32: "f32", getattr(torch, "float8_e8m0fnu", None): "e8m0"}
_max_tokens = DEFAULT_TOKENS

#: The experts of modules, and by the numbers that name them in graphs.
_of_module: weakref.WeakKeyDictionary[torch.nn.Module, _Experts] = weakref.WeakKeyDictionary()
_of_number: weakref.WeakValueDictionary[int, _Experts] = weakref.WeakValueDictionary()
_lock = threading.RLock()
_numbers = itertools.count(1)


def set_max_tokens(count: int) -> None:
    """Tokens of one run of a layer, for modules that are called for the first time after this."""
    global _max_tokens
    _max_tokens = count


def _refuse(module: torch.nn.Module, what: str) -> InvalidArgument:
    return InvalidArgument(
        f"experts: {type(module).__name__}: {what}; choose another implementation for it, as with "
        'model.set_experts_implementation("grouped_mm")'
    )


# What a module is.


@dataclasses.dataclass(frozen=True)
class _Weight:
    """A parameter of a module and the weight of a layer that it is."""

    parameter: str
    weight: str
    is_transposed: bool = False


def _list_weights(module: torch.nn.Module) -> list[_Weight]:
    """The weights with those of the two products first."""
    first = "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"
    pairs = ((first, "experts.w13"), ("down_proj", "experts.w2"))
    is_transposed = getattr(module, "is_transposed", False)
    found = [_Weight(parameter, weight, is_transposed) for parameter, weight in pairs]
    for parameter, weight in pairs:
        if getattr(module, "has_bias", False):
            found.append(_Weight(f"{parameter}_bias", f"{weight}_bias"))
        for scales in (f"{parameter}_scale_inv", f"{parameter}_scales"):
            if hasattr(module, scales):
                found.append(_Weight(scales, f"{weight}_scale"))
    return found


def _describe_activation(module: torch.nn.Module, device: torch.device) -> dict[str, Any]:
    """`activation` and `gate_up_order` of a spec. Raises InvalidArgument for what has no form there."""
    has_gate = getattr(module, "has_gate", True)
    name = "_apply_gate" if has_gate else "act_fn"
    try:
        with torch.no_grad():
            if has_gate:
                found = find_gated(module, module._apply_gate, device)
            else:
                activation = find_ungated(module.act_fn, device)
                found = activation and (activation, "gate_up")
    except Error:
        raise
    except Exception as error:
        raise _refuse(module, f"{name} is not elementwise: {error}") from error
    if not found:
        function = getattr(module, "act_fn", None)
        raise _refuse(
            module,
            f"{name}, with act_fn {type(function).__name__}, is no activation of docs/layers.md",
        )
    activation, order = found
    return {"activation": activation} | ({} if order == "gate_up" else {"gate_up_order": order})


def _is_packed(weight: torch.Tensor) -> bool:
    """Whether a byte of it is two elements of a row."""
    return weight.dtype == torch.uint8


def _describe_quantization(
    module: torch.nn.Module, shapes: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """`quantization` of a spec, {} where the weights are not quantized."""
    scale = shapes.get("experts.w13_scale")
    if scale is None:
        return {}
    first = shapes["experts.w13"]
    if _is_packed(first):
        return {"quantization": "mxfp4"}
    if first.dtype != torch.float8_e4m3fn:
        raise _refuse(module, f"weights of {first.dtype} with scales are not supported")
    block = getattr(module, "block_size", None)
    if block is None or tuple(block) != (128, 128):
        raise _refuse(module, f"block_size {block} found, (128, 128) is supported")
    scheme = getattr(module, "activation_scheme", None)
    if scheme != "dynamic":
        raise _refuse(module, f'activation_scheme {scheme!r} found, "dynamic" is supported')
    if getattr(module, "has_gate", True) and first.shape[1] % 256:
        raise _refuse(
            module,
            f"gate_up_proj_scale_inv has blocks of 128 rows, and {first.shape[1] // 2} rows of the "
            "gate are no multiple",
        )
    if scale.dtype not in _SCALES:
        raise _refuse(module, f"scales of {scale.dtype} are not supported")
    return {
        "quantization": {
            "weight": {
                "dtype": "fp8_e4m3",
                "scale": {"block": [128, 128]},
                "scale_dtype": _SCALES[scale.dtype],
            },
            "activation": {"dtype": "fp8_e4m3", "scale": {"group": 128}},
        }
    }


def _describe(
    module: torch.nn.Module,
    weights: dict[str, torch.Tensor],
    hidden_states: torch.Tensor,
    top_k: int,
    weight_on_input: bool,
) -> dict[str, Any]:
    """The spec (docs/layers.md) of what a module computes.

    weights: by their names in a layer, as the layer has them."""
    if getattr(module, "has_post_expert_norm", False):
        raise _refuse(module, "has_post_expert_norm: a norm after an expert has no form in a layer")
    first, second = weights["experts.w13"], weights["experts.w2"]
    if hidden_states.dtype not in DTYPES:
        raise _refuse(module, f"hidden_states of {hidden_states.dtype} are not supported")
    num_experts, rows, columns = first.shape
    width = rows // 2 if getattr(module, "has_gate", True) else rows
    pack = 2 if _is_packed(first) else 1
    hidden = columns * pack
    if second.shape != (num_experts, hidden, width // pack):
        raise _refuse(
            module, f"down_proj: shape {[num_experts, hidden, width // pack]} expected beside the first "
            f"product's {list(first.shape)}, {list(second.shape)} found"
        )
    if getattr(module, "num_experts", num_experts) != num_experts:
        raise _refuse(
            module, f"num_experts is {module.num_experts}, and the weights have {num_experts}"
        )
    quantization = _describe_quantization(module, weights)
    for name, weight in weights.items():
        is_plain = not quantization or name.endswith("_bias")
        if is_plain and weight.dtype != hidden_states.dtype:
            raise _refuse(
                module, f"{name} is of {weight.dtype} and hidden_states of {hidden_states.dtype}; "
                "convert the model, and call it without autocast"
            )
    return {
        "moec_spec": 1,
        "name": "experts",
        "dtype": DTYPES[hidden_states.dtype],
        "entry": "ids",
        "hidden_size": hidden,
        "num_experts": num_experts,
        "top_k": top_k,
        "intermediate_size": width,
        "expert_bias": "experts.w13_bias" in weights,
        **({"routing": {"weight_on_input": True}} if weight_on_input else {}),
        **_describe_activation(module, first.device),
        **quantization,
    }


# What runs it.


class _Experts:
    """A module's layer, made with the first call and again when the module is another one."""

    def __init__(self, module: torch.nn.Module, weight_on_input: bool) -> None:
        self.module = weakref.ref(module)
        self.weights = _list_weights(module)
        self.parameters = tuple(weight.parameter for weight in self.weights)
        self.weight_on_input = weight_on_input
        self.max_tokens = _max_tokens
        self.lock = threading.Lock()
        self.number = next(_numbers)
        self.layer: Optional[PooledLayer] = None
        self.stamp: Optional[tuple[Any, ...]] = None
        #: What the stamp is of, so that no other memory gets its addresses.
        self.sources: list[torch.Tensor] = []

    def _view(
        self, parameters: list[torch.Tensor], dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """The parameters as a layer of this dtype has them: [E, rows, columns], still without copies
        of what is large."""
        module, found = self._get_module(), {}
        for weight, parameter in zip(self.weights, parameters):
            if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
                raise _refuse(
                    module, f"{weight.parameter} is a {type(parameter).__name__}, no plain tensor"
                )
            plain = parameter.detach()
            found[weight.weight] = plain.transpose(1, 2) if weight.is_transposed else plain
        if _is_packed(found["experts.w13"]):
            self._convert_biases(found, dtype)
        return found

    def _convert_biases(self, weights: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        """Biases beside packed weights are of f32, in which Transformers keeps those of 16 bits."""
        for name, bias in weights.items():
            if name.endswith("_bias") and bias.dtype != dtype:
                weights[name] = bias.to(dtype)
                if not torch.equal(weights[name].to(bias.dtype), bias):
                    raise _refuse(
                        self._get_module(), f"{name} has numbers that {dtype} of hidden_states does "
                        "not have; load the model in the dtype of its checkpoint"
                    )

    def _get_module(self) -> torch.nn.Module:
        module = self.module()
        if module is None:
            raise InvalidArgument("experts: the module is gone; keep it while graphs use it")
        return module

    def _update(
        self, hidden_states: torch.Tensor, top_k: int, parameters: list[torch.Tensor]
    ) -> None:
        """Makes the layer, where it is another one, and binds the parameters."""
        module = self._get_module()
        weights = self._view(parameters, hidden_states.dtype)
        device = weights["experts.w13"].device
        if device.type not in ("cpu", "cuda"):
            raise _refuse(module, f"a device of type {device.type} is not supported")
        spec = _describe(module, weights, hidden_states, top_k, self.weight_on_input)
        spec["max_tokens"] = self.max_tokens
        if self.layer is None or self.layer.key != make_key(str(device), spec):
            self.layer = PooledLayer(str(device), spec)
        copied, bound = 0, {}
        for name, weight in weights.items():
            if not weight.is_contiguous():
                weight = weight.contiguous()
                copied += weight.nbytes
            # Layers have pairs of elements as int8, and scales of e8m0 as uint8.
            is_pairs = _is_packed(weight) and not name.endswith("_scale")
            bound[name] = weight.view(torch.int8) if is_pairs else weight
        if copied:
            warnings.warn(
                f"moec: {type(module).__name__}: weights with transposed rows were copied, "
                f"{copied / 2**20:.1f} MiB more memory for this module; "
                "moec.transformers.transpose_weights(model) before the first call avoids it",
                stacklevel=2,
            )
        self.layer.bind(bound)
        self.sources = [each.detach() for each in parameters]

    def run(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor,
        parameters: list[torch.Tensor],
    ) -> torch.Tensor:
        hidden_states = hidden_states.contiguous()
        topk_ids, topk_weights = topk_ids.contiguous(), topk_weights.contiguous()
        out = torch.empty_like(hidden_states)
        top_k = topk_ids.shape[1]
        found = (top_k, hidden_states.dtype, *map(stamp, parameters))
        with self.lock:
            if found != self.stamp:
                with _lock:
                    self._update(hidden_states, top_k, parameters)
                self.stamp = found
            return self.layer.run(hidden_states, topk_ids, topk_weights, out)


# The operator.

_library = torch.library.Library("moec", "FRAGMENT")
_library.define(
    "experts(Tensor hidden_states, Tensor topk_ids, Tensor topk_weights, Tensor[] weights, "
    "int experts) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _run(hidden_states, topk_ids, topk_weights, weights, experts):
    found = _of_number.get(experts)
    if found is None:
        raise InvalidArgument(
            f"experts: no module has the number {experts}; keep it while graphs use it"
        )
    return found.run(hidden_states, topk_ids, topk_weights, weights)


def _run_fake(hidden_states, topk_ids, topk_weights, weights, experts):
    return torch.empty_like(hidden_states, memory_format=torch.contiguous_format)


for _key in ("CPU", "CUDA"):
    _library.impl("experts", _run, _key)
torch.library.register_fake("moec::experts", _run_fake, lib=_library)
_op = torch.ops.moec.experts.default


def _find(module: torch.nn.Module, weight_on_input: bool) -> _Experts:
    found = _of_module.get(module)
    if found is None:
        with _lock:
            found = _of_module.setdefault(module, _Experts(module, weight_on_input))
            _of_number[found.number] = found
    return found


@torch.compiler.assume_constant_result
def _find_number(module: torch.nn.Module, weight_on_input: bool) -> int:
    """A constant of graphs, which hold for one module."""
    return _find(module, weight_on_input).number


def _check_gradients(hidden_states, topk_weights, parameters) -> None:
    for name, tensor in (
        ("hidden_states", hidden_states),
        ("top_k_weights", topk_weights),
        *(("the weights", each) for each in parameters),
    ):
        if tensor.requires_grad:
            raise InvalidArgument(
                f"experts: grad mode is on and a gradient of {name} is wanted, and moec has no "
                "backward pass; call the model under torch.no_grad() or torch.inference_mode(), "
                'or train it with model.set_experts_implementation("grouped_mm")'
            )


def call(
    module: torch.nn.Module,
    hidden_states: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    weight_on_input: bool,
) -> torch.Tensor:
    """What the experts of a module make of [T, H], [T, H] of the same dtype.

    topk_ids, topk_weights: [T, k]. weight_on_input: whether an expert's input is weighed, not its
        output."""
    # Tensors with memory need no operator, whose dispatch takes longer than the layer's call.
    is_direct = not torch.compiler.is_compiling() and type(hidden_states) is torch.Tensor
    if is_direct:
        experts = _find(module, weight_on_input)
        names = experts.parameters
    else:
        names = [weight.parameter for weight in _list_weights(module)]
    parameters = [getattr(module, name) for name in names]
    if torch.is_grad_enabled():
        _check_gradients(hidden_states, topk_weights, parameters)
    topk_ids, topk_weights = topk_ids.to(torch.int32), topk_weights.to(torch.float32)
    if is_direct:
        return experts.run(hidden_states, topk_ids, topk_weights, parameters)
    number = _find_number(module, weight_on_input)
    return _op(hidden_states, topk_ids, topk_weights, parameters, number)
