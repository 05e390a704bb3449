"""The scores that the shipped seeds of each variant reached: config/bands.json, written by the laboratory.

`python -m lab.evidence.bands` writes the file. A variant that was measured with other settings is not in it.
"""

from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stride.runstore.run_facts import finite, mapping
from stride.utils.durable_file import read_json

FILE = Path(__file__).resolve().parent / "bands.json"

Curve = list[tuple[float, float]]  # (env steps, evaluation), ascending


class Measured(NamedTuple):
    """The seeds of one variant."""

    config: Mapping[str, Any]
    curves: tuple[Curve, ...]  # of each seed that has one
    reached: float | None  # interquartile mean over the seeds of 100 fresh episodes each
    solved: int  # seeds that reached the goal
    seeds: int  # finished or failed

    def at(self, env_steps: float) -> list[float]:
        """The evaluation of each seed there, in ascending order; one that ended stays at its last."""
        return sorted(value for curve in self.curves if (value := _at(curve, env_steps)) is not None)


@cache
def measured() -> dict[str, Measured]:
    """By the variant's name without slashes, `ALE-Pong-v5:ppo`."""
    return {variant: _measured(mapping(entry)) for variant, entry in mapping(read_json(FILE)).items()}


def of_variant(env_id: str, variant: str) -> Measured | None:
    """None where nothing was measured of this variant as it is shipped."""
    return measured().get(f"{env_id.replace('/', '-')}:{variant}")


def _measured(entry: Mapping[str, Any]) -> Measured:
    curves = tuple([(float(x), float(y)) for x, y in curve] for curve in entry["curves"])
    return Measured(mapping(entry["config"]), curves, finite(entry["reached"]), entry["solved"], entry["seeds"])


def _at(curve: Curve, x: float) -> float | None:
    """None before its first point."""
    if x < curve[0][0]:
        return None
    for (earlier_step, earlier_value), (later_step, later_value) in pairwise(curve):
        if earlier_step <= x < later_step:
            return earlier_value + (later_value - earlier_value) * (x - earlier_step) / (later_step - earlier_step)
    return curve[-1][1]
