# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The threads of many CTAs at once, one NumPy lane each.

Divergent lanes run block by block, lowest address first. Asynchronous copies
land as late as the waits allow, shared memory starts as NaN, and each access is
checked to lie in memory that exists; barriers and warps that never complete are
errors. What is not modelled: races, fences and timing.
"""

from __future__ import annotations

import numpy as np

from .memory import Operations
from .program import CTA_SYNC, WARP_SYNC, Program

WARP = 32
#: Lanes that run together.
BATCH_LANES = 4096
GUARD = 256


class SimulationError(Exception):
    """What a GPU would answer with an error, a hang or nonsense."""


class Machine:
    """Global memory and a program."""

    def __init__(self, program: Program, heap_bytes: int = 1 << 26):
        self.program = program
        self.heap = np.full(heap_bytes, 0xFF, np.uint8)
        self.exists = np.zeros(heap_bytes, bool)
        self.top = GUARD
        self.symbols: dict[str, int] = {}
        for variable in program.globals:
            address = self.allocate(variable.size)
            self.symbols[variable.name] = address
            values = np.array(variable.values, np.int64).astype(f"<i{variable.item}")
            raw = values.view(np.uint8)
            self.heap[address : address + variable.size] = 0
            self.heap[address : address + len(raw)] = raw
        offset = 0
        dynamic = []
        for variable in program.shared:
            if variable.size == 0:
                dynamic.append(variable.name)
                continue
            offset = -(-offset // variable.alignment) * variable.alignment
            self.symbols[variable.name] = offset
            offset += variable.size
        self.static_shared = -(-offset // 128) * 128
        for name in dynamic:
            self.symbols[name] = self.static_shared

    def allocate(self, size: int) -> int:
        """Bytes with a guard behind them; the address is a multiple of 256."""
        address = self.top
        self.top = -(-(address + size + GUARD) // GUARD) * GUARD
        if self.top > len(self.heap):
            raise MemoryError("the simulated memory is full")
        self.exists[address : address + size] = True
        return address

    def write(self, address: int, data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        self.heap[address : address + raw.size] = raw

    def read(self, address: int, dtype, shape) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.heap[address : address + size].view(dtype).reshape(shape).copy()

    def launch(self, name: str, grid: int, arguments: list[int], shared: int = 0) -> None:
        kernel = self.program.kernels[name]
        batch = max(1, BATCH_LANES // kernel.threads)
        for first in range(0, grid, batch):
            ctas = range(first, min(first + batch, grid))
            _Launch(self, kernel, ctas, arguments, self.static_shared + shared).run()


class _Launch(Operations):
    """Some CTAs of a kernel."""

    def __init__(self, machine, kernel, ctas, arguments, shared_bytes):
        self.machine, self.kernel, self.arguments = machine, kernel, arguments
        self.lanes = len(ctas) * kernel.threads
        lane = np.arange(self.lanes)
        self.cta = lane // kernel.threads
        self.warp = lane // WARP
        self.special = {
            "%tid.x": (lane % kernel.threads).astype(np.uint32),
            "%ctaid.x": (self.cta + ctas[0]).astype(np.uint32),
            "%laneid": (lane % WARP).astype(np.uint32),
        }
        self.shared_bytes = shared_bytes
        self.shared = np.full(len(ctas) * shared_bytes + 16, 0xFF, np.uint8)
        self.registers: dict[str, np.ndarray] = {}
        self.pc = np.zeros(self.lanes, np.int64)
        self.done = np.zeros(self.lanes, bool)
        self.waits = np.zeros(self.lanes, bool)
        self.commits = np.zeros(self.lanes, np.int64)
        self.copies: list[tuple] = []

    def run(self) -> None:
        with np.errstate(all="ignore"):
            while not self.done.all():
                self._run_block()

    def _run_block(self) -> None:
        ready = ~self.done & ~self.waits
        if not ready.any():
            stuck = {self.kernel.instructions[pc].line for pc in self.pc[~self.done]}
            raise SimulationError(f"@{self.kernel.name} hangs at: {sorted(stuck)}")
        pc = int(self.pc[ready].min())
        active = ready & (self.pc == pc)
        instructions, leaders = self.kernel.instructions, self.kernel.leaders
        opcode = instructions[pc].opcode
        if opcode.startswith((*CTA_SYNC, *WARP_SYNC)):
            active = self._arrive(pc, opcode)
            if not active.any():
                return
        while True:
            instruction = instructions[pc]
            mask = active
            if instruction.predicate:
                flag = self.registers[instruction.predicate]
                mask = active & (~flag if instruction.negated else flag)
            pc += 1
            if instruction.opcode.startswith("bra"):
                self.pc[active] = pc
                self.pc[mask] = self.kernel.labels[instruction.operands[0]]
                return
            if instruction.opcode.startswith("ret"):
                self.done |= mask
                self.pc[active] = pc
                return
            if mask.any():
                try:
                    self.execute(instruction, mask)
                except (AssertionError, KeyError) as error:
                    raise SimulationError(
                        f"@{self.kernel.name}: {instruction.line}: {error!r}"
                    ) from error
            if pc in leaders:
                self.pc[active] = pc
                return

    def _arrive(self, pc: int, opcode: str) -> np.ndarray:
        """The lanes whose CTA or warp is complete at `pc`; the others wait."""
        here = ~self.done & (self.pc == pc)
        groups = self.cta if opcode.startswith(CTA_SYNC) else self.warp
        size = groups[-1] + 1
        arrived = np.bincount(groups[here], minlength=size)
        alive = np.bincount(groups[~self.done], minlength=size)
        complete = (arrived == alive)[groups]
        self.waits[here] = True
        self.waits[here & complete] = False
        return here & complete
