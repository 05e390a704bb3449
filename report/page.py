"""report.md of a finished run: what came out, with which settings, and how to play, resume and repeat it.

Command, versions and host are read from the run's config.json; nothing is measured here.
"""

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from config.metrics import Metric, load_metrics
from config.schema import Config
from report.alerts import Alert
from report.curve import Point, curve_svg
from report.history import STEPS, TRAIN, VAL
from report.metrics_csv import read_csv
from report.outcome import INTERRUPTED, Header, Outcome
from report.sink import Sink
from report.typography import area_chart, number
from utils import run_files
from utils.run_dir import RunDir

Row = Mapping[str, float]
WHERE = ("git_hash", "versions", "host")
IDENTITY = {"env_id", "variant", "algo_id", "project_id", "description", "schema_version", "spec"}  # nobody tuned these


class ReportPage(Sink):
    """Writes the end of a run to its disk: report.md, then what config.json says of it.

    In this order, since who dies in between writes both when the run goes on.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def begin(self, header: Header, config: Config) -> None:
        self._config = config

    def end(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if not outcome.lost:
            write_report(self._run, self._config, read_csv(self._run.metrics_csv), outcome)
        status = "interrupted" if outcome.reason == INTERRUPTED else "finished"
        told = {name: value for name, value in dataclasses.asdict(outcome).items() if name != "lost"}
        run_files.write_json(self._run.config_json, {**self._run.facts(), "status": status, "outcome": told})


def write_report(run: RunDir, config: Config, rows: Sequence[Row], outcome: Outcome) -> None:
    """Write report.md and logs/curve.svg; `rows` as in metrics.csv, oldest first."""
    facts = run.facts()
    title = f"{config.env_id}:{config.variant}"
    run_files.make_folder(run.logs)
    # the curve before the page that links to it: whoever sees the page sees a curve
    svg = curve_svg(f"{title}, seed {config.seed}", points(rows, TRAIN), points(rows, VAL), outcome.goal)
    run_files.write_text(run.logs / "curve.svg", svg)
    parts = [
        f"**{outcome.sentence()}**",
        f"# {title}",
        config.description,
        "![Episode reward over env steps](logs/curve.svg)",
        _chart(rows),
        "## Alerts",
        _alerts_table(outcome.alerts),
        "## Metrics",
        _metrics_table(rows, load_metrics()),
        "## Next",
        _commands(run, facts, outcome),
        "## Config",
        _config_tables(config),
        "## Where it ran",
        _table(
            ("what", "value"),
            [(key, _yaml_text(facts[key])) for key in ("git_hash", "versions", "host") if key in facts],
        ),
    ]
    run_files.write_text(run.report, "\n\n".join(part for part in parts if part) + "\n")


def points(rows: Sequence[Row], name: str) -> list[Point]:
    """(env steps, value) of the rows that carry the metric; a row without a clock stands where the last one stood."""
    found, steps = [], 0.0
    for row in rows:
        steps = row.get(STEPS, steps)
        if name in row:
            found.append(Point(steps, row[name]))
    return found


def _chart(rows: Sequence[Row]) -> str:
    """The curve once more in text, for readers of a terminal: validation, or training where nothing was evaluated."""
    for name, words in ((VAL, "Validation"), (TRAIN, "Training")):
        curve = [point for point in points(rows, name) if math.isfinite(point.y)]
        if len(curve) > 1:
            chart = area_chart([point.x for point in curve], [point.y for point in curve])
            return f"{words} reward:\n\n```text\n{chart}\n```"
    return ""


def _metrics_table(rows: Sequence[Row], metrics: Mapping[str, Metric]) -> str:
    """Last and best value of every metric the run wrote, except its clock."""
    lines = []
    for name, metric in metrics.items():
        values = [row[name] for row in rows if name in row]
        if not values or "/clock/" in name:
            continue
        finite = [value for value in values if math.isfinite(value)]
        best = "" if metric.better is None or not finite else max(finite) if metric.better == "up" else min(finite)
        shown = best if isinstance(best, str) else number(best, metric.precision)
        last = number(values[-1], metric.precision) + (f" {metric.unit}" if metric.unit != "none" else "")
        lines.append((f"{metric.title} `{name}`", last, shown, metric.meaning))
    return _table(("metric", "last", "best", "meaning"), lines) if lines else "No metric was recorded."


def _alerts_table(alerts: Sequence[Alert]) -> str:
    """What was alarming, when, how badly, and what one may try; the first to begin stands first."""
    if not alerts:
        return "None."
    head = ("alert", "first", "last", "rows", "worst", "what it says and what to try")
    return _table(
        head,
        [
            (
                f"{alert.title} {alert.bound}",
                f"{alert.first:,}",
                f"{alert.last:,}{' (to the end)' if alert.open else ''}",
                f"{alert.rows:,}" + (f", begun {alert.times} times" if alert.times > 1 else ""),
                alert.worst_words,
                f"{alert.means} {alert.tip}",
            )
            for alert in alerts
        ],
    )


def _commands(run: RunDir, facts: Mapping[str, object], outcome: Outcome) -> str:
    """Exact lines to paste into a shell."""
    command = facts.get("command", "")
    exact = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
    budget = "" if outcome.reason == "interrupted" else f" --max-timesteps {2 * outcome.env_steps}"
    lines = [
        ("Play it", f"python run_play.py --run-id {run.id}"),
        ("Train it further", f"python train.py --resume {run.id}{budget}"),
        ("Repeat it", f"git checkout {facts['git_hash']}\n{exact}" if facts.get("git_hash") else exact),
    ]
    return "\n\n".join(f"{title}:\n\n```sh\n{text}\n```" for title, text in lines if text)


def _config_tables(config: Config) -> str:
    """First what somebody decided, then everything."""
    everything = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    changed = {
        field.name: everything[field.name]
        for field in dataclasses.fields(config)
        if field.name not in IDENTITY and everything[field.name] != _default(field)
    }
    return "\n\n".join(
        [
            f"Different from the defaults of {config.algo_id}:",
            _table(("field", "value"), [(name, _yaml_text(value)) for name, value in changed.items()]),
            "<details><summary>All fields</summary>",
            _table(("field", "value"), [(name, _yaml_text(value)) for name, value in everything.items()]),
            "</details>",
        ]
    )


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _yaml_text(value: object) -> str:
    """A value as a person would write it in YAML."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
