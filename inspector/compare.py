"""Several runs side by side: the mean curve of each group with its interval, final returns, differences of config."""

from collections.abc import Mapping, Sequence

import numpy as np

from inspector.charts import LARGEST, Line, bound, responsive
from inspector.markup import Markup, card, join, note, table, tag
from inspector.overview import differences
from inspector.runs import RunFacts
from report.curve import Point
from report.history import TRAIN, VAL
from report.typography import score
from utils.statistics import interval
from utils.user_error import UserError

COLOURS = 8
MOST_RUNS = 64
GRID = 80  # places at which curves of one group are averaged


def compare(found: Sequence[RunFacts]) -> Markup:
    """The whole room."""
    if len(found) < 2:
        return note("choose two runs or more")
    left = [note(f"the first {MOST_RUNS} of {len(found)} runs")] if len(found) > MOST_RUNS else []
    found = found[:MOST_RUNS]
    by_group = groups(found)
    lines = [mean_curve(name, runs, f"c{place % COLOURS}") for place, (name, runs) in enumerate(by_group.items())]
    goals = {each.brief.goal for each in found}
    chart = responsive([line for line in lines if line.points], goals.pop() if len(goals) == 1 else None)
    curve = card("Episode return, mean of each group with its 95 % interval", chart)
    return join([*left, curve, finals(by_group), config_differences(found)])


def groups(found: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Runs that differ in nothing but their seed, under the variant's name and what sets them apart."""
    apart: dict[tuple[str, str], list[RunFacts]] = {}
    for each in found:
        config = {key: value for key, value in _changed(each).items() if key != "seed"}
        apart.setdefault((each.brief.variant, repr(sorted(config.items()))), []).append(each)
    names = [variant for variant, _ in apart]
    named = {}
    for (variant, _), runs in apart.items():
        name = variant if names.count(variant) == 1 else f"{variant} ({runs[0].run.id[-4:]})"
        named[name if name not in named else f"{variant} ({runs[0].run.id})"] = runs
    return named


def curve_of(each: RunFacts) -> list[Point]:
    """Validation, or training where there is none."""
    return [point for point in each.points(VAL) or each.points(TRAIN) if abs(point.y) < LARGEST]


def mean_curve(name: str, runs: Sequence[RunFacts], colour: str) -> Line:
    """Over the range that every run covers, on a common grid; one run is its own curve."""
    curves = [curve for curve in map(curve_of, runs) if curve]
    if len(curves) < 2:
        return Line(name, curves[0] if curves else [], colour)
    first, last = max(curve[0].x for curve in curves), min(curve[-1].x for curve in curves)
    if last <= first:  # they never ran side by side: each for itself cannot be averaged
        return Line(name, max(curves, key=len), colour)
    xs = np.linspace(first, last, GRID)
    ys = np.stack([np.interp(xs, [p.x for p in curve], [p.y for p in curve]) for curve in curves])
    bounds = [interval(column, statistic=_mean, resamples=200) for column in ys.T]
    mean = [Point(float(x), float(y)) for x, y in zip(xs, ys.mean(0), strict=True)]
    return Line(f"{name}, {len(curves)} runs", mean, colour, [low for low, _ in bounds], [high for _, high in bounds])


def _mean(values: np.ndarray) -> float:
    return float(values.mean())


def finals(by_group: Mapping[str, Sequence[RunFacts]]) -> Markup:
    rows = []
    for place, (name, runs) in enumerate(by_group.items()):
        for each in runs:
            steps, best, last, _ = each.brief.tail
            shown = ("" if value is None else score(value) for value in (best, last))
            key = tag("span", name, class_=f"key c{place % COLOURS}")
            rows.append((key, each.run.id, f"{steps:,}", *shown, bound(each.brief.goal)))
    return card("Final returns", table(("group", "run", "env steps", "best", "last", "goal"), rows))


def config_differences(found: Sequence[RunFacts]) -> Markup:
    """Keys on which the runs do not agree."""
    configs = [_changed(each) for each in found]
    keys = sorted({key for config in configs for key in config})
    rows = [(key, *(config.get(key, "default") for config in configs)) for key in keys]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    if not rows:
        return card("Config differences", note("none"))
    return card("Config differences", table(("key", *(each.run.id for each in found)), rows))


def _changed(each: RunFacts) -> dict[str, str]:
    try:
        return differences(each.facts)
    except UserError:  # a config of another version: still worth its curve
        return {}
