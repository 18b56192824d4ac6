# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PTX instructions on registers do to all lanes of a mask."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .program import Instruction

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal,
    "hi": np.greater, "hs": np.greater_equal,
}


def bits_of(kind: str) -> int:
    return 32 if kind.endswith("x2") else int(kind.lstrip("bfsu"))


def numpy_type(kind: str):
    """The type that an instruction's suffix means."""
    if kind in FLOATS:
        return FLOATS[kind]
    return SIGNED[bits_of(kind)] if kind[0] == "s" else UNSIGNED[bits_of(kind)]


def names_of(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}").split(",")]


class Arithmetic:
    """Operands and what stays in registers; mixed into the lanes of a launch."""

    #--- Operands ---#

    def value(self, operand: str, kind: str) -> np.ndarray:
        dtype = bool if kind == "pred" else numpy_type(kind)
        if operand in self.special:
            raw = self.special[operand]
        elif operand.startswith("%"):
            raw = self.registers[operand]
        elif operand.startswith("0f"):
            raw = np.full(self.lanes, int(operand[2:], 16), np.uint32)
        elif operand in self.machine.symbols:
            raw = np.full(self.lanes, self.machine.symbols[operand], np.uint64)
        else:
            number = int(operand, 0)
            if kind == "pred":
                return np.full(self.lanes, bool(number))
            size = bits_of(kind)
            raw = np.full(self.lanes, number % (1 << size), UNSIGNED[size])
        if raw.dtype == dtype:
            return raw
        if kind == "pred":
            return raw.astype(bool)
        size = bits_of(kind)
        if raw.dtype.itemsize * 8 != size:
            raw = raw.astype(UNSIGNED[size])
        return raw.view(dtype)

    def assign(self, name: str, value: np.ndarray, mask: np.ndarray) -> None:
        if name == "_":
            return
        if value.dtype != bool:
            value = value.view(UNSIGNED[value.dtype.itemsize * 8])
        if not mask.all():
            old = self.registers.get(name)
            if old is None:
                old = np.zeros(self.lanes, value.dtype)
            value = np.where(mask, value, old)
        self.registers[name] = value

    def execute(self, instruction: Instruction, mask: np.ndarray) -> None:
        parts = instruction.parts
        method = getattr(self, f"op_{parts[0]}", None)
        assert method, "the simulator does not know this instruction"
        method(parts, instruction.operands, mask)

    #--- Arithmetic ---#

    def binary(self, function, parts, operands, mask, kind=None):
        kind = kind or parts[-1]
        x, y = (self.value(operand, kind) for operand in operands[1:3])
        self.assign(operands[0], function(x, y), mask)

    def op_add(self, parts, operands, mask):
        self.binary(np.add, parts, operands, mask)

    def op_sub(self, parts, operands, mask):
        self.binary(np.subtract, parts, operands, mask)

    def op_and(self, parts, operands, mask):
        self.binary(np.bitwise_and, parts, operands, mask)

    def op_or(self, parts, operands, mask):
        self.binary(np.bitwise_or, parts, operands, mask)

    def op_xor(self, parts, operands, mask):
        self.binary(np.bitwise_xor, parts, operands, mask)

    def op_not(self, parts, operands, mask):
        self.assign(operands[0], ~self.value(operands[1], parts[-1]), mask)

    def op_min(self, parts, operands, mask):
        is_float = parts[-1] in FLOATS
        strict = np.minimum if "NaN" in parts or not is_float else np.fmin
        self.binary(strict, parts, operands, mask)

    def op_max(self, parts, operands, mask):
        is_float = parts[-1] in FLOATS
        strict = np.maximum if "NaN" in parts or not is_float else np.fmax
        self.binary(strict, parts, operands, mask)

    def op_mul(self, parts, operands, mask):
        kind = parts[-1]
        x, y = (self.value(operand, kind) for operand in operands[1:3])
        if "wide" in parts:
            wide = np.int64 if kind[0] == "s" else np.uint64
            self.assign(operands[0], x.astype(wide) * y.astype(wide), mask)
        elif "hi" in parts:
            size = bits_of(kind)
            products = [(int(p) * int(q)) >> size for p, q in zip(x, y)]
            self.assign(operands[0], np.array(products, x.dtype), mask)
        else:
            self.assign(operands[0], x * y, mask)

    def op_mad(self, parts, operands, mask):
        kind = parts[-1]
        x, y = (self.value(operand, kind) for operand in operands[1:3])
        if "wide" in parts:
            wide = np.int64 if kind[0] == "s" else np.uint64
            x, y, kind = x.astype(wide), y.astype(wide), kind[0] + "64"
        self.assign(operands[0], x * y + self.value(operands[3], kind), mask)

    def op_fma(self, parts, operands, mask):
        kind = parts[-1]
        x, y, z = (self.value(o, kind).astype(np.float64) for o in operands[1:4])
        self.assign(operands[0], (x * y + z).astype(FLOATS[kind]), mask)

    def op_div(self, parts, operands, mask):
        if parts[-1] == "f32":
            return self.binary(np.divide, parts, operands, mask)
        x, y = (self.value(operand, parts[-1]) for operand in operands[1:3])
        self.assign(operands[0], x // y, mask)

    def op_rem(self, parts, operands, mask):
        self.binary(np.remainder, parts, operands, mask)

    def unary(self, function, parts, operands, mask):
        self.assign(operands[0], function(self.value(operands[1], parts[-1])), mask)

    def op_rcp(self, parts, operands, mask):
        self.unary(lambda x: np.float32(1) / x, parts, operands, mask)

    def op_sqrt(self, parts, operands, mask):
        self.unary(np.sqrt, parts, operands, mask)

    def op_neg(self, parts, operands, mask):
        self.unary(np.negative, parts, operands, mask)

    def op_abs(self, parts, operands, mask):
        self.unary(np.abs, parts, operands, mask)

    def op_copysign(self, parts, operands, mask):
        sign, magnitude = (self.value(operand, "f32") for operand in operands[1:3])
        self.assign(operands[0], np.copysign(magnitude, sign), mask)

    def op_popc(self, parts, operands, mask):
        value = self.value(operands[1], parts[-1])
        count = np.array([int(v).bit_count() for v in value], np.uint32)
        self.assign(operands[0], count, mask)

    def shift(self, function, parts, operands, mask):
        kind = parts[-1]
        size = bits_of(kind)
        x = self.value(operands[1], kind)
        n = self.value(operands[2], "b32")
        clamped = np.minimum(n, size - 1).astype(x.dtype)
        far = (x >> (size - 1)) if kind[0] == "s" else np.zeros_like(x)
        self.assign(operands[0], np.where(n >= size, far, function(x, clamped)), mask)

    def op_shl(self, parts, operands, mask):
        self.shift(np.left_shift, parts, operands, mask)

    def op_shr(self, parts, operands, mask):
        self.shift(np.right_shift, parts, operands, mask)

    def op_bfe(self, parts, operands, mask):
        kind = parts[-1]
        x = self.value(operands[1], kind)
        assert kind[0] == "u"
        start, length = (int(operand) for operand in operands[2:4])
        self.assign(operands[0], (x >> x.dtype.type(start))
                    & x.dtype.type((1 << length) - 1), mask)

    def op_prmt(self, parts, operands, mask):
        x, y = (self.value(operand, "b32").astype(np.uint64) for operand in operands[1:3])
        selector = int(operands[3], 0)
        both = x | (y << np.uint64(32))
        result = np.zeros(self.lanes, np.uint64)
        for i in range(4):
            pick = (selector >> (4 * i)) & 0xF
            assert pick < 8
            byte = (both >> np.uint64(8 * pick)) & np.uint64(0xFF)
            result |= byte << np.uint64(8 * i)
        self.assign(operands[0], result.astype(np.uint32), mask)

    #--- Moves, comparisons, conversions ---#

    def op_mov(self, parts, operands, mask):
        kind, (to, source) = parts[-1], operands
        if to.startswith("{"):
            value, parts_of = self.value(source, kind), names_of(to)
            size = bits_of(kind) // len(parts_of)
            for i, name in enumerate(parts_of):
                piece = (value >> value.dtype.type(i * size)).astype(UNSIGNED[size])
                self.assign(name, piece, mask)
        elif source.startswith("{"):
            sources = names_of(source)
            size = bits_of(kind) // len(sources)
            total = np.zeros(self.lanes, UNSIGNED[bits_of(kind)])
            for i, name in enumerate(sources):
                piece = self.value(name, f"b{size}").astype(total.dtype)
                total |= piece << total.dtype.type(i * size)
            self.assign(to, total, mask)
        else:
            self.assign(to, self.value(source, kind), mask)

    def op_setp(self, parts, operands, mask):
        comparison, kind = parts[1], parts[-1]
        x, y = (self.value(operand, kind) for operand in operands[1:3])
        if kind not in FLOATS:
            return self.assign(operands[0], COMPARE[comparison](x, y), mask)
        unordered = np.isnan(x) | np.isnan(y)
        if comparison in ("num", "nan"):
            result = unordered if comparison == "nan" else ~unordered
        elif comparison.endswith("u") and comparison[:-1] in COMPARE:
            result = COMPARE[comparison[:-1]](x, y) | unordered
        else:
            result = COMPARE[comparison](x, y) & ~unordered
        self.assign(operands[0], result, mask)

    def op_selp(self, parts, operands, mask):
        x, y = (self.value(operand, parts[-1]) for operand in operands[1:3])
        self.assign(operands[0], np.where(self.value(operands[3], "pred"), x, y), mask)

    def op_cvt(self, parts, operands, mask):
        to, source = parts[-2], parts[-1]
        if to.endswith("x2"):
            kind = to[:-2]
            high, low = (
                self.value(operand, source).astype(FLOATS[kind]).view(np.uint16)
                for operand in operands[1:3]
            )
            packed = (high.astype(np.uint32) << np.uint32(16)) | low
            return self.assign(operands[0], packed, mask)
        value = self.value(operands[1], source)
        if "rni" in parts:
            value = np.rint(value)
        self.assign(operands[0], value.astype(numpy_type(to)), mask)
