"""Formats numbers, durations, progress bars, sparklines and curves as text: pure functions, without colours."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-~=+*#"


def number(value: float, precision: int) -> str:
    """Format with `precision` decimals and thousands separators; tiny and huge numbers as a power of ten: 1.2e-05."""
    if not math.isfinite(value):
        return str(value)
    if value and abs(value) < 0.5 * 10.0**-precision:
        return f"{value:.1e}"
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    text = f"{value:,.{precision}f}"
    return text.removeprefix("-") if value == 0 else text


def score(value: float) -> str:
    """Format a return for a headline: 243.1, 0.74."""
    return number(value, 1 if abs(value) >= 10 else 2)


def plain(value: float) -> str:
    """Format a number that a person has typed (a goal, a bound), without needless decimals: 475, 0.5, 1,000,000."""
    return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"


def optional(value: Any, style: Callable[[Any], str]) -> str:
    """Format a value with the function `style`; "" for None."""
    return "" if value is None else style(value)


def mean_text(mean: float, deviation: float, count: int) -> str:
    """Format `483.00 ± 12.30`; only the mean if `count` is 1, because one value has no deviation."""
    return f"{mean:.2f} ± {deviation:.2f}" if count > 1 else f"{mean:.2f}"


def duration(seconds: float) -> str:
    """Format seconds as 0:27, 12:03, 1:02:03 or 2d 03:04:05; "-:--" if they are not finite."""
    if not math.isfinite(seconds):
        return "-:--"
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def short(value: float) -> str:
    """Format a number for the ticks of an axis: 20k, 1.5M."""
    for unit_size, unit_letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit_size:
            return f"{value / unit_size:.3g}{unit_letter}"
    return f"{value:.3g}"


def sparkline(values: Sequence[float], width: int, ascii_only: bool = False) -> str:
    """Draw the last `width` values as blocks between their lowest and highest; a space for one that is not finite."""
    characters = ASCII_BLOCKS if ascii_only else BLOCKS
    last_values = list(values)[max(0, len(values) - width) :] if width > 0 else []
    finite_values = [value for value in last_values if math.isfinite(value)]
    if not finite_values:
        return " " * len(last_values)
    low, high = min(finite_values), max(finite_values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # constant: blocks of middle height
        return "".join(characters[3] if math.isfinite(value) else " " for value in last_values)
    scale = (len(characters) - 1) / (high - low)
    return "".join(characters[round((value - low) * scale)] if math.isfinite(value) else " " for value in last_values)


def bar(fraction: float, width: int, ascii_only: bool = False) -> tuple[str, str]:
    """Draw a progress bar of `width` characters as two strings: the part that is done, and the rest."""
    half_blocks = round(2 * width * min(1.0, max(0.0, fraction)))
    full_blocks, half_block = divmod(half_blocks, 2)
    if ascii_only:
        return "#" * full_blocks, "-" * (width - full_blocks)
    return "━" * full_blocks + "╸" * half_block, "─" * (width - full_blocks - half_block)


def area_chart(xs: Sequence[float], ys: Sequence[float], width: int = 64, height: int = 8) -> str:
    """Draw a filled curve in `height` lines of text with its range on the left; gaps in `xs` are interpolated."""
    columns = _columns(xs, ys, width)
    low, high = min(columns), max(columns)
    eighths_per_unit = (8 * height - 1) / (high - low) if high > low else 0.0
    eighths = [1 + round((value - low) * eighths_per_unit) for value in columns]
    line_labels = {0: number(high, 1), height - 1: number(low, 1)}
    label_width = max(map(len, line_labels.values()))
    text_lines = []
    for line in range(height):
        line_bottom = 8 * (height - 1 - line)
        line_cells = "".join(" " if top <= line_bottom else BLOCKS[min(top - line_bottom, 8) - 1] for top in eighths)
        text_lines.append(f"{line_labels.get(line, ''):>{label_width}} ┤{line_cells}".rstrip())
    axis_labels = f"{plain(xs[0])}{f'{plain(xs[-1])} env steps':>{max(1, width - len(plain(xs[0])))}}"
    return "\n".join([*text_lines, f"{'':>{label_width}} └{'─' * width}", f"{'':>{label_width}}  {axis_labels}"])


def _columns(xs: Sequence[float], ys: Sequence[float], width: int) -> list[float]:
    """Average `ys` over `width` equal parts of the ascending `xs`; empty parts are interpolated linearly."""
    x_span = (xs[-1] - xs[0]) or 1.0
    stretches: dict[int, list[float]] = {}
    for x, y in zip(xs, ys, strict=True):
        stretches.setdefault(min(int((x - xs[0]) / x_span * width), width - 1), []).append(y)
    stretch_means = {column_index: sum(stretch) / len(stretch) for column_index, stretch in stretches.items()}
    column_values = [stretch_means[0]]
    for (left, low), (right, high) in pairwise(stretch_means.items()):
        column_values += [low + (high - low) / (right - left) * step for step in range(1, right - left)] + [high]
    return column_values + column_values[-1:] * (width - len(column_values))
