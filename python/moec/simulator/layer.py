# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled layer, from its IR at level tile and its PTX, launch by launch."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .machine import Machine
from .program import Program

#: Elements between the rows of a strided weight.
GAP = 128

DTYPES = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i32": np.dtype(np.int32),
}


@dataclass
class Tensor:
    name: str
    role: str
    rows: str | None
    shape: list[str]
    dtype: np.dtype
    #: Bound with gaps between its rows; launches get the strides too.
    strided: bool


@dataclass
class KernelInfo:
    grid: str
    threads: int
    shared: int


def _evaluate(expression: str, tokens: int) -> int:
    names = {
        "tokens": tokens,
        "ceildiv": lambda x, y: -(-x // y),
        "min": min,
        "max": max,
    }
    return int(eval(expression, {"__builtins__": {}}, names))


class SimulatedLayer:
    """`tile` is what `moe-compile --emit=tile` prints for a GPU, `ptx` what
    `--emit=ptx` does."""

    def __init__(self, tile: str, ptx: str):
        self.program = Program(ptx)
        self.tensors: dict[str, Tensor] = {}
        self.kernels: dict[str, KernelInfo] = {}
        self.launches: list[tuple[str, list[str]]] = []
        for line in tile.splitlines():
            self._read_line(line)

    def _read_line(self, line: str) -> None:
        declared = re.match(
            r'\s*(%[\w.$-]+) = plan\.(?:tensor (\w+)|(buffer)) "([^"]+)"(.*) : memref<(.*)>', line
        )
        if declared:
            value, role, buffer, name, rest, memref = declared.groups()
            rows = re.search(r'rows <"([^"]+)">', rest)
            memref, *layout = memref.split(", ")
            *shape, element = memref.split("x")
            self.tensors[value] = Tensor(
                name, role or buffer, rows and rows[1], shape, DTYPES[element], bool(layout)
            )
        launch = re.match(r"\s*plan\.launch @(\S+).*? ins\((.*?) :.*? outs\((.*?) :", line)
        if launch:
            name, ins, outs = launch.groups()
            self.launches.append((name, [*ins.split(", "), *outs.split(", ")]))
        kernel = re.match(r"\s*tile\.kernel @([\w.$-]+)\(.*attributes \{(.*)\}", line)
        if kernel:
            name, attributes = kernel.groups()
            numbers = dict(re.findall(r"(block|shared) = (\d+)", attributes))
            self.kernels[name] = KernelInfo(
                re.search(r'grid = #plan\.expr<"([^"]+)">', attributes)[1],
                int(numbers["block"]),
                int(numbers["shared"]),
            )

    def run(self, inputs: dict[str, np.ndarray], tokens: int) -> dict[str, np.ndarray]:
        """Every buffer and output after a call."""
        shapes = {
            value: [
                _evaluate(tensor.rows, tokens) if size == "?" else int(size)
                for size in tensor.shape
            ]
            for value, tensor in self.tensors.items()
        }
        bound = {
            value: [*shape[:-1], shape[-1] + GAP] if self.tensors[value].strided else shape
            for value, shape in shapes.items()
        }
        sizes = {
            value: int(np.prod(bound[value])) * tensor.dtype.itemsize
            for value, tensor in self.tensors.items()
        }
        machine = Machine(self.program, sum(sizes.values()) + 1024 * len(sizes) + (1 << 20))
        slots = {}
        for value, tensor in self.tensors.items():
            slots[value] = [machine.allocate(sizes[value])]
            if tensor.role in ("input", "weight"):
                values = np.full(bound[value], np.nan if tensor.strided else 0, tensor.dtype)
                values[..., : shapes[value][-1]] = inputs[tensor.name].astype(tensor.dtype)
                machine.write(slots[value][0], values)
            if tensor.strided:
                slots[value] += [
                    int(np.prod(bound[value][i + 1 :])) for i in range(len(bound[value]) - 1)
                ]
        for name, values in self.launches:
            info = self.kernels[name]
            assert info.threads == self.program.kernels[name].threads
            machine.launch(
                name,
                _evaluate(info.grid, tokens),
                [*(slot for value in values for slot in slots[value]), tokens],
                info.shared,
            )
        return {
            tensor.name: machine.read(slots[value][0], tensor.dtype, shapes[value])
            for value, tensor in self.tensors.items()
            if tensor.role not in ("input", "weight")
        }
