# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maps from logical to physical experts and exact results for tokens, from the published tests of EPLB."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Vector:
    #: Physical experts of each logical one.
    table: list[list[int]]
    ids: np.ndarray
    placed: np.ndarray
    load: list[int]
    #: Number of valid tokens.
    valid: int

    @property
    def physical(self) -> int:
        return len(self.load)

    @property
    def counts(self) -> np.ndarray:
        return np.array([len(places) for places in self.table], np.int32)

    @property
    def padded_table(self) -> np.ndarray:
        most = self.counts.max()
        return np.array([places + [-1] * (most - len(places)) for places in self.table], np.int32)


def _vector(table, ids, placed, load, valid=None) -> Vector:
    return Vector(table, np.array(ids), np.array(placed), load, len(ids) if valid is None else valid)


_THREE = [[0, 1], [2, 3], [0, 2]]
VECTORS = {
    "identity": _vector([[0], [1], [2], [3]], _THREE, _THREE, [2, 1, 2, 1]),
    "shuffled": _vector([[3], [0], [1], [2]], _THREE, [[3, 0], [1, 2], [3, 1]], [1, 2, 1, 2]),
    "sparse": _vector([[5], [2], [7], [0]], [[0, 1], [2, 3]], [[5, 2], [7, 0]], [1, 0, 1, 0, 0, 1, 0, 1]),
    "redundancy": _vector([[0, 4], [1, 5], [2, 6], [3, 7]], _THREE, [[0, 1], [6, 7], [0, 2]],
                          [2, 1, 1, 0, 0, 0, 1, 1]),
    "uneven": _vector([[0, 3, 5, 7], [1, 4], [2, 6]], [[0, 1], [2, 0], [1, 2]], [[0, 1], [6, 3], [1, 2]],
                      [1, 2, 1, 1, 0, 0, 1, 0]),
    "two_tokens_count": _vector([[0], [1], [2], [3]], _THREE, _THREE, [1, 1, 1, 1], valid=2),
}
