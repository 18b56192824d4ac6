# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers of PyTorch code that brings its own weights: compiled once for each description, cloned for
other weights, and run in one workspace per stream.

A layer here has the entry "ids" or "logits". What is the same for all that run experts of modules, of functions and
of engines is in this file: when weights have to be bound anew, in which memory a layer runs, and how a call
with more tokens than a layer takes becomes several.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Mapping
from typing import Any, Optional

import torch
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import InvalidArgument, Layer, TensorInfo, compile

#: dtypes of layers.
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
#: dtypes of PyTorch's for what layers prepare. Other elements are bytes.
_PREPARED = {**{name: dtype for dtype, name in DTYPES.items()}, "i8": torch.int8, "i32": torch.int32}
#: Elements that layers take as bytes.
_BYTES = tuple(
    getattr(torch, name) for name in ("float8_e4m3fn", "float8_e8m0fnu") if hasattr(torch, name)
)

#: Layers in use, by device and spec: another one for the same is a clone.
_layers: dict[tuple[str, str], weakref.WeakSet[Layer]] = {}
#: Workspaces by device and stream, which layers share whose calls follow each other there.
_workspaces: dict[tuple[str, int], torch.Tensor] = {}
_lock = threading.RLock()


def is_traced() -> bool:
    """Whether somebody wants to see an operator: a compiler, a tracer, a mode of PyTorch's dispatcher."""
    return torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch.jit.is_tracing()


def stamp(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What is another one when the tensor has other memory or was written to."""
    version = 0 if tensor.is_inference() else tensor._version
    return *where(tensor), version


def as_bytes(weight: torch.Tensor) -> torch.Tensor:
    """A weight as a layer takes it: float8 as bytes."""
    return weight.view(torch.uint8) if weight.dtype in _BYTES else weight


def where(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What is another one when the tensor has other memory."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def allocate(info: TensorInfo, device: torch.device) -> torch.Tensor:
    """Memory of PyTorch's for what a layer prepares."""
    dtype = _PREPARED.get(info.dtype, torch.uint8)
    made = torch.empty(info.shape, dtype=dtype, device=device)
    if made.data_ptr() % info.alignment == 0:
        return made
    # Only memory of the CPU is aligned to less.
    longer = torch.empty(made.numel() + info.alignment // dtype.itemsize, dtype=dtype, device=device)
    begin = -longer.data_ptr() % info.alignment // dtype.itemsize
    return longer[begin:begin + made.numel()].view(info.shape)


def make_key(device: str, spec: Mapping[str, Any]) -> tuple[str, str]:
    """What is the same for layers that share what is compiled."""
    return device, json.dumps(spec)


class LayerInWorkspace:
    """A layer that runs in the workspace of the stream that calls it, on a GPU. The caller sees to it
    that threads come one at a time."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._workspace: Optional[torch.Tensor] = None

    def use_workspace(self, memory: torch.Tensor) -> None:
        """Runs in this memory (bytes, on a GPU) from the next call on."""
        held = self._workspace
        if held is None or held.data_ptr() != memory.data_ptr() or held.numel() < memory.numel():
            self.layer.use_workspace(memory)
            self._workspace = memory

    def share_workspace(self, device: torch.device) -> None:
        """Runs in the memory of the current stream from the next call on."""
        key = (str(device), torch.cuda.current_stream(device).cuda_stream)
        shared = _workspaces.get(key)
        if shared is not None and shared is self._workspace:
            return
        size = self.layer.workspace_bytes(self.layer.max_tokens)
        if shared is None or shared.numel() < size:
            shared = _workspaces[key] = torch.empty(
                max(size, 1), dtype=torch.uint8, device=device
            )
        self.use_workspace(shared)


class PooledLayer(LayerInWorkspace):
    """A layer on a device, with weights that are bound when they are there.

    spec: as docs/layers.md has it. device: "cpu", "cuda:N".
    """

    def __init__(self, device: str, spec: Mapping[str, Any]) -> None:
        self.key = make_key(device, spec)
        #: What was prepared from the weights, by name: memory of PyTorch's.
        self.memory: dict[str, torch.Tensor] = {}
        self._bound: Optional[dict[str, Any]] = None
        with _lock:
            super().__init__(self._make(spec))

    def _make(self, spec: Mapping[str, Any]) -> Layer:
        for layer in _layers.get(self.key, ()):
            return layer.clone()
        return compile(dict(spec), device=self.key[0])

    def bind(
        self, weights: Mapping[str, torch.Tensor], memory: Optional[Mapping[str, torch.Tensor]] = None
    ) -> None:
        """Binds weights, whose memory stays the caller's.

        memory: what was prepared from other weights of a layer like this one, to be written over. By default
            weights in other memory than before are prepared in memory that is new, so that captured graphs keep
            theirs."""
        bound = {name: where(weight) for name, weight in weights.items()}
        with _lock:
            self.layer.bind({name: as_bytes(weight) for name, weight in weights.items()})
            if memory is not None or bound != self._bound:
                self._bound = None
                for info in self.layer.prepared_tensors:
                    self.memory.pop(info.name, None)
                    given = None if memory is None else memory.get(info.name)
                    made = allocate(info, torch.device(self.key[0])) if given is None else given
                    self.layer.bind_memory(info.name, made)
                    self.memory[info.name] = made
                self._bound = bound
            _layers.setdefault(self.key, weakref.WeakSet()).add(self.layer)

    def run(
        self,
        hidden_states: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor,
        out: torch.Tensor,
        workspace: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """call() of a layer of entry "ids"."""
        return self.call(hidden_states, {"topk_ids": topk_ids, "topk_weights": topk_weights}, out, workspace)

    def call(
        self,
        hidden_states: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        out: torch.Tensor,
        workspace: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """The layer on [T, H] for any T, in runs of its max_tokens.

        inputs: what a call brings beside hidden_states, a row or an element for each token.
        workspace: memory of the caller's in place of that of the stream."""
        if workspace is not None:
            self.use_workspace(workspace)
        elif hidden_states.is_cuda:
            self.share_workspace(hidden_states.device)
        tokens, most = hidden_states.shape[0], self.layer.max_tokens
        if 0 < tokens <= most:
            return self.layer(hidden_states, out=out, **inputs)
        for begin in range(0, tokens, most):
            part = slice(begin, begin + most)
            given = {name: each[part] for name, each in inputs.items()}
            self.layer(hidden_states[part], out=out[part], **given)
        return out


def check_device(device: torch.device, what: str) -> str:
    """The name of a device that layers run on. Raises InvalidArgument for any other."""
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(
            f"{what}: a device of type {device.type} is not supported; \"cpu\" and \"cuda\" are"
        )
    return str(device)
