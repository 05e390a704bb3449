"""Runs side by side in text: what came out, where their configs differ, their curves over one another."""

from collections.abc import Mapping, Sequence
from typing import Any

from stride.config.diff import IDENTITY, written
from stride.report.ledger.explain import meant
from stride.report.ledger.plot import MARKS, overlay
from stride.report.ledger.table import aligned, cell, plain
from stride.report.ledger.written import written as written_file
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_index import look_at
from stride.runstore.run_query import FIELDS, SHOWN
from stride.utils.curve import Point, lines_svg

FIRST = 12  # keys that differ, as many as are shown
HEIGHT, WIDEST = 14, 120
TOLD = ("run", "seed", "status", "result", "test", "best", "last", "steps", "took")


def compared(runs: Sequence[RunDir], metrics: Sequence[str], width: int) -> list[str]:
    names, lines = _names(runs), [look_at(run.path) for run in runs]
    wanted = [meant(word).name for word in metrics]
    rows = [(name, [cell(name, SHOWN.get(name, FIELDS[name])(line)) for line in lines]) for name in TOLD]
    last = [MetricsTable(run.metrics_csv).last() for run in runs]
    rows += [(name, [plain(each[name]) if name in each else "" for each in last]) for name in wanted]
    apart = differences(runs)
    rows += [(key, [*values]) for key, values in [*apart.items()][:FIRST]]
    cells = {"": [""] + [name for name, _ in rows]}
    cells |= {name: [name, *(values[place] for _, values in rows)] for place, name in enumerate(names)}
    told = [*(f"{name}  {run.id}" for name, run in zip(names, runs, strict=True)), "", *aligned(cells, {""})]
    more = [f"{len(apart) - FIRST} more keys differ; --json tells them"] if len(apart) > FIRST else []
    said = [f"{len(apart)} keys of their configs differ" if apart else "their configs differ in nothing but the seed"]
    return [*told, *more, "", *said, *_curves(runs, wanted, lines, min(width, WIDEST))]


def told(runs: Sequence[RunDir], metrics: Sequence[str]) -> dict[str, object]:
    """The same for programs."""
    wanted = [meant(word).name for word in metrics]
    lines, last = [look_at(run.path) for run in runs], [MetricsTable(run.metrics_csv).last() for run in runs]
    fields = [{name: FIELDS[name](line) for name in ("id", *TOLD, "test_episodes")} for line in lines]
    numbers = [{"metrics": {name: each.get(name) for name in wanted}} for each in last]
    return {
        "runs": [told | more for told, more in zip(fields, numbers, strict=True)], "differences": differences(runs),
    }  # fmt: skip


def picture(runs: Sequence[RunDir], metrics: Sequence[str], file: str) -> None:
    """The curves of the first of these metrics, else of the return, as SVG."""
    wanted = [meant(word).name for word in metrics]
    goals = {look_at(run.path).goal for run in runs}
    named = dict(
        zip((f"{name} {run.id[-24:]}" for name, run in zip(_names(runs), runs, strict=True)), runs, strict=True)
    )
    curves = {name: curve(run, wanted[:1]) for name, run in named.items()}
    goal = goals.pop() if len(goals) == 1 and not wanted else None
    written_file(file, lines_svg(wanted[0] if wanted else "Episode return", curves, goal))


def differences(runs: Sequence[RunDir]) -> dict[str, tuple[str, ...]]:
    """Keys of the configs on which the runs do not agree, in the order of the first config, with each one's value."""
    configs = [mapping(run.facts().get("config")) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config if key not in {*IDENTITY, "seed"})
    found = {key: tuple(_written(config, key) for config in configs) for key in keys}
    return {key: values for key, values in found.items() if len({*values}) > 1}


def curve(run: RunDir, metrics: Sequence[str]) -> list[Point]:
    """Of a metric, else evaluation, or training where there is none."""
    curves = MetricsTable(run.metrics_csv, spread=True)
    curves.refresh()
    return next((found for name in metrics or (VAL, TRAIN) if (found := curves.points(name))), [])


def _curves(runs: Sequence[RunDir], wanted: Sequence[str], lines: Sequence[Brief], width: int) -> list[str]:
    goals = {line.goal for line in lines}
    goal = goals.pop() if len(goals) == 1 and not wanted else None
    named = {run.id: curve(run, wanted[:1]) for run in runs[: len(MARKS)]}
    drawn = overlay(named, goal, width, HEIGHT)
    return ["", wanted[0] if wanted else "episode return", *drawn] if drawn else []


def _written(config: Mapping[str, Any], key: str) -> str:
    return written(config[key]) if key in config else "(none)"


def _names(runs: Sequence[RunDir]) -> list[str]:
    return [MARKS[place] if place < len(MARKS) else str(place + 1) for place in range(len(runs))]
