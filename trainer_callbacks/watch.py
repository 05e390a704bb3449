"""What is alarming about a run: the rules of metrics.yaml held against its rows, live or read from its folder.

Steers nothing. Wall time and memory are judged here, too, and told; what decides a run never sees them. No torch.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import median

from stride.config.loader import from_plain, to_plain
from stride.config.metrics import KEY, NOT_A_NUMBER, Metric, Rule, load_metrics
from stride.config.schedule import Schedule
from stride.config.schema import Config
from stride.runstore.history import ENDED, STEPS, TRAIN, VAL, Alert, Event
from stride.runstore.metrics_table import format_number, read_csv
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import LARGEST, finite
from stride.runstore.run_files import exists, status
from stride.trainer_callbacks.memory_watch import MEMORY, remembered
from stride.utils.typography import number
from stride.utils.user_error import UserError

ROWS = 200  # of a usual run: what a rule's `rows` are meant for
BEFORE, FEWEST = 10, 5  # rows before a row that it is compared with, and without which it is not
RECENT = 1000  # rows that the median of a run is taken of
FEWEST_GOOD = 3  # rows without it that end an alert
BETTER = 0.02  # of the way from start to goal: less is no progress
RANDOM = 0.1  # share of random actions
FULL = 100  # episodes in a mean return that is no luck any more
MUCH = 0.3  # of the way from start to goal: less may be luck
FAR = 0.8  # of that way: from here on slow progress is none
SECONDS, COLLECT, LEARN, LENGTH = (
    "train/time/seconds",
    "train/time/collect",
    "train/time/learn",
    "train/roll/ep_len/mean",
)
HELPFUL = {STEPS, SECONDS, COLLECT, LEARN, LENGTH, ENDED}  # to measures, beside metrics that have rules
MOST_BYTES = 4 << 20  # of a metrics.csv that is judged again by who only looks
TRIES = 3  # things to try that are told


@dataclass
class _Series:
    """What is remembered of one metric."""

    first: float
    best: float = -math.inf
    before: deque[float] = field(default_factory=lambda: deque(maxlen=BEFORE))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))


class _Past:
    """The rows so far, and the present one, as the measures of rules need them."""

    def __init__(self, config: Config, goal: float | None) -> None:
        self.goal, self.budget, self.gamma = goal, config.max_timesteps, config.gamma
        self._epsilon: float | Schedule = getattr(config, "epsilon", 0.0)
        self.series: dict[str, _Series] = {}
        self.row: Mapping[str, float] = {}
        self.steps = self.improved = 0
        self.largest = 0.0  # return that a state may have, of the episodes so far
        self.worked = self._seconds = 0.0  # seconds of all processes that trained this run

    def begin(self, row: Mapping[str, float]) -> None:
        """This row is the present one: the metrics that have rules, and what measures need beside them."""
        self.row, self.steps = row, int(row.get(STEPS, self.steps))
        seconds = row.get(SECONDS, self._seconds)
        self.worked += max(0.0, seconds - self._seconds) if seconds >= self._seconds else seconds
        self._seconds = seconds
        if TRAIN in row:
            size = abs(row[TRAIN])
            self.largest = max(
                self.largest, size, size / max(1.0, row.get(LENGTH, math.inf)) / max(1e-3, 1 - self.gamma)
            )
        for name in (TRAIN, VAL):
            if name in row and (self._is_luck(name) or self._is_better(name, row[name])):
                self.improved = self.steps

    def _is_luck(self, name: str) -> bool:
        """Whether it is a mean over so few episodes that nothing can be said of it yet."""
        return name == TRAIN and self.row.get(ENDED, FULL) < FULL

    def _is_better(self, name: str, value: float) -> bool:
        known = self.series.get(name)
        margin = 0.0 if known is None or self.goal is None else BETTER * max(0.0, self.goal - known.first)
        return known is None or value > known.best + margin

    def end(self) -> None:
        """Remember it."""
        for name, value in self.row.items():
            if math.isfinite(value):
                series = self.series.setdefault(name, _Series(value))
                if self._is_luck(name):
                    series.best = value
                elif self.improved == self.steps or name not in (TRAIN, VAL):  # small gains add up to one
                    series.best = max(series.best, value)
                series.before.append(value)
                series.recent.append(self.pace(value) if name.startswith("train/time/") else value)

    def pace(self, rate: float) -> float:
        """Steps per second of collecting and learning: evaluations take longer, the better a policy is."""
        return rate / max(1e-9, self.row.get(COLLECT, 0.0) + self.row.get(LEARN, 0.0) or 1.0)

    @property
    def explores(self) -> bool:
        """Whether so many actions are random that training's return says little of the policy."""
        share = self._epsilon.at(self.steps, self.budget) if isinstance(self._epsilon, Schedule) else self._epsilon
        return share >= RANDOM

    @property
    def start(self) -> float:
        """The return that was there before anything was learnt."""
        return min((self.series[name].first for name in (VAL, TRAIN) if name in self.series), default=-math.inf)

    def far(self, best: bool = False) -> bool:
        """Whether the last returns, or the best, lie far from the goal; without a goal whether it is early."""
        known = [self.series[name] for name in (VAL, TRAIN) if name in self.series]
        if self.goal is None:
            return self.steps <= self.budget / 2
        reached = max((each.best if best else median([*each.before][-FEWEST:]) for each in known), default=-math.inf)
        return not known or reached < self.start + FAR * (self.goal - self.start)


def _value(past: _Past, name: str, value: float) -> float:
    return value


def _start(past: _Past, name: str, value: float) -> float:
    """Of log 2 at the least: where the first update has already ruined a policy its start tells nothing."""
    return value / max(math.log(2), past.series[name].first if name in past.series else 0.0)


def _before(past: _Past, name: str, value: float) -> float:
    usual = _usual(past, name)
    return value / usual if usual > 1e-8 else math.nan


def _change(past: _Past, name: str, value: float) -> float:
    return value - _usual(past, name)


def _usual(past: _Past, name: str) -> float:
    before = past.series[name].before if name in past.series else ()
    return median(before) if len(before) >= FEWEST else math.nan


def _run(past: _Past, name: str, value: float) -> float:
    recent = past.series[name].recent if name in past.series else ()
    usual = median(recent) if len(recent) >= BEFORE else 0.0
    return past.pace(value) / usual if usual > 0 else math.nan


def _returns(past: _Past, name: str, value: float) -> float:
    entropy = max(0.0, past.row.get("train/policy/alpha", 0.0) * past.row.get("train/policy/entropy", 0.0))
    allowed = past.largest + entropy / max(1e-3, 1 - past.gamma)
    return abs(value) / allowed if past.largest > 0 else math.nan


def _gained(past: _Past, name: str, value: float) -> float:
    """NaN while so little was gained that luck may take it again."""
    if name not in past.series or (name == TRAIN and past.explores):
        return math.nan
    known = past.series[name]
    gain = known.best - known.first
    much = MUCH * (past.goal - past.start if past.goal is not None else max(abs(known.first), abs(known.best)))
    return (value - known.first) / gain if gain > max(0.0, much) else math.nan


def _stalled(past: _Past, name: str, value: float) -> float:
    if past.goal is None or past.explores or not past.far(best=True):
        return 0.0
    return (past.steps - past.improved) / max(1, past.budget)


MEASURES: dict[str, Callable[[_Past, str, float], float]] = {
    "value": _value, "start": _start, "before": _before, "change": _change,
    "run": _run, "returns": _returns, "gained": _gained, "stalled": _stalled,
}  # fmt: skip


def advice(rule: Rule, keys: Mapping[str, object], most: int = TRIES) -> str:
    """What to try, with the values the keys have now; what the algorithm does not have is left out."""
    lines = [line for line in rule.tries if all(key in keys for key in KEY.findall(line))]
    told = [KEY.sub(lambda match: f"{match[1]} (now {_short(keys[match[1]])})", line) for line in lines[:most]]
    return f"Try to {', or '.join(told)}." if told else ""


def _words(value: float, metric: Metric) -> str:
    """Three digits, or what the metric has where that is less."""
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return number(value, min(metric.precision, max(0, 2 - size)))


def _short(value: object) -> str:
    if isinstance(value, Mapping):  # a schedule
        return f"{value.get('start_value')} to {value.get('end_value')}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


class _Case:
    """One rule of one metric in one run: how long it has been broken, and the alert that it became."""

    def __init__(self, metric: Metric, rule: Rule, tip: str) -> None:
        self.metric, self.rule, self.tip = metric, rule, tip
        self.alert: Alert | None = None
        self.open = False
        self._bad: list[tuple[int, float, float]] = []  # (env steps, measure, value) of rows that have not yet begun it
        self._good, self._worst, self._since = 0, math.nan, 0.0

    def judge(self, past: _Past, value: float) -> Event | None:
        measure = MEASURES[self.rule.of](past, self.metric.name, value) if math.isfinite(value) else math.nan
        bad = not math.isfinite(value) if self.rule is NOT_A_NUMBER else self.rule.holds(measure)
        bad = bad and not abs(value) < self.rule.least
        early = not self.open and past.steps < self.rule.after * past.budget
        if not bad or early or (self.rule.while_far and not past.far()):
            return self._kept(past, value)
        return self._broken(past, measure, value)

    def _broken(self, past: _Past, measure: float, value: float) -> Event | None:
        self._good = 0
        if not self._bad and not self.open:
            self._since = past.worked
        self._bad.append((past.steps, measure, value))
        span = self._bad[-1][0] - self._bad[0][0]
        if self.open:
            self._count()
            return None
        usual = 0.9 * (self.rule.rows - 1) * past.budget / ROWS  # env steps: where rows are closer, more of them
        if len(self._bad) < self.rule.rows or span < usual or past.worked - self._since < self.rule.seconds:
            return None
        self.open = True
        self._count()
        return self._event(True, past, value)

    def _count(self) -> None:
        """Put the rows that wait into the alert."""
        metric, rule, known = self.metric, self.rule, self.alert
        for steps, measure, value in self._bad:
            if known is None:
                known = Alert(
                    metric.name, metric.title, rule.words(), steps, steps, 0, 0, None, "", rule.means, self.tip
                )
            worse = measure > self._worst if rule.below is None else measure < self._worst
            if worse or not known.rows:
                self._worst = measure
                worst = value if math.isfinite(value) else None
                known = replace(known, worst=worst, worst_words=_words(value, metric))
            known = replace(known, last=steps, rows=known.rows + 1)
        self.alert, self._bad = known, []

    def _kept(self, past: _Past, value: float) -> Event | None:
        self._bad = []
        self._good += 1
        if not self.open or self._good < max(FEWEST_GOOD, self.rule.rows):
            return None
        self.open = False
        return self._event(False, past, value)

    def _event(self, begins: bool, past: _Past, value: float) -> Event:
        assert self.alert is not None
        self.alert = replace(self.alert, times=self.alert.times + begins, open=begins)
        return Event(begins, self.alert, past.steps, _words(value, self.metric))


class Watch:
    """Told every row of a run, in order; what it says follows from config, goal and rows alone."""

    def __init__(self, config: Config, goal: float | None, rows: Iterable[Mapping[str, float]] = ()) -> None:
        keys = to_plain(config)
        self._past, self._seen = _Past(config, goal), set[str]()
        self._cases: dict[str, list[_Case]] = {}
        self._numbers: dict[str, _Case] = {}  # of metrics that must be numbers
        for name, metric in load_metrics().items():
            rules = [rule for rule in metric.alerts if all(keys.get(key, 0) == rule.config[key] for key in rule.config)]
            self._cases[name] = [_Case(metric, rule, advice(rule, keys)) for rule in rules]
            if not metric.nan:
                self._numbers[name] = _Case(metric, NOT_A_NUMBER, advice(NOT_A_NUMBER, keys))
        self._begun: list[_Case] = []
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, float]) -> list[Event]:
        """What begins or ends with this row, numbers being as metrics.csv has them."""
        judged = {name: float(format_number(row[name])) for name in row if self._cases.get(name) or name in HELPFUL}
        self._seen |= row.keys()
        self._past.begin(judged)
        events = [
            self._told(case, row[name]) for name, case in self._numbers.items() if self._concerns(case, row, name)
        ]
        for name, value in judged.items():
            cases = [case for case in self._cases[name] if case.open or self._seen.isdisjoint(case.rule.without)]
            events += [self._told(case, value) for case in cases]
        self._past.end()
        return [event for event in events if event]

    def _concerns(self, case: _Case, row: Mapping[str, float], name: str) -> bool:
        return name in row and (case.open or not math.isfinite(row[name]))

    def _told(self, case: _Case, value: float) -> Event | None:
        event = case.judge(self._past, value)
        if event and case not in self._begun:
            self._begun.append(case)
        return event

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Of the whole run so far, in the order they first began."""
        return tuple(case.alert for case in self._begun if case.alert)


def past_rows(run: RunDir, up_to: float = math.inf) -> list[dict[str, float]]:
    """The rows a run has written, with what is known of its memory."""
    if not exists(run.metrics_csv):
        return []
    memory = remembered(run.logs)
    rows = [row for row in read_csv(run.metrics_csv) if 0 <= row.get(STEPS, 0.0) <= min(up_to, LARGEST)]
    return [{**row, MEMORY: memory[row[STEPS]]} if row.get(STEPS) in memory else row for row in rows]


def read_alerts(run: RunDir) -> tuple[Alert, ...]:
    """Those of any run, running or ended, from its folder; UserError where that tells none, or too much to be judged.

    A tenth of a second for 1,000 rows; asked again it costs nothing until a file has changed.
    """
    found, about = status(run.metrics_csv), status(run.config_json)
    if found and found.st_size > MOST_BYTES:
        raise UserError(f"metrics.csv has {found.st_size >> 20:,} MiB: its alerts stand in report.md once it has ended")
    return _judged(run, *(each and (each.st_ino, each.st_size, each.st_mtime_ns) for each in (found, about)))


@lru_cache(maxsize=32)
def _judged(run: RunDir, *stamps: object) -> tuple[Alert, ...]:
    facts = run.facts()
    return Watch(from_plain(facts.get("config"), run.id), finite(facts.get("goal")), past_rows(run)).alerts
