"""Where a run stands among the seeds that were shipped with its variant, at the same env steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from stride.config.bands import Measured, of_variant
from stride.utils.typography import short

FEWEST = 4  # seeds of which quarters can be told
# what makes no other settings: who learns and how fast, not what
IGNORED = {"seed", "schema_version", "description", "engine", "device", "threads", "torch_threads"}


def shipped(config_id: str) -> Measured | None:
    """None where no curves were measured of this variant as it is shipped."""
    env_id, _, variant = config_id.rpartition(":")
    result = of_variant(env_id, variant) or of_variant(env_id.rpartition(":")[2], variant)
    return result if result and result.curves else None


def standing(measured: Measured, env_steps: float, value: float) -> str:
    """`between the 25th and 75th percentile of 20 shipped seeds at 80k steps`; "" before their first evaluation."""
    values = measured.at(env_steps)
    if len(values) < 2:
        return ""
    return f"{_place(values, value)} {len(values)} shipped seeds at {short(env_steps)} steps"


def differing(measured: Measured, config: Mapping[str, Any]) -> list[str]:
    """The keys that are otherwise in this run than in what was shipped."""
    both = measured.config.keys() & config.keys() - IGNORED
    return sorted(key for key in both if measured.config[key] != config[key])


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
