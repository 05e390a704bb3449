"""Implement `stride runs compare`: results of runs side by side, keys in which their configs differ, their curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from stride.config.diff import IDENTITY_KEYS, written
from stride.report.ledger.explain import find_metric
from stride.report.ledger.plot import MARKS, letters, overlay
from stride.report.ledger.table import aligned, cell, plain
from stride.report.ledger.written import write_output
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_index import look_at
from stride.runstore.run_query import FIELDS, SHOWN
from stride.utils.curve import Point, lines_svg
from stride.utils.typography import optional
from stride.utils.user_error import UserError, nearest

MAX_KEYS = 12  # differing keys that are shown
HEIGHT, MAX_WIDTH = 14, 120  # lines and columns of the curves
ROWS = ("run", "seed", "status", "result", "test", "best", "last", "steps", "took")

Runs = Sequence[RunDir]
Names = Sequence[str]
Facts = Mapping[str, Any]  # of config.json


def comparison(runs: Runs, metrics: Names, width: int) -> list[str]:
    """Return a table with a column for each run, then the curves; `metrics`: more rows of the table."""
    metric_names = _full_names(metrics, runs)
    marks = letters(len(runs))
    briefs = [look_at(run.path) for run in runs]
    last_values = [MetricsTable(run.metrics_csv).last() for run in runs]
    different = differences([run.facts() for run in runs])
    table_rows = []
    for field_name in ROWS:
        look = SHOWN.get(field_name, FIELDS[field_name])
        table_rows.append([field_name, *(cell(field_name, look(run_brief)) for run_brief in briefs)])
    table_rows += [
        [metric_name, *(optional(last.get(metric_name), plain) for last in last_values)] for metric_name in metric_names
    ]
    table_rows += [[config_key, *values] for config_key, values in different.items()][:MAX_KEYS]
    text_lines = [f"{letter}  {run.id}" for letter, run in zip(marks, runs, strict=True)]
    text_lines += ["", *aligned(["", *marks], table_rows, {""})]
    if len(different) > MAX_KEYS:
        text_lines.append(f"{len(different) - MAX_KEYS} more keys differ; --json lists all")
    counts = {0: "their configs differ only in the seed", 1: "1 key of the configs differs"}
    text_lines += ["", counts.get(len(different), f"{len(different)} keys of the configs differ")]
    curves = {run.id: curve(run, metric_names) for run in runs[: len(MARKS)]}
    drawing = overlay(curves, _common_goal(runs, metrics), min(width, MAX_WIDTH), HEIGHT)
    if drawing:
        text_lines += ["", metric_names[0] if metric_names else "return", *drawing]
    return text_lines


def comparison_data(runs: Runs, metrics: Names) -> dict[str, object]:
    """Return the comparison as data for --json."""
    metric_names = _full_names(metrics, runs)
    objects = []
    for run in runs:
        run_brief = look_at(run.path)
        last = MetricsTable(run.metrics_csv).last()
        fields = {column_name: FIELDS[column_name](run_brief) for column_name in ("id", *ROWS, "test_episodes")}
        objects.append({**fields, "metrics": {metric_name: last.get(metric_name) for metric_name in metric_names}})
    return {"runs": objects, "differences": differences([run.facts() for run in runs])}


def write_picture(runs: Runs, metrics: Names, file: str) -> None:
    """Write an SVG with the curves of the first of these metrics; without metrics those of the return."""
    metric_names = _full_names(metrics, runs)
    marked_runs = zip(letters(len(runs)), runs, strict=True)
    curves = {f"{letter} {run.id[-24:]}": curve(run, metric_names) for letter, run in marked_runs}
    write_output(file, lines_svg(metric_names[0] if metric_names else "return", curves, _common_goal(runs, metrics)))


def differences(all_facts: Sequence[Facts], missing: str = "(none)") -> dict[str, tuple[str, ...]]:
    """Return the config keys in which runs differ, with the value of each run: {"gamma": ("0.99", "0.9")}.

    `missing`: the text for a run that does not have the key.
    """
    configs = [mapping(facts.get("config")) for facts in all_facts]
    result = {}
    for config_key in dict.fromkeys(config_key for config in configs for config_key in config):
        values = tuple(written(config[config_key]) if config_key in config else missing for config in configs)
        if len({*values}) > 1 and config_key not in {*IDENTITY_KEYS, "seed"}:
            result[config_key] = values
    return result


def curve(run: RunDir, metrics: Names = ()) -> list[Point]:
    """Return the curve of the first metric, [] if the run does not have it.

    Without metrics: the curve of evaluations, or of training returns if there were none.
    """
    table = MetricsTable(run.metrics_csv, spread=True)
    table.refresh()
    for column_name in metrics[:1] or (VAL, TRAIN):
        points = table.points(column_name)
        if points:
            return points
    return []


def _full_names(metrics: Names, runs: Runs) -> list[str]:
    """Return the metrics by their full names; UserError for one that none of the runs has."""
    metric_names = [find_metric(column_name).name for column_name in metrics]
    measured = {name for run in runs for name in MetricsTable(run.metrics_csv).last()} if metric_names else set()
    for metric_name in metric_names:
        if metric_name not in measured:
            raise UserError(f"none of these runs has {metric_name}{nearest(metric_name, measured)}")
    return metric_names


def _common_goal(runs: Runs, metrics: Names) -> float | None:
    """Return the goal if all runs have the same one and returns are drawn, else None."""
    goals = {look_at(run.path).goal for run in runs}
    return goals.pop() if len(goals) == 1 and not metrics else None
