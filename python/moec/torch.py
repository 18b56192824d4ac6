# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers as PyTorch operators and as a module.

    import moec, moec.torch

    block = moec.torch.MoE(moec.compile("config.json", device="cuda:0").bind(weights))
    output = block(hidden_states)                     # or torch.compile(block, fullgraph=True)

The operators are `torch.ops.moec.forward`, which allocates its result, and `torch.ops.moec.forward_out`, which writes
it into its first argument:

    torch.ops.moec.forward(hidden_states, number, router_logits, topk_ids, topk_weights)

with further inputs of the layer, in the layer's order or by name. Since graphs hold no objects, a layer is identified
by the number that register() returns. Numbers are unique across processes: a program exported by another process gets
its layers with attach(). The operators have fake implementations, so that torch.compile, torch.export and CUDA graphs
accept them. There is no backward pass: an input that requires a gradient, in grad mode, is refused."""

from __future__ import annotations

import hashlib
import json
import secrets
import weakref
from collections.abc import Iterator
from typing import Any, Optional

try:
    import torch
except ImportError as error:
    raise ImportError("moec.torch needs PyTorch; install it, as with pip install torch") from error

from . import InvalidArgument, InvalidType, Layer, _core
from .layer import one_run
from .layer_pool import is_traced

__all__ = ["MoE", "attach", "register", "unregister"]

#: Also read by the kernels of _core.
_layers: dict[int, Layer] = {}
#: Numbers of layers that were unregistered.
_unregistered: set[int] = set()
#: A number consists of 16 bits of the layer's digest above random bits.
_CHANCE_BITS = 46

#: The inputs of a call after hidden_states, in the order of the operators.
_OTHERS = (*_core.POSITIONAL_INPUTS[1:], *_core.KEYWORD_INPUTS)
_NUM_POSITIONAL = len(_core.POSITIONAL_INPUTS) - 1
_ARGUMENTS = ", ".join(("Tensor hidden_states, int layer", *(f"Tensor? {name}=None" for name in _OTHERS)))
_library = torch.library.Library("moec", "DEF")
_library.define(f"forward({_ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.define(
    f"forward_out(Tensor(a!) out, {_ARGUMENTS}) -> ()", tags=(torch.Tag.pt2_compliant_tag,)
)


def _digest(layer: Layer) -> int:
    """Returns 16 bits of a digest of the layer's computation and of its weights' names and shapes."""
    spec = {key: value for key, value in layer.spec.items() if key not in ("name", "max_tokens")}
    weights = [(info.name, info.dtype, info.shape) for info in layer.tensors if info.role == "weight"]
    text = json.dumps([spec, sorted(weights)], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")


def _check_layer(layer: Any) -> None:
    if not isinstance(layer, Layer):
        raise InvalidType(f"layer: a moec.Layer expected, {type(layer).__name__} found")
    if not layer.output_is_like_input:
        raise InvalidArgument(
            "layer: its output is not like hidden_states, and an operator makes one that is; call the layer itself, "
            "with out")


def register(layer: Layer) -> int:
    """Returns the number that identifies the layer in the operators until unregister(). It is random, so that a program
    of another process never finds a wrong layer here."""
    _check_layer(layer)
    number = _digest(layer) << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)
    _layers[number] = layer
    return number


def unregister(number: int) -> None:
    """Removes the layer with that number. Graphs that use it raise InvalidArgument from then on."""
    if _layers.pop(number, None) is not None:
        _unregistered.add(number)


def _list_numbers(program: torch.nn.Module) -> Iterator[int]:
    """Yields the numbers of layers in the graphs of a program, in call order."""
    for module in program.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is torch.ops.moec.forward.default:
                yield node.args[1] if len(node.args) > 1 else node.kwargs["layer"]
            elif node.target is torch.ops.moec.forward_out.default:
                yield node.args[2] if len(node.args) > 2 else node.kwargs["layer"]


def attach(program: Any, *layers: Layer) -> list[int]:
    """Gives an exported program of another process its layers, since their weights are not part of it. Call it after
    torch.export.load().

    program: a torch.export.ExportedProgram, or a module with graphs.
    layers: the layers of the program, in the order of their first calls; each must have the same description as when
        the program was exported.

    Returns their numbers, for unregister(). Raises InvalidArgument, before anything is registered, if a layer is
    missing or has another description."""
    graphs = getattr(program, "graph_module", program)
    if not isinstance(graphs, torch.nn.Module):
        raise InvalidType(
            f"program: an exported program or a module expected, {type(program).__name__} found"
        )
    numbers = list(dict.fromkeys(_list_numbers(graphs)))
    if len(numbers) != len(layers):
        raise InvalidArgument(f"layers: the program calls {len(numbers)}, {len(layers)} found")
    for index, (number, layer) in enumerate(zip(numbers, layers)):
        _check_layer(layer)
        if number >> _CHANCE_BITS != _digest(layer):
            raise InvalidArgument(
                f"layers: layer {index} has another description than the one that was exported; give the "
                "layers in the order in which the program calls them"
            )
        if _layers.get(number, layer) is not layer:
            raise InvalidArgument(
                f"layers: layer {index} of the program is registered in this process; unregister({number}) "
                "first"
            )
    _layers.update(zip(numbers, layers))
    return numbers


def _find(number: int) -> Layer:
    layer = _layers.get(number)
    if layer is None:
        why = (
            "it was unregistered, or its MoE module is gone; keep it for as long as graphs use it"
            if number in _unregistered
            else "the program that calls it was exported in another process, and has no weights of moec's; give "
            "it the layer with moec.torch.attach(program, layer)"
        )
        raise InvalidArgument(f"layer: there is no layer with the number {number}: {why}")
    return layer


def _call(layer: Layer, hidden_states, others, **named):
    """Calls a layer. others: the inputs of _OTHERS; PyTorch's dispatcher omits trailing ones that are None."""
    for name, tensor in zip(_core.KEYWORD_INPUTS, others[_NUM_POSITIONAL:]):
        if tensor is not None:
            named[name] = tensor
    return layer(hidden_states, *others[:_NUM_POSITIONAL], **named)


def _forward(hidden_states, layer, *others):
    with one_run():
        return _call(_layers.get(layer) or _find(layer), hidden_states, others)


def _forward_out(out, hidden_states, layer, *others):
    found = _layers.get(layer) or _find(layer)
    if out is None:
        raise InvalidType("out: is missing; give a tensor, or use moec::forward")
    with one_run():
        _call(found, hidden_states, others, out=out)


def _check_fake(hidden_states, layer: int, others, **out) -> None:
    """Refuses tensors without memory that an operator would refuse with memory."""
    found = _find(layer)
    if hidden_states.dim() != 2:
        raise InvalidArgument(
            f"hidden_states: rank 2 expected, shape {list(hidden_states.shape)} found; reshape it "
            "to one row per token"
        )
    device = torch.device(found.device)
    for name, tensor in {"hidden_states": hidden_states, **dict(zip(_OTHERS, others)), **out}.items():
        if tensor is None:
            continue
        if tensor.device != device:
            raise InvalidArgument(
                f"{name}: a tensor on {found.device} expected, one on {tensor.device} "
                "found; copy it to the device of the layer"
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise InvalidArgument(
                f"{name}: requires a gradient, and a layer has no backward pass; call it under "
                "torch.no_grad(), or detach the tensor"
            )


def _forward_fake(hidden_states, layer, *others):
    _check_fake(hidden_states, layer, others)
    return torch.empty_like(hidden_states)


def _forward_out_fake(out, hidden_states, layer, *others):
    _check_fake(hidden_states, layer, others, out=out)


def _wants_gradient(a, b, c, d) -> int:
    """Returns a bit mask of the tensors that require a gradient."""
    return (
        (a is not None and a.requires_grad)
        + 2 * (b is not None and b.requires_grad)
        + 4 * (c is not None and c.requires_grad)
        + 8 * (d is not None and d.requires_grad)
    )


def _add_kernels_of_core() -> tuple[str, ...]:
    """Returns the dispatch keys for which _core registered kernels. They take libtorch tensors directly, through
    PyTorch's stable C ABI (2.9). Empty if PyTorch lacks what they need, or if exceptions lose their types on the way.
    """
    if not _core.load_torch(torch._C.__file__, _layers, _find):
        return ()
    try:
        torch.ops.moec.probe.default()
    except InvalidArgument:
        return tuple(key for key in ("CPU", "CUDA") if _core.add_torch_kernels(key))
    except Exception:
        return ()
    return ()


_library.define("probe() -> ()")
_library.define("wants_gradient(Tensor? a, Tensor? b, Tensor? c, Tensor? d) -> int")
_library.impl("wants_gradient", _wants_gradient, "CompositeExplicitAutograd")
_keys_of_core = _add_kernels_of_core()
for _key in {"CPU", "CUDA"}.difference(_keys_of_core):
    _library.impl("forward", _forward, _key)
    _library.impl("forward_out", _forward_out, _key)
for _name in ("forward", "forward_out", "wants_gradient"):
    # The layer itself refuses inputs that require a gradient; skipping autograd avoids a second check.
    _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")
torch.library.register_fake("moec::forward", _forward_fake, lib=_library)
torch.library.register_fake("moec::forward_out", _forward_out_fake, lib=_library)
_op = torch.ops.moec.forward.default
#: Whether a layer accepts tensors without a Python object for each, which is faster than an operator.
_is_direct = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


class MoE(torch.nn.Module):
    """A layer as a module. It has no parameters; the layer holds the weights.

    On a GPU the layer's workspace, for max_tokens tokens, is allocated by PyTorch. Layers whose calls do not overlap
    may share one: pass that of another module as `workspace`.

    forward() takes the inputs of the layer (moec.Layer) and hidden_states of any rank with a last dimension of H, and
    returns a tensor of the same shape. Call it once before capturing it in a CUDA graph, since the first call prepares
    the weights. The graph keeps weights and workspace alive."""

    def __init__(self, layer: Layer, *, workspace: Optional[torch.Tensor] = None) -> None:
        super().__init__()
        self.number = register(layer)
        self.layer = layer
        weakref.finalize(self, unregister, self.number)
        self.workspace = workspace
        if workspace is None and layer.device != "cpu":
            size = layer.workspace_bytes(layer.max_tokens)
            self.workspace = torch.empty(size, dtype=torch.uint8, device=layer.device)
        if self.workspace is not None:
            layer.use_workspace(self.workspace)

    def forward(
        self,
        hidden_states: torch.Tensor,
        router_logits: Optional[torch.Tensor] = None,
        topk_ids: Optional[torch.Tensor] = None,
        topk_weights: Optional[torch.Tensor] = None,
        num_valid_tokens: Optional[torch.Tensor] = None,
        input_ids: Optional[torch.Tensor] = None,
        is_padding: Optional[torch.Tensor] = None,
        hidden_states_scale: Optional[torch.Tensor] = None,
        adapter_ids: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Runs the layer on the current stream, with the arguments of moec.Layer; leading dimensions of hidden_states
        are kept."""
        rows = hidden_states
        if rows.dim() != 2:
            rows = rows.reshape(-1, rows.shape[-1])
        others = (
            router_logits, topk_ids, topk_weights, num_valid_tokens, input_ids, is_padding, hidden_states_scale,
            adapter_ids)
        # Outside of tracing, call the layer without the operator, whose dispatch takes longer than the call.
        if _is_direct and type(rows) is torch.Tensor and not is_traced():
            output = _call(self.layer, rows, others)
        else:
            output = _op(rows, self.number, *others)
        return output if rows is hidden_states else output.view(hidden_states.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> MoE:
        """Returns a module of a clone of the layer, with the same weights and its own workspace."""
        copied = type(self)(self.layer.clone())
        memo[id(self)] = copied
        return copied.train(self.training)

    def extra_repr(self) -> str:
        """Returns the layer's repr, which PyTorch prints for the module."""
        return repr(self.layer)
