"""Draws published results of other projects beside our own curves, from docs/results/public/bands.json.

A row of that file is a fact from the named repository: mean, lowest and highest return over its seeds at a number of
env steps. There an action that is repeated four times counts as four env steps.
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
    """Return the file: {"rows": [...], "tasks": {their environment: ours}, "sources": {learner: Markdown link}}."""
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


def overlay(env: str, learner: str, last: float, repeat: int = 1) -> Overlay:
    """Return the published results for a task up to `last` env steps; the first one if all are later.

    The overlay is empty if nothing is published. `repeat`: how often our environment repeats an action; published env
    steps are divided by it.
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
    # the curve of means, then for each point a vertical line from lowest to highest and a short bar at the mean
    lines = [CurveLine(mean, STYLE, 2.0)]
    for middle, bottom, top in zip(mean, low, high, strict=True):
        lines.append(CurveLine([bottom, top], STYLE, 1.5))
        lines.append(CurveLine([Point(middle.x - half, middle.y), Point(middle.x + half, middle.y)], STYLE, 3.0))
    return Overlay(lines, {f"{STYLE}band": Band(mean, low, high)}, [label(rows[0])])


def label(row: dict[str, Any]) -> str:
    """Return the legend below the title, as SVG: who published the results, the environment, the number of seeds."""
    source = re.match(r"\[(.+?)\]", bands()["sources"][row["learner"]])
    assert source
    publisher = f"published by {source[1]}: {row['learner'].upper()} on {row['env']}"
    text = f"{publisher}, mean of {row['seeds']} seeds, lowest to highest"
    y = TOP - 10
    mark = f'<line class="{STYLE}" x1="{LEFT}" x2="{LEFT + 20}" y1="{y - 4}" y2="{y - 4}" stroke-width="2.5"/>'
    return f'{mark}<text x="{LEFT + 26}" y="{y}">{text}</text>'
