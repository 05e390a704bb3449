"""Reads metrics.yaml, which declares every metric: what it means, how it is printed and when it is alarming.

Nothing is measured here. Console, reports, sinks and the inspector look metrics up by name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from stride.utils.user_error import UserError, nearest

PATH = Path(__file__).parent / "metrics.yaml"
KEY = re.compile(r"\{(\w+)\}")  # a config key inside a rule's advice, "lower {policy_lr}"
AREAS = ("val", "test", "roll", "mine", "loss", "policy", "value", "time")  # order of a table; see area_of
PLAIN_UNITS = ("none", "return", "fraction", "episodes", "iterations", "epochs", "updates", "action")
ABOVE_AREA, ABOVE_NAME = "clock", "train/time/seconds"  # an area and a metric that are shown above the table
OWN_PREFIX = "train/mine/"  # metrics of a user's own code begin so; they need no declaration
OWN_NAME = re.compile(rf"{OWN_PREFIX}[A-Za-z0-9_.+-]{{1,60}}(/[A-Za-z0-9_.+-]{{1,60}}){{0,2}}")


@dataclass(frozen=True)
class Rule:
    """When a metric is alarming, what that means and what to try; trainer_callbacks/watch.py applies it."""

    of: Literal["value", "start", "before", "change", "run", "returns", "gained", "stalled", "same", "opposed"] = (
        "value"
    )
    """The number that is compared with the bound:

    value     the metric's value itself
    start     value / the first value
    before    value / the median of the previous rows; counts only while the value is above the first one
    change    value - the median of the previous rows
    run       value / the median of the run
    returns   value / the largest return that the episodes allow
    gained    the part that is left of what the return had gained
    stalled   the part of the budget without a better return
    same      the part of the budget in which the return never differed
    opposed   how far the return fell below its start while this value rose above its own; the smaller fraction"""
    above: float | None = None
    """Numbers above this bound are alarming."""
    below: float | None = None
    """Numbers below this bound are alarming; a rule has one of the two bounds."""
    rows: int = 3
    """So many alarming rows in succession (of the usual 200) begin an alert; as many good ones, 3 at least, end it."""
    seconds: float = 0.0
    """The alarming rows must also last this long."""
    least: float = 0.0
    """Values nearer to zero than this are never alarming: a gradient of 0.001 may multiply at the first reward."""
    after: float = 0.0
    """No alert in this first fraction of the budget."""
    while_far: bool = False
    """Alert only far from the goal; without a goal, only in the first half of the budget."""
    while_met: bool = False
    """Alert only once a return has differed from the first one: before that, there is nothing to learn from."""
    without: tuple[str, ...] = ()
    """Alert only in a run that has none of these metrics."""
    config: dict[str, Any] = field(default_factory=dict)
    """Alert only if the config has these values."""
    means: str = ""
    """What the alert says of the run, in one sentence."""
    tries: tuple[str, ...] = ()
    """What to change, the most likely help first; a line with a {key} that the algorithm lacks is not shown."""

    @property
    def bound(self) -> float:
        """The one bound of the rule, `above` or `below`."""
        bound = self.below if self.above is None else self.above
        assert bound is not None  # tests/config/test_listing.py checks it for every rule
        return bound

    def holds(self, number: float) -> bool:
        """Return whether the number is alarming."""
        return number < self.bound if self.above is None else number > self.bound

    def words(self) -> str:
        """Return the condition in words, to follow the metric's name: "above 2 times the previous rows"."""
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
    """Whether it is shown on the console."""
    highlight: bool = False
    """Whether it is emphasized on the console."""
    wall_time: bool = False
    """Whether it depends on wall time, so that two runs of the same seed differ."""
    nan: bool = False
    """Whether NaN is a valid value."""
    alerts: tuple[Rule, ...] = ()
    """The rules by which it is alarming."""

    @property
    def unit_text(self) -> str:
        """The unit if it says more than the title, such as `nats`; "" for returns, counts and fractions."""
        return "" if self.unit in PLAIN_UNITS else self.unit

    @property
    def may_steer(self) -> bool:
        """Whether `plateau` may use it: a direction is better, and the same seed gives the same value in training."""
        return self.better is not None and not self.name.startswith("test/") and not self.wall_time


@cache
def load_metrics() -> dict[str, Metric]:
    """Return name -> metric for all declared metrics, in the order of the file, which is the order of columns.

    It takes 5 ms, so it uses PyYAML's C parser instead of read_yaml: a monitor must show its first screen after 300 ms.
    tests/config/test_listing.py checks the rules of the file.
    """
    text = PATH.read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.load(text, yaml.CSafeLoader) if yaml.__with_libyaml__ else yaml.safe_load(text)
    return {name: _metric(name, entry) for name, entry in entries.items()}


def _metric(name: str, entry: Mapping[str, Any]) -> Metric:
    """Return the metric of one entry of metrics.yaml."""
    alert_rules = []
    for rule in entry.get("alerts", ()):
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in rule.items()
        }
        alert_rules.append(Rule(**values))
    better = None if entry.get("better") == "none" else entry.get("better")
    return Metric(**{**entry, "name": name, "better": better, "alerts": tuple(alert_rules)})


def declared(name: str) -> Metric:
    """Return the metric of a declared name, or of train/mine/; UserError with the nearest name for any other."""
    metrics = load_metrics()
    if name in metrics or OWN_NAME.fullmatch(name):
        return metric_of(name)
    if name.startswith(OWN_PREFIX):
        raise UserError(
            f"metric {name[:200]!r}: only letters, digits and _.+- after {OWN_PREFIX}, for example {OWN_PREFIX}target"
        )
    raise UserError(f"metric {name!r} is not declared in metrics.yaml{nearest(name, metrics)}")


def check_logged(name: str) -> None:
    """Raise UserError if a run may not log a metric of this name; it suggests a name under train/mine/."""
    try:
        declared(name)
    except UserError as error:
        end = re.sub(r"[^A-Za-z0-9_.+-]", "_", name.rpartition("/")[2])
        raise (
            error if name.startswith(OWN_PREFIX) else UserError(f"{error}; name your own metric {OWN_PREFIX}{end}")
        ) from None


@cache
def metric_of(name: str) -> Metric:
    """Return the declared metric of this name; for any other name a metric without meaning, with the name as title."""
    undeclared = Metric(name, name.removeprefix("train/"), meaning="", unit="none", precision=3, table=True)
    return load_metrics().get(name, undeclared)


def ordered(names: Iterable[str]) -> list[Metric]:
    """Return the metrics of these names: declared ones in the order of the file, then the others by name."""
    present = {*names}
    declared_names = [name for name in load_metrics() if name in present]
    return [metric_of(name) for name in (*declared_names, *sorted(present.difference(declared_names)))]


def area_of(name: str) -> str:
    """Return the area of a metric: "loss" for train/loss/policy, "val" for val/roll/ep_rew/mean, "" without a slash."""
    stage, _, name_after_stage = name.partition("/")
    return name_after_stage.partition("/")[0] if stage == "train" or not name_after_stage else stage


def arranged(names: Iterable[str]) -> list[Metric]:
    """Return the metrics for a table, sorted; those of the console come first, because a small screen cuts the rest."""
    positions = {name: position for position, name in enumerate(load_metrics())}

    def order(metric: Metric) -> tuple[bool, int, str, int, str]:
        """Return the sort key: on the console or not, area, position in the file, name."""
        area = area_of(metric.name)
        rank = AREAS.index(area) if area in AREAS else len(AREAS)
        return not metric.table, rank, area, positions.get(metric.name, len(positions)), metric.name

    shown_metrics = [metric_of(name) for name in names if area_of(name) != ABOVE_AREA and name != ABOVE_NAME]
    return sorted(shown_metrics, key=order)


def console_metrics() -> list[Metric]:
    """Return the metrics that a training shows on the console."""
    return [metric for metric in arranged(load_metrics()) if metric.table]
