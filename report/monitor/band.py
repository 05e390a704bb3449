"""Where a run stands among the seeds that were shipped with its variant (docs/results), at the same env steps."""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from runstore.run_facts import finite, mapping
from utils.durable_file import read_json
from utils.places import PROJECT
from utils.typography import short
from utils.user_error import UserError

RESULTS = PROJECT / "docs" / "results"
FEWEST = 4  # seeds of which quarters can be told
# what makes no other settings: who learns and how fast, not what
IGNORED = {"seed", "schema_version", "description", "engine", "device", "threads", "torch_threads"}

Curve = list[tuple[float, float]]  # (env steps, evaluation), ascending


class Shipped(NamedTuple):
    """What a variant's seeds did."""

    curves: tuple[Curve, ...]
    config: Mapping[str, Any]

    def at(self, env_steps: float) -> list[float]:
        """The evaluation of each seed there, in ascending order; one that ended stays at its last."""
        return sorted(value for curve in self.curves if (value := _at(curve, env_steps)) is not None)


@cache
def shipped(config_id: str) -> Shipped | None:
    """None where nothing was measured of this variant as it is shipped."""
    env_id, _, variant = config_id.rpartition(":")
    names = (f"{each.replace('/', '-')}-{variant}.json" for each in (env_id, env_id.rpartition(":")[2]))
    path = next((RESULTS / name for name in names if "\0" not in name and (RESULTS / name).is_file()), None)
    if path is None:
        return None
    try:
        data = mapping(read_json(path))
        curves = [_curve(mapping(mapping(seed).get("curve"))) for seed in mapping(data.get("seeds")).values()]
    except UserError:
        return None
    curves = [curve for curve in curves if curve]
    return Shipped(tuple(curves), mapping(data.get("config"))) if curves and not data.get("overrides") else None


def standing(found: Shipped, env_steps: float, value: float) -> str:
    """`between the 25th and 75th percentile of 20 shipped seeds at 80k steps`; "" before their first evaluation."""
    values = found.at(env_steps)
    if len(values) < 2:
        return ""
    return f"{_place(values, value)} {len(values)} shipped seeds at {short(env_steps)} steps"


def differing(found: Shipped, config: Mapping[str, Any]) -> list[str]:
    """The keys that are otherwise in this run than in what was shipped."""
    both = found.config.keys() & config.keys() - IGNORED
    return sorted(key for key in both if found.config[key] != config[key])


def _place(values: Sequence[float], value: float) -> str:
    if value < values[0]:
        return "below all"
    if value > values[-1]:
        return "above all"
    if len(values) < FEWEST:
        return "between lowest and highest of"
    low, high = quantile(values, 0.25), quantile(values, 0.75)
    if value < low:
        return "below the 25th percentile of"
    return "above the 75th percentile of" if value > high else "between the 25th and 75th percentile of"


def quantile(values: Sequence[float], part: float) -> float:
    """Of ascending values, with straight lines between them."""
    place = part * (len(values) - 1)
    left = int(place)
    right = min(left + 1, len(values) - 1)
    return values[left] + (values[right] - values[left]) * (place - left)


def _curve(told: Mapping[str, Any]) -> Curve:
    """The evaluations; training's returns where there were none."""
    for name in ("val", "train"):
        points = [point for point in told.get(name) or () if isinstance(point, list) and len(point) == 2]
        found = [(x, y) for x, y in ((finite(a), finite(b)) for a, b in points) if x is not None and y is not None]
        if found:
            return sorted(found)
    return []


def _at(curve: Curve, x: float) -> float | None:
    """None before its first point."""
    if x < curve[0][0]:
        return None
    for (left, low), (right, high) in pairwise(curve):
        if left <= x < right:
            return low + (high - low) * (x - left) / (right - left)
    return curve[-1][1]
