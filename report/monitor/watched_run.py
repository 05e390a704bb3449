"""Read a run for the monitor: WatchedRun turns config.json, metrics.mmap and metrics.csv into a RunView, repeatedly.

It only reads, and the training does not wait for it. It works in the same way for a run that has ended.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stride.report.run_view import RunView
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, VAL_BEST, Alert, History, Score, has_pace
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_reader import MetricsReader, Snapshot
from stride.runstore.metrics_table import MAX_COLUMNS, SECONDS, MetricsTable, Row
from stride.runstore.outcome import PHASES, PREFIX, shares
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import INTEGER_LIMIT, finite, mapping, whole
from stride.runstore.run_fate import conclusion, continuation, failure, silent_end
from stride.runstore.run_files import status
from stride.runstore.run_lock import is_here, owner
from stride.runstore.run_state import DEAD, FAILED, FINISHED, IN_TRAINING, INTERRUPTED, PAUSED, state_of
from stride.utils.user_error import UserError

if TYPE_CHECKING:
    from stride.trainer_callbacks.watch import AlertWatch

MAX_UNJUDGED = 1 << 12  # newest rows kept until alerts are judged

Facts = Mapping[str, Any]  # of config.json
Points = Sequence[tuple[float, float]]


@dataclass
class WatchedView(RunView):
    """A RunView, and what else the monitor shows."""

    id: str = ""
    state: str = ""
    algorithm: str = ""
    seed: int | None = None
    group: str = ""
    message: str = ""
    """how it ended, or the last line that the training wrote"""
    pid: int = 0
    """process that trains it on this machine; 0 if there is none"""
    values: Mapping[str, float] = field(default_factory=dict)
    """last value of each metric"""
    phases: Mapping[str, float] = field(default_factory=dict)
    """fraction of each phase (collect, learn, ..) in the training time"""
    config: Facts = field(default_factory=dict)
    shipped: Sequence[str] = ()
    """overrides that restore the variant's own values"""


class WatchedRows(MetricsTable):
    """Reads metrics.csv: last values of all metrics, seconds of each phase, rows not judged for alerts yet."""

    def begin(self) -> None:
        self.history = History(self.columns[:MAX_COLUMNS])
        self.values: dict[str, float] = {}
        self.phase_seconds = dict.fromkeys(PHASES, 0.0)
        self.unjudged: deque[Row] = deque(maxlen=MAX_UNJUDGED)
        self.watch: AlertWatch | None = None

    def take(self, csv_row: Row) -> None:
        self.history.add(csv_row)
        seconds = csv_row.get(SECONDS, math.nan) - self.values.get(SECONDS, 0.0)
        if seconds > 0:  # not in the first row of a resumed process, which counts from 0 again
            for phase in PHASES:
                self.phase_seconds[phase] += seconds * csv_row.get(PREFIX + phase, 0.0)
        self.values |= csv_row
        self.unjudged.append(csv_row)


class WatchedRun:
    """Reads one run; `refresh` takes one or two milliseconds."""

    def __init__(self, folder: Path) -> None:
        self.run = RunDir(folder)
        self.rows = WatchedRows(self.run.metrics_csv)
        self._facts: Facts = {}
        self._stamp: tuple[int, int, int] | None = None  # inode, size and time of config.json when it was read
        self._reader: MetricsReader | None = None
        self._snapshot: Snapshot | None = None  # content of metrics.mmap at the last refresh
        self._rate = math.nan  # env steps per second between the last two snapshots
        self._histories: dict[str, Points] = {}  # curves read since the last refresh: a frozen display must not change

    def close(self) -> None:
        if self._reader:
            self._reader.close()

    def refresh(self, with_alerts: bool = True) -> WatchedView:
        """Read the run and return it as it is now. `with_alerts`: takes a fifth of a second the first time."""
        facts = self._read_facts()
        snapshot = self._read_snapshot()
        self.rows.refresh()
        self._histories.clear()
        view = self._view_of_rows(facts)
        if snapshot is not None:
            self._add_snapshot(view, snapshot)
        if view.is_over:
            view.rate = math.nan
            view.elapsed = finite(mapping(facts.get("outcome")).get("seconds")) or view.elapsed
        if view.elapsed > 0:
            view.mean_rate = max(0, view.env_steps - self._first_step(view.env_steps)) / view.elapsed
        has_steps_left = view.env_steps < view.budget and not view.is_over
        if has_steps_left and view.mean_rate > 0 and has_pace(self.rows.history.rows, view.elapsed):
            view.left = (view.budget - view.env_steps) / view.mean_rate
        view.message = self._message(facts, view.state)
        if with_alerts:
            view.alerts = self._open_alerts(view)
        return view

    def points(self, metric_name: str) -> Points:
        """Return a metric's points (env steps, value), oldest first: all of a return, the last of others."""
        curve = self.rows.points(metric_name) if metric_name in (TRAIN, VAL) else []
        if curve:
            return curve
        if self._reader is not None and self._snapshot is not None and metric_name in self._snapshot.values:
            with suppress(UserError):  # the file was truncated meanwhile: the next refresh reports it
                if metric_name not in self._histories:
                    self._histories[metric_name] = self._reader.history(metric_name)
                return self._histories[metric_name]
        return list(enumerate(self.rows.history.series.get(metric_name, ())))

    def _read_facts(self) -> Facts:
        """Return config.json, which is read again only if it has changed; {} for a foreign loop without one."""
        try:
            file_status = status(self.run.config_json)
            stamp = (file_status.st_ino, file_status.st_size, file_status.st_mtime_ns) if file_status else None
            if stamp != self._stamp:
                self._facts = self.run.facts() if file_status else {}
                self._stamp = stamp
        except UserError:
            self._facts = {"status": "damaged"}
        return self._facts

    def _read_snapshot(self) -> Snapshot | None:
        """Return the present content of metrics.mmap, None if there is no such file; update the speed."""
        previous = self._snapshot
        try:
            if self._reader is None:
                self._reader = MetricsReader(self.run.path / NAME)
            snapshot = self._reader.read()
        except UserError:
            self.close()
            self._reader = self._snapshot = None
            return None
        if previous is None or snapshot.written < previous.written or snapshot.env_steps < previous.env_steps:
            self._rate = snapshot.values[RATE].value if RATE in snapshot.values else math.nan
        elif snapshot.written > previous.written and snapshot.env_steps > previous.env_steps:
            self._rate = (snapshot.env_steps - previous.env_steps) / (snapshot.written - previous.written)
        self._snapshot = snapshot
        return snapshot

    def _view_of_rows(self, facts: Facts) -> WatchedView:
        """Make the view from config.json and metrics.csv, whose clock moves only with each row."""
        history = self.rows.history
        config = mapping(facts.get("config"))
        state = state_of(self.run.path, facts)
        is_over = state not in IN_TRAINING
        process = None if is_over else owner(self.run.path)
        return WatchedView(
            title=f"{facts['env_id']}:{facts.get('variant', '?')}" if "env_id" in facts else "?",
            env_steps=history.env_steps,
            budget=int(finite(config.get("max_timesteps")) or 0),
            goal=finite(facts.get("goal")),
            val=history.val,
            train=history.train,
            elapsed=self.rows.values.get(SECONDS, math.nan),
            rate=history.rate,
            is_over=is_over,
            id=self.run.id,
            state=state,
            algorithm=str(config.get("algo_id", "")),
            seed=facts.get("seed"),
            group=facts.get("group") or "",
            pid=process["pid"] if process and is_here(process) else 0,
            values=self.rows.values,
            phases=shares(self.rows.phase_seconds),
            config=config,
            shipped=facts.get("shipped", ()),
        )

    def _add_snapshot(self, view: WatchedView, snapshot: Snapshot) -> None:
        """Set the fields for which metrics.mmap is newer than the other files."""
        assert self._reader is not None
        origin = self._reader.origin
        seconds = snapshot.written - origin.monotonic if view.is_over else time.time() - origin.wall
        view.env_steps = snapshot.env_steps
        view.budget = snapshot.max_timesteps or view.budget
        view.doing = snapshot.doing
        view.rate = self._rate
        view.elapsed = max(0.0, seconds)
        view.values = {metric_name: latest.value for metric_name, latest in snapshot.values.items()}
        if view.title == "?":
            view.title = str(origin.facts.get("config_id") or origin.run or self.run.id)
        if view.goal is None:
            view.goal = finite(origin.facts.get("goal"))
        if not view.pid and not view.is_over:
            view.pid = origin.pid
        if not view.val.best_at:
            view.val = self._score(VAL, VAL_BEST)
        if not view.train.best_at:
            view.train = self._score(TRAIN, "")

    def _score(self, metric_name: str, best_name: str) -> Score:
        """Return last and best value of a metric; `best_name`: the metric that holds the best, "" for none."""
        score = Score()
        for step, value in self.points(metric_name):
            score.add(value, int(step))
        if self._snapshot is not None and best_name in self._snapshot.values:
            score.best = max(score.best, self._snapshot.values[best_name].value)
        return score

    def _first_step(self, env_steps: int) -> int:
        """Return the env steps at which the last process that trained the run started; 0 if unknown."""
        first_step = self._reader.origin.facts.get("first_step") if self._reader else None
        if first_step is None or not whole(first_step) or first_step >= INTEGER_LIMIT:
            return 0
        return min(first_step, env_steps)

    def _message(self, facts: Facts, state: str) -> str:
        """Return how the run ended and what to do; during training the last line that it wrote."""
        message = self._snapshot.line if self._snapshot else ""
        if state == FAILED:
            return failure(facts) or message
        if state == DEAD and facts:
            return silent_end(self.run, facts) or message
        if state in (INTERRUPTED, PAUSED) and facts:
            return continuation(self.run) or message
        if state == FINISHED and facts.get("outcome"):
            return conclusion(mapping(facts["outcome"])) or message
        return message

    def _open_alerts(self, view: WatchedView) -> list[Alert]:
        """Return the open alerts. The rows are judged again, as in the training, because files do not store alerts."""
        if self.rows.watch is None:
            self.rows.watch = watch_of(view)
        watch = self.rows.watch
        if watch is None:
            return []
        while self.rows.unjudged:
            csv_row = self.rows.unjudged.popleft()
            if 0 <= csv_row.get(STEPS, 0.0) <= INTEGER_LIMIT:
                watch.add(csv_row)
        return [alert for alert in watch.alerts if alert.open]


def watch_of(view: WatchedView) -> "AlertWatch | None":
    """Make the judge of alerts for this config; None for a foreign loop, or if another version wrote the config."""
    if not view.config:
        return None
    from stride.config.loader import from_plain  # imported here, because both are slow and the first screen is not
    from stride.trainer_callbacks.watch import AlertWatch

    try:
        return AlertWatch(from_plain(view.config, view.id), view.goal, shipped=view.shipped)
    except UserError:
        return None
