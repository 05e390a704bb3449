"""Bars of env steps per second on a logarithmic axis, as a hand-written SVG; bench_envs.py measures them."""

import math
from collections.abc import Mapping
from xml.sax.saxutils import escape

from trainer_callbacks.curve import STYLE

WIDTH, LEFT, RIGHT, TOP, BAR, GAP, BOTTOM = 760, 170, 70, 56, 18, 16, 44
BARS = """
  .ours { fill: #bf3989 } .peer { fill: #54aeff }
  @media (prefers-color-scheme: dark) { .ours { fill: #f778ba } .peer { fill: #388bfd } }
"""


def bars_svg(title: str, groups: Mapping[str, Mapping[str, float]], ours: set[str]) -> str:
    """Groups of bars, each {name: steps per second}; those of `ours` in their own colour."""
    rates = [rate for group in groups.values() for rate in group.values()]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    height = TOP + sum(len(group) * BAR + GAP + 18 for group in groups.values()) + BOTTOM
    body, y = _axis(low, high, height), TOP
    for name, group in groups.items():
        body.append(f'<text class="title" x="16" y="{y + 12}">{escape(name)}</text>')
        y += 18
        for contender, rate in group.items():
            end = _x(math.log10(rate), low, high)
            kind, length = "ours" if contender in ours else "peer", max(end - LEFT, 1.0)
            body += [
                f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(contender)}</text>',
                f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" rx="2"/>',
                f'<text x="{end + 6:.1f}" y="{y + 13}">{millions(rate)}</text>',
            ]
            y += BAR
        y += GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'width="{WIDTH}" height="{height}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{BARS}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            f'<text class="title" x="16" y="26">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def millions(rate: float) -> str:
    """Steps per second in millions, three digits of it."""
    value = rate / 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _x(power: float, low: int, high: int) -> float:
    return LEFT + (power - low) / max(high - low, 1) * (WIDTH - LEFT - RIGHT)


def _axis(low: int, high: int, height: int) -> list[str]:
    bottom, lines = height - BOTTOM, []
    for power in range(low, high + 1):
        x = _x(power, low, high)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0 ** (power - 6):g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(f'<text x="{middle:g}" y="{height - 10}" text-anchor="middle">million env steps per second</text>')
    return lines
