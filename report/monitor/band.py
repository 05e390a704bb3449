"""Where a run ranks among the seeds that were shipped with its variant, at the same env steps."""

import math
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from stride.config.bands import Measured, of_variant
from stride.report.monitor.watched_run import WatchedView
from stride.report.run_view import newest_return
from stride.utils.typography import short

FEWEST_SEEDS = 4  # of which quarters can be computed
# keys that change who learns and how fast, not what is learnt
IGNORED_KEYS = {"seed", "schema_version", "description", "engine", "device", "threads", "torch_threads"}


def band_text(view: WatchedView) -> tuple[str, str]:
    """How the run ranks, and which of its settings differ from those of the shipped seeds; "" for neither."""
    shipped_seeds = shipped(view.title)
    value = newest_return(view.val, view.train)[1].last
    if shipped_seeds is None or not math.isfinite(value):
        return "", ""
    rank = ranked(shipped_seeds, view.env_steps, value)
    other_keys = differing(shipped_seeds, view.config) if rank else []
    if not other_keys:
        return rank, ""
    more = f" and {len(other_keys) - 2} more" if len(other_keys) > 2 else ""
    return rank, f"; other {', '.join(other_keys[:2])}{more}"


def shipped(config_id: str) -> Measured | None:
    """None where no curves were measured of this variant as it is shipped."""
    env_id, _, variant = config_id.rpartition(":")
    measured = of_variant(env_id, variant) or of_variant(env_id.rpartition(":")[2], variant)
    return measured if measured and measured.curves else None


def ranked(measured: Measured, env_steps: float, value: float) -> str:
    """`between the 25th and 75th percentile of 20 shipped seeds at 80k steps`; "" before their first evaluation."""
    values = measured.at(env_steps)
    if len(values) < 2:
        return ""
    return f"{_position(values, value)} {len(values)} shipped seeds at {short(env_steps)} steps"


def differing(measured: Measured, config: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ between this run and the shipped seeds."""
    common_keys = measured.config.keys() & config.keys() - IGNORED_KEYS
    return sorted(config_key for config_key in common_keys if measured.config[config_key] != config[config_key])


def _position(values: Sequence[float], value: float) -> str:
    """`values` ascend."""
    if value < values[0]:
        return "below all"
    if value > values[-1]:
        return "above all"
    if len(values) < FEWEST_SEEDS:
        return "between the lowest and the highest of"
    low, _, high = quantiles(values, n=4, method="inclusive")
    if value < low:
        return "below the 25th percentile of"
    return "above the 75th percentile of" if value > high else "between the 25th and 75th percentile of"
