"""How metrics are shown: title, digits, unit and order, read from metrics.yaml in 10 ms instead of checked in 200.

The checks of config/metrics.py are a test's; a monitor has 300 ms until something stands on the screen.
"""

from functools import cache
from typing import Any, NamedTuple

import yaml

from utils.places import PROJECT

PATH = PROJECT / "config" / "metrics.yaml"
AREAS = ("val", "test", "roll", "loss", "policy", "value", "time")  # what decides comes first
HIDDEN = ("clock",)  # it stands above the table


class Face(NamedTuple):
    """Of one metric."""

    name: str
    title: str
    precision: int = 3
    better: str = "none"
    """up, down or none"""
    unit: str = "none"
    table: bool = True
    highlight: bool = False
    place: int = 1 << 20
    """among the declared ones"""

    @property
    def area(self) -> str:
        stage, _, rest = self.name.partition("/")
        return rest.partition("/")[0] if stage == "train" and "/" in rest else stage if rest else ""

    @property
    def order(self) -> tuple[bool, int, str, int, str]:
        """What the console shows comes first: a small screen ends before the rest."""
        area = AREAS.index(self.area) if self.area in AREAS else len(AREAS)
        return not self.table, area, self.area, self.place, self.name


@cache
def declared() -> dict[str, Face]:
    """Those of metrics.yaml."""
    text = PATH.read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, yaml.CSafeLoader) if yaml.__with_libyaml__ else yaml.safe_load(text)
    keys = ("title", "precision", "better", "unit", "table", "highlight")
    return {
        name: Face(name, **{"table": False, **{key: entry[key] for key in keys if key in entry}}, place=place)
        for place, (name, entry) in enumerate(found.items())
    }


@cache
def face(name: str) -> Face:
    """Of any metric; of one that a loop of somebody's own named, that name."""
    return declared().get(name) or Face(name, name.removeprefix("train/"))


def arranged(names: list[str]) -> list[Face]:
    """Those that belong into a table, area by area."""
    return sorted((one for one in map(face, names) if one.area not in HIDDEN), key=lambda one: one.order)
