# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec as an experts implementation of Transformers (docs/python.md).

    import moec.transformers

    moec.transformers.register()
    model.set_experts_implementation("moec")

Each experts module gets a layer that reads the module's own parameters, compiled with its first call.
What has no form in a spec is refused by name. There is no backward pass.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
import types
import warnings
import weakref
from typing import Any, Optional

try:
    import torch
except ImportError as error:
    raise ImportError(
        "moec.transformers needs PyTorch; install it, as with pip install torch transformers"
    ) from error

from . import Error, InvalidArgument, InvalidType
from .gates import find_gated, find_ungated
from .layer_pool import DTYPES, PooledLayer, make_key, stamp

__all__ = ["register", "replace", "transpose_weights"]

#: Tokens of one run of a layer; a call with more is several.
_DEFAULT_TOKENS = 8192
_SCALES = {torch.float32: "f32", getattr(torch, "float8_e8m0fnu", None): "e8m0"}
_max_tokens = _DEFAULT_TOKENS

#: The experts of modules, and by the numbers that name them in graphs.
_of_module: weakref.WeakKeyDictionary[torch.nn.Module, _Experts] = weakref.WeakKeyDictionary()
_of_number: weakref.WeakValueDictionary[int, _Experts] = weakref.WeakValueDictionary()
_lock = threading.RLock()
_numbers = itertools.count(1)


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
        if hasattr(module, f"{parameter}_scale_inv"):
            found.append(_Weight(f"{parameter}_scale_inv", f"{weight}_scale"))
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


def _describe_quantization(
    module: torch.nn.Module, shapes: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """`quantization` of a spec, {} where the weights are not quantized."""
    scale = shapes.get("experts.w13_scale")
    if scale is None:
        return {}
    first = shapes["experts.w13"]
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
    num_experts, rows, hidden = first.shape
    width = rows // 2 if getattr(module, "has_gate", True) else rows
    if second.shape != (num_experts, hidden, width):
        raise _refuse(
            module, f"down_proj: shape {[num_experts, hidden, width]} expected beside the first "
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

    def _view(self, parameters: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        """The parameters as a layer has them: [E, rows, columns], still without copies."""
        module, found = self._get_module(), {}
        for weight, parameter in zip(self.weights, parameters):
            if type(parameter) not in (torch.Tensor, torch.nn.Parameter):
                raise _refuse(
                    module, f"{weight.parameter} is a {type(parameter).__name__}, no plain tensor"
                )
            plain = parameter.detach()
            found[weight.weight] = plain.transpose(1, 2) if weight.is_transposed else plain
        return found

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
        weights = self._view(parameters)
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
            bound[name] = weight
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


def _call(module, hidden_states, topk_ids, topk_weights, weight_on_input):
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


def forward(
    module: torch.nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """The experts of a module, as Transformers calls an implementation.

    hidden_states: [T, H]. top_k_index, top_k_weights: [T, k], ids of local experts and their weights.
        An id that is not 0 <= id < num_experts is another rank's and contributes nothing.

    Returns [T, H] of the dtype of hidden_states. Raises InvalidArgument for a module that has no form
    in a spec, and where a gradient is wanted."""
    return _call(module, hidden_states, top_k_index, top_k_weights, False)


# What is called.


def register(name: str = "moec", *, max_tokens: int = _DEFAULT_TOKENS) -> None:
    """Makes moec an experts implementation of Transformers, for weights of 16 and 32 bits and of
    float8: `model.set_experts_implementation("moec")`, or `experts_implementation="moec"` of
    from_pretrained().

    max_tokens: of one run of a layer, which the workspace on a GPU is for; calls with more tokens are
        several runs. It counts for modules that are called for the first time after this."""
    global _max_tokens
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int):
        raise InvalidType(f"max_tokens: an int expected, {type(max_tokens).__name__} found")
    if max_tokens < 1:
        raise InvalidArgument(f"max_tokens: {max_tokens} found, at least 1 expected")
    try:
        from transformers.integrations.finegrained_fp8 import FP8ExpertsInterface
        from transformers.integrations.moe import ExpertsInterface
    except ImportError as error:
        raise ImportError(
            "moec.transformers needs Transformers 5.23 or newer, with registries of experts; "
            f"install it, as with pip install -U transformers ({error})"
        ) from error
    _max_tokens = max_tokens
    ExpertsInterface.register(name, forward)
    FP8ExpertsInterface.register(name, forward)


def transpose_weights(model: torch.nn.Module) -> int:
    """Lays the expert weights that a model has as [E, columns, rows] out as layers read them, so that
    they need not be copied: each parameter keeps shape and values and gets other strides. Call it
    after replace(). Returns the bytes that were laid out anew, one parameter after the other."""
    moved = 0
    for module in model.modules():
        if not getattr(module, "is_transposed", False):
            continue
        for parameter in (getattr(module, name, None) for name in
                          ("gate_up_proj", "up_proj", "down_proj")):
            if parameter is not None and not parameter.data.mT.is_contiguous():
                parameter.data = parameter.data.mT.contiguous().mT
                moved += parameter.nbytes
    return moved


# Blocks that pass no registry.


def _find_class(module: str, name: str) -> type:
    """A class of Transformers', where its module was imported; else one that nothing is of."""
    return getattr(sys.modules.get(f"transformers.models.{module}"), name, type(None))


def _forward_llama4(self: torch.nn.Module, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Llama4TextMoe.forward: the chosen expert alone gets a token, times its score."""
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    scores, logits = self.router(hidden_states)
    weights, ids = torch.topk(scores, 1, dim=-1)
    output = self.shared_expert(hidden_states)
    return output + _call(self.experts, hidden_states, ids, weights, True), logits


def replace(model: torch.nn.Module) -> int:
    """Replaces the forward of blocks that pass none of Transformers' registries: those of Llama 4.
    Returns how many there were. `del block.forward` takes it back.

    Raises InvalidArgument for a block that chooses several experts for a token."""
    blocks = [
        module for module in model.modules()
        if isinstance(module, _find_class("llama4.modeling_llama4", "Llama4TextMoe"))
    ]
    for block in blocks:
        if block.top_k != 1:
            raise InvalidArgument(
                f"model: {type(block).__name__}: top_k is {block.top_k}, and with weights on the "
                "input it has to be 1; leave its forward as it is"
            )
    for block in blocks:
        experts = block.experts
        experts.is_transposed = True
        experts._apply_gate = types.MethodType(_gate_llama4, experts)
        block.forward = types.MethodType(_forward_llama4, block)
    return len(blocks)


def _gate_llama4(self: torch.nn.Module, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return up * self.act_fn(gate)
