"""Compare a run with the measured seeds that Stride ships for its variant, at the same number of env steps.

These seeds are in config/bands.json. The monitor shows the rank in the line "band".
"""

import math
from collections.abc import Mapping, Sequence
from statistics import quantiles
from typing import Any

from stride.config.bands import Measured, of_variant
from stride.report.monitor.watched_run import WatchedView
from stride.report.run_view import newest_return
from stride.utils.typography import short

MIN_SEEDS = 4  # with fewer seeds there are no quartiles
# config keys that do not change how well a run learns, only how fast or with which seed
IGNORED_KEYS = {"seed", "schema_version", "description", "engine", "device", "threads", "torch_threads"}


def band_text(view: WatchedView) -> tuple[str, str]:
    """Return the run's rank among the shipped seeds, and the settings in which it differs from them.

    Example: ("above all 20 shipped seeds at 80k steps", "; other gamma, n_envs"); "" for what is not known.
    """
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
    """Return the shipped seeds of a variant, "CartPole-v1:ppo"; None if it has no measured curves."""
    env_id, _, variant = config_id.rpartition(":")
    measured = of_variant(env_id, variant) or of_variant(env_id.rpartition(":")[2], variant)
    return measured if measured and measured.curves else None


def ranked(measured: Measured, env_steps: float, value: float) -> str:
    """Return the rank of a return: `between the 25th and 75th percentile of 20 shipped seeds at 80k steps`.

    "" before the seeds' first evaluation.
    """
    values = measured.at(env_steps)
    if len(values) < 2:
        return ""
    return f"{_position(values, value)} {len(values)} shipped seeds at {short(env_steps)} steps"


def differing(measured: Measured, config: Mapping[str, Any]) -> list[str]:
    """Return the config keys in which this run differs from the shipped seeds, sorted."""
    common_keys = measured.config.keys() & config.keys() - IGNORED_KEYS
    return sorted(config_key for config_key in common_keys if measured.config[config_key] != config[config_key])


def _position(values: Sequence[float], value: float) -> str:
    """Return the position of a value among `values`, which are sorted, as the beginning of a sentence."""
    if value < values[0]:
        return "below all"
    if value > values[-1]:
        return "above all"
    if len(values) < MIN_SEEDS:
        return "between the lowest and the highest of"
    low, _, high = quantiles(values, n=4, method="inclusive")
    if value < low:
        return "below the 25th percentile of"
    return "above the 75th percentile of" if value > high else "between the 25th and 75th percentile of"
