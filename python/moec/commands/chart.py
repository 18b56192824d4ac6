# Part of moec, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A line chart with two logarithmic axes, as SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 70, 150, 40, 50
_COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#475569")


def _scale(value: float, low: float, high: float, begin: float, end: float) -> float:
    share = math.log(value / low) / math.log(high / low) if high > low else 0.5
    return begin + share * (end - begin)


def _list_powers(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def draw_chart(title: str, counts: Sequence[int], lines: Mapping[str, Mapping[int, float]]) -> str:
    """Returns an SVG of microseconds by token count.

    counts: the token counts, ascending.
    lines: by name, the microseconds at each token count that was measured."""
    values = [value for line in lines.values() for value in line.values()]
    powers = _list_powers(min(values), max(values))
    low, high = powers[0], powers[-1] if len(powers) > 1 else powers[0] * 10

    def get_x(tokens: float) -> float:
        return _scale(tokens, counts[0], counts[-1], _LEFT, _WIDTH - _RIGHT)

    def get_y(value: float) -> float:
        return _scale(value, low, high, _HEIGHT - _BOTTOM, _TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14">{html.escape(title)}</text>',
    ]
    for power in powers:
        y = get_y(power)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{power:g} us</text>')
    for tokens in counts:
        parts.append(f'<text x="{get_x(tokens):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{tokens}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">tokens</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{get_x(tokens):.1f},{get_y(value):.1f}" for tokens, value in sorted(line.items()))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for point in points.split():
            left, top = point.split(",")
            parts.append(f'<circle cx="{left}" cy="{top}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 14}" y="{_TOP + 18 * number + 4}" fill="{colour}">{html.escape(name)}</text>')
    return "\n".join((*parts, "</svg>", ""))
