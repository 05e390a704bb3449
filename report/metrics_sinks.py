"""The two sinks that write the numbers of a run to its folder: metrics.csv with all rows, metrics.mmap for monitors.

trainer_callbacks/export_metrics.py decides which rows there are.
"""

import errno
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stride.config.metrics import load_metrics
from stride.config.schema import Config
from stride.runstore import run_files
from stride.runstore.history import Event
from stride.runstore.metrics_layout import BEGUN, NAME
from stride.runstore.metrics_table import STEPS as STEPS
from stride.runstore.metrics_table import format_number, parse, read_lines
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.outcome import FAILED, Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.watch import past_rows

ITERATIONS, UPDATES = "train/clock/iterations", "train/clock/updates"
SPARE_METRICS = 16  # places in metrics.mmap for metrics that metrics.yaml does not declare
MMAP_FACTS = (
    "config_id", "algo_id", "engine", "env_backend", "device", "n_envs", "seed", "parameters", "goal", "threads",
)  # fmt: skip
COLUMN = re.compile(r"[A-Za-z0-9_.+-]{1,80}(/[A-Za-z0-9_.+-]{1,80}){0,5}")
Cells = list[str]  # texts of one line of metrics.csv; "" for a metric that the row does not have

log = logging.getLogger("stride")


class MetricsCsv(Sink):
    """Writes metrics.csv. The file stays open, and each row is one write of one complete line.

    Columns have a fixed order: the clock, then the order of config/metrics.yaml, then undeclared metrics by name. So
    equal rows give equal files, even if a run was interrupted in between.
    """

    def __init__(self, path: Path | str, resume_at: int | None = None, order: Iterable[str] | None = None) -> None:
        """`resume_at`: keep the old file's rows up to this number of env steps; None: start a new file. `order`: names
        of metrics in the order of columns, None: that of metrics.yaml."""
        self.path = Path(path)
        declared = list(load_metrics() if order is None else order)
        # a stable sort: the clock first, the rest as declared
        declared.sort(key=lambda metric_name: "/clock/" not in metric_name)
        self._order = {metric_name: index for index, metric_name in enumerate(declared)}
        columns, lines = ([], []) if resume_at is None else self._resumed(resume_at)
        self._rewrite(columns, lines)

    def _resumed(self, resume_at: int) -> tuple[Cells, list[Cells]]:
        """Return the columns and lines of the old file to keep; if rows are lost, log a warning and keep a copy."""
        if not run_files.exists(self.path):
            if resume_at:
                log.warning(f"{self.path.name} is missing: the rows up to {resume_at:,} env steps are lost")
            return [], []
        columns, lines = read_lines(self.path)
        kept_lines = _lines_up_to(columns, lines, resume_at)
        damage = _damage(columns, lines, kept_lines, resume_at)
        if damage:
            backup = _unused_path(self.path)
            run_files.copy(self.path, backup)
            log.warning(f"{self.path.name} lacks rows up to {resume_at:,} env steps: {damage}; kept as {backup.name}")
        return (columns, kept_lines) if _has_header(columns) else ([], [])

    def row(self, row: Mapping[str, float]) -> None:
        if not row.keys() <= self._known_columns:
            self._add_columns(row.keys() - self._known_columns)
        cells = [format_number(row[metric_name]) if metric_name in row else "" for metric_name in self._columns]
        line = (",".join(cells) + "\n").encode()
        written = self._file.write(line)
        if written != len(line):  # the disk is full: leave no half line behind
            self._file.truncate(self._file.tell() - (written or 0))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def end(self, outcome: Outcome | None) -> None:
        self._file.close()

    def _add_columns(self, names: Iterable[str]) -> None:
        """Rewrite the file with more columns; the existing texts are copied as they are, not parsed."""
        columns = sorted(
            {*self._columns, *names}, key=lambda metric_name: (self._order.get(metric_name, math.inf), metric_name)
        )
        old_columns, lines = read_lines(self.path)
        old_file = self._file
        old_rows = [dict(zip(old_columns, cells, strict=False)) for cells in lines]
        self._rewrite(columns, [[old_row.get(metric_name, "") for metric_name in columns] for old_row in old_rows])
        old_file.close()

    def _rewrite(self, columns: Cells, lines: list[Cells]) -> None:
        """Replace the file by one with these columns and lines, and open it for appending."""
        header = [columns] if columns else []
        text = "".join(",".join(cells) + "\n" for cells in header + lines)
        with run_files.replacing(self.path) as file:
            file.write(text.encode())
        self._columns = columns
        self._known_columns = frozenset(columns)
        # kept open: opening per row would cost more than the row
        self._file = run_files.open_to_write(self.path, append=True)


def _lines_up_to(columns: Cells, lines: list[Cells], resume_at: int) -> list[Cells]:
    """Return the lines up to `resume_at` env steps, without those of the closing test.

    A line without env steps counts as having those of the line before.
    """
    kept_lines = []
    steps = 0.0
    for cells in lines:
        row = parse(columns, cells)
        steps = row.get(STEPS, steps)
        if row and steps <= resume_at and not any(metric_name.startswith("test/") for metric_name in row):
            kept_lines.append(cells)
    return kept_lines


def _has_header(columns: Cells) -> bool:
    """Return whether the first line contains names of metrics, or the file is empty."""
    if not columns:
        return True
    return STEPS in columns and len({*columns}) == len(columns) and all(map(COLUMN.fullmatch, columns))


def _damage(columns: Cells, lines: list[Cells], kept_lines: list[Cells], resume_at: int) -> str:
    """Describe which rows up to `resume_at` env steps are missing or damaged; "" if the file is complete."""
    if not columns:
        return "it is empty" if resume_at else ""
    if not _has_header(columns):
        return "its first line does not have the names of metrics"
    damaged = sum(not parse(columns, cells) for cells in lines)
    if damaged:
        return f"{damaged:,} of its lines are damaged"
    last_step = max((parse(columns, cells).get(STEPS, 0.0) for cells in kept_lines), default=0.0)
    return f"its rows end at {last_step:,.0f} env steps" if last_step < resume_at else ""


def _unused_path(path: Path) -> Path:
    """Return an unused path for a copy of the damaged file: metrics.damaged-1.csv, then -2, .."""
    number = 1
    while os.path.lexists(path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")):
        number += 1
    return path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")


class MetricsMmap(Sink):
    """Writes metrics.mmap, which monitors read (docs/metrics_file.md); a row takes tens of microseconds.

    A resumed run makes a new file that starts with its earlier rows. If the file cannot be made, the training goes on
    without it.
    """

    def __init__(self, run: RunDir, env_steps: int = 0) -> None:
        """`env_steps`: env steps at which a resumed run continues."""
        self._run = run
        self._first_step = env_steps
        self._writer: MetricsWriter | None = None
        self._open_alerts: set[tuple[str, str]] = set()
        self._alerts = 0

    def begin(self, header: Header, config: Config) -> None:
        facts = {fact_name: getattr(header, fact_name) for fact_name in MMAP_FACTS}
        facts["first_step"] = self._first_step
        try:
            max_metrics = len(load_metrics()) + SPARE_METRICS
            self._writer = MetricsWriter(self._run.path / NAME, self._run.id, facts, metrics=max_metrics)
        except OSError as error:
            log.warning(f"{NAME} cannot be created ({error.strerror}); monitors will read metrics.csv")
            return
        self._writer.max_timesteps = config.max_timesteps
        if self._first_step:
            for row in past_rows(self._run, self._first_step):
                self.row(row)
        self._writer.say("", BEGUN)

    def row(self, row: Mapping[str, float]) -> None:
        if self._writer:
            self._writer.iterations = int(row.get(ITERATIONS, self._writer.iterations))
            self._writer.updates = int(row.get(UPDATES, self._writer.updates))
            self._writer.row(row.get(STEPS, self._writer.env_steps), row)

    def beat(self, clock: Mapping[str, int], doing: str) -> None:
        if self._writer:
            self._writer.progress(clock["env_steps"], clock["iterations"], clock["updates"], doing)

    def alert(self, event: Event) -> None:
        if event.begins:
            self._open_alerts.add(event.alert.key)
            self._alerts += 1
        else:
            self._open_alerts.discard(event.alert.key)
        if self._writer:
            self._writer.say(event.sentence(), alerts=(len(self._open_alerts), self._alerts))

    def end(self, outcome: Outcome | None) -> None:
        if self._writer and outcome:
            self._writer.end(outcome.result, outcome.lost or outcome.sentence())
        elif self._writer:
            self._writer.end(FAILED, "it ended with an error; see run.log")
