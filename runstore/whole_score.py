"""The score in a checkpoint's sidecar, where it is the mean of every episode that was to be played. No torch.

Older versions wrote a score for evaluations and tests of which some episodes never ended, and did not say so. Their
metrics.csv does: it is asked for sidecars without `score_episodes`, as far as the end of the file tells.
"""

from collections.abc import Mapping
from pathlib import Path

from stride.runstore.metrics_table import STEPS, MetricsTable
from stride.runstore.run_facts import finite, mapping

PLAYED = {"val/roll/episodes": "eval_episodes", "test/roll/episodes": "test_episodes"}  # the first that is there counts


def whole_score(sidecar: Mapping[str, object], run: Path) -> float | None:
    """None where there is no score, or where it is known to be of a part of the episodes; `run`: the run's folder."""
    score = finite(sidecar.get("score"))
    if score is None or "score_episodes" in sidecar:
        return score
    config, steps = mapping(sidecar.get("config")), finite(sidecar.get("env_steps"))
    played = _played_at(run / "metrics.csv", steps) if config and steps is not None else {}
    for metric, key in PLAYED.items():
        if metric in played:
            return score if played[metric] >= (finite(config.get(key)) or 0) else None
    return score


def _played_at(path: Path, steps: float) -> dict[str, float]:
    """How many episodes ended in the evaluation and in the test at these env steps, as far as they are found."""
    played: dict[str, float] = {}
    for row in MetricsTable(path, (STEPS, *PLAYED)).end():
        if row.get(STEPS) == steps:
            played |= {name: number for name, number in row.items() if name in PLAYED}
    return played
