# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers for PyTorch code that passes its own weights.

Such a layer is compiled once per description, cloned for other weights, and run in one workspace per stream. Its entry
is "ids" or "logits". The file contains the common code for experts of modules, functions and engines: when weights must
be bound again, the memory that a layer runs in, and the split of calls with more tokens than max_tokens."""

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
#: PyTorch dtypes of prepared tensors. Other element types are stored as bytes.
_PREPARED = {**{name: dtype for dtype, name in DTYPES.items()}, "i8": torch.int8, "i32": torch.int32}
#: dtypes that layers take as bytes.
_BYTES = tuple(
    getattr(torch, name) for name in ("float8_e4m3fn", "float8_e8m0fnu") if hasattr(torch, name)
)

#: Layers in use, by device and spec; another layer with the same key is a clone.
_layers: dict[tuple[str, str], weakref.WeakSet[Layer]] = {}
#: Workspaces by device and stream, shared by layers whose calls are ordered by the stream.
_workspaces: dict[tuple[str, int], torch.Tensor] = {}
_lock = threading.RLock()

#: The treatment of calls in CUDA graphs by MOEC_VERIFY (Layer.verify). Engines' plugins set it, since engines capture.
verify_in_graphs = "refuse"


def is_traced() -> bool:
    """Returns whether a compiler, a tracer or a mode of PyTorch's dispatcher has to see operators."""
    return torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch.jit.is_tracing()


def stamp(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns a value that changes when the tensor is written to or its memory is replaced."""
    version = 0 if tensor.is_inference() else tensor._version
    return *where(tensor), version


def as_bytes(weight: torch.Tensor) -> torch.Tensor:
    """Returns a weight as a layer takes it, float8 as bytes."""
    return weight.view(torch.uint8) if weight.dtype in _BYTES else weight


def where(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Returns a value that changes when the tensor's memory is replaced."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def allocate(info: TensorInfo, device: torch.device) -> torch.Tensor:
    """Allocates PyTorch memory for a prepared tensor."""
    dtype = _PREPARED.get(info.dtype, torch.uint8)
    made = torch.empty(info.shape, dtype=dtype, device=device)
    if made.data_ptr() % info.alignment == 0:
        return made
    # Only CPU memory may be aligned to less.
    longer = torch.empty(made.numel() + info.alignment // dtype.itemsize, dtype=dtype, device=device)
    begin = -longer.data_ptr() % info.alignment // dtype.itemsize
    return longer[begin:begin + made.numel()].view(info.shape)


def make_key(device: str, spec: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the key of layers that share compiled code."""
    return device, json.dumps(spec)


class LayerInWorkspace:
    """A layer that runs in the workspace of the calling stream, on a GPU. The caller must serialize threads."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._workspace: Optional[torch.Tensor] = None

    def use_workspace(self, memory: torch.Tensor) -> None:
        """Uses this memory (bytes, on a GPU) from the next call on."""
        held = self._workspace
        if held is None or held.data_ptr() != memory.data_ptr() or held.numel() < memory.numel():
            self.layer.use_workspace(memory)
            self._workspace = memory

    def share_workspace(self, device: torch.device) -> None:
        """Uses the workspace of the current stream from the next call on."""
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
    """A layer on a device whose weights are bound later.

    spec: as in docs/use/layers.md.
    device: "cpu", "cuda:N"."""

    def __init__(self, device: str, spec: Mapping[str, Any]) -> None:
        self.key = make_key(device, spec)
        #: Prepared weights by name, in memory of PyTorch.
        self.memory: dict[str, torch.Tensor] = {}
        self._bound: Optional[dict[str, Any]] = None
        with _lock:
            super().__init__(self._make(spec))

    def _make(self, spec: Mapping[str, Any]) -> Layer:
        for layer in _layers.get(self.key, ()):
            return layer.clone()
        made = compile(dict(spec), device=self.key[0])
        if made.verifies_runs:
            made.verify(in_graphs=verify_in_graphs)
        return made

    def bind(
        self, weights: Mapping[str, torch.Tensor], memory: Optional[Mapping[str, torch.Tensor]] = None
    ) -> None:
        """Binds weights; the memory stays the caller's.

        memory: prepared tensors of a layer with the same description, to be overwritten. By default, weights at new
            addresses are prepared in new memory, so that captured graphs keep theirs."""
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
        scale: Optional[torch.Tensor] = None,
        adapter_ids: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Runs call() of a layer of entry "ids"."""
        inputs = {"topk_ids": topk_ids, "topk_weights": topk_weights}
        if scale is not None:
            inputs["hidden_states_scale"] = scale
        if adapter_ids is not None:
            inputs["adapter_ids"] = adapter_ids
        return self.call(as_bytes(hidden_states), inputs, out, workspace)

    def call(
        self,
        hidden_states: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        out: torch.Tensor,
        workspace: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Runs the layer on [T, H] for any T, in runs of up to max_tokens.

        inputs: further inputs of a call, with one row or element per token, or one for all.
        workspace: memory of the caller instead of that of the stream."""
        if workspace is not None:
            self.use_workspace(workspace)
        elif hidden_states.is_cuda:
            self.share_workspace(hidden_states.device)
        tokens, most = hidden_states.shape[0], self.layer.max_tokens
        if 0 < tokens <= most:
            return self.layer(hidden_states, out=out, **inputs)
        for begin in range(0, tokens, most):
            part = slice(begin, begin + most)
            given = {name: each[part] if each.shape[0] == tokens else each for name, each in inputs.items()}
            self.layer(hidden_states[part], out=out[part], **given)
        return out


def check_device(device: torch.device, what: str) -> str:
    """Returns the name of a device that layers can run on. Raises InvalidArgument for any other."""
    if device.type not in ("cpu", "cuda"):
        raise InvalidArgument(
            f"{what}: a device of type {device.type} is not supported; \"cpu\" and \"cuda\" are"
        )
    return str(device)
