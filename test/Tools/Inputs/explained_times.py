# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sums the times of moe-compile --explain for the first range of tokens, at its first token count.

  explained_times.py JOINED APART

The same configs, in a kernel of two products and in two kernels.
"""

import re
import sys
from pathlib import Path


def read(path: str) -> tuple[int, dict[str, float]]:
    text = Path(path).read_text()
    launches = int(re.search(r"(?m)^(\d+) launches, in order$", text)[1])
    table = text.split("\nexpected on ")[1].split("\n\n")[0].splitlines()[2:]
    rows = (re.match(r"  (\S.*?) +([\d.]+) / ", line) for line in table)
    return launches, {row[1]: float(row[2]) for row in rows}


def main() -> None:
    totals = []
    products = []
    for name, path in zip(("joined", "apart"), sys.argv[1:]):
        launches, times = read(path)
        total = times.pop("in sequence")
        # Each row is rounded.
        is_sum = abs(sum(times.values()) - total) < 0.05 * (len(times) + 1) + 1e-9
        print(f"{name}: {launches} launches, {len(times)} rows, {'a sum' if is_sum else 'no sum'}")
        totals.append(total)
        products.append({product: times[product]
                         for product in times if product.startswith("experts")})
    for (name, joined), apart in zip(products[0].items(), products[1].values()):
        print(f"{name}: {apart - joined:.1f} us less")
    print(f"all: {totals[1] - totals[0]:.1f} us less")


if __name__ == "__main__":
    main()
