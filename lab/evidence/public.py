"""What others have published, drawn beside our own curves: docs/results/public/bands.json.

Its rows are facts from the named repositories: the mean of their seeds, the lowest and the highest, at env steps that
count each repeated action.
"""

import json
import re
from functools import cache
from typing import Any

from stride.utils.curve import LEFT, TOP, Band, CurveLine, Overlay, Point
from stride.utils.provenance import PROJECT

FILE = PROJECT / "docs" / "results" / "public" / "bands.json"
STYLE = "fourth"  # a class of stride.utils.curve.STYLE
TICK = 0.006  # half the width of the mark at a mean, as a fraction of the picture's


@cache
def bands() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def overlay(env: str, learner: str, last: float, repeat: int = 1) -> Overlay:
    """The published results for a task as far as `last` env steps, or its first if that is later; empty without any.

    `repeat` is how often our environment repeats an action, which divides the published env steps.
    """
    tasks = bands()["tasks"]
    rows = [r for r in bands()["rows"] if r["learner"] == learner and tasks.get(r["env"], r["env"]) == env]
    if not rows:
        return Overlay()
    rows = [row for row in rows if row["env_steps"] / repeat <= last] or rows[:1]
    mean, low, high = (
        [Point(row["env_steps"] / repeat, row[name]) for row in rows] for name in ("mean", "least", "most")
    )
    half = TICK * max(last, mean[-1].x)
    lines = [CurveLine(mean, STYLE, 2.0)]
    for middle, bottom, top in zip(mean, low, high, strict=True):
        lines.append(CurveLine([bottom, top], STYLE, 1.5))
        lines.append(CurveLine([Point(middle.x - half, middle.y), Point(middle.x + half, middle.y)], STYLE, 3.0))
    return Overlay(lines, {f"{STYLE}band": Band(mean, low, high)}, [label(rows[0])])


def label(row: dict[str, Any]) -> str:
    """The line of the legend below the title: whose results, on what, of how many seeds."""
    source = re.match(r"\[(.+?)\]", bands()["sources"][row["learner"]])
    assert source
    who = f"published by {source[1]}: {row['learner'].upper()} on {row['env']}"
    text = f"{who}, mean of {row['seeds']} seeds, lowest to highest"
    y = TOP - 10
    mark = f'<line class="{STYLE}" x1="{LEFT}" x2="{LEFT + 20}" y1="{y - 4}" y2="{y - 4}" stroke-width="2.5"/>'
    return f'{mark}<text x="{LEFT + 26}" y="{y}">{text}</text>'
