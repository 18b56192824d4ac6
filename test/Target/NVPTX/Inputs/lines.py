# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the lines of layer.tile.mlir that the PTX names as sources of its kernels.

lines.py LAYER.ptx LAYER.tile.mlir
"""

import re
import sys
from pathlib import Path

ptx, tile = (Path(name).read_text().splitlines() for name in sys.argv[1:])
kernel, seen = None, set()
for line in ptx:
    if entry := re.search(r"\.entry (\w+)\(", line):
        kernel = entry.group(1)
    if loc := re.match(r"\s*\.loc\s+1 (\d+) (\d+)", line):
        number, column = int(loc.group(1)), int(loc.group(2))
        if number and (kernel, number) not in seen:
            seen.add((kernel, number))
            print(f"{kernel}: {tile[number - 1].strip().split('(')[0]}")
