# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""moec as an experts implementation of Transformers (docs/use/python.md).

    import moec.transformers

    moec.transformers.register()
    model.set_experts_implementation("moec")

Each experts module gets a layer that reads the module's own parameters, compiled with its first call. Anything that a
spec cannot express is refused by name. There is no backward pass."""

from __future__ import annotations

import sys
import types
from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError(
        "moec.transformers needs PyTorch; install it, as with pip install torch transformers"
    ) from error

from . import InvalidArgument
from .given_values import read_int
from .module_experts import DEFAULT_TOKENS, call, lay_out, set_max_tokens

__all__ = ["register", "replace", "transpose_weights"]


def forward(
    module: torch.nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Runs the experts of a module, with the signature of a Transformers implementation.

    hidden_states: [T, H].
    top_k_index, top_k_weights: [T, k], ids of local experts and their weights. An id outside 0 <= id < num_experts
        belongs to another rank and contributes nothing.

    Returns [T, H] of the dtype of hidden_states. Raises InvalidArgument for a module that a spec cannot express, and if
    a gradient is required."""
    return call(module, hidden_states, top_k_index, top_k_weights, False)


# Public functions.


def _is_own(name: str, interface: Any) -> bool:
    """Whether Transformers has an implementation of that name. "eager" is not in its registry."""
    present = getattr(interface, "_global_mapping", {}).get(name)
    return name == "eager" or getattr(present, "__module__", "").startswith("transformers.")


def register(name: str = "moec", *, max_tokens: int = DEFAULT_TOKENS) -> None:
    """Registers moec as an experts implementation of Transformers, for 16-bit, 32-bit and float8 weights: use
    `model.set_experts_implementation("moec")`, or `experts_implementation="moec"` of from_pretrained().

    name: the implementation's name; one of Transformers' own, such as "eager", is refused.
    max_tokens: tokens per run of a layer, which determines the workspace size on a GPU; a larger call is split into
        several runs. Applies to modules whose first call comes later."""
    max_tokens = read_int("max_tokens", max_tokens)
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
    if _is_own(name, ExpertsInterface):
        raise InvalidArgument(
            f"name: {name!r} is Transformers' own implementation, which models need for training; choose another name, "
            'as in "moec"'
        )
    set_max_tokens(max_tokens)
    ExpertsInterface.register(name, forward)
    FP8ExpertsInterface.register(name, forward)


def transpose_weights(model: torch.nn.Module) -> int:
    """Changes expert weights stored as [E, columns, rows] to the memory layout of layers, so that they need not be
    copied. Each parameter keeps shape and values and gets other strides; parameters are moved one at a time. Call it
    after replace(). Returns the number of bytes moved."""
    moved = 0
    for module in model.modules():
        if not getattr(module, "is_transposed", False):
            continue
        for parameter in (getattr(module, name, None) for name in
                          ("gate_up_proj", "up_proj", "down_proj")):
            if parameter is not None:
                moved += lay_out(parameter, is_transposed=True)
    return moved


# Blocks that use no registry of implementations.

_LLAMA4 = ("models.llama4.modeling_llama4", "Llama4TextMoe")
_MXFP4 = ("integrations.mxfp4", "Mxfp4GptOssExperts")


def _is(module: Any, where: tuple[str, str]) -> bool:
    """Returns whether a module is of a Transformers class, whose Python module may not be imported."""
    found = getattr(sys.modules.get(f"transformers.{where[0]}"), where[1], None)
    return found is not None and isinstance(module, found)


def replace(model: torch.nn.Module) -> int:
    """Replaces the forward of blocks that use none of Transformers' registries: those of Llama 4, and those of gpt-oss
    with mxfp4 weights. Returns the number of replaced blocks.

    Loaded mxfp4 weights are converted from the layout of Transformers' kernels, block by block, and become parameters
    of the module (`gate_up_proj`, `gate_up_proj_scales`, ...). Transformers' own kernels cannot use them afterwards:
    save the model before, or load it again. Blocks of Llama 4 keep their weights; `del block.forward` undoes the
    replacement.

    Raises InvalidArgument, before any block is changed, for a Llama 4 block with several experts per token, and for
    mxfp4 weights that are not loaded or that Transformers has sharded over ranks."""
    blocks = list(model.modules())
    llama4 = [block for block in blocks if _is(block, _LLAMA4)]
    gpt_oss = [block for block in blocks if _is(getattr(block, "experts", None), _MXFP4)]
    for block in llama4:
        if block.top_k != 1:
            raise InvalidArgument(
                f"model: {type(block).__name__}: top_k is {block.top_k}, and with weights on the "
                "input it has to be 1; leave its forward as it is"
            )
    for block in gpt_oss:
        _check_mxfp4(block.experts)
    for block in llama4:
        experts = block.experts
        experts.is_transposed = True
        experts._apply_gate = types.MethodType(_gate_llama4, experts)
        block.forward = types.MethodType(_forward_llama4, block)
    for block in gpt_oss:
        _take_mxfp4_weights(block.experts)
        block.experts.forward = types.MethodType(forward, block.experts)
        block.forward = types.MethodType(_forward_gpt_oss, block)
    return len(llama4) + len(gpt_oss)


def _forward_llama4(self: torch.nn.Module, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Replaces Llama4TextMoe.forward: a token goes only to the chosen expert and is multiplied by its score."""
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    scores, logits = self.router(hidden_states)
    weights, ids = torch.topk(scores, 1, dim=-1)
    output = self.shared_expert(hidden_states)
    return output + call(self.experts, hidden_states, ids, weights, True), logits


def _gate_llama4(self: torch.nn.Module, gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return up * self.act_fn(gate)


# gpt-oss with mxfp4 weights.


def _forward_gpt_oss(self: torch.nn.Module, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Replaces Mxfp4GptOssMLP.forward; routes with the router's own forward instead of a kernel."""
    rows = hidden_states.reshape(-1, hidden_states.shape[-1])
    logits, scores, ids = self.router(rows)
    return self.experts(rows, ids, scores).reshape(hidden_states.shape), logits


def _gate_gpt_oss(self: torch.nn.Module, gate_up: torch.Tensor) -> torch.Tensor:
    """Computes the kernel's "swiglu" of interleaved [gate, up] values."""
    gate, up = gate_up[..., ::2], gate_up[..., 1::2]
    gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
    return gate * torch.sigmoid(self.alpha * gate) * (up + 1)


def _list_packed(experts: torch.nn.Module) -> list[tuple[str, tuple[int, int, int]]]:
    """Returns the mxfp4 weights with their shapes as bytes of two elements: [E, rows, columns / 2]."""
    count, hidden, width = experts.num_experts, experts.hidden_size, experts.intermediate_size
    return [("gate_up_proj", (count, 2 * width, hidden // 2)),
            ("down_proj", (count, hidden, width // 2))]


def _find_scale(experts: torch.nn.Module, name: str) -> Any:
    return getattr(getattr(experts, f"{name}_precision_config", None), "weight_scale", None)


def _is_taken(experts: torch.nn.Module) -> bool:
    return hasattr(experts, "gate_up_proj_scales")


def _check_mxfp4(experts: torch.nn.Module) -> None:
    kind = type(experts).__name__
    if getattr(experts, "_is_hooked", False):
        raise InvalidArgument(
            f"model: {kind}: its forward is written for tensor or expert parallelism; load the model without "
            "them, or leave its forward as it is"
        )
    if _is_taken(experts):
        return
    for name, _ in _list_packed(experts):
        if _find_scale(experts, name) is None:
            raise InvalidArgument(
                f"model: {kind}: {name} has no scales; call replace() after the weights are loaded"
            )


def _read(experts: torch.nn.Module, name: str, tensor: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """Returns bytes [E, rows, columns] from a kernel's tensor, or from a PyTorch tensor in the same order, [E, columns,
    rows]."""
    if not isinstance(tensor, torch.Tensor):
        tensor = tensor.storage.layout.unswizzle_data(tensor.storage.data)
    found = tensor.detach().mT
    if found.dtype != torch.uint8 or found.shape != shape:
        raise InvalidArgument(
            f"model: {type(experts).__name__}: {name}: bytes {list(shape)} expected, "
            f"{found.dtype} {list(found.shape)} found; use Transformers 5.23 or newer"
        )
    return found.contiguous()


def _take_mxfp4_weights(experts: torch.nn.Module) -> None:
    """Converts the weights to parameters that a layer reads, and drops the kernels' layout."""
    if _is_taken(experts):
        return
    taken = {}
    for name, shape in _list_packed(experts):
        groups = (*shape[:2], shape[2] // 16)
        taken[name] = _read(experts, name, getattr(experts, name), shape)
        taken[f"{name}_scales"] = _read(
            experts, f"{name}_scales", _find_scale(experts, name), groups
        )
    for name, value in taken.items():
        setattr(experts, name, torch.nn.Parameter(value, requires_grad=False))
    for name, _ in _list_packed(experts):
        setattr(experts, f"{name}_precision_config", None)
    experts.has_gate, experts.has_bias, experts.is_transposed = True, True, False
    experts._apply_gate = types.MethodType(_gate_gpt_oss, experts)
