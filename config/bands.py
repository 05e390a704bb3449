"""Reads config/bands.json: the learning curves and scores that each shipped variant reached over several seeds.

Lists, reports and the inspector compare a run with them. `python -m lab.evidence.bands` writes the file; a variant that
was measured with other settings than the shipped ones is not in it.
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
    """The results of one variant over its seeds."""

    config: Mapping[str, Any]
    curves: tuple[Curve, ...]  # one for each seed that was evaluated
    reached: float | None  # interquartile mean over the seeds of 100 fresh episodes each
    solved: int  # number of seeds that reached the goal
    seeds: int  # number of seeds, finished or failed

    def at(self, env_steps: float) -> list[float]:
        """Return each seed's evaluation at this env step, in ascending order.

        A seed whose run ended earlier keeps its last value; one that was evaluated only later is left out."""
        return sorted(value for curve in self.curves if (value := _at(curve, env_steps)) is not None)


@cache
def measured() -> dict[str, Measured]:
    """Return the results of all variants by name, with '-' for '/' in the id: `ALE-Pong-v5:ppo`."""
    return {variant: _measured(mapping(entry)) for variant, entry in mapping(read_json(FILE)).items()}


def of_variant(env_id: str, variant: str) -> Measured | None:
    """Return the results of a variant; None if it was not measured with the settings as they are shipped."""
    return measured().get(f"{env_id.replace('/', '-')}:{variant}")


def _measured(entry: Mapping[str, Any]) -> Measured:
    curves = tuple([(float(x), float(y)) for x, y in curve] for curve in entry["curves"])
    return Measured(mapping(entry["config"]), curves, finite(entry["reached"]), entry["solved"], entry["seeds"])


def _at(curve: Curve, x: float) -> float | None:
    """Return the curve's value at env step `x`, on a straight line between two points; None before the first point."""
    if x < curve[0][0]:
        return None
    for (earlier_step, earlier_value), (later_step, later_value) in pairwise(curve):
        if earlier_step <= x < later_step:
            return earlier_value + (later_value - earlier_value) * (x - earlier_step) / (later_step - earlier_step)
    return curve[-1][1]
