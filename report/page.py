"""The sink that writes report.md at the end of a run: result, settings, and commands to play, resume and repeat it.

Command, versions and host come from the run's config.json; nothing is measured here. group_page.py uses the functions
for Markdown at the end of this file.
"""

import dataclasses
import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from stride.config.diff import BOLD_NOTE, changed_keys, differing, settings_rows
from stride.config.loader import to_plain
from stride.config.metrics import Metric, arranged
from stride.config.schema import Config
from stride.runstore import run_files
from stride.runstore.dreams import MEANING, read_dreams
from stride.runstore.history import TRAIN, VAL, Alert
from stride.runstore.metrics_table import points, read_csv
from stride.runstore.outcome import Header, Outcome, cure_commands, phases_text
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import UNENDED, mapping
from stride.trainer_callbacks.sink import Sink
from stride.utils import places
from stride.utils.curve import Point, curve_svg
from stride.utils.typography import area_chart, number

Row = Mapping[str, float]
Facts = Mapping[str, object]  # of config.json


class ReportPage(Sink):
    """Writes report.md, then the outcome to config.json.

    The order matters: a run that dies in between has no outcome yet, so it can be resumed and writes both again.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def begin(self, header: Header, config: Config) -> None:
        self._config = config
        self._task = header.task

    def end(self, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        if not outcome.lost:
            write_report(self._run, self._config, read_csv(self._run.metrics_csv), outcome, self._task)
        status = outcome.reason if outcome.reason in UNENDED else "finished"
        fields = dataclasses.asdict(outcome)
        del fields["lost"]
        run_files.write_json(self._run.config_json, {**self._run.facts(), "status": status, "outcome": fields})


def write_report(run: RunDir, config: Config, rows: Sequence[Row], outcome: Outcome, task: Sequence[str] = ()) -> None:
    """Write report.md and logs/curve.svg. `rows`: those of metrics.csv, oldest first. `task`: Header.task."""
    facts = run.facts()
    title = f"{config.env_id}:{config.variant}"
    bold = BOLD_NOTE if facts.get("changes") else ""
    run_files.make_folder(run.logs)
    # first the curve, then the page that links to it: so the link never points to a missing file
    svg = curve_svg(f"{title}, seed {config.seed}", points(rows, TRAIN), points(rows, VAL), outcome.goal)
    run_files.write_text(run.logs / "curve.svg", svg)
    metrics = arranged({metric_name for csv_row in rows for metric_name in csv_row})
    others = _metrics_table(rows, [metric for metric in metrics if not metric.table], with_meaning=False)
    sections = [
        f"**{outcome.sentence()}**",
        f"# {title}",
        _task(config),
        "![Return and evaluation over env steps](logs/curve.svg)",
        _chart(rows),
        f"Time: {phases_text(outcome.phases)}." if outcome.phases else "",
        "## Alerts",
        _alerts_table(outcome.alerts),
        "## Metrics",
        _metrics_table(rows, [metric for metric in metrics if metric.table]) or "No metric was recorded.",
        _dreams(run, outcome),
        "## Next",
        _commands(run, facts, outcome, task),
        "## Config",
        f"Different from the defaults of {config.algo_id}{bold}; all keys are in config.json.",
        _config_table(config, changed_keys(facts)),
        "## Where it ran",
        markdown_table(("what", "value"), _environment(facts)),
        f"## Other metrics\n\n{others}" if others else "",
    ]
    run_files.write_text(run.report, joined(sections))


def _task(config: Config) -> str:
    """Return lines about the environment, with a link to its documentation, and about the variant."""
    source = config.spec.source
    link = f"[{config.env_id}]({source})" if source.startswith("https://") else config.env_id
    lines = (f"{link}: {config.spec.description}".removesuffix(": "), config.description)
    return "\n".join(f"- {line}" for line in lines if line)


def _chart(rows: Sequence[Row]) -> str:
    """Draw the curve of evaluations (without any: of training returns) as text, for readers in a terminal."""
    for metric_name, title in ((VAL, "Evaluation"), (TRAIN, "Return")):
        curve = [point for point in points(rows, metric_name) if math.isfinite(point.y)]
        if len(curve) > 1:
            return f"{title}:\n\n{text_chart(curve)}"
    return ""


def _metrics_table(rows: Sequence[Row], metrics: Iterable[Metric], with_meaning: bool = True) -> str:
    """Return a table with the last and best value of each of these metrics; "" without metrics."""
    table_rows = []
    for metric in metrics:
        values = [csv_row[metric.name] for csv_row in rows if metric.name in csv_row]
        finite_values = [value for value in values if math.isfinite(value)]
        best = ""
        if finite_values and metric.better is not None:
            best = number(max(finite_values) if metric.better == "up" else min(finite_values), metric.precision)
        last = number(values[-1], metric.precision)
        last = f"{last} {metric.unit_text}".strip()
        table_rows.append((f"{metric.title} `{metric.name}`", last, best, metric.meaning))
    columns = 4 if with_meaning else 3
    head = ("metric", "last", "best", "meaning")[:columns]
    return markdown_table(head, [table_row[:columns] for table_row in table_rows]) if table_rows else ""


def _alerts_table(alerts: Sequence[Alert]) -> str:
    """Return a table of alerts in the order in which they began, with their worst values and what to try."""
    if not alerts:
        return "None."
    table_rows = []
    for alert in alerts:
        last = f"{alert.last:,}{' (to the end)' * alert.open}"
        count = f"{alert.rows:,}" + (f", started {alert.times} times" if alert.times > 1 else "")
        title = f"{alert.title} {alert.bound}"
        table_rows.append((title, f"{alert.first:,}", last, count, alert.worst_words, f"{alert.means} {alert.tip}"))
    return markdown_table(("alert", "first", "last", "rows", "worst", "meaning and what to try"), table_rows)


def _dreams(run: RunDir, outcome: Outcome) -> str:
    """Return the section about a world model's prediction errors, for each observation; "" without such a model."""
    dreams = read_dreams(run) if outcome.dreams else None
    return "" if dreams is None else f"## Dreams\n\n{MEANING}\n\n{markdown_table(*dreams.table())}"


def _commands(run: RunDir, facts: Facts, outcome: Outcome, task: Sequence[str]) -> str:
    """Return the section of shell commands: other settings, play, continue, repeat."""
    command = facts.get("command", "")
    repeat = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
    if facts.get("git_hash"):
        repeat = f"git checkout {facts['git_hash']}\n{repeat}"
    budget = "" if outcome.reason in UNENDED else f" --max-timesteps {2 * outcome.env_steps}"
    cures = cure_commands(task, outcome.cures)
    return shell_commands([
        ("Train it with another value, most likely fix first", "\n".join(cures)),
        ("Play it", f"{places.PLAY} --run-id {run.id}"),
        ("Continue its training", f"{places.TRAIN} --resume {run.id}{budget}"),
        ("Repeat it", repeat),
    ])  # fmt: skip


def _config_table(config: Config, changed: Collection[str]) -> str:
    """Return a table of the settings that are not defaults, as one types them; those changed for this run are bold."""
    settings = differing(to_plain(config))
    return markdown_table(("key", "value"), settings_rows(settings, changed))


def _environment(facts: Facts) -> list[tuple[str, str]]:
    """Return code, versions and machine as (what, value)."""
    details = {"commit": facts.get("git_hash") or "", **mapping(facts.get("versions")), **mapping(facts.get("host"))}
    return [(key, str(value)) for key, value in details.items() if str(value)]


def joined(sections: Iterable[str]) -> str:
    """Join the sections to a Markdown page; empty ones are left out."""
    return "\n\n".join(section for section in sections if section) + "\n"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; line breaks and pipes in cells are made harmless."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return the text in one line, with pipes escaped, as a pipe ends a cell in Markdown."""
    return " ".join(text.replace("|", "\\|").split())


def text_chart(curve: Sequence[Point]) -> str:
    """Draw a curve as a Markdown block of text."""
    return f"```text\n{area_chart([point.x for point in curve], [point.y for point in curve])}\n```"


def shell_commands(commands: Iterable[tuple[str, str]]) -> str:
    """Return each command as a Markdown block below its title; empty commands are left out."""
    return "\n\n".join(f"{title}:\n\n```sh\n{command}\n```" for title, command in commands if command)
