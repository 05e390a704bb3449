"""All that is known of a run: what it is, how it ended, what people said of it, its settings, its last numbers."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stride.config.metrics import load_metrics
from stride.config.written import differing_rows
from stride.report.ledger.plot import overlay
from stride.report.ledger.table import LONGEST, aligned, data
from stride.runstore.checkpoint_set import names
from stride.runstore.history import TRAIN, VAL
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import read_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_fate import conclusion, fate
from stride.runstore.run_index import look_at
from stride.runstore.run_query import FIELDS
from stride.trainer_callbacks.watch import read_alerts
from stride.utils.one_line import one_line
from stride.utils.typography import number
from stride.utils.user_error import UserError

SAID = ("engine", "engine_reason", "env_backend", "device", "git_hash", "group", "parent", "host", "versions")
HEIGHT = 10


def shown(run: RunDir, width: int) -> list[str]:
    facts, labels = run.facts(), read_labels(run.path)
    line = look_at(run.path)
    head = {
        "run": run.id, "what": f"{line.variant}, seed {line.seed}", "status": line.status,
        "outcome": conclusion(mapping(facts.get("outcome"))) if facts.get("outcome") else "",
        "fate": fate(run, facts), "fault": line.fault, "tags": " ".join(labels.tags), "note": labels.note,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.started)) if line.started else "",
        "env steps": f"{line.tail.steps:,}", "settings": line.settings,
        **{name: _said(facts.get(name)) for name in SAID},
        "checkpoints": " ".join(names(run.checkpoints)), "folder": str(run.path), "size": size_said(run.path),
    }  # fmt: skip
    lines = [f"{name:<15} {text}" for name, text in head.items() if text]
    return [*lines, *_settings(facts), *_numbers(run), *_alerts(run), *_curve(run, line.goal, width)]


def told(run: RunDir) -> dict[str, object]:
    """The same for programs."""
    line = look_at(run.path)
    return {**data(line, FIELDS), "facts": run.facts(), "metrics": MetricsTable(run.metrics_csv).last(),
            "checkpoints": names(run.checkpoints), "bytes": size_of(run.path)}  # fmt: skip


def size_of(folder: Path) -> int:
    """Bytes of what lies in a run's folder, as far as it can be looked at."""
    total = 0
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(OSError):  # it went meanwhile
                total += os.lstat(os.path.join(here, name)).st_size
    return total


def size_said(folder: Path) -> str:
    return f"{size_of(folder) / 2**20:,.1f} MiB"


def _said(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items() if isinstance(each, str | int | float))
    return str(value or "")


def _settings(facts: Mapping[str, Any]) -> Iterator[str]:
    try:
        rows = differing_rows(facts)
    except UserError as error:  # of another version
        yield f"settings        {error}"
        return
    yield from ("", "settings that are not the algorithm's defaults")
    yield from (f"  {key}={value}" + (f"  (default {usual})" if usual else "") for key, value, usual in rows)


def _numbers(run: RunDir) -> Iterator[str]:
    """The last value of every metric, those that are declared in their order and their precision."""
    found, declared = MetricsTable(run.metrics_csv).last(), load_metrics()
    if not found:
        return
    order = [name for name in declared if name in found] + sorted(found.keys() - declared.keys())
    rows = {"metric": ["last of each metric"], "value": [""], "unit": [""], "title": [""]}
    for name in order:
        metric = declared.get(name)
        rows["metric"].append(f"  {one_line(name, LONGEST)}")
        rows["value"].append(number(found[name], metric.precision) if metric else f"{found[name]:.6g}")
        rows["unit"].append(metric.unit if metric and metric.unit != "none" else "")
        rows["title"].append(metric.title if metric else "not declared")
    yield from ("", *aligned(rows, {"metric", "unit", "title"}))


def _alerts(run: RunDir) -> Iterator[str]:
    try:
        alerts = read_alerts(run)
    except UserError:  # of a config of another version, which was told above
        return
    for each in alerts:
        yield f"alert           {each.title} {each.bound}, first at {each.first:,} env steps"


def _curve(run: RunDir, goal: float | None, width: int) -> list[str]:
    curves = MetricsTable(run.metrics_csv, spread=True)
    curves.refresh()
    points = curves.points(VAL) or curves.points(TRAIN)
    return ["", *overlay({"return": points}, goal, min(width, 100), HEIGHT)] if len(points) > 1 else []
