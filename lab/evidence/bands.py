"""Makes config/bands.json: for each shipped variant, the curves of its seeds and what they reached.

`stride` compares a run with them. `python -m lab.evidence page` writes the file.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lab.evidence.file import TEST_CONFIGS, Evidence, summary
from lab.evidence.rows import settings_only
from stride.config.bands import Curve
from stride.config.general import is_general
from stride.runstore.run_facts import finite, mapping

# a training that changes only these keys differs from the shipped variant in its length at most: its result counts
LENGTH_KEYS = (
    "max_timesteps", "threads", "test_episodes", "eval_freq_epochs", "eval_episodes", "early_stop_on_eval_threshold",
    "early_stop_on_train_threshold",
)  # fmt: skip


def text(evidence: Iterable[Evidence]) -> str:
    """Return the file's text: for each variant the last of its evidence.

    If that has no curve, earlier evidence of the same settings gives its curves.
    """
    bands: dict[str, dict[str, Any]] = {}
    for item in evidence:
        for name, band in band_of(item).items():
            before = bands.get(name)
            if before and not band["curves"] and is_same(before["config"], band["config"]):
                band["curves"] = before["curves"]
            bands[name] = band
    lines = [f"{json.dumps(name)}: {json.dumps(band, separators=(',', ':'))}" for name, band in bands.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two configs agree in all settings that both have."""
    return all(before.get(key, value) == value for key, value in settings_only(now).items())


def band_of(evidence: Evidence) -> dict[str, dict[str, Any]]:
    """Return {variant: its entry in the file}; {} if the evidence is not of a shipped variant."""
    changed = [override.partition("=")[0] for override in evidence.overrides]
    is_other = evidence.variant in TEST_CONFIGS or is_general(evidence.variant)
    if is_other or any(key not in LENGTH_KEYS for key in changed):
        return {}
    finished = evidence.finished()
    totals = summary(finished)
    # a run of the shipped budget cannot be compared with a curve of another budget
    budget = evidence.config.get("max_timesteps")
    is_whole = "max_timesteps" not in changed or f"max_timesteps={budget}" in evidence.overrides
    curves = [curve_of(mapping(record.get("curve"))) for record in finished] if is_whole else []
    return {
        evidence.variant.replace("/", "-"): {
            "reached": finite(mapping(totals.get("final")).get("iqm")),
            "solved": totals["solved"],
            "seeds": len(evidence.seeds),
            "config": evidence.config,
            "curves": [curve for curve in curves if curve],
        }
    }


def curve_of(seed: Mapping[str, Any]) -> Curve:
    """Return a seed's evaluations as [(env steps, return), ..]; if there are none, the returns of training."""
    for name in ("val", "train"):
        points = [(finite(x), finite(y)) for x, y in seed.get(name) or ()]
        curve = [(x, y) for x, y in points if x is not None and y is not None]
        if curve:
            return sorted(curve)
    return []
