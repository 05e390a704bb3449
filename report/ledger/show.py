"""Implement `stride runs show`: everything about one run: result, tags, settings, last metrics, alerts, curve."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stride.config.diff import changed_keys, differing_rows
from stride.config.metrics import arranged
from stride.report.ledger.compare import curve
from stride.report.ledger.plot import overlay
from stride.report.ledger.table import MAX_CELL, aligned, data, joined_pairs
from stride.runstore.checkpoint_set import names
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import read_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_fate import conclusion, fate
from stride.runstore.run_index import look_at
from stride.runstore.run_query import FIELDS
from stride.trainer_callbacks.watch import read_alerts
from stride.utils.typography import number
from stride.utils.user_error import UserError, one_line

FACTS = ("engine", "engine_reason", "env_backend", "device", "git_hash", "group", "parent", "host", "versions")
HEIGHT, MAX_WIDTH = 10, 100  # lines and columns of the curve


def run_lines(run: RunDir, width: int) -> list[str]:
    """Return the lines about a run; `width`: columns of the terminal."""
    facts = run.facts()
    labels = read_labels(run.path)
    run_brief = look_at(run.path)
    texts = {
        "run": run.id, "what": f"{run_brief.variant}, seed {run_brief.seed}", "status": run_brief.status,
        "outcome": conclusion(mapping(facts.get("outcome"))) if facts.get("outcome") else "",
        "fate": fate(run, facts), "fault": run_brief.fault, "tags": " ".join(labels.tags), "note": labels.note,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run_brief.started)) if run_brief.started else "",
        "env steps": f"{run_brief.tail.steps:,}", "settings": run_brief.settings,
        **{entry_name: joined_pairs(facts.get(entry_name) or "") for entry_name in FACTS},
        "checkpoints": " ".join(names(run.checkpoints)), "folder": str(run.path),
        "size": f"{size_of(run.path) / 2**20:,.1f} MiB",
    }  # fmt: skip
    text_lines = [f"{entry_name:<15} {text}" for entry_name, text in texts.items() if text]
    text_lines += _settings(facts)
    text_lines += _last_values(run)
    text_lines += _alerts(run)
    points = curve(run)
    if len(points) > 1:
        text_lines += ["", *overlay({"return": points}, run_brief.goal, min(width, MAX_WIDTH), HEIGHT)]
    return text_lines


def run_data(run: RunDir) -> dict[str, object]:
    """Return the run as data for --json."""
    last = MetricsTable(run.metrics_csv).last()
    return {**data(look_at(run.path), FIELDS), "facts": run.facts(), "metrics": last,
            "checkpoints": names(run.checkpoints), "bytes": size_of(run.path)}  # fmt: skip


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a run's folder."""
    total = 0
    for parent, folders, files in os.walk(folder):
        for entry_name in folders + files:
            with suppress(OSError):  # it was deleted meanwhile
                total += os.lstat(os.path.join(parent, entry_name)).st_size
    return total


def _settings(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each setting that differs from the algorithm's default."""
    try:
        rows = differing_rows(facts)
    except UserError as error:  # the config is of another version of Stride
        yield f"settings        {error}"
        return
    yield from ("", "settings that differ from the algorithm's defaults")
    changed = changed_keys(facts)
    for config_key, value, default in rows:
        remarks = ["changed for this run"] * (config_key in changed) + [f"default {default}"] * bool(default)
        yield f"  {config_key}={value}" + (f"  ({', '.join(remarks)})" if remarks else "")


def _last_values(run: RunDir) -> list[str]:
    """Return a table of the last values of the metrics that the console shows, and the number of the others."""
    values = MetricsTable(run.metrics_csv).last()
    if not values:
        return []
    table_rows = []
    for metric in arranged(values):
        if metric.table:
            value = number(values[metric.name], metric.precision)
            title = f"  {one_line(metric.title, MAX_CELL)}"
            table_rows.append((title, value, metric.unit_text, one_line(metric.name, MAX_CELL)))
    head = ("last of each metric", "", " ", " ")  # only the first column has a head
    more = f"  and {len(values) - len(table_rows)} more; --json prints all"
    return ["", *aligned(head, table_rows, {"last of each metric", " "}), more]


def _alerts(run: RunDir) -> list[str]:
    """Return a line for each alert of the run."""
    try:
        alerts = read_alerts(run)
    except UserError:  # the config is of another version, which _settings reports
        return []
    return [f"alert           {alert.title} {alert.bound}, first at {alert.first:,} env steps" for alert in alerts]
