# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each PTX instruction does to all lanes of a mask."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .program import Instruction

UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {16: np.int16, 32: np.int32, 64: np.int64}
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal,
    "hi": np.greater, "hs": np.greater_equal,
}
WARP = 32


def bits_of(kind: str) -> int:
    return 32 if kind.endswith("x2") else int(kind.lstrip("bfsu"))


def numpy_type(kind: str):
    """The type that an instruction's suffix means."""
    if kind in FLOATS:
        return FLOATS[kind]
    return SIGNED[bits_of(kind)] if kind[0] == "s" else UNSIGNED[bits_of(kind)]


def names_of(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}").split(",")]


class Operations:
    """Mixed into the lanes of a launch."""

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
        x, y, z = (self.value(o, "f32").astype(np.float64) for o in operands[1:4])
        self.assign(operands[0], (x * y + z).astype(np.float32), mask)

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

    #--- Memory ---#

    def addresses(self, operand: str) -> np.ndarray:
        base, _, offset = operand.strip("[]").partition("+")
        return self.value(base.strip(), "s64") + np.int64(int(offset or 0))

    def locate(self, space: str, address: np.ndarray, size: int, mask: np.ndarray):
        """The array behind a space, and where `size` bytes per lane begin."""
        if size == 0:
            return self.shared, address
        assert not (address[mask] % size).any(), "a misaligned address"
        if space == "shared":
            inside = (address >= 0) & (address + size <= self.shared_bytes)
            assert inside[mask].all(), "outside of shared memory"
            return self.shared, address + self.cta * self.shared_bytes
        exists = self.machine.exists
        assert ((address > 0) & (address + size < len(exists)))[mask].all(), "a wild address"
        here = np.where(mask, address, 0)
        found = exists[here] & exists[here + size - 1]
        assert found[mask].all(), "outside of every tensor"
        return self.machine.heap, address

    def vector(self, parts, operand):
        names = names_of(operand) if operand.startswith("{") else [operand]
        return names, bits_of(parts[-1]) // 8

    def op_ld(self, parts, operands, mask):
        if parts[1] == "param":
            index = int(operands[1].strip("[]").rsplit("_", 1)[1])
            value = np.full(self.lanes, self.machine_argument(index), np.uint64)
            return self.assign(operands[0], value, mask)
        names, size = self.vector(parts, operands[0])
        memory, address = self.locate(
            parts[1], self.addresses(operands[1]), size * len(names), mask
        )
        index = np.where(mask, address, 0)
        for i, name in enumerate(names):
            at = (index + i * size)[:, None] + np.arange(size)
            value = memory[at].view(UNSIGNED[size * 8])[:, 0]
            self.assign(name, value, mask)

    def machine_argument(self, index: int) -> int:
        return self.arguments[index] % (1 << 64)

    def op_st(self, parts, operands, mask):
        names, size = self.vector(parts, operands[1])
        memory, address = self.locate(
            parts[1], self.addresses(operands[0]), size * len(names), mask
        )
        for i, name in enumerate(names):
            value = self.value(name, f"b{size * 8}")[mask]
            at = (address[mask] + i * size)[:, None] + np.arange(size)
            memory[at] = value[:, None].view(np.uint8)

    def op_cp(self, parts, operands, mask):
        if "commit_group" in parts:
            self.commits[mask] += 1
        elif "wait_group" in parts:
            self.finish_copies(mask, int(operands[0]))
        else:
            to, source = (self.addresses(operand) for operand in operands[:2])
            size = (
                self.value(operands[3], "b32").astype(np.int64)
                if len(operands) > 3
                else np.full(self.lanes, 16)
            )
            reads = mask & (size > 0)
            assert np.isin(size[mask], (0, 16)).all()
            self.locate("global", source, 16, reads)
            _, place = self.locate("shared", to, 16, mask)
            lane = np.flatnonzero(mask)
            self.copies.append(
                (lane, place[mask], source[mask], size[mask], self.commits[mask])
            )

    def finish_copies(self, mask: np.ndarray, open_groups: int) -> None:
        left = []
        for lane, place, source, size, group in self.copies:
            lands = mask[lane] & (group < self.commits[lane] - open_groups)
            if lands.any():
                to = place[lands][:, None] + np.arange(16)
                here = np.where(size[lands] > 0, source[lands], 0)
                data = self.machine.heap[here[:, None] + np.arange(16)]
                data[size[lands] == 0] = 0
                self.shared[to] = data
            if not lands.all():
                keep = ~lands
                left.append(tuple(a[keep] for a in (lane, place, source, size, group)))
        self.copies = left

    #--- Warps ---#

    def op_bar(self, parts, operands, mask):
        """Waiting is done before a block begins."""

    op_barrier = op_bar

    def op_shfl(self, parts, operands, mask):
        lane = np.arange(self.lanes) % WARP
        mode, amount = parts[2], self.value(operands[2], "s32")
        if mode == "bfly":
            source = lane ^ amount
        elif mode == "up":
            source = np.where(lane >= amount, lane - amount, lane)
        else:
            assert mode == "idx"
            source = amount
        value = self.value(operands[1], "b32")
        here = value[np.arange(self.lanes) - lane + source]
        self.assign(operands[0].split("|")[0], here, mask)

    def by_warp(self, value: np.ndarray) -> np.ndarray:
        return value.reshape(-1, WARP)

    def op_match(self, parts, operands, mask):
        value = self.by_warp(self.value(operands[1], "b32"))
        same = value[:, :, None] == value[:, None, :]
        weights = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
        result = (same * weights).sum(axis=2).astype(np.uint32)
        self.assign(operands[0], result.reshape(-1), mask)

    def op_redux(self, parts, operands, mask):
        value = self.by_warp(self.value(operands[1], parts[-1]))
        reduced = value.max(axis=1) if "max" in parts else value.min(axis=1)
        self.assign(operands[0], np.repeat(reduced, WARP), mask)

    #--- Tensor cores ---#

    def op_ldmatrix(self, parts, operands, mask):
        names = names_of(operands[0])
        _, address = self.locate("shared", self.addresses(operands[1]), 16, mask)
        address = self.by_warp(np.where(mask, address, 0))
        lane = np.arange(WARP)
        for i, name in enumerate(names):
            row = address[:, 8 * i + lane // 4] + 4 * (lane % 4)
            at = row.reshape(-1)[:, None] + np.arange(4)
            self.assign(name, self.shared[at].view(np.uint32)[:, 0], mask)

    def op_mma(self, parts, operands, mask):
        """D = A B + C for 16 x 16 x 8, products and sums in double."""
        dtype = FLOATS[parts[-2]]
        lane = np.arange(WARP)
        warps = self.lanes // WARP

        def pairs(name):
            value = self.value(name, "b32").view(dtype).astype(np.float64)
            return value.reshape(warps, WARP, 2)

        a, w, c = (names_of(operand) for operand in operands[1:4])
        left = np.zeros((warps, 16, 16))
        right = np.zeros((warps, 8, 16))
        row, column = lane // 4, 2 * (lane % 4)
        for i, name in enumerate(a):
            value = pairs(name)
            for j in range(2):
                left[:, row + 8 * (i % 2), column + j + 8 * (i // 2)] = value[:, :, j]
        for i, name in enumerate(w):
            value = pairs(name)
            for j in range(2):
                right[:, row, column + j + 8 * i] = value[:, :, j]
        product = left @ right.transpose(0, 2, 1)
        for i, (to, name) in enumerate(zip(names_of(operands[0]), c)):
            addend = self.value(name, "f32").reshape(warps, WARP).astype(np.float64)
            value = product[:, row + 8 * (i // 2), column + i % 2] + addend
            self.assign(to, value.astype(np.float32).reshape(-1), mask)
