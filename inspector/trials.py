"""Collects runs with different settings, such as trials of a search; trials.js draws their return over each setting."""

import re
from collections.abc import Sequence
from typing import Any

from stride.config.diff import IDENTITY_KEYS, NEUTRAL_KEYS, written
from stride.inspector.charts import MAX_VALUE, as_json
from stride.inspector.markup import Markup, card, note, tag
from stride.runstore.run_brief import Brief, facts_of
from stride.runstore.run_dir import runs_root
from stride.runstore.run_facts import mapping
from stride.utils.user_error import UserError

MAX_TRIALS = 500  # runs that are drawn
MAX_KEYS = 12  # settings that are drawn, in the order of a config
MIN_SETTINGS = 3  # with fewer different settings, nothing is drawn
OMITTED_KEYS = {*IDENTITY_KEYS, *NEUTRAL_KEYS, "seed", "max_timesteps"}
NUMBER = re.compile(r"(?:[a-z]+_)?(-?[0-9.]+(?:e[+-]?[0-9]+)?)")  # 0.001, and lin_0.001 for its peak
MEANING = """one line and one dot per run. Return: of the test, else the best evaluation, else the best training return.
Point at a run for details"""


def is_search(briefs: Sequence[Brief]) -> bool:
    """Return whether the runs of a group differ in more than their seed, as the trials of a search do."""
    return len({brief.settings for brief in briefs if brief.settings}) > 1


def count_text(briefs: Sequence[Brief]) -> str:
    """Return how many runs a group has: "3 seeds", or "12 trials"."""
    noun = "trial" if is_search(briefs) else "seed"
    return f"{len(briefs)} {noun}{'' if len(briefs) == 1 else 's'}"


def trials(briefs: Sequence[Brief]) -> Markup:
    """Return a card with the data that trials.js draws as scatter plots and parallel coordinates.

    It is empty if the runs have fewer than MIN_SETTINGS different settings."""
    rows = []
    for brief in briefs[:MAX_TRIALS]:
        value = return_of(brief)
        if value is not None and abs(value) < MAX_VALUE:
            rows.append((brief, config_of(brief), value))
    keys = differing_keys([config for _, config, _ in rows])[:MAX_KEYS]
    if not keys or len({tuple(config.get(key) for key in keys) for _, config, _ in rows}) < MIN_SETTINGS:
        return Markup("")
    data = {
        "keys": keys,
        "runs": [
            {
                "id": brief.id, "seed": brief.seed, "return": value,
                "values": [config.get(key, "") for key in keys],
                "numbers": [number_of(config.get(key, "")) for key in keys],
            }
            for brief, config, value in rows
        ],
    }  # fmt: skip
    remark = f"the first {MAX_TRIALS} runs of {len(briefs):,}; " if len(briefs) > MAX_TRIALS else ""
    return card("Trials", tag("div", class_="trials", data_trials=as_json(data)), note(remark + MEANING))


def return_of(brief: Brief) -> float | None:
    return brief.tail.best if brief.test is None else brief.test


def config_of(brief: Brief) -> dict[str, str]:
    """Return the settings of a run as they are typed; {} if its config.json cannot be read."""
    try:
        config: dict[str, Any] = mapping(facts_of(runs_root() / brief.id).get("config"))
    except UserError:
        return {}
    return {key: written(value)[:60] for key, value in config.items() if key not in OMITTED_KEYS}


def differing_keys(configs: Sequence[dict[str, str]]) -> list[str]:
    """Return the settings that differ between the configs, in their order."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key) for config in configs}) > 1]


def number_of(text: str) -> float | None:
    """Return a setting's number, for a schedule its peak (0.001 of "lin_0.001"); None if it is no number."""
    match = NUMBER.fullmatch(text)
    try:
        value = float(match[1]) if match else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < MAX_VALUE else None
