"""The metrics that exist, declared in metrics.yaml: the meaning of each, how it is printed, when it is alarming.

Nothing is measured here."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from stride.utils.user_error import UserError, nearest

PATH = Path(__file__).parent / "metrics.yaml"
KEY = re.compile(r"\{(\w+)\}")  # a config key in what a rule says to try
AREAS = ("val", "test", "roll", "mine", "loss", "policy", "value", "time")  # of a table, in this order
PLAIN_UNITS = ("none", "return", "fraction", "episodes", "iterations", "epochs", "updates", "action")
ABOVE_AREA, ABOVE_NAME = "clock", "train/time/seconds"  # shown above the table
OWN_PREFIX = "train/mine/"  # metrics of an algorithm of one's own need no declaration
OWN_NAME = re.compile(rf"{OWN_PREFIX}[A-Za-z0-9_.+-]{{1,60}}(/[A-Za-z0-9_.+-]{{1,60}}){{0,2}}")


@dataclass(frozen=True)
class Rule:
    """When a metric is alarming, what that means and what to try; trainer_callbacks/watch.py judges by it."""

    of: Literal["value", "start", "before", "change", "run", "returns", "gained", "stalled", "same", "opposed"] = (
        "value"
    )
    """What is compared: the value; the value as a multiple of the first one, of the median of the rows before where it
    is above the first one, too (with `change` its difference from that median), of the median of the run; as a multiple
    of the largest return the episodes allow; the part that is left of what the return had gained; the part of the
    budget without a better return; the part in which the return never differed; how far the return has fallen below its
    start while this value has risen above its own, the smaller of the two fractions."""
    above: float | None = None
    """Above is alarming."""
    below: float | None = None
    """Below is alarming."""
    rows: int = 3
    """As many rows in a row, at the usual 200 of a run, begin an alert; as many good ones, 3 at least, end it."""
    seconds: float = 0.0
    """And as long a time."""
    least: float = 0.0
    """Values nearer to zero than this never are: a gradient of 0.001 may multiply when the first reward is met."""
    after: float = 0.0
    """Not in this first part of the budget."""
    while_far: bool = False
    """Only far from the goal; where there is none in the first half of the budget."""
    while_met: bool = False
    """Only once a return has differed from the first: before there is nothing that could be learnt."""
    without: tuple[str, ...] = ()
    """Only in a run that has none of these metrics."""
    config: dict[str, Any] = field(default_factory=dict)
    """Only with these values of config keys."""
    means: str = ""
    """What it says of the run, in one sentence."""
    tries: tuple[str, ...] = ()
    """What to change, likeliest first; a {key} the algorithm does not have leaves its line out."""

    @property
    def bound(self) -> float:
        bound = self.below if self.above is None else self.above
        assert bound is not None  # tests/config/test_listing.py
        return bound

    def holds(self, number: float) -> bool:
        """Whether the number is alarming."""
        return number < self.bound if self.above is None else number > self.bound

    def words(self) -> str:
        """The alarming values, as written after the name of the metric."""
        if self is NOT_A_NUMBER:
            return "not a number"
        direction = "below" if self.above is None else "above"
        share, magnitude = f"{100 * self.bound:.3g}%", abs(self.bound)
        return {
            "value": f"{direction} {self.bound:g}",
            "start": f"{direction} {share} of its start",
            "before": f"{direction} {magnitude:g} times the previous rows",
            "change": f"{'down' if self.above is None else 'up'} by more than {magnitude:g} at once",
            "run": f"{direction} {share} of its median",
            "returns": f"{direction} {magnitude:g} times any return",
            "gained": f"left with less than {share} of its gain",
            "stalled": f"no better for {share} of the budget",
            "same": f"the same for {share} of the budget",
            "opposed": f"up by {share} while the return is down by as much",
        }[self.of]


NOT_A_NUMBER = Rule(
    rows=1,
    above=0.0,
    means="Everything computed from it is worthless.",
    tries=("lower {policy_lr}", "set {max_grad_norm} to 0.5"),
)


@dataclass(frozen=True)
class Metric:
    """One declared metric."""

    name: str
    """stage/area/name[/stat]"""
    title: str
    """Column heading."""
    meaning: str
    """What it is, in one sentence."""
    unit: str
    """Unit, or none."""
    precision: int
    """Digits after the point."""
    better: Literal["up", "down"] | None = None
    """Which way is good; None where neither is."""
    table: bool = False
    """Shown on the console."""
    highlight: bool = False
    """Set off on the console."""
    wall_time: bool = False
    """Differs between two runs of the same seed."""
    nan: bool = False
    """NaN is a legitimate value."""
    alerts: tuple[Rule, ...] = ()
    """When it is alarming."""

    @property
    def unit_text(self) -> str:
        """The unit where it says more than the title: `nats`, `steps/s`; "" of returns, counts and fractions."""
        return "" if self.unit in PLAIN_UNITS else self.unit

    @property
    def may_steer(self) -> bool:
        """Whether a plateau may follow it: it can be better, before the end, and the same seed repeats it."""
        return self.better is not None and not self.name.startswith("test/") and not self.wall_time


@cache
def load_metrics() -> dict[str, Metric]:
    """Every declared metric, in the order of the file, which is the order of columns.

    Read in 5 ms, as a monitor has 300 until its first screen. tests/config/test_listing.py checks its rules.
    """
    text = PATH.read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.load(text, yaml.CSafeLoader) if yaml.__with_libyaml__ else yaml.safe_load(text)
    return {name: _metric(name, entry) for name, entry in entries.items()}


def _metric(name: str, entry: Mapping[str, Any]) -> Metric:
    alert_rules = []
    for rule in entry.get("alerts", ()):
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in rule.items()
        }
        alert_rules.append(Rule(**values))
    better = None if entry.get("better") == "none" else entry.get("better")
    return Metric(**{**entry, "name": name, "better": better, "alerts": tuple(alert_rules)})


def declared(name: str) -> Metric:
    """The metric, one of train/mine/ included, or a UserError that names the nearest declared ones."""
    metrics = load_metrics()
    if name in metrics or OWN_NAME.fullmatch(name):
        return metric_of(name)
    if name.startswith(OWN_PREFIX):
        raise UserError(
            f"metric {name[:200]!r}: only letters, digits and _.+- after {OWN_PREFIX}, for example {OWN_PREFIX}target"
        )
    raise UserError(f"metric {name!r} is not declared in metrics.yaml{nearest(name, metrics)}")


def check_logged(name: str) -> None:
    """UserError where a run may not log a metric of this name; it says what one of one's own is called."""
    try:
        declared(name)
    except UserError as error:
        end = re.sub(r"[^A-Za-z0-9_.+-]", "_", name.rpartition("/")[2])
        raise (
            error if name.startswith(OWN_PREFIX) else UserError(f"{error}; name your own metric {OWN_PREFIX}{end}")
        ) from None


@cache
def metric_of(name: str) -> Metric:
    """The declared metric; of any other name, one with that name as its title."""
    undeclared = Metric(name, name.removeprefix("train/"), meaning="", unit="none", precision=3, table=True)
    return load_metrics().get(name, undeclared)


def ordered(names: Iterable[str]) -> list[Metric]:
    """The metrics of these names: declared ones in the order of the file, behind them the others by name."""
    present = {*names}
    declared_names = [name for name in load_metrics() if name in present]
    return [metric_of(name) for name in (*declared_names, *sorted(present.difference(declared_names)))]


def area_of(name: str) -> str:
    """`loss` of train/loss/policy, `val` of val/roll/ep_rew/mean, "" of a name without a slash."""
    stage, _, name_after_stage = name.partition("/")
    return name_after_stage.partition("/")[0] if stage == "train" or not name_after_stage else stage


def arranged(names: Iterable[str]) -> list[Metric]:
    """The metrics that belong into a table; those of the console come first, as a small screen ends before the rest."""
    positions = {name: position for position, name in enumerate(load_metrics())}

    def order(metric: Metric) -> tuple[bool, int, str, int, str]:
        area = area_of(metric.name)
        rank = AREAS.index(area) if area in AREAS else len(AREAS)
        return not metric.table, rank, area, positions.get(metric.name, len(positions)), metric.name

    shown_metrics = [metric_of(name) for name in names if area_of(name) != ABOVE_AREA and name != ABOVE_NAME]
    return sorted(shown_metrics, key=order)


def console_metrics() -> list[Metric]:
    """The metrics that a training shows on the console."""
    return [metric for metric in arranged(load_metrics()) if metric.table]
