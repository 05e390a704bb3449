"""Runs side by side in text: their results, where their configs differ, their curves over one another."""

from collections.abc import Sequence

from stride.config.diff import IDENTITY, written
from stride.report.ledger.explain import find_metric
from stride.report.ledger.plot import MARKS, overlay
from stride.report.ledger.table import aligned, cell, plain
from stride.report.ledger.written import write_output
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_index import look_at
from stride.runstore.run_query import FIELDS, SHOWN
from stride.utils.curve import Point, lines_svg

MOST_KEYS = 12  # that differ and are shown
HEIGHT, WIDEST = 14, 120
ROWS = ("run", "seed", "status", "result", "test", "best", "last", "steps", "took")

Runs = Sequence[RunDir]
Names = Sequence[str]


def comparison(runs: Runs, metrics: Names, width: int) -> list[str]:
    """A table with a column for each run, then the curves."""
    letters = _letters(runs)
    different = differences(runs)
    columns = {"": ["", *ROWS, *_full_names(metrics), *list(different)[:MOST_KEYS]]}
    for index, run in enumerate(runs):
        run_brief = look_at(run.path)
        last = MetricsTable(run.metrics_csv).last()
        cells = [cell(column_name, SHOWN.get(column_name, FIELDS[column_name])(run_brief)) for column_name in ROWS]
        cells += [plain(last[column_name]) if column_name in last else "" for column_name in _full_names(metrics)]
        cells += [values[index] for values in different.values()][:MOST_KEYS]
        columns[letters[index]] = [letters[index], *cells]
    text_lines = [f"{letter}  {run.id}" for letter, run in zip(letters, runs, strict=True)]
    text_lines += ["", *aligned(columns, {""})]
    if len(different) > MOST_KEYS:
        text_lines.append(f"{len(different) - MOST_KEYS} more keys differ; --json tells them")
    count = f"{len(different)} keys of their configs differ"
    text_lines += ["", count if different else "their configs differ in nothing but the seed"]
    curves = {run.id: curve(run, _full_names(metrics)) for run in runs[: len(MARKS)]}
    drawing = overlay(curves, _common_goal(runs, metrics), min(width, WIDEST), HEIGHT)
    if drawing:
        text_lines += ["", _full_names(metrics)[0] if metrics else "episode return", *drawing]
    return text_lines


def comparison_data(runs: Runs, metrics: Names) -> dict[str, object]:
    """An object for programs."""
    objects = []
    for run in runs:
        run_brief = look_at(run.path)
        last = MetricsTable(run.metrics_csv).last()
        fields = {column_name: FIELDS[column_name](run_brief) for column_name in ("id", *ROWS, "test_episodes")}
        objects.append(
            {**fields, "metrics": {column_name: last.get(column_name) for column_name in _full_names(metrics)}}
        )
    return {"runs": objects, "differences": differences(runs)}


def write_picture(runs: Runs, metrics: Names, file: str) -> None:
    """Write the curves of the first of these metrics, else of the return, as SVG."""
    names = _full_names(metrics)
    curves = {f"{letter} {run.id[-24:]}": curve(run, names) for letter, run in zip(_letters(runs), runs, strict=True)}
    write_output(file, lines_svg(names[0] if names else "Episode return", curves, _common_goal(runs, metrics)))


def differences(runs: Runs) -> dict[str, tuple[str, ...]]:
    """Keys of the configs on which the runs do not agree, in the order of the first config, with each one's value."""
    configs = [mapping(run.facts().get("config")) for run in runs]
    result = {}
    for config_key in dict.fromkeys(config_key for config in configs for config_key in config):
        values = tuple(written(config[config_key]) if config_key in config else "(none)" for config in configs)
        if len({*values}) > 1 and config_key not in {*IDENTITY, "seed"}:
            result[config_key] = values
    return result


def curve(run: RunDir, metrics: Names = ()) -> list[Point]:
    """The first metric, where it is one of the run's; without metrics evaluation, or training."""
    table = MetricsTable(run.metrics_csv, spread=True)
    table.refresh()
    for column_name in metrics[:1] or (VAL, TRAIN):
        points = table.points(column_name)
        if points:
            return points
    return []


def _full_names(metrics: Names) -> list[str]:
    return [find_metric(column_name).name for column_name in metrics]


def _common_goal(runs: Runs, metrics: Names) -> float | None:
    """The goal of all runs where they have the same one and returns are drawn."""
    goals = {look_at(run.path).goal for run in runs}
    return goals.pop() if len(goals) == 1 and not metrics else None


def _letters(runs: Runs) -> list[str]:
    return [MARKS[index] if index < len(MARKS) else str(index + 1) for index in range(len(runs))]
