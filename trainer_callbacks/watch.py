"""Alerts of a run: the rules of metrics.yaml compared with its rows, during the training or read from its folder.

Nothing in a training depends on them. Wall time and memory are judged, too; they decide nothing in a run. No torch.
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
from stride.trainer_callbacks.cures import MOST_CURES, Cures, advice
from stride.utils.typography import number
from stride.utils.user_error import UserError

ROWS = 200  # of a usual run: a rule's `rows` are meant for that many
BEFORE, FEWEST = 10, 5  # previous rows that a row is compared with, and without which it is not
RECENT = 1000  # rows that the median of a run is taken of
FEWEST_GOOD = 3  # rows inside the bounds that end an alert
BETTER = 0.02  # of the way from start to goal: less is no progress
RANDOM = 0.1  # fraction of random actions
FULL = 100  # episodes in a mean return that is no luck any more
SEVERAL = 10  # episodes of which an equal return says something
MUCH = 0.3  # of the way from start to goal: less may be luck
FAR = 0.8  # of that way: from here on slow progress is none
SECONDS = "train/time/seconds"
COLLECT = "train/time/collect"
LEARN = "train/time/learn"
LENGTH = "train/roll/ep_len/mean"
HELPFUL = {STEPS, SECONDS, COLLECT, LEARN, LENGTH, ENDED}  # to measures, beside metrics that have rules
MOST_BYTES = 4 << 20  # of a metrics.csv that is judged again by a reader

RANKS = {"same": 0, "opposed": 0, "stalled": 2}  # of open alerts, whose cures come first: 0 before 1 before 2

Row = Mapping[str, float]


@dataclass
class _Values:
    """Values of one metric up to the row before."""

    first: float
    best: float = -math.inf
    before: deque[float] = field(default_factory=lambda: deque(maxlen=BEFORE))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def usual(self) -> float:
        """The median of the rows just before, NaN where they are too few."""
        return median(self.before) if len(self.before) >= FEWEST else math.nan


class _History:
    """The rows so far, and the present one, as the measures of rules need them."""

    def __init__(self, config: Config, goal: float | None) -> None:
        self.goal = goal
        self.budget = config.max_timesteps
        gamma = config.gamma
        largest = max(gamma.start_value, gamma.end_value) if isinstance(gamma, Schedule) else gamma
        self._horizon = max(1e-3, 1 - largest)  # 1 / the sum of all discounts
        self._epsilon: float | Schedule = getattr(config, "epsilon", 0.0)
        self.values: dict[str, _Values] = {}
        self.row: Row = {}
        self.steps = 0
        self.warm_up = getattr(config, "learning_starts", 0)  # env steps before anything is learnt
        self.differed = False  # whether the return was ever another one than at first
        self.improved = 0  # env steps of the last better return
        self.rising = False  # whether a return of the present row is better than all before
        self.largest = 0.0  # return that a state may have, of the episodes so far
        self.worked = 0.0  # seconds of all processes that trained this run
        self._seconds = 0.0  # of this process

    def begin(self, row: Row) -> None:
        """This row is the present one: the metrics that have rules, and what measures need beside them."""
        self.row = row
        self.steps = int(row.get(STEPS, self.steps))
        seconds = row.get(SECONDS, self._seconds)
        self.worked += seconds - self._seconds if seconds >= self._seconds else seconds
        self._seconds = seconds
        if TRAIN in row:
            size = abs(row[TRAIN])
            per_step = size / max(1.0, row.get(LENGTH, math.inf))
            self.largest = max(self.largest, size, per_step / self._horizon)
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
        """Whether it is a mean over so few episodes that nothing can be concluded from it yet."""
        return name == TRAIN and self.row.get(ENDED, FULL) < FULL

    def _is_better(self, name: str, value: float) -> bool:
        before = self.values.get(name)
        if before is None:
            return True
        margin = 0.0 if self.goal is None else BETTER * max(0.0, self.goal - before.first)
        return value > before.best + margin

    def end(self) -> None:
        """Remember the present row."""
        for name, value in self.row.items():
            if not math.isfinite(value):
                continue
            values = self.values.setdefault(name, _Values(value))
            if self._is_luck(name):
                values.best = value
            elif self.improved == self.steps or name not in (TRAIN, VAL):  # small gains add up to one
                values.best = max(values.best, value)
            values.before.append(value)
            if not name.startswith("train/time/"):
                values.recent.append(value)
            elif not self.warming:
                values.recent.append(self._pace(value))

    def _pace(self, rate: float) -> float:
        """Steps per second of collecting and learning: evaluations take longer, the better a policy is."""
        return rate / max(1e-9, self.row.get(COLLECT, 0.0) + self.row.get(LEARN, 0.0) or 1.0)

    def measure(self, kind: str, name: str, value: float) -> float:
        """The number that a rule of this kind (`Rule.of`) compares with its bound; NaN where it is too early."""
        values = self.values.get(name, _Values(0.0))
        match kind:
            case "value":
                return value
            case "start":  # of log 2 at least: where the first update has ruined a policy its start says nothing
                return value / max(math.log(2), values.first)
            case "before":  # an error that is smaller than at the start, or comes with a better return, is no explosion
                if value <= values.first or values.usual() <= 1e-8 or self.rising:
                    return math.nan
                return value / values.usual()
            case "change":
                return value - values.usual()
            case "run":
                usual = median(values.recent) if len(values.recent) >= BEFORE and not self.warming else 0.0
                return self._pace(value) / usual if usual > 0 else math.nan
            case "returns":
                entropy = self.row.get("train/policy/alpha", 0.0) * self.row.get("train/policy/entropy", 0.0)
                allowed = self.largest + max(0.0, entropy) / self._horizon
                return abs(value) / allowed if self.largest > 0 else math.nan
            case "gained":  # NaN while so little was gained that luck may take it again
                if name not in self.values or (name == TRAIN and self._explores):
                    return math.nan
                gain = values.best - values.first
                way = max(abs(values.first), abs(values.best)) if self.goal is None else self.goal - self._start
                return (value - values.first) / gain if gain > max(0.0, MUCH * way) else math.nan
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
        """Whether nothing is learnt yet."""
        return self.steps <= self.warm_up

    @property
    def _is_same(self) -> bool:
        """Whether all returns so far were the same, of several episodes."""
        return not self.differed and self.row.get(ENDED, SEVERAL) >= SEVERAL

    def _change(self, name: str) -> float:
        """The difference from the first value, as a fraction of the larger one; NaN before there is one."""
        if name not in self.values or name not in self.row:
            return math.nan
        first, value = self.values[name].first, self.row[name]
        return (value - first) / max(abs(first), abs(value), 1e-8)

    @property
    def _explores(self) -> bool:
        """Whether so many actions are random that training's return says little of the policy."""
        epsilon = self._epsilon
        fraction = epsilon.at(self.steps, self.budget) if isinstance(epsilon, Schedule) else epsilon
        return fraction >= RANDOM

    @property
    def _start(self) -> float:
        """The return before anything was learnt."""
        return min((self.values[name].first for name in (VAL, TRAIN) if name in self.values), default=-math.inf)

    def is_far(self, best: bool = False) -> bool:
        """Whether the last returns, or the best, are far from the goal; without a goal whether it is early."""
        if self.goal is None:
            return self.steps <= self.budget / 2
        returns = [self.values[name] for name in (VAL, TRAIN) if name in self.values]
        reached = [values.best if best else median([*values.before][-FEWEST:]) for values in returns]
        return not reached or max(reached) < self._start + FAR * (self.goal - self._start)


def _three_digits(value: float, metric: Metric) -> str:
    """Three digits, or as many as the metric has where that is less."""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return number(value, min(metric.precision, max(0, 2 - size)))


class _Case:
    """One rule of one metric in one run: how long it has been broken, and the alert that it became."""

    def __init__(self, metric: Metric, rule: Rule, cures: Cures) -> None:
        self.metric = metric
        self.rule = rule
        self.cures = cures.of(rule, blames=not metric.wall_time)
        self.tip = advice(self.cures)
        self.alert: Alert | None = None
        self.open = False
        self._waiting: list[tuple[int, float, float]] = []  # bad rows before the alert: (env steps, measure, value)
        self._good = 0  # rows inside the bounds, one after the other
        self._worst = math.nan
        self._since = 0.0  # seconds of training at the first bad row

    def judge(self, history: _History, value: float) -> Event | None:
        """The event that this row makes, if it makes one."""
        rule = self.rule
        measure = history.measure(rule.of, self.metric.name, value) if math.isfinite(value) else math.nan
        bad = not math.isfinite(value) if rule is NOT_A_NUMBER else rule.holds(measure)
        too_small = abs(value) < rule.least
        early = not self.open and history.steps < rule.after * history.budget
        unmet = (rule.while_far and not history.is_far()) or (rule.while_met and not history.differed)
        if not bad or too_small or early or unmet:
            return self._add_good(history, value)
        return self._add_bad(history, measure, value)

    def _add_bad(self, history: _History, measure: float, value: float) -> Event | None:
        self._good = 0
        if not self._waiting and not self.open:
            self._since = history.worked
        self._waiting.append((history.steps, measure, value))
        if self.open:
            self._count()
            return None
        span = history.steps - self._waiting[0][0]
        usual = 0.9 * (self.rule.rows - 1) * history.budget / ROWS  # env steps: where rows are closer, more of them
        seconds = history.worked - self._since
        if len(self._waiting) < self.rule.rows or span < usual or seconds < self.rule.seconds:
            return None
        self._count()
        return self._event(True, history, value)

    def _count(self) -> None:
        """Put the rows that wait into the alert."""
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
        if not self.open or self._good < max(FEWEST_GOOD, self.rule.rows):
            return None
        return self._event(False, history, value)

    def _event(self, begins: bool, history: _History, value: float) -> Event:
        assert self.alert is not None
        self.open = begins
        self.alert = replace(self.alert, times=self.alert.times + begins, open=begins)
        return Event(begins, self.alert, history.steps, _three_digits(value, self.metric))


class AlertWatch:
    """Judges every row of a run, in order; its alerts follow from config, goal and rows alone."""

    def __init__(
        self, config: Config, goal: float | None, rows: Iterable[Row] = (), shipped: Sequence[str] = ()
    ) -> None:
        keys = to_plain(config)
        self._cures = Cures(keys, shipped)
        self._history = _History(config, goal)
        self._names: set[str] = set()  # of all metrics so far
        self._cases: dict[str, list[_Case]] = {}
        self._numbers: dict[str, _Case] = {}  # of metrics that must be finite
        self._alerted: list[_Case] = []
        for name, metric in load_metrics().items():
            rules = [rule for rule in metric.alerts if all(keys.get(key, 0) == rule.config[key] for key in rule.config)]
            self._cases[name] = [_Case(metric, rule, self._cures) for rule in rules]
            if not metric.nan:
                self._numbers[name] = _Case(metric, NOT_A_NUMBER, self._cures)
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> list[Event]:
        """The alerts that begin or end with this row; its numbers are rounded as in metrics.csv."""
        judged = {name: float(format_number(row[name])) for name in row if self._cases.get(name) or name in HELPFUL}
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
        """Overrides that may help, likeliest first, of the alerts that are open; of a failed run its far keys, too."""
        cures = [*self._cures.far] if is_failed else []
        for case in sorted((case for case in self._alerted if case.open), key=lambda case: RANKS.get(case.rule.of, 1)):
            cures += case.cures
        return self._cures.checked(cures, MOST_CURES)


def past_rows(run: RunDir, up_to: float = math.inf) -> list[dict[str, float]]:
    """The rows that a run has written."""
    if not run_files.exists(run.metrics_csv):
        return []
    return [row for row in read_csv(run.metrics_csv) if 0 <= row.get(STEPS, 0.0) <= min(up_to, INTEGER_LIMIT)]


def read_alerts(run: RunDir) -> tuple[Alert, ...]:
    """The alerts of any run, running or ended, from its folder; UserError where it has none, or too many rows to judge.

    A tenth of a second for 1,000 rows; nothing until a file has changed.
    """
    metrics = run_files.status(run.metrics_csv)
    if metrics and metrics.st_size > MOST_BYTES:
        size = metrics.st_size >> 20
        raise UserError(f"metrics.csv is too large ({size:,} MiB); report.md lists the alerts when the run ends")
    files = (metrics, run_files.status(run.config_json))
    return _judged(run, *(file and (file.st_ino, file.st_size, file.st_mtime_ns) for file in files))


@lru_cache(maxsize=32)
def _judged(run: RunDir, *stamps: object) -> tuple[Alert, ...]:
    facts = run.facts()
    config, goal, shipped = from_plain(facts.get("config"), run.id), finite(facts.get("goal")), facts.get("shipped", ())
    return AlertWatch(config, goal, past_rows(run), shipped).alerts
