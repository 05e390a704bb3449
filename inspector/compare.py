"""Several runs side by side: the middle of each group with its band, what came out, and where configs differ."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import numpy as np

from stride.config.diff import differing_rows
from stride.inspector.charts import LARGEST, Line, board, bound, chart, clock
from stride.inspector.markup import Markup, card, join, note, table, tag
from stride.inspector.runs import RunFacts, Runs
from stride.inspector.table import verdict_badge
from stride.runstore.history import TRAIN, VAL
from stride.runstore.run_brief import Brief
from stride.runstore.run_facts import few
from stride.runstore.select import GROUP_PREFIX
from stride.utils.curve import Point
from stride.utils.statistics import iqm
from stride.utils.typography import duration, score
from stride.utils.user_error import UserError

COLOURS = 8
MOST_RUNS = 64
RESAMPLES = 400
GRID = 80  # places at which curves of one group are averaged
SURE = 5  # runs of which an interval says something
FEW = 5  # runs that are compared where nobody chose
BAND = f"""interquartile mean, in which a run that ended sooner stays at its last value; band: its 95 % interval, of
fewer than {SURE} runs the lowest to the highest"""
AXES = ("steps", "time", "episodes")


def first_choice(runs: Runs) -> list[str]:
    """The last group, else the last few runs of the environment that was trained last."""
    lines = runs.page("by:run").lines
    if not lines:
        return []
    sizes = Counter(line.group for line in lines if line.group)
    groups = [line.group for line in lines if sizes[line.group] > 1]
    if groups:
        return [GROUP_PREFIX + groups[0]]
    of_env = lines[0].variant.partition(":")[0]
    return [line.id for line in lines if line.variant.partition(":")[0] == of_env][:FEW]


def choices(runs: Runs) -> list[tuple[str, str]]:
    """(what is shown, what is meant): groups first, then runs, the newest first."""
    lines = runs.page("by:run").lines
    groups: dict[str, list[Brief]] = {}
    for line in lines:
        if line.group:
            groups.setdefault(line.group, []).append(line)
    named = [
        (f"{found[0].variant}, {len(found)} seeds, group {name}", GROUP_PREFIX + name) for name, found in groups.items()
    ]
    return named + [(each.id, each.id) for each in lines]


def chosen(runs: Runs, names: Sequence[str]) -> list[RunFacts]:
    """Runs by id, and all of a group by `group:NAME`; UserError where there is none."""
    ids: dict[str, None] = {}
    for name in names:
        if name.startswith(GROUP_PREFIX):
            found = [line.id for line in runs.group(name.removeprefix(GROUP_PREFIX))]
            if not found:
                raise UserError(f"no run belongs to {name[:80]}")
            ids |= dict.fromkeys(found)
        else:
            ids[runs.find(name).id] = None
    return [runs.look_into(run_id) for run_id in [*ids][: MOST_RUNS + 1]]


def compare(found: Sequence[RunFacts]) -> Markup:
    """The whole room."""
    if len(found) < 2:
        return note("choose a group, or two runs or more")
    left = [note(f"the first {MOST_RUNS} runs of more")] if len(found) > MOST_RUNS else []
    found = found[:MOST_RUNS]
    by_group, lines = groups(found), []
    clocks = {each.run.id: clock(each) for each in found}
    for place, (name, runs) in enumerate(by_group.items()):
        lines += curves(name, runs, f"c{place % COLOURS}", clocks)
    goals = {each.brief.goal for each in found}
    goal = goals.pop() if len(goals) == 1 else None
    drawn = chart("Episode return", sorted(lines, key=lambda line: not line.thin), goal)
    about = [note(BAND)] if any(len(runs) > 1 for runs in by_group.values()) else []
    picture = board(" ".join(by_group), clocks, tag("section", drawn, *about, class_="card"))
    return join([*left, picture, summary(by_group), finals(by_group), config_differences(found)])


def groups(found: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Runs that differ in nothing but their seed, under the variant's name and what sets them apart."""
    apart: dict[tuple[str, str], list[RunFacts]] = {}
    for each in found:
        config = {key: value for key, value in _changed(each).items() if key != "seed"}
        apart.setdefault((each.brief.variant, repr(sorted(config.items()))), []).append(each)
    common = set.intersection(*({*_own(runs[0])} for runs in apart.values())) if apart else set()
    named: dict[str, list[RunFacts]] = {}
    variants = [variant for variant, _ in apart]
    for (variant, _), runs in apart.items():
        differs = [f"{key}={value}" for key, value in sorted(_own(runs[0]) - common)]
        name = variant if variants.count(variant) == 1 else f"{variant} {' '.join(differs)[:60]}".strip()
        named[name if name not in named else f"{name} ({runs[0].run.id})"] = runs
    return named


def _own(each: RunFacts) -> set[tuple[str, str]]:
    return {(key, value) for key, value in _changed(each).items() if key != "seed"}


def curve_of(each: RunFacts) -> list[Point]:
    """Evaluation, or training where there is none."""
    return [point for point in each.points(VAL) or each.points(TRAIN) if abs(point.y) < LARGEST]


def curves(
    name: str, runs: Sequence[RunFacts], colour: str, clocks: Mapping[str, Mapping[str, Sequence[float]]]
) -> list[Line]:
    """Each run, and of several their middle on every axis; one run is its own curve."""
    own = {each.run.id: curve_of(each) for each in runs}
    own = {run_id: curve for run_id, curve in own.items() if curve}
    if len(own) < 2:
        return [Line(name, curve, colour, run=run_id) for run_id, curve in own.items()]
    thin = [Line(name, curve, colour, run=run_id, thin=True) for run_id, curve in own.items()]
    going = {each.run.id for each in runs if each.brief.status in ("running", "silent", "halted")}
    found = [middle_curve(f"{name}, {len(own)} runs", own, going, colour, clocks, axis) for axis in AXES]
    middles = [line for line in found if line]
    return [*thin, *middles] if middles else [line._replace(thin=False) for line in thin]


def middle_curve(
    name: str,
    own: Mapping[str, Sequence[Point]],
    going: Container[str],
    colour: str,
    clocks: Mapping[str, Mapping[str, Sequence[float]]],
    axis: str,
) -> Line | None:
    """On a common grid, from where the last run begins to where the longest ends, or the first of those that still go
    on; None where that is nothing."""
    placed = []
    for run_id, curve in own.items():
        told = clocks.get(run_id, {})
        if axis != "steps" and axis not in told:
            return None
        steps = [point.x for point in curve]
        xs = steps if axis == "steps" else np.interp(steps, told["steps"], told[axis])
        placed.append((np.asarray(xs), np.array([point.y for point in curve])))
    ends = {run_id: xs[-1] for run_id, (xs, _) in zip(own, placed, strict=True)}
    first = max(xs[0] for xs, _ in placed)
    last = min((end for run_id, end in ends.items() if run_id in going), default=max(ends.values()))
    if last <= first:
        return None
    grid = np.linspace(first, last, GRID)
    ys = np.stack([np.interp(grid, xs, values) for xs, values in placed]).T
    bounds = _bands(ys)
    points = [Point(float(x), iqm(column)) for x, column in zip(grid, ys, strict=True)]
    return Line(name, points, colour, [low for low, _ in bounds], [high for _, high in bounds], axis=axis)


def _bands(ys: np.ndarray) -> list[tuple[float, float]]:
    """Of each row what `interval` would say of it, by the same draws, and much sooner."""
    count = ys.shape[1]
    if count < SURE:
        return [*zip(ys.min(1).tolist(), ys.max(1).tolist(), strict=True)]
    drawn = np.sort(ys[:, np.random.default_rng(0).integers(0, count, (RESAMPLES, count))], -1)
    means = drawn[..., count // 4 : count - count // 4].mean(-1)
    low, high = np.quantile(means, [0.025, 0.975], 1).tolist()
    return [*zip(low, high, strict=True)]


def summary(by_group: Mapping[str, Sequence[RunFacts]]) -> Markup:
    """A row per group: the middle of what its runs reached, and how sure that is."""
    rows = []
    for place, (name, runs) in enumerate(by_group.items()):
        key = tag("span", name, class_=f"key c{place % COLOURS}")
        tests = [each.brief.episodes for each in runs if each.brief.result == "solved"]
        solved = f"{len(tests)}{few(tests)}"
        test, best = (_said([column(each.brief) for each in runs]) for column in (tested, best_of))
        steps = iqm([each.brief.tail.steps for each in runs])
        took = _sound([each.brief.took for each in runs])
        rows.append((key, len(runs), solved, test, best, f"{steps:,.0f}", duration(iqm(took)) if took else ""))
    head = ("group", "runs", "solved", "test return", "best return", "env steps", "took")
    return card("Groups: interquartile means", table(head, rows, "numbers"))


def tested(line: Brief) -> float | None:
    return line.test


def best_of(line: Brief) -> float | None:
    return line.tail.best


def _said(values: Sequence[float | None]) -> str:
    sound = _sound(values)
    if not sound:
        return ""
    ((low, high),) = _bands(np.array([sound]))
    how = "95 %" if len(sound) >= SURE else "from"
    return score(iqm(sound)) + (f" ({how} {score(low)} to {score(high)})" if len(sound) > 1 else "")


def _sound(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and abs(value) < LARGEST]


def finals(by_group: Mapping[str, Sequence[RunFacts]]) -> Markup:
    rows = []
    for place, (name, runs) in enumerate(by_group.items()):
        for each in runs:
            line, tail = each.brief, each.brief.tail
            shown = ("" if value is None else score(value) for value in (line.test, tail.best, tail.last))
            key = tag(
                "span", "" if line.seed is None else f"seed {line.seed}", class_=f"key c{place % COLOURS}", title=name
            )
            told = verdict_badge(line.verdict) or line.status
            rows.append((key, told, *shown, bound(line.goal), f"{tail.steps:,}", each.run.id))
    return card("Runs", table(("run", "result", "test", "best", "last", "goal", "env steps", "id"), rows, "numbers"))


def config_differences(found: Sequence[RunFacts]) -> Markup:
    """Keys on which the runs do not agree."""
    configs = [_changed(each) for each in found]
    keys = sorted({key for config in configs for key in config})
    rows = [(key, *(config.get(key, "default") for config in configs)) for key in keys]
    rows = [row for row in rows if len(set(row[1:])) > 1 and row[0] != "seed"]
    if not rows:
        return card("Config differences", note("none but the seed"))
    head = ("key", *(tag("span", f"s{each.brief.seed} {each.run.id[-4:]}", title=each.run.id) for each in found))
    return card("Config differences", table(head, rows))


def _changed(each: RunFacts) -> dict[str, str]:
    try:
        return {key: value for key, value, _ in differing_rows(each.facts)}
    except UserError:  # a config of another version: still worth its curve
        return {}
