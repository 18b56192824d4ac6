# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> None:
    """Prints columns that are as wide as their longest cell; those of `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows)]
    for row in (heads, *rows):
        cells = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())
