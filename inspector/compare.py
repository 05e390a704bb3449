"""Makes the tab Compare: curves and results of several runs, and the keys in which their configs differ.

Runs that differ only in their seed form a group, which gets one curve: the interquartile mean with a band around it.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

import numpy as np

from stride.config.diff import differing_rows
from stride.config.metrics import arranged, metric_of
from stride.inspector.charts import MAX_VALUE, Clocks, Line, board, chart, clock, goal_text
from stride.inspector.markup import Markup, card, join, note, table, tag
from stride.inspector.runs import RunFacts, Runs
from stride.inspector.table import run_label, verdict_badge
from stride.inspector.trials import count_text, trials
from stride.runstore.history import TRAIN, VAL
from stride.runstore.run_brief import Brief
from stride.runstore.run_facts import few
from stride.runstore.select import GROUP_PREFIX
from stride.utils.curve import Point
from stride.utils.statistics import iqm
from stride.utils.typography import duration, optional, score
from stride.utils.user_error import UserError

COLOURS = 8  # of groups, then they repeat
MAX_RUNS = 64  # that are compared
RESAMPLES = 400  # bootstrap samples of an interval
GRID_POINTS = 80  # x values at which the curves of a group are averaged
MIN_INTERVAL_RUNS = 5  # with fewer runs a 95 % interval would mean nothing
DEFAULT_RUNS = 5  # compared if the user has chosen none
BAND_NOTE = f"""interquartile mean; a run that ended earlier keeps its last value. Band: 95 % interval; with
fewer than {MIN_INTERVAL_RUNS} runs, lowest to highest"""
AXES = ("steps", "time", "episodes")
RETURN = "return"  # the metric that is shown if none was chosen: return of evaluations, or of training
MAX_METRICS = 12  # charts
MAX_EXACT_LETTERS = 7  # a longer number is rounded in the name of a group
MAX_NAME_LETTERS = 120  # characters of a metric's name

RunList = Sequence[RunFacts]
Groups = Mapping[str, RunList]  # name of the group -> its runs


def first_choice(runs: Runs) -> list[str]:
    """Return selectors of what is compared at first: the newest group, else the newest runs of one environment."""
    briefs = runs.page("by:run").lines
    sizes = Counter(run_brief.group for run_brief in briefs if run_brief.group)
    for run_brief in briefs:
        if sizes[run_brief.group] > 1:
            return [GROUP_PREFIX + run_brief.group]
    return [run_brief.id for run_brief in briefs if run_brief.env == briefs[0].env][:DEFAULT_RUNS]


def choices(runs: Runs) -> list[tuple[str, str]]:
    """Return what can be compared, as (label, selector): first groups, then runs, the newest first."""
    briefs = runs.page("by:run").lines
    members: dict[str, list[Brief]] = {}
    for run_brief in briefs:
        if run_brief.group:
            members.setdefault(run_brief.group, []).append(run_brief)
    options = [
        (f"{group[0].variant}, {count_text(group)}, {group_name}", GROUP_PREFIX + group_name)
        for group_name, group in members.items()
    ]
    return options + [run_label(run_brief.id) for run_brief in briefs]


def chosen(runs: Runs, selectors: Sequence[str]) -> list[Brief]:
    """Return the runs that selectors name: a run's id, or `group:NAME` for a whole group; UserError if none matches."""
    briefs: dict[str, Brief] = {}
    for selector in selectors:
        if selector.startswith(GROUP_PREFIX):
            group = runs.group(selector.removeprefix(GROUP_PREFIX))
            if not group:
                raise UserError(f"no runs have {selector[:80]}")
        else:
            group = [runs.brief(runs.find(selector).id)]
        briefs |= {run_brief.id: run_brief for run_brief in group}
    return [*briefs.values()]


def compare_runs(runs: Runs, selectors: Sequence[str], metrics: Sequence[str]) -> tuple[Markup, list[tuple[str, str]]]:
    """Return the complete tab, and the metrics to choose from as (label, name)."""
    briefs = chosen(runs, selectors)
    opened = [runs.look_into(run_brief.id) for run_brief in briefs[: MAX_RUNS + 1]]
    return compare(opened, metrics, briefs), metric_choices(opened)


def compare(all_runs: RunList, metrics: Sequence[str] = (RETURN,), briefs: Sequence[Brief] = ()) -> Markup:
    """Return a chart for each metric, then trials if `briefs` have different settings, results and config differences.

    `briefs`: all chosen runs, also those beyond MAX_RUNS."""
    if len(all_runs) < 2:
        return note("choose a group, or at least two runs" if not all_runs else "one run: choose another to compare")
    sections = [note(f"curves and tables show only the first {MAX_RUNS} runs")] if len(all_runs) > MAX_RUNS else []
    runs = all_runs[:MAX_RUNS]
    by_group = groups(runs)
    clocks = {run_facts.run.id: clock(run_facts) for run_facts in runs}
    legend = [note(BAND_NOTE)] if len(by_group) < len(runs) else []
    charts = [metric_chart(metric_name, by_group, clocks) for metric_name in metrics[:MAX_METRICS]]
    figures = [tag("section", figure, class_="card") for figure in charts]
    sections.append(board(" ".join(by_group), clocks, *figures, *legend))
    sections.append(trials(briefs or [run_facts.brief for run_facts in runs]))
    return join([*sections, summary(by_group), results(by_group), config_differences(runs)])


def metric_chart(metric_name: str, by_group: Groups, clocks: Clocks) -> Markup:
    """Return a chart of one metric with the curves of all groups."""
    lines = []
    for index, (group_name, members) in enumerate(by_group.items()):
        lines += curves(group_name, members, f"c{index % COLOURS}", clocks, metric_name)
    lines.sort(key=lambda line: not line.thin)
    goals = {run_facts.brief.goal for members in by_group.values() for run_facts in members}
    if metric_name == RETURN:
        return chart("Return", lines, goals.pop() if len(goals) == 1 else None)
    metric = metric_of(metric_name[:MAX_NAME_LETTERS])
    title = f"{metric.title}, {metric.unit_text}" if metric.unit_text else metric.title
    return chart(title, lines, about=f"{metric.name}: {metric.meaning}")


def metric_choices(runs: RunList) -> list[tuple[str, str]]:
    """Return (label, name) of each metric that at least one of the runs has measured."""
    names = {metric_name for run_facts in runs[:MAX_RUNS] for metric_name in run_facts.curves.curves}
    options = [(f"{metric.title}: {metric.name}"[:MAX_NAME_LETTERS], metric.name) for metric in arranged(names)]
    return [("Return of evaluations, or of training if there are none", RETURN), *options]


def groups(runs: RunList) -> dict[str, list[RunFacts]]:
    """Return the groups of runs that differ only in their seed.

    A group's name is the variant, with the settings in which it differs from others: "CartPole-v1:ppo gamma=0.98"."""
    by_settings: dict[tuple[str, frozenset[tuple[str, str]]], list[RunFacts]] = {}
    for run_facts in runs:
        changed = _changed_settings(run_facts)
        changed.pop("seed", None)
        by_settings.setdefault((run_facts.brief.variant, frozenset(changed.items())), []).append(run_facts)
    common = frozenset.intersection(*(settings for _, settings in by_settings))
    variants = Counter(variant for variant, _ in by_settings)
    named: dict[str, list[RunFacts]] = {}
    for (variant, settings), members in by_settings.items():
        group_name = variant
        if variants[variant] > 1:
            assigned = " ".join(f"{config_key}={rounded(value)}" for config_key, value in sorted(settings - common))
            group_name = f"{variant} {assigned[:80]}".strip()
        if group_name in named:
            group_name += f" ({members[0].run.id})"
        named[group_name] = members
    return named


def rounded(text: str) -> str:
    """Return a long number rounded, "0.01234" for "0.012338746"; any other setting unchanged."""
    try:
        return f"{float(text):.4g}" if len(text) > MAX_EXACT_LETTERS and "." in text else text
    except ValueError:
        return text


def curve_of(run_facts: RunFacts, metric_name: str = RETURN) -> list[Point]:
    """Return the finite points of a metric; RETURN means evaluations, or the training return if there are none."""
    points = (
        run_facts.points(VAL) or run_facts.points(TRAIN) if metric_name == RETURN else run_facts.points(metric_name)
    )
    return [point for point in points if abs(point.y) < MAX_VALUE]


def curves(group_name: str, runs: RunList, colour: str, clocks: Clocks, metric_name: str = RETURN) -> list[Line]:
    """Return the lines of a group: one per run, and if it has several, their mean curve for each x axis."""
    lines = []
    unfinished = set()
    for run_facts in runs:
        curve = curve_of(run_facts, metric_name)
        if curve:
            lines.append(Line(group_name, curve, colour, run=run_facts.run.id))
        if run_facts.brief.status in ("running", "silent", "halted"):
            unfinished.add(run_facts.run.id)
    if len(lines) < 2:
        return lines
    title = f"{group_name}, {len(lines)} runs"
    middles = [middle_curve(title, lines, unfinished, clocks, axis) for axis in AXES]
    drawn = [line for line in middles if line]
    return [line._replace(thin=True) for line in lines] + drawn if drawn else lines


def middle_curve(
    title: str, lines: Sequence[Line], unfinished: Container[str], clocks: Clocks, axis: str
) -> Line | None:
    """Return the interquartile mean of several lines with its band; None if they have no common range of x.

    The range starts where the last of them starts. It ends with the longest one, or at the end of the shortest
    unfinished run, because that one will still change."""
    series = []  # for each run: (x values on this axis, y values)
    unfinished_ends = []
    for line in lines:
        x_values = np.array([point.x for point in line.points])
        if axis != "steps":
            run_clock = clocks.get(line.run, {})
            if axis not in run_clock:
                return None
            x_values = np.interp(x_values, run_clock["steps"], run_clock[axis])
        series.append((x_values, [point.y for point in line.points]))
        if line.run in unfinished:
            unfinished_ends.append(x_values[-1])
    first = max(x_values[0] for x_values, _ in series)
    last = min(unfinished_ends, default=max(x_values[-1] for x_values, _ in series))
    if last <= first:
        return None
    grid = np.linspace(first, last, GRID_POINTS)
    columns = np.stack([np.interp(grid, x_values, returns) for x_values, returns in series]).T
    low, high = _bands(columns)
    points = [Point(float(x), iqm(column)) for x, column in zip(grid, columns, strict=True)]
    return Line(title, points, lines[0].colour, low, high, axis=axis)


def _bands(rows: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the lower and upper ends of a 95 % interval for each row of [rows, runs]; lowest and highest of few runs.

    They are equal to utils.statistics.interval of each row, with the same random draws, but much faster."""
    count = rows.shape[1]
    if count < MIN_INTERVAL_RUNS:
        return rows.min(1).tolist(), rows.max(1).tolist()
    # bootstrap: [rows, resamples, runs], sorted; the mean of the middle half is the interquartile mean
    drawn = np.sort(np.sort(rows)[:, np.random.default_rng(0).integers(0, count, (RESAMPLES, count))], -1)
    means = drawn[..., count // 4 : count - count // 4].mean(-1)
    low, high = np.quantile(means, [0.025, 0.975], 1).tolist()
    return low, high


def summary(by_group: Groups) -> Markup:
    """Return a card with a row per group: the interquartile means of its results, with intervals."""
    table_rows = []
    for index, (group_name, runs) in enumerate(by_group.items()):
        briefs = [run_facts.brief for run_facts in runs]
        episodes = [run_brief.episodes for run_brief in briefs if run_brief.result == "solved"]
        seconds = _valid([run_brief.took for run_brief in briefs])
        table_rows.append((
            _key(group_name, index),
            len(runs),
            f"{len(episodes)}{few(episodes)}",
            _middle_text([run_brief.test for run_brief in briefs]),
            _middle_text([run_brief.tail.best for run_brief in briefs]),
            f"{iqm([run_brief.tail.steps for run_brief in briefs]):,.0f}",
            duration(iqm(seconds)) if seconds else "",
        ))  # fmt: skip
    head = ("group", "runs", "solved", "test", "best", "env steps", "took")
    return card("Groups: interquartile means", table(head, table_rows, "numbers"))


def _key(text: str, group_index: int, title: str = "") -> Markup:
    """Return a label in the colour of its group."""
    return tag("span", text, class_=f"key c{group_index % COLOURS}", title=title)


def _middle_text(values: Sequence[float | None]) -> str:
    """Return the interquartile mean of values with its interval: "471.2 (95 % 455 to 488)"; "" without values."""
    valid = _valid(values)
    if not valid:
        return ""
    text = score(iqm(valid))
    if len(valid) > 1:
        [low], [high] = _bands(np.array([valid]))
        text += f" ({'95 %' if len(valid) >= MIN_INTERVAL_RUNS else 'from'} {score(low)} to {score(high)})"
    return text


def _valid(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and abs(value) < MAX_VALUE]


def results(by_group: Groups) -> Markup:
    """Return a card with a row per run."""
    table_rows = []
    for index, (group_name, runs) in enumerate(by_group.items()):
        for run_facts in runs:
            run_brief = run_facts.brief
            table_rows.append((
                _key(optional(run_brief.seed, "seed {}".format), index, group_name),
                verdict_badge(run_brief.verdict) or run_brief.status,
                optional(run_brief.test, score),
                optional(run_brief.tail.best, score),
                optional(run_brief.tail.last, score),
                goal_text(run_brief.goal),
                f"{run_brief.tail.steps:,}",
                run_facts.run.id,
            ))  # fmt: skip
    return card(
        "Runs", table(("run", "result", "test", "best", "last", "goal", "env steps", "id"), table_rows, "numbers")
    )


def config_differences(runs: RunList) -> Markup:
    """Return a card with the config keys in which the runs differ."""
    configs = [_changed_settings(run_facts) for run_facts in runs]
    table_rows = []
    for config_key in sorted(set().union(*configs) - {"seed"}):
        values = [config.get(config_key, "default") for config in configs]
        if len(set(values)) > 1:
            table_rows.append((config_key, *values))
    if not table_rows:
        return card("Config differences", note("only the seed"))
    heads = []
    for run_facts in runs:
        run_id = run_facts.run.id
        heads.append(tag("span", f"s{run_facts.brief.seed} {run_id[-4:]}", title=run_id))
    return card("Config differences", table(("key", *heads), table_rows))


def _changed_settings(run_facts: RunFacts) -> dict[str, str]:
    """Return the settings of a run that are not defaults, as they are typed."""
    try:
        return {config_key: value for config_key, value, _ in differing_rows(run_facts.facts)}
    except UserError:  # a config of another version; the curves of the run can still be drawn
        return {}
