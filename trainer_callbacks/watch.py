"""Raise alerts: compare the rows of a run with the rules of metrics.yaml, during training or from the run's folder.

ExportMetrics gives every row to AlertWatch; the report, the monitor and the inspector call `read_alerts`.
Alerts only inform: nothing in a training depends on them, so rules may also judge wall time and memory. No torch.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median

from stride.config.loader import from_plain, to_plain
from stride.config.metrics import NOT_A_NUMBER, Metric, Rule, load_metrics
from stride.config.schedule import Schedule
from stride.config.schema import Config
from stride.runstore import run_files
from stride.runstore.history import ENDED, STEPS, TRAIN, VAL, Alert, Event
from stride.runstore.metrics_table import format_number, read_csv
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import INTEGER_LIMIT, finite
from stride.trainer_callbacks.cures import MAX_CURES, Cures, advice
from stride.utils.typography import number
from stride.utils.user_error import UserError

ROWS_OF_RUN = 200  # rows of a usual run: the `rows` of a rule are given for a run with this many
WINDOW_ROWS, MIN_ROWS = 10, 5  # a row is compared with the median of the 10 rows before it, if there are at least 5
MEDIAN_ROWS = 1000  # the median of a run is that of its newest 1000 rows
GOOD_ROWS = 3  # rows inside the bounds that end an alert, at least
MIN_PROGRESS = 0.02  # fraction of the distance from first return to goal: a smaller gain is no progress
RANDOM_SHARE = 0.1  # fraction of random actions from which on the training return says little about the policy
FULL_WINDOW = 100  # episodes: a mean return over fewer may be luck
MIN_EPISODES = 10  # if fewer episodes had the same return, that may be chance
MIN_GAIN = 0.3  # fraction of the distance from first return to goal: a smaller gain may be luck, its loss is no alert
NEAR_GOAL = 0.8  # fraction of that distance: from here on slow progress is normal and raises no alert
SECONDS = "train/time/seconds"
COLLECT = "train/time/collect"
LEARN = "train/time/learn"
LENGTH = "train/roll/ep_len/mean"
MEASURE_INPUTS = {STEPS, SECONDS, COLLECT, LEARN, LENGTH, ENDED}  # needed to judge metrics, though they have no rules
MAX_CSV_BYTES = 4 << 20  # read_alerts refuses a larger metrics.csv: judging all its rows would take too long

# By Rule.of, whose cures come first among the open alerts: 0 before 1 (all kinds not listed) before 2
CURE_ORDER = {"same": 0, "opposed": 0, "stalled": 2}

Row = Mapping[str, float]


@dataclass
class _Values:
    """The finite values of one metric, without the present row."""

    first: float
    best: float = -math.inf
    before: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_ROWS))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=MEDIAN_ROWS))

    def usual(self) -> float:
        """Return the median of the last WINDOW_ROWS values, NaN if there are fewer than MIN_ROWS."""
        return median(self.before) if len(self.before) >= MIN_ROWS else math.nan


class _History:
    """What the rules need to know of all rows so far and of the present one.

    For each row: `begin(row)`, then `measure` for each rule, then `end()`.
    """

    def __init__(self, config: Config, goal: float | None) -> None:
        self.goal = goal
        self.budget = config.max_timesteps
        gamma = config.gamma
        largest = max(gamma.start_value, gamma.end_value) if isinstance(gamma, Schedule) else gamma
        self._horizon = max(1e-3, 1 - largest)  # 1 - gamma, that is 1 / (1 + gamma + gamma^2 + ...)
        self._epsilon: float | Schedule = getattr(config, "epsilon", 0.0)
        self.values: dict[str, _Values] = {}
        self.row: Row = {}
        self.steps = 0
        self.warm_up = getattr(config, "learning_starts", 0)  # env steps before anything is learnt
        self.differed = False  # whether any return differed from the first one
        self.improved = 0  # env steps at the last better return
        self.rising = False  # whether a return of the present row is better than all before
        self.largest = 0.0  # upper bound of |value of a state|, from the episodes so far
        self.trained_seconds = 0.0  # seconds of all processes that trained this run
        self._seconds = 0.0  # seconds of the present process, which starts again from 0 after a resume

    def begin(self, row: Row) -> None:
        """Make this the present row; it contains the metrics that have rules, and MEASURE_INPUTS."""
        self.row = row
        self.steps = int(row.get(STEPS, self.steps))
        seconds = row.get(SECONDS, self._seconds)
        # the clock of a resumed run starts again from 0: a smaller number is new seconds in full
        self.trained_seconds += seconds - self._seconds if seconds >= self._seconds else seconds
        self._seconds = seconds
        if TRAIN in row:
            magnitude = abs(row[TRAIN])
            per_step = magnitude / max(1.0, row.get(LENGTH, math.inf))
            self.largest = max(self.largest, magnitude, per_step / self._horizon)
        if self.warming:
            self.improved = self.steps
        self.rising = False
        for name in (TRAIN, VAL):
            if name not in row:
                continue
            self.differed |= name in self.values and row[name] != self.values[name].first
            is_better = self._is_better(name, row[name])
            self.rising |= is_better
            if is_better or self._is_luck(name):
                self.improved = self.steps

    def _is_luck(self, name: str) -> bool:
        """Return whether this is the training return over so few episodes that nothing follows from it yet."""
        return name == TRAIN and self.row.get(ENDED, FULL_WINDOW) < FULL_WINDOW

    def _is_better(self, name: str, value: float) -> bool:
        before = self.values.get(name)
        if before is None:
            return True
        margin = 0.0 if self.goal is None else MIN_PROGRESS * max(0.0, self.goal - before.first)
        return value > before.best + margin

    def end(self) -> None:
        """Add the present row to the history."""
        for name, value in self.row.items():
            if not math.isfinite(value):
                continue
            values = self.values.setdefault(name, _Values(value))
            if self._is_luck(name):
                values.best = value
            # a return below MIN_PROGRESS does not move `best`, so that several small gains add up to progress
            elif self.improved == self.steps or name not in (TRAIN, VAL):
                values.best = max(values.best, value)
            values.before.append(value)
            if not name.startswith("train/time/"):
                values.recent.append(value)
            elif not self.warming:
                values.recent.append(self._pace(value))

    def _pace(self, rate: float) -> float:
        """Return steps per second of collecting and learning alone: evaluations take longer, the better a policy is."""
        return rate / max(1e-9, self.row.get(COLLECT, 0.0) + self.row.get(LEARN, 0.0) or 1.0)

    def measure(self, kind: str, name: str, value: float) -> float:
        """Return the number that a rule of this kind (`Rule.of`) compares with its bound; NaN if it is too early.

        Example: kind "before", value 12, median of the rows before 3: the result is 4.
        """
        values = self.values.get(name, _Values(0.0))
        match kind:
            case "value":
                return value
            case "start":  # the first value counts as log 2 at least: the first update may have ruined the policy
                return value / max(math.log(2), values.first)
            case "before":  # a loss that is smaller than at the start, or comes with a better return, is no explosion
                if value <= values.first or values.usual() <= 1e-8 or self.rising:
                    return math.nan
                return value / values.usual()
            case "change":
                return value - values.usual()
            case "run":
                usual = median(values.recent) if len(values.recent) >= WINDOW_ROWS and not self.warming else 0.0
                return self._pace(value) / usual if usual > 0 else math.nan
            case "returns":
                entropy = self.row.get("train/policy/alpha", 0.0) * self.row.get("train/policy/entropy", 0.0)
                allowed = self.largest + max(0.0, entropy) / self._horizon
                return abs(value) / allowed if self.largest > 0 else math.nan
            case "gained":  # NaN while the gain is so small that it may have been luck
                if name not in self.values or (name == TRAIN and self._explores):
                    return math.nan
                gain = values.best - values.first
                distance = max(abs(values.first), abs(values.best)) if self.goal is None else self.goal - self._start
                return (value - values.first) / gain if gain > max(0.0, MIN_GAIN * distance) else math.nan
            case "same":
                return (self.steps - self.warm_up) / max(1, self.budget) if self._is_same else 0.0
            case "opposed":
                return min(-self._change(TRAIN), self._change(name))
            case "stalled":
                if self.goal is None or self._explores or self._is_same or not self.is_far(best=True):
                    return 0.0
                return (self.steps - self.improved) / max(1, self.budget)
        raise ValueError(f"no measure is called {kind}")

    @property
    def warming(self) -> bool:
        """Whether learning has not begun yet (learning_starts)."""
        return self.steps <= self.warm_up

    @property
    def _is_same(self) -> bool:
        """Whether at least MIN_EPISODES episodes ended and all had the same return."""
        return not self.differed and self.row.get(ENDED, MIN_EPISODES) >= MIN_EPISODES

    def _change(self, name: str) -> float:
        """Return (present - first value) as a fraction of the larger of the two; NaN if one is missing."""
        if name not in self.values or name not in self.row:
            return math.nan
        first, value = self.values[name].first, self.row[name]
        return (value - first) / max(abs(first), abs(value), 1e-8)

    @property
    def _explores(self) -> bool:
        """Whether so many actions are random (epsilon) that the training return says little about the policy."""
        epsilon = self._epsilon
        fraction = epsilon.at(self.steps, self.budget) if isinstance(epsilon, Schedule) else epsilon
        return fraction >= RANDOM_SHARE

    @property
    def _start(self) -> float:
        """The first return of the run, of evaluation or training, the smaller one; -inf if there is none."""
        return min((self.values[name].first for name in (VAL, TRAIN) if name in self.values), default=-math.inf)

    def is_far(self, best: bool = False) -> bool:
        """Return whether the last returns (or the best ones) are far from the goal.

        Without a goal: whether the run is in the first half of its budget.
        """
        if self.goal is None:
            return self.steps <= self.budget / 2
        returns = [self.values[name] for name in (VAL, TRAIN) if name in self.values]
        reached = [values.best if best else median([*values.before][-MIN_ROWS:]) for values in returns]
        return not reached or max(reached) < self._start + NEAR_GOAL * (self.goal - self._start)


def _three_digits(value: float, metric: Metric) -> str:
    """Format with three significant digits, or fewer if the metric's precision is lower."""
    magnitude = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return number(value, min(metric.precision, max(0, 2 - magnitude)))


class _Case:
    """One rule of one metric in one run: for how many rows it has been broken, and the alert that this raised."""

    def __init__(self, metric: Metric, rule: Rule, cures: Cures) -> None:
        self.metric = metric
        self.rule = rule
        self.cures = cures.of(rule, blames=not metric.wall_time)
        self.tip = advice(self.cures)
        self.alert: Alert | None = None
        self.open = False
        self._waiting: list[tuple[int, float, float]] = []  # bad rows before the alert: (env steps, measure, value)
        self._good = 0  # consecutive rows inside the bounds
        self._worst = math.nan  # measure of the alert's worst row
        self._since = 0.0  # trained_seconds at the first bad row

    def judge(self, history: _History, value: float) -> Event | None:
        """Judge the value of the present row; return an event if an alert begins or ends with it."""
        rule = self.rule
        measure = history.measure(rule.of, self.metric.name, value) if math.isfinite(value) else math.nan
        bad = not math.isfinite(value) if rule is NOT_A_NUMBER else rule.holds(measure)
        too_small = abs(value) < rule.least
        early = not self.open and history.steps < rule.after * history.budget
        excluded = (rule.while_far and not history.is_far()) or (rule.while_met and not history.differed)
        if not bad or too_small or early or excluded:
            return self._add_good(history, value)
        return self._add_bad(history, measure, value)

    def _add_bad(self, history: _History, measure: float, value: float) -> Event | None:
        self._good = 0
        if not self._waiting and not self.open:
            self._since = history.trained_seconds
        self._waiting.append((history.steps, measure, value))
        if self.open:
            self._count()
            return None
        span = history.steps - self._waiting[0][0]
        # env steps that `rule.rows` rows span in a usual run; where rows are denser, more of them are needed
        usual = 0.9 * (self.rule.rows - 1) * history.budget / ROWS_OF_RUN
        seconds = history.trained_seconds - self._since
        if len(self._waiting) < self.rule.rows or span < usual or seconds < self.rule.seconds:
            return None
        self._count()
        return self._event(True, history, value)

    def _count(self) -> None:
        """Add the waiting bad rows to the alert, which is made if there is none."""
        metric, rule = self.metric, self.rule
        for steps, measure, value in self._waiting:
            alert = self.alert or Alert(
                metric.name, metric.title, rule.words(), steps, steps, 0, 0, None, "", rule.means, self.tip
            )
            worse = measure > self._worst if rule.below is None else measure < self._worst
            if worse or not alert.rows:
                self._worst = measure
                worst = value if math.isfinite(value) else None
                alert = replace(alert, worst=worst, worst_words=_three_digits(value, metric))
            self.alert = replace(alert, last=steps, rows=alert.rows + 1)
        self._waiting = []

    def _add_good(self, history: _History, value: float) -> Event | None:
        self._waiting = []
        self._good += 1
        if not self.open or self._good < max(GOOD_ROWS, self.rule.rows):
            return None
        return self._event(False, history, value)

    def _event(self, begins: bool, history: _History, value: float) -> Event:
        assert self.alert is not None
        self.open = begins
        self.alert = replace(self.alert, times=self.alert.times + begins, open=begins)
        return Event(begins, self.alert, history.steps, _three_digits(value, self.metric))


class AlertWatch:
    """Judges every row of a run, in order. The alerts depend on config, goal and rows only, so a reader of the run's
    folder gets the same ones as the training."""

    def __init__(
        self, config: Config, goal: float | None, rows: Iterable[Row] = (), shipped: Sequence[str] = ()
    ) -> None:
        """`rows`: rows that a resumed run has already. `shipped`: overrides that restore the variant's own values."""
        keys = to_plain(config)
        self._cures = Cures(keys, shipped)
        self._history = _History(config, goal)
        self._names: set[str] = set()  # names of all metrics so far
        self._cases: dict[str, list[_Case]] = {}  # by metric
        self._numbers: dict[str, _Case] = {}  # by metric: the rule "must be finite", for metrics that have it
        self._alerted: list[_Case] = []  # cases that raised an alert, in the order of the first one
        for name, metric in load_metrics().items():
            rules = [rule for rule in metric.alerts if all(keys.get(key, 0) == rule.config[key] for key in rule.config)]
            self._cases[name] = [_Case(metric, rule, self._cures) for rule in rules]
            if not metric.nan:
                self._numbers[name] = _Case(metric, NOT_A_NUMBER, self._cures)
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> list[Event]:
        """Judge one row and return the alerts that begin or end with it."""
        # rounded as in metrics.csv, so that a reader of that file raises the same alerts
        judged = {
            name: float(format_number(row[name])) for name in row if self._cases.get(name) or name in MEASURE_INPUTS
        }
        self._names |= row.keys()
        self._history.begin(judged)
        due = [
            (case, row[name])
            for name, case in self._numbers.items()
            if name in row and (case.open or not math.isfinite(row[name]))
        ]
        for name, value in judged.items():
            cases = self._cases[name]
            due += [(case, value) for case in cases if case.open or self._names.isdisjoint(case.rule.without)]
        events = []
        for case, value in due:
            event = case.judge(self._history, value)
            if event:
                events.append(event)
                if case not in self._alerted:
                    self._alerted.append(case)
        self._history.end()
        return events

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts of the run so far, in the order in which they began."""
        return tuple(case.alert for case in self._alerted if case.alert)

    def cures(self, is_failed: bool) -> tuple[str, ...]:
        """Return overrides that may help against the open alerts, likeliest first: ("policy_lr=0.0003",).

        For a failed run, keys whose values are far from the variant's come first.
        """
        cures = [*self._cures.far] if is_failed else []
        for case in sorted(
            (case for case in self._alerted if case.open), key=lambda case: CURE_ORDER.get(case.rule.of, 1)
        ):
            cures += case.cures
        return self._cures.checked(cures, MAX_CURES)


def past_rows(run: RunDir, up_to: float = math.inf) -> list[dict[str, float]]:
    """Read the rows of a run's metrics.csv up to this number of env steps; [] if there is no file."""
    if not run_files.exists(run.metrics_csv):
        return []
    return [row for row in read_csv(run.metrics_csv) if 0 <= row.get(STEPS, 0.0) <= min(up_to, INTEGER_LIMIT)]


def read_alerts(run: RunDir) -> tuple[Alert, ...]:
    """Return the alerts of any run, running or ended, from its folder.

    UserError if config.json has no valid config, or metrics.csv is larger than MAX_CSV_BYTES.
    Takes a tenth of a second for 1,000 rows; the result is kept until one of the two files changes.
    """
    metrics = run_files.status(run.metrics_csv)
    if metrics and metrics.st_size > MAX_CSV_BYTES:
        mebibytes = metrics.st_size >> 20
        raise UserError(f"metrics.csv is too large ({mebibytes:,} MiB); report.md lists the alerts when the run ends")
    files = (metrics, run_files.status(run.config_json))
    # inode, size and time of both files are part of the cache key: a changed file is judged anew
    return _judged(run, *(file and (file.st_ino, file.st_size, file.st_mtime_ns) for file in files))


@lru_cache(maxsize=32)
def _judged(run: RunDir, *stamps: object) -> tuple[Alert, ...]:
    facts = run.facts()
    config, goal, shipped = from_plain(facts.get("config"), run.id), finite(facts.get("goal")), facts.get("shipped", ())
    return AlertWatch(config, goal, past_rows(run), shipped).alerts
