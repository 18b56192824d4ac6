# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiled parts that exchange rows over a communicator, and the order in which they run."""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import torch

from .. import InvalidArgument, Layer
from ..compiler import compile_text
from ..functions.sublayers import declare
from ..layer_pool import check_device
from .input_quantization import InputQuantization, write_quantize

_ELEMENTS = {
    torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float8_e4m3fn: "f8E4M3FN",
    torch.int8: "i8", torch.int32: "i32",
}


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with a row per token as a matrix of a type that parts move; any other type as its bytes."""
    rows = tensor.contiguous().view(tensor.shape[0], math.prod(tensor.shape[1:]))
    if rows.dtype in _ELEMENTS:
        return rows
    return rows.view(torch.int8)


def write_dispatch(
    rows: Mapping[str, torch.Tensor], quantization: Optional[InputQuantization], ranks: int, num_experts: int,
    max_tokens: int, destinations: Optional[str],
) -> str:
    """Returns the part that gathers rows, each under its name with "all_" ahead.

    quantization: of "hidden_states"; "scale" is gathered along.
    destinations: the name of the ids whose experts decide which ranks need hidden_states; None: all do."""
    types = {name: f"tensor<?x{each.shape[1]}x{_ELEMENTS[each.dtype]}>" for name, each in rows.items()}
    arguments = [declare(name, type) for name, type in types.items()]
    moved, body = {f"%{name}": type for name, type in types.items()}, ""
    results = {f"all_{name}": type for name, type in types.items()}
    routed = 1
    if quantization is not None:
        hidden = rows["hidden_states"]
        body = write_quantize(quantization, hidden.shape[1], hidden.dtype)
        del moved["%hidden_states"], results["all_hidden_states"]
        made = {"quantized": f"tensor<?x{hidden.shape[1]}x{quantization.element}>"}
        if quantization.columns:
            made["scale"] = f"tensor<?x{quantization.columns}xf32>"
        else:
            arguments.append(declare("tensor_scale", "tensor<1xf32>"))
        routed = len(made)
        moved = {f"%{name}": type for name, type in made.items()} | moved
        results = {f"all_{name}": type for name, type in made.items()} | results
    choice = ""
    if destinations is not None:
        table = f"tensor<{num_experts}xi32>"
        arguments.append(f'%owners: {table} {{moe.name = "owners", moe.role = "weight"}}')
        choice = (f" destinations(%owners : {table}) ids(%{destinations} : {types[destinations]}) "
                  f"routed {list(range(routed))}")
    given, types_of = ", ".join(moved), ", ".join(moved.values())
    values = ", ".join(f"%all#{number}" for number in range(len(moved)))
    named = ", ".join(f'{type} {{moe.name = "{name}"}}' for name, type in results.items())
    return (
        f"func.func @prepare({', '.join(arguments)}) -> ({named}) attributes "
        f"{{moe.mesh = #moe.mesh<dp = {ranks}, num_experts = {num_experts}>, moe.max_tokens = {ranks * max_tokens} : "
        f"i64}} {{\n{body}"
        f"  %all:{len(moved)} = moe.dispatch <dp> {given}{choice} : {types_of} -> {types_of}\n"
        f"  return {values} : {types_of}\n}}\n"
    )


def write_combine(
    hidden: int, dtype: torch.dtype, ranks: int, num_experts: int, max_tokens: int, top_k: Optional[int]
) -> str:
    """Returns the part that adds the "partial" of all ranks to "output".

    top_k: columns of "ids" and "all_ids", if rows come from the ranks of their experts alone."""
    matrix, table, ids = f"tensor<?x{hidden}x{_ELEMENTS[dtype]}>", f"tensor<{num_experts}xi32>", f"tensor<?x{top_k}xi32>"
    arguments = [f'%partial: {matrix} {{moe.name = "partial", moe.role = "input", moe.rows = "all", '
                 'moe.partial = ["dp"]}']
    choice = ""
    if top_k is not None:
        arguments += [declare("ids", ids),
                      f'%all_ids: {ids} {{moe.name = "all_ids", moe.role = "input", moe.rows = "all"}}',
                      f'%owners: {table} {{moe.name = "owners", moe.role = "weight"}}']
        choice = f" destinations(%owners : {table}) ids(%ids, %all_ids : {ids}, {ids})"
    return (
        f"func.func @finalize({', '.join(arguments)}) -> ({matrix} {{moe.name = \"output\"}}) attributes "
        f"{{moe.mesh = #moe.mesh<dp = {ranks}, num_experts = {num_experts}>, moe.max_tokens = {ranks * max_tokens} : "
        f"i64}} {{\n  %output = moe.combine <dp> %partial{choice} : {matrix}\n  return %output : {matrix}\n}}\n"
    )


class Pending:
    """An exchange that has started. hook() waits for it, receive() returns its result, once."""

    def __init__(self, wait: Callable[[], None], result: Callable[[], Any]) -> None:
        self._wait: Optional[Callable[[], None]] = wait
        self._result: Optional[Callable[[], Any]] = result

    def hook(self) -> None:
        """Waits until the rows are there; on a GPU the current stream waits. Raises the exception of the exchange."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait()

    def receive(self) -> Any:
        """Returns the result, after hook() if that was not called. Raises InvalidArgument for a second call."""
        if self._result is None:
            raise InvalidArgument("receiver: called twice; start another exchange for another result")
        result, self._result = self._result, None
        self.hook()
        return result()


class Exchange:
    """The parts that run over one communicator, one after the other in the order of start(). All ranks start the same
    ones in the same order."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        self.ranks, tp = communicator.mesh
        if tp != 1:
            raise InvalidArgument(
                f"communicator: ranks with tokens of their own expected, a mesh of dp {self.ranks} x tp {tp} found; "
                f"connect dp = {self.ranks * tp} ranks")
        self._parts: dict[tuple[str, str], Layer] = {}
        #: Runs parts on the CPU, where a run waits for the other ranks.
        self._worker: Optional[concurrent.futures.ThreadPoolExecutor] = None
        self._streams: dict[torch.device, Any] = {}
        #: Exchanges on the CPU that nobody has waited for.
        self._waiting: list[concurrent.futures.Future[None]] = []

    def _find_part(self, text: str, device: str, owners: Optional[torch.Tensor]) -> Layer:
        """Returns the part, compiled for a device. Ranks meet for a new one."""
        part = self._parts.get((text, device))
        if part is None:
            part = compile_text("part.mlir", text, device=device)
            part.use_communicator(self.communicator)
            self._parts[text, device] = part
        if owners is not None:
            part.bind({"owners": owners})
        return part

    def start(
        self, text: str, owners: Optional[torch.Tensor], rows: int, tensors: Mapping[str, torch.Tensor],
        result: Callable[[], Any],
    ) -> Pending:
        """Starts a part on `rows` rows of each rank.

        owners: the weight of that name, if the part has it.

        Raises the exception of an earlier exchange that was not received."""
        for future in [each for each in self._waiting if each.done()]:
            self._waiting.remove(future)
            future.result()
        given = {name: _as_bytes(each) for name, each in tensors.items()}
        device = next(iter(tensors.values())).device
        name = check_device(device, "a1")
        if device.type == "cuda":
            return self._start_on_stream(self._find_part(text, name, owners), rows, given, result, device)
        if self._worker is None:
            self._worker = concurrent.futures.ThreadPoolExecutor(1, "moec-exchange")
        future = self._worker.submit(lambda: self._find_part(text, name, owners).run(rows, given))
        self._waiting.append(future)

        def wait() -> None:
            if future in self._waiting:
                self._waiting.remove(future)
            future.result()

        return Pending(wait, result)

    def _start_on_stream(
        self, part: Layer, rows: int, tensors: Mapping[str, torch.Tensor], result: Callable[[], Any],
        device: torch.device,
    ) -> Pending:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        for each in tensors.values():
            each.record_stream(stream)
        part.run(rows, dict(tensors), stream.cuda_stream)
        done = torch.cuda.Event()
        done.record(stream)
        return Pending(lambda: torch.cuda.current_stream(device).wait_event(done), result)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


def pad_rows(tensor: torch.Tensor, rows: int, value: int = 0) -> torch.Tensor:
    """Returns a tensor with `rows` rows, the last of which have this value."""
    missing = rows - tensor.shape[0]
    if not missing:
        return tensor
    if tensor.dtype == torch.float8_e4m3fn:
        return pad_rows(tensor.view(torch.uint8), rows).view(tensor.dtype)
    return torch.cat([tensor, tensor.new_full((missing, *tensor.shape[1:]), value)])


def names(tensors: Sequence[Any], stem: str) -> list[str]:
    """Returns a name for each tensor."""
    return [f"{stem}{number}" for number in range(len(tensors))]
