# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The experts of a Transformers module as a layer that reads the module's own parameters.

The module is probed for what it computes. Its layer is compiled with the first call, and bound again when the
parameters change. Anything that a spec cannot express is refused by name. There is no backward pass.

A graph stores the result of probing as text (the description), so that another process can make the same layer from it.

The layer reads the memory of the parameters. A parameter with another memory layout gets new memory in the layer's
layout, so that later writes to the parameter take effect."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import threading
import warnings
import weakref
from collections.abc import Mapping
from typing import Any, Optional

import torch
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode

from . import Error, InvalidArgument
from .gates import find_gated, find_ungated
from .layer_pool import DTYPES, PooledLayer, is_traced, make_key, stamp

#: Tokens per run of a layer; a larger call is split into several runs.
DEFAULT_TOKENS = 8192
_SCALES = {torch.float32: "f32", getattr(torch, "float8_e8m0fnu", None): "e8m0"}
_max_tokens = DEFAULT_TOKENS

#: Experts by module, and by the number that names them in graphs.
_of_module: weakref.WeakKeyDictionary[torch.nn.Module, _Experts] = weakref.WeakKeyDictionary()
_of_number: weakref.WeakValueDictionary[int, _Experts] = weakref.WeakValueDictionary()
#: Experts of programs exported by another process, by number and description, while their first weight lives.
_of_program: dict[tuple[int, str], _Experts] = {}
_lock = threading.RLock()
_numbers = itertools.count(1)


def set_max_tokens(count: int) -> None:
    """Sets the number of tokens per run of a layer, for modules whose first call comes later."""
    global _max_tokens
    _max_tokens = count


def _refuse(kind: str, what: str) -> InvalidArgument:
    """Returns the error for an unsupported module; `kind` is its class name."""
    return InvalidArgument(
        f"experts: {kind}: {what}; choose another implementation for it, as with "
        'model.set_experts_implementation("grouped_mm")'
    )


# Probing of modules.


@dataclasses.dataclass(frozen=True)
class _Weight:
    """A parameter of a module and the weight of the layer that it becomes."""

    parameter: str
    weight: str
    is_transposed: bool = False


def _list_weights(module: torch.nn.Module) -> list[_Weight]:
    """Returns the weights; those of the two gemms come first."""
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
    """Returns `activation` and `gate_up_order` of a spec. Raises InvalidArgument if a spec cannot express them."""
    kind = type(module).__name__
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
        raise _refuse(kind, f"{name} is not elementwise: {error}") from error
    if not found:
        function = getattr(module, "act_fn", None)
        raise _refuse(
            kind,
            f"{name}, with act_fn {type(function).__name__}, is not an activation of docs/use/layers.md",
        )
    activation, order = found
    return {"activation": activation} | ({} if order == "gate_up" else {"gate_up_order": order})


def _ask(module: torch.nn.Module, weight_on_input: bool) -> str:
    """Returns the description of a module, as JSON: everything its layer needs except the tensors of a call."""
    if getattr(module, "has_post_expert_norm", False):
        raise _refuse(
            type(module).__name__,
            "has_post_expert_norm: a layer cannot have a norm after an expert",
        )
    weights = _list_weights(module)
    device = getattr(module, weights[0].parameter).device
    # The module is probed with real numbers even under torch.export, invisibly to the exported program.
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        activation = _describe_activation(
            module, device if device.type in ("cpu", "cuda") else torch.device("cpu")
        )
    description = {
        "module": type(module).__name__,
        "weights": [dataclasses.astuple(weight) for weight in weights],
        "has_gate": getattr(module, "has_gate", True),
        "num_experts": getattr(module, "num_experts", None),
        "block_size": getattr(module, "block_size", None),
        "activation_scheme": getattr(module, "activation_scheme", None),
        "weight_on_input": weight_on_input,
        "max_tokens": _max_tokens,
        **activation,
    }
    return json.dumps(description, default=str)


def _is_packed(weight: torch.Tensor) -> bool:
    """Returns whether each byte holds two elements of a row."""
    return weight.dtype == torch.uint8


def _describe_quantization(
    module: Mapping[str, Any], weights: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Returns `quantization` of a spec, or {} if the weights are not quantized."""
    kind = module["module"]
    scale = weights.get("experts.w13_scale")
    if scale is None:
        return {}
    first = weights["experts.w13"]
    if _is_packed(first):
        return {"quantization": "mxfp4"}
    if first.dtype != torch.float8_e4m3fn:
        raise _refuse(kind, f"weights of {first.dtype} with scales are not supported")
    block = module["block_size"]
    if block != [128, 128]:
        shown = tuple(block) if isinstance(block, list) else block
        raise _refuse(kind, f"block_size {shown} found, (128, 128) is supported")
    scheme = module["activation_scheme"]
    if scheme != "dynamic":
        raise _refuse(kind, f'activation_scheme {scheme!r} found, "dynamic" is supported')
    if module["has_gate"] and first.shape[1] % 256:
        raise _refuse(
            kind,
            f"gate_up_proj_scale_inv has blocks of 128 rows, and {first.shape[1] // 2} rows of the "
            "gate are no multiple",
        )
    if scale.dtype not in _SCALES:
        raise _refuse(kind, f"scales of {scale.dtype} are not supported")
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
    module: Mapping[str, Any],
    weights: dict[str, torch.Tensor],
    hidden_states: torch.Tensor,
    top_k: int,
) -> dict[str, Any]:
    """Returns the spec (docs/use/layers.md) of a module.

    module: its description.
    weights: tensors by their names in the layer, in the layer's form."""
    kind = module["module"]
    first, second = weights["experts.w13"], weights["experts.w2"]
    if hidden_states.dtype not in DTYPES:
        raise _refuse(kind, f"hidden_states of {hidden_states.dtype} are not supported")
    num_experts, rows, columns = first.shape
    width = rows // 2 if module["has_gate"] else rows
    pack = 2 if _is_packed(first) else 1
    hidden = columns * pack
    if second.shape != (num_experts, hidden, width // pack):
        raise _refuse(
            kind, f"down_proj: shape {[num_experts, hidden, width // pack]} expected beside the first "
            f"product's {list(first.shape)}, {list(second.shape)} found"
        )
    if module["num_experts"] not in (None, num_experts):
        raise _refuse(
            kind, f"num_experts is {module['num_experts']}, and the weights have {num_experts}"
        )
    quantization = _describe_quantization(module, weights)
    for name, weight in weights.items():
        is_plain = not quantization or name.endswith("_bias")
        if is_plain and weight.dtype != hidden_states.dtype:
            raise _refuse(
                kind, f"{name} is of {weight.dtype} and hidden_states of {hidden_states.dtype}; "
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
        **({"routing": {"weight_on_input": True}} if module["weight_on_input"] else {}),
        "activation": module["activation"],
        **({"gate_up_order": module["gate_up_order"]} if "gate_up_order" in module else {}),
        **quantization,
        "max_tokens": module["max_tokens"],
    }


# Memory that a module and its layer share.


def _has_own_memory(module: torch.nn.Module, name: str) -> bool:
    """Returns whether no other tensor and no NumPy array shares the memory of a parameter."""
    holders = (module._parameters, module._buffers, vars(module))
    holder = next((each for each in holders if name in each), None)
    if holder is None or type(holder[name]) not in (torch.Tensor, torch.nn.Parameter):
        return False
    storage = holder[name].untyped_storage()
    # The two references are the tensor's and `storage`.
    is_alone = torch._C._storage_Use_Count(storage._cdata) <= 2
    # A NumPy array keeps a reference to the tensor and makes its storage non-resizable. The other two references are
    # the module's and the argument's.
    return is_alone and (storage.resizable() or sys.getrefcount(holder[name]) <= 2)


def lay_out(parameter: torch.Tensor, is_transposed: bool) -> int:
    """Moves a parameter to memory in the layer's layout, if it has another layout. Shape and values do not change.
    Returns the number of bytes moved."""
    rows = parameter.data.mT if is_transposed else parameter.data
    if rows.is_contiguous():
        return 0
    # A tensor created in inference mode cannot be memory of a parameter outside of it.
    with torch.inference_mode(parameter.is_inference()):
        rows = rows.contiguous()
        parameter.data = rows.mT if is_transposed else rows
    return parameter.nbytes


# Experts of a module.


class _Experts:
    """The layer of a module, made with the first call and again when the module changes."""

    def __init__(self, description: str) -> None:
        self.lock = threading.Lock()
        self.number = next(_numbers)
        self.layer: Optional[PooledLayer] = None
        self.stamp: Optional[tuple[Any, ...]] = None
        #: Keeps the stamped memory alive, so that its addresses are not reused.
        self.sources: list[torch.Tensor] = []
        self._describe(description)

    def _describe(self, description: str) -> None:
        self.description = description
        self.module = json.loads(description)
        self.weights = [_Weight(*weight) for weight in self.module["weights"]]
        self.parameters = tuple(weight.parameter for weight in self.weights)

    def list_parameters(self, module: torch.nn.Module) -> list[torch.Tensor]:
        return [getattr(module, name) for name in self.parameters]

    def _ask_again(self, module: torch.nn.Module) -> None:
        description = _ask(module, self.module["weight_on_input"])
        if description != self.description:
            self._describe(description)

    def share_memory(self, module: torch.nn.Module, dtype: torch.dtype) -> None:
        """Moves the parameters of a module to memory that its layer reads, so that all writes take effect. Shared
        memory is not moved. No other code may use the parameters meanwhile."""
        is_packed = _is_packed(getattr(module, self.parameters[0]))
        for weight in self.weights:
            if not _has_own_memory(module, weight.parameter):
                continue
            parameter = getattr(module, weight.parameter)
            lay_out(parameter, weight.is_transposed)
            if is_packed and weight.weight.endswith("_bias") and parameter.dtype != dtype:
                with torch.inference_mode(parameter.is_inference()):
                    parameter.data = self._convert_bias(weight.weight, parameter.data, dtype)

    def _view(
        self, parameters: list[torch.Tensor], dtype: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Returns the parameters as a layer of this dtype takes them, [E, rows, columns]; large tensors are not copied.
        """
        found = {}
        for weight, parameter in zip(self.weights, parameters):
            if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
                raise _refuse(
                    self.module["module"],
                    f"{weight.parameter} is a {type(parameter).__name__}, not a plain tensor",
                )
            plain = parameter.detach()
            found[weight.weight] = plain.transpose(1, 2) if weight.is_transposed else plain
        if _is_packed(found["experts.w13"]):
            for name, bias in found.items():
                if name.endswith("_bias") and bias.dtype != dtype:
                    found[name] = self._convert_bias(name, bias, dtype)
        return found

    def _convert_bias(self, name: str, bias: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Converts a bias. Biases beside packed weights are f32; Transformers stores them in 16 bits."""
        converted = bias.to(dtype)
        if not torch.equal(converted.to(bias.dtype), bias):
            raise _refuse(
                self.module["module"], f"{name} has values that {dtype} of hidden_states does "
                "not have; load the model in the dtype of its checkpoint"
            )
        return converted

    def _update(
        self, hidden_states: torch.Tensor, top_k: int, parameters: list[torch.Tensor]
    ) -> bool:
        """Makes the layer, if it changed, and binds the parameters. Returns False if a weight was copied, so that later
        writes to the parameter have no effect."""
        weights = self._view(parameters, hidden_states.dtype)
        device = weights["experts.w13"].device
        if device.type not in ("cpu", "cuda"):
            raise _refuse(
                self.module["module"], f"a device of type {device.type} is not supported"
            )
        spec = _describe(self.module, weights, hidden_states, top_k)
        if self.layer is None or self.layer.key != make_key(str(device), spec):
            self.layer = PooledLayer(str(device), spec)
        copied, bound, is_shared = 0, {}, True
        for (name, weight), parameter in zip(weights.items(), parameters):
            if not weight.is_contiguous():
                weight = weight.contiguous()
                copied += weight.nbytes
            is_shared &= weight.data_ptr() == parameter.data_ptr()
            # Layers take pairs of elements as int8 and e8m0 scales as uint8.
            is_pairs = _is_packed(weight) and not name.endswith("_scale")
            bound[name] = weight.view(torch.int8) if is_pairs else weight
        if copied:
            warnings.warn(
                f"moec: {self.module['module']}: the memory of weights with transposed rows is shared with "
                f"other tensors, so each call copies {copied / 2**20:.1f} MiB; "
                "moec.transformers.transpose_weights(model) before the first call avoids it",
                stacklevel=2,
            )
        self.layer.bind(bound)
        self.sources = [each.detach() for each in parameters]
        return is_shared

    def run(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor,
        owner: torch.nn.Module | list[torch.Tensor],
    ) -> torch.Tensor:
        """Runs the layer. `owner` is the module, which may have changed since the last call, or the parameters in a
        graph, which has one fixed description."""
        hidden_states = hidden_states.contiguous()
        topk_ids, topk_weights = topk_ids.contiguous(), topk_weights.contiguous()
        out = torch.empty_like(hidden_states)
        top_k, dtype = topk_ids.shape[1], hidden_states.dtype
        is_module = isinstance(owner, torch.nn.Module)
        with self.lock:
            parameters = self.list_parameters(owner) if is_module else owner
            found = (top_k, dtype, *map(stamp, parameters))
            if found != self.stamp:
                # A refused weight must not leave a layer that seems to hold those of an earlier call.
                self.stamp = None
                with _lock:
                    if is_module:
                        del parameters
                        self._ask_again(owner)
                        self.share_memory(owner, dtype)
                        parameters = self.list_parameters(owner)
                        found = (top_k, dtype, *map(stamp, parameters))
                    is_shared = self._update(hidden_states, top_k, parameters)
                self.stamp = found if is_shared else None
            return self.layer.run(hidden_states, topk_ids, topk_weights, out)


# The operator.

_library = torch.library.Library("moec", "FRAGMENT")
_library.define(
    "experts(Tensor hidden_states, Tensor topk_ids, Tensor topk_weights, Tensor[] weights, "
    "int experts, str description) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _find_of_program(number: int, description: str, weights: list[torch.Tensor]) -> _Experts:
    """Returns experts made from a description, for a call whose module is in another process."""
    key = number, description
    with _lock:
        found = _of_program.get(key)
        if found is None:
            found = _of_program[key] = _Experts(description)
            weakref.finalize(weights[0], _of_program.pop, key, None)
        return found


def _run(hidden_states, topk_ids, topk_weights, weights, experts, description):
    found = _of_number.get(experts)
    # A module of another process may have had this number.
    if found is None or found.description != description:
        found = _find_of_program(experts, description, weights)
    return found.run(hidden_states, topk_ids, topk_weights, weights)


def _run_fake(hidden_states, topk_ids, topk_weights, weights, experts, description):
    return torch.empty_like(hidden_states, memory_format=torch.contiguous_format)


for _key in ("CPU", "CUDA"):
    _library.impl("experts", _run, _key)
torch.library.register_fake("moec::experts", _run_fake, lib=_library)
_op = torch.ops.moec.experts.default


def _find(module: torch.nn.Module, weight_on_input: bool) -> _Experts:
    found = _of_module.get(module)
    if found is None:
        with _lock:
            found = _of_module.get(module)
            if found is None:
                found = _of_module[module] = _Experts(_ask(module, weight_on_input))
                _of_number[found.number] = found
    return found


@torch.compiler.assume_constant_result
def _find_number(module: torch.nn.Module, weight_on_input: bool) -> int:
    """Returns the number of a module, a constant in graphs."""
    return _find(module, weight_on_input).number


@torch.compiler.assume_constant_result
def _find_description(module: torch.nn.Module, weight_on_input: bool, dtype: torch.dtype) -> str:
    """Returns the description of a module, the other constant in graphs. dtype: of the hidden states."""
    found = _find(module, weight_on_input)
    if not is_in_torch_dispatch_mode():
        with found.lock:
            found.share_memory(module, dtype)
    return found.description


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
    """Runs the experts of a module on hidden_states [T, H] and returns [T, H] of the same dtype.

    topk_ids, topk_weights: [T, k].
    weight_on_input: whether the weight multiplies an expert's input instead of its output."""
    # Real tensors need no operator, whose dispatch takes longer than the layer's call.
    if type(hidden_states) is torch.Tensor and not is_traced():
        experts = _find(module, weight_on_input)
        if torch.is_grad_enabled():
            _check_gradients(hidden_states, topk_weights, experts.list_parameters(module))
        return experts.run(
            hidden_states, topk_ids.to(torch.int32), topk_weights.to(torch.float32), module
        )
    # Before the parameters are read, since their memory may be moved.
    number = _find_number(module, weight_on_input)
    description = _find_description(module, weight_on_input, hidden_states.dtype)
    parameters = [getattr(module, weight.parameter) for weight in _list_weights(module)]
    if torch.is_grad_enabled():
        _check_gradients(hidden_states, topk_weights, parameters)
    topk_ids, topk_weights = topk_ids.to(torch.int32), topk_weights.to(torch.float32)
    return _op(hidden_states, topk_ids, topk_weights, parameters, number, description)
