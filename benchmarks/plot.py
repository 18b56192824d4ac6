#!/usr/bin/env python3
# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws a record of moe-bench: the fraction of the floor by tokens, moec and the best peer.

    benchmarks/plot.py benchmarks/results/moe_bench_h200.json docs/fraction-of-floor.svg

A panel per layer. Each takes its floor from the ceilings of its own run. Plain SVG, so that the same
record gives the same bytes.
"""

import json
import pathlib
import sys

WIDTH, HEIGHT, COLUMNS = 230, 150, 4
LEFT, TOP, RIGHT, BOTTOM = 30, 24, 10, 26
SERIES = (("fraction", "moec", "#0b6e4f"), ("peer_fraction", "best peer", "#c44900"))


def text(x: float, y: float, words: object, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def panel(name: str, rows: list[dict], tokens: list[int], left: float, top: float) -> list[str]:
    def x(count: int) -> float:
        steps = max(1, len(tokens) - 1)
        return left + LEFT + (WIDTH - LEFT - RIGHT) * tokens.index(count) / steps

    def y(fraction: float) -> float:
        return top + HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(fraction, 1.1) / 1.1

    lines = [text(left + LEFT, top + 14, name, 'font-weight="bold"')]
    for level in (0, 0.25, 0.5, 0.75, 1):
        lines.append(f'<line x1="{left + LEFT}" y1="{y(level):.1f}" x2="{left + WIDTH - RIGHT}" '
                     f'y2="{y(level):.1f}" stroke="#ddd"/>')
        lines.append(text(left + LEFT - 4, y(level) + 3, f"{level:g}", 'text-anchor="end"'))
    for count in tokens:
        label = f"{count // 1024}k" if count >= 1024 else count
        lines.append(text(x(count), top + HEIGHT - BOTTOM + 13, label, 'text-anchor="middle"'))
    for key, title, color in reversed(SERIES):
        points = [(x(row["tokens"]), y(row[key])) for row in rows if key in row]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        lines += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.4" fill="{color}"><title>{title}'
                  "</title></circle>" for a, b in points]
    return lines


def draw(record: dict) -> str:
    groups: dict[str, list[dict]] = {}
    for row in record["rows"]:
        if row["status"] == "measured" and "fraction" in row:
            groups.setdefault(row["row"].split(":")[0], []).append(row)
    tokens = sorted({row["tokens"] for rows in groups.values() for row in rows})
    lines = []
    for i, (name, rows) in enumerate(groups.items()):
        lines += panel(name, sorted(rows, key=lambda row: row["tokens"]), tokens,
                       i % COLUMNS * WIDTH, 20 + i // COLUMNS * HEIGHT)
    for i, (_, title, color) in enumerate(SERIES):
        lines.append(f'<circle cx="{LEFT + 100 * i}" cy="12" r="4" fill="{color}"/>')
        lines.append(text(LEFT + 8 + 100 * i, 16, title))
    width = COLUMNS * WIDTH
    height = 20 + -(-len(groups) // COLUMNS) * HEIGHT
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="10">\n<title>Fraction of the floor by tokens, '
            f'{record["device"]}</title>\n<rect width="{width}" height="{height}" fill="white"/>')
    return "\n".join([head, *lines, "</svg>", ""])


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    record = json.loads(pathlib.Path(sys.argv[1]).read_text())
    pathlib.Path(sys.argv[2]).write_text(draw(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
