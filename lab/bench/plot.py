"""Draws the SVG of lab.bench.envs: env steps per second on a logarithmic axis, a row for each environment."""

import math
from collections.abc import Mapping
from xml.sax.saxutils import escape

from stride.utils.curve import svg_card

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 230, 90, 56, 44  # pixels; left for names, right for ratios
ROW_HEIGHT = 26  # pixels of an environment
COLOURS = """
  .ours { fill: #bf3989 } .peer { fill: #54aeff } .gap { stroke: #d0d7de } .ratio { font-weight: 600; fill: #1f2328 }
  @media (prefers-color-scheme: dark) {
    .ours { fill: #f778ba } .peer { fill: #388bfd } .gap { stroke: #30363d } .ratio { fill: #e6edf3 }
  }
"""


def dots_svg(title: str, rows: Mapping[str, Mapping[str, float]], ours: tuple[str, str], peer: str) -> str:
    """Return the SVG of environment -> {contender: env steps per second}.

    A row is a line from the rate of `peer` to that of ours[1], with their ratio; ours[0] is a paler dot.
    """
    shown = {name: row for name, row in rows.items() if {*ours, peer} <= row.keys()}
    rates = [row[name] for row in shown.values() for name in (*ours, peer)]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    height = TOP + 30 + ROW_HEIGHT * len(shown) + BOTTOM
    body, y = [*_axis(low, high, height), *_legend(ours, peer)], TOP + 30
    for name, row in shown.items():
        slow, fast, other = (_x(math.log10(row[key]), low, high) for key in (peer, ours[1], ours[0]))
        middle = y + ROW_HEIGHT / 2
        body += [
            f'<text x="{LEFT - 12}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
            f'<line class="gap" x1="{slow:.1f}" x2="{fast:.1f}" y1="{middle}" y2="{middle}" stroke-width="4"/>',
            f'<circle class="peer" cx="{slow:.1f}" cy="{middle}" r="6"/>',
            f'<circle class="ours" cx="{other:.1f}" cy="{middle}" r="4.5" fill-opacity="0.5"/>',
            f'<circle class="ours" cx="{fast:.1f}" cy="{middle}" r="6"/>',
            f'<text class="ratio" x="{WIDTH - 20}" y="{middle + 4}" text-anchor="end">'
            f"{row[ours[1]] / row[peer]:,.0f}x</text>",
        ]
        y += ROW_HEIGHT
    return svg_card(title, WIDTH, height, 16, body, COLOURS)


def _legend(ours: tuple[str, str], peer: str) -> list[str]:
    parts, x = [], LEFT
    for kind, radius, opacity, name in (("peer", 6, 1, peer), ("ours", 6, 1, ours[1]), ("ours", 4.5, 0.5, ours[0])):
        parts.append(f'<circle class="{kind}" cx="{x}" cy="{TOP}" r="{radius}" fill-opacity="{opacity}"/>')
        parts.append(f'<text x="{x + 12}" y="{TOP + 4}">{escape(name)}</text>')
        x += 36 + 7 * len(name)
    return [*parts, f'<text x="{WIDTH - 20}" y="{TOP + 4}" text-anchor="end">faster</text>']


def short(rate: float) -> str:
    """Return a rate with three digits: "12.3 k", "1.23 M"."""
    for unit, size in ((" M", 1e6), (" k", 1e3), ("", 1.0)):
        if rate >= size:
            return (f"{rate / size:,.0f}" if rate >= 100 * size else f"{rate / size:.3g}") + unit
    return f"{rate:.3g}"


def _x(power: float, low: int, high: int) -> float:
    return LEFT + (power - low) / max(high - low, 1) * (WIDTH - LEFT - RIGHT)


def _axis(low: int, high: int, height: int) -> list[str]:
    bottom, lines = height - BOTTOM, []
    for power in range(low, high + 1):
        x = _x(power, low, high)
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP + 14}" y2="{bottom}"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{short(10.0**power)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(f'<text x="{middle:g}" y="{height - 10}" text-anchor="middle">env steps per second</text>')
    return lines
