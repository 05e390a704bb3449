"""Let any training loop write metrics that `stride monitor` and curves read: a public class, without agent or torch.

with MetricsFile("runs/mine", max_steps=10_000) as m:
    m.log(step, reward=1.0, loss=0.25)
"""

import os
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Self

from stride.report.metrics_sinks import MetricsCsv
from stride.runstore import run_files
from stride.runstore.history import STEPS
from stride.runstore.metrics_layout import BEGUN, ENDED, NAME, NAME_TEXT, PAUSED, STATES, TRAINING
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.metrics_table import read_csv
from stride.runstore.metrics_writer import MetricsWriter
from stride.utils.user_error import UserError, describe_error

METRIC = re.compile(r"[A-Za-z0-9_.+-]+(?:/[A-Za-z0-9_.+-]+){0,5}")
RESTORED_ROWS = 10_000  # old rows that fill the rings of metrics.mmap
FINISHED, INTERRUPTED, FAILED = "finished", "interrupted", "failed"


class MetricsFile:
    """Makes `folder` with metrics.csv (every row) and metrics.mmap (for monitors); the end of `with` closes it.

    `resume_at`: the rows of an existing folder up to this step are kept. `facts`: plain data about the loop, for
    monitors. metrics.mmap holds at most `metrics` names, metrics.csv all. UserError if the folder has rows and
    `resume_at` is None, or if another process writes there.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        max_steps: int = 0,
        goal: float | None = None,
        resume_at: int | None = None,
        facts: Mapping[str, object] | None = None,
        metrics: int = 64,
    ) -> None:
        self.folder = Path(folder).absolute()
        csv_path = self.folder / "metrics.csv"
        run_files.make_folder(self.folder)
        if resume_at is None and run_files.exists(csv_path) and read_csv(csv_path):
            raise UserError(f"{csv_path} already has rows; use another folder, or resume_at=STEP to continue it")
        _check_free(self.folder / NAME)
        all_facts = {**(facts or {}), "goal": goal, "first_step": resume_at or 0}
        self._csv = MetricsCsv(csv_path, resume_at)
        self._writer = MetricsWriter(self.folder / NAME, self.folder.name, all_facts, metrics)
        self._writer.max_timesteps = max_steps
        self._known_names: set[str] = set()
        self._lock = Lock()
        for row in read_csv(csv_path)[-RESTORED_ROWS:]:
            self._writer.row(row.get(STEPS, 0.0), row)
        self._writer.say("", BEGUN)

    def log(self, step: float, values: Mapping[str, float] | None = None, /, **named: float) -> None:
        """Write a row: `log(step, reward=1.0)`, or a mapping if names have a slash. Values: what float() takes."""
        row = {STEPS: _number("step", step)}
        for metric_name, value in {**(values or {}), **named}.items():
            if metric_name not in self._known_names:
                self._check(metric_name)
            row[metric_name] = _number(metric_name, value)
        if not abs(row[STEPS]) < 2**53:
            raise UserError(f"the step must be a number of steps, not {step}")
        with self._lock:
            self._csv.row(row)
            self._writer.row(row[STEPS], row)

    def say(self, line: str, paused: bool = False) -> None:
        """Show a line about the current work in monitors; `paused`: the loop waits on purpose until the next row."""
        self._writer.say(line, PAUSED if paused else TRAINING)

    def close(self, result: str = FINISHED, line: str = "") -> None:
        """Write how the loop ended; `with` calls it. It may be called twice."""
        with self._lock:
            self._writer.end(result, line)
            self._csv.end(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self.close(INTERRUPTED)
        else:
            self.close(FAILED, describe_error(error))

    def _check(self, name: str) -> None:
        """Raise UserError unless this can be the name of a metric, and remember it."""
        if not METRIC.fullmatch(name) or len(name) > NAME_TEXT:
            pattern = f"at most {NAME_TEXT} letters, digits, '_', '.', '+' and '-', up to five '/' between them"
            raise UserError(f"{name!r} is not the name of a metric: {pattern}")
        if name == STEPS:
            raise UserError(f"{STEPS} is the step itself, the first argument of log")
        self._known_names.add(name)


def _check_free(path: Path) -> None:
    """Raise UserError while another process writes this metrics.mmap."""
    if run_files.exists(path):
        with closing(MetricsReader(path)) as reader:
            if reader.read().state != STATES[ENDED] and reader.origin.pid != os.getpid() and reader.lives():
                raise UserError(f"{path.parent} is being written by process {reader.origin.pid}; use another folder")


def _number(name: str, value: float) -> float:
    """Convert with float(); UserError with the name if that is not possible."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor with several elements
        raise UserError(f"{name} takes a number, not {type(value).__name__}: {error}") from error
