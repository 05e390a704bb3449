"""report.md of a finished run: what came out, with which settings, and how to play, resume and repeat it.

Command, versions and host are read from the run's config.json; nothing is measured here.
"""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

from stride.config.loader import to_plain
from stride.config.metrics import Metric, load_metrics
from stride.config.schema import Config
from stride.config.written import differing, written
from stride.report.markdown import markdown_table, shell_commands
from stride.runstore import run_files
from stride.runstore.dreams import MEANING, read_dreams
from stride.runstore.history import TRAIN, VAL, Alert
from stride.runstore.metrics_table import points, read_csv
from stride.runstore.outcome import Header, Outcome, phases_text
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import UNENDED, mapping
from stride.trainer_callbacks.sink import Sink
from stride.utils import places
from stride.utils.curve import curve_svg
from stride.utils.typography import area_chart, number

Row = Mapping[str, float]


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
        status = outcome.reason if outcome.reason in UNENDED else "finished"
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
        _task(config),
        "![Episode reward over env steps](logs/curve.svg)",
        _chart(rows),
        f"Time: {phases_text(outcome.phases)}." if outcome.phases else "",
        "## Alerts",
        _alerts_table(outcome.alerts),
        "## Metrics",
        _metrics_table(rows, load_metrics()),
        _dreams(run, outcome),
        "## Next",
        _commands(run, facts, outcome),
        "## Config",
        _config_table(config),
        "## Where it ran",
        markdown_table(("what", "value"), _where(facts)),
    ]
    run_files.write_text(run.report, "\n\n".join(part for part in parts if part) + "\n")


def _task(config: Config) -> str:
    """What is to be done, by which variant, and where the environment is documented."""
    source = config.spec.source
    link = f"[{config.env_id}]({source})" if source.startswith("https://") else config.env_id
    lines = (f"{link}: {config.spec.description}".removesuffix(": "), config.description)
    return "\n".join(f"- {line}" for line in lines if line)


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
        unit = "" if metric.unit == "none" else metric.unit
        lines.append((f"{metric.title} `{name}`", number(values[-1], metric.precision), shown, unit, metric.meaning))
    return markdown_table(("metric", "last", "best", "unit", "meaning"), lines) if lines else "No metric was recorded."


def _alerts_table(alerts: Sequence[Alert]) -> str:
    """What was alarming, when, how badly, and what one may try; the first to begin stands first."""
    if not alerts:
        return "None."
    head = ("alert", "first", "last", "rows", "worst", "what it says and what to try")
    return markdown_table(
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


def _dreams(run: RunDir, outcome: Outcome) -> str:
    """How far a world model's dreams stray, by observation; "" without one."""
    found = read_dreams(run) if outcome.dreams else None
    return "" if found is None else f"## Dreams\n\n{MEANING}\n\n{markdown_table(*found.table())}"


def _commands(run: RunDir, facts: Mapping[str, object], outcome: Outcome) -> str:
    """Exact lines to paste into a shell."""
    command = facts.get("command", "")
    exact = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
    budget = "" if outcome.reason in UNENDED else f" --max-timesteps {2 * outcome.env_steps}"
    lines = [
        ("Play it", f"{places.PLAY} --run-id {run.id}"),
        ("Train it further", f"{places.TRAIN} --resume {run.id}{budget}"),
        ("Repeat it", f"git checkout {facts['git_hash']}\n{exact}" if facts.get("git_hash") else exact),
    ]
    return shell_commands(lines)


def _config_table(config: Config) -> str:
    """What somebody decided; a schedule, a list as it is typed."""
    changed = [(f"`{name}`", f"`{written(value)}`") for name, value in differing(to_plain(config)).items()]
    return "\n\n".join(
        [
            f"Different from the defaults of {config.algo_id}; all keys are in config.json.",
            markdown_table(("key", "value"), changed),
        ]
    )


def _where(facts: Mapping[str, object]) -> list[tuple[str, str]]:
    """Code, versions and machine, a line each."""
    lines = [("commit", str(facts.get("git_hash") or ""))]
    for name in ("versions", "host"):
        lines += [(key, str(value)) for key, value in mapping(facts.get(name)).items()]
    return [line for line in lines if line[1]]
