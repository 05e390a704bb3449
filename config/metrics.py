"""The metrics there are, declared in metrics.yaml: what each means, how it is printed, when it is alarming.

Nothing is measured here."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from config.field_types import build
from config.yaml_file import read_yaml
from utils.user_error import UserError, nearest

PATH = Path(__file__).parent / "metrics.yaml"
STAGES = ("train", "val", "test")


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
    low: float | None = None
    """Below is alarming."""
    high: float | None = None
    """Above is alarming."""
    table: bool = False
    """Shown on the console."""
    highlight: bool = False
    """Set off on the console."""
    wall_time: bool = False
    """Differs between two runs of the same seed."""
    nan: bool = False
    """NaN is a legitimate value."""


@cache
def load_metrics(path: Path = PATH) -> dict[str, Metric]:
    """Every declared metric, in the order of the file, which is the order of columns."""
    return {name: _metric(path.name, name, entry) for name, entry in read_yaml(path).items()}


def declared(name: str) -> Metric:
    """The metric, or a UserError that names the nearest declared ones."""
    metrics = load_metrics()
    if name not in metrics:
        raise UserError(f"metric {name!r} is not declared in metrics.yaml{nearest(name, metrics)}")
    return metrics[name]


def _metric(file: str, name: str, entry: object) -> Metric:
    where = f"{file}: {name}"
    if not isinstance(entry, dict):
        raise UserError(f"{where} takes a mapping of title, meaning, unit, precision, ...")
    if name.split("/")[0] not in STAGES:
        raise UserError(f"{where} starts with none of {', '.join(STAGES)}")
    missing = [key for key in ("title", "meaning", "unit", "precision") if key not in entry]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    better = None if entry.get("better") == "none" else entry.get("better")
    metric = build(where, Metric, {**entry, "name": name, "better": better})
    if metric.low is not None and metric.high is not None and metric.low > metric.high:
        raise UserError(f"{where}: low {metric.low:g} lies above high {metric.high:g}")
    return metric
