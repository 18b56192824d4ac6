# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PTX as data: the subset that LLVM makes of moec's kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TYPE_BYTES = {"b8": 1, "u8": 1, "b16": 2, "b32": 4, "f32": 4, "u32": 4, "b64": 8, "u64": 8}
#: Instructions at which threads wait for each other; each begins a block.
CTA_SYNC = ("bar.sync", "barrier.sync")
WARP_SYNC = ("bar.warp.sync", "shfl.sync", "match.any.sync", "redux.sync", "ldmatrix.", "mma.")


@dataclass
class Instruction:
    opcode: str
    operands: list[str]
    predicate: str | None = None
    negated: bool = False
    line: str = ""

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass
class Variable:
    """A named piece of memory, of global or shared space."""

    name: str
    size: int
    alignment: int
    values: list[int] = field(default_factory=list)
    item: int = 1


@dataclass
class Kernel:
    name: str
    threads: int
    instructions: list[Instruction]
    labels: dict[str, int]
    #: Indices of instructions at which a block begins.
    leaders: set[int]


def split_operands(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += char in "[{("
        depth -= char in "]})"
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    return [part for part in [*parts, current.strip()] if part]


def _instruction(text: str) -> Instruction:
    match = re.match(r"^(?:@(!?)(%\w+)\s+)?([\w.:]+)\s*(.*)$", text, re.S)
    if not match:
        raise ValueError(f"not an instruction: {text}")
    negated, predicate, opcode, rest = match.groups()
    return Instruction(opcode, split_operands(rest), predicate, bool(negated), text)


def _variable(text: str) -> Variable:
    match = re.match(
        r".*\.align (\d+) \.(\w+) ([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{?(.*?)\}?)?$", text, re.S
    )
    if not match:
        raise ValueError(f"not a variable: {text}")
    alignment, kind, name, count, values = match.groups()
    item = TYPE_BYTES[kind]
    numbers = [int(value) for value in values.split(",")] if values else []
    return Variable(name, int(count or 0) * item, int(alignment), numbers, item)


class Program:
    """A PTX module."""

    def __init__(self, text: str):
        text = re.sub(r"//[^\n]*", "", text)
        self.kernels: dict[str, Kernel] = {}
        self.globals: list[Variable] = []
        self.shared: list[Variable] = []
        body = r"\.visible \.entry (\w+)\((.*?)\)(.*?)\n\{(.*?)\n\}"
        for name, _, head, code in re.findall(body, text, re.S):
            self.kernels[name] = self._kernel(name, head, code)
        outside = re.sub(body, "", text, flags=re.S)
        for statement in outside.split(";"):
            self._declare(statement.strip())

    def _declare(self, statement: str) -> None:
        start = re.search(r"^\s*\.(extern |visible )?\.?(shared|global|const)", statement, re.M)
        if ".align" not in statement or not start:
            return
        variable = _variable(statement[start.start():].strip())
        (self.shared if ".shared" in statement else self.globals).append(variable)

    def _kernel(self, name: str, head: str, code: str) -> Kernel:
        threads = int(re.search(r"\.reqntid (\d+)", head)[1])
        instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        for statement in code.replace(":\n", ":;").split(";"):
            statement = " ".join(statement.split())
            if not statement or statement.startswith((".reg", ".pragma", ".loc")):
                continue
            if statement.endswith(":"):
                labels[statement[:-1]] = len(instructions)
            elif ".shared" in statement and statement.startswith("."):
                self.shared.append(_variable(statement))
            else:
                instructions.append(_instruction(statement))
        leaders = {0, *labels.values()}
        for index, instruction in enumerate(instructions):
            opcode = instruction.opcode
            if opcode.startswith((*CTA_SYNC, *WARP_SYNC)):
                leaders |= {index, index + 1}
            if opcode.startswith(("bra", "ret")):
                leaders.add(index + 1)
        return Kernel(name, threads, instructions, labels, leaders)
