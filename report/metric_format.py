"""How metrics are shown: title, digits, unit and order, read from metrics.yaml in 10 ms instead of checked in 200.

The checks of config/metrics.py are a test's; a monitor has 300 ms until something stands on the screen.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import yaml

from utils.places import PROJECT

PATH = PROJECT / "config" / "metrics.yaml"
AREAS = ("val", "test", "roll", "loss", "policy", "value", "time")  # what decides comes first
# shown above the table: the clock, and how long it has taken
ABOVE_AREA, ABOVE_NAME = "clock", "train/time/seconds"
LAST = 1 << 20  # place of metrics that are not declared


class MetricFormat(NamedTuple):
    """Of one metric."""

    name: str
    title: str
    meaning: str = ""
    unit: str = ""
    """ "" for none"""
    precision: int = 3
    better: str | None = None
    """up, down, or None where neither is"""
    table: bool = True
    """whether the console shows it"""
    highlight: bool = False
    nan: bool = False
    """whether NaN is a legitimate value"""
    place: int = LAST
    """among the declared ones"""

    @property
    def area(self) -> str:
        """`loss` of train/loss/policy, `val` of val/roll/ep_rew/mean, "" of a name without a slash."""
        stage, _, rest = self.name.partition("/")
        if not rest:
            return ""
        return rest.partition("/")[0] if stage == "train" else stage

    @property
    def order(self) -> tuple[bool, int, str, int, str]:
        """What the console shows comes first: a small screen ends before the rest."""
        area = AREAS.index(self.area) if self.area in AREAS else len(AREAS)
        return not self.table, area, self.area, self.place, self.name


@cache
def declared_formats() -> dict[str, MetricFormat]:
    """Those of metrics.yaml, in its order."""
    text = PATH.read_text(encoding="utf-8")
    entries: dict[str, Any] = yaml.load(text, yaml.CSafeLoader) if yaml.__with_libyaml__ else yaml.safe_load(text)
    return {name: _declared(name, entry, place) for place, (name, entry) in enumerate(entries.items())}


def _declared(name: str, entry: dict[str, Any], place: int) -> MetricFormat:
    values = {key: entry[key] for key in MetricFormat._fields if key in entry}
    values = {key: value for key, value in values.items() if value != "none"}
    return MetricFormat(**{"name": name, "table": False, "place": place, **values})


@cache
def format_of(name: str) -> MetricFormat:
    """Of any metric; of one that a loop of somebody's own named, that name."""
    return declared_formats().get(name) or MetricFormat(name, name.removeprefix("train/"))


def arranged(names: Iterable[str]) -> list[MetricFormat]:
    """Those that belong into a table, area by area."""
    formats = [format_of(name) for name in names]
    formats = [metric for metric in formats if metric.area != ABOVE_AREA and metric.name != ABOVE_NAME]
    return sorted(formats, key=lambda metric: metric.order)


def console_formats() -> list[MetricFormat]:
    """Those that a training shows while it goes on."""
    return [metric for metric in arranged(declared_formats()) if metric.table]
