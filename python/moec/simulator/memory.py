# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What PTX instructions on memory, warps and tensor cores do to all lanes of a mask."""

from __future__ import annotations

import numpy as np

from .operations import FLOATS, SIGNED, UNSIGNED, Arithmetic, bits_of, names_of

WARP = 32


class Operations(Arithmetic):
    """All instructions; mixed into the lanes of a launch."""

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
            self.assign(name, self.extend(name, value, parts[-1]), mask)

    @staticmethod
    def extend(name: str, value: np.ndarray, kind: str) -> np.ndarray:
        """What a load makes of a value that is narrower than its register."""
        width = {"%rd": 64, "%rs": 16}.get(name[:3], 32)
        if value.dtype.itemsize * 8 >= width:
            return value
        if kind[0] == "s":
            value = value.view(SIGNED[value.dtype.itemsize * 8]).astype(SIGNED[width])
        return value.astype(UNSIGNED[width])

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

    def op_atom(self, parts, operands, mask):
        """Integer sums, which no order shows in. What was there before is not to be read."""
        assert parts[1:] == ["shared", "add", "u32"]
        _, address = self.locate("shared", self.addresses(operands[1]), 4, mask)
        words = self.shared[: self.shared.size // 4 * 4].view(np.uint32)
        np.add.at(words, address[mask] // 4, self.value(operands[2], "u32")[mask])

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
