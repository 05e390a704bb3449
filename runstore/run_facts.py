"""config.json of a run, checked where it is read: each key that readers rely on has its type. No torch."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

INTERRUPTED, PAUSED = "interrupted", "paused"  # the reason of an end that a signal, or --pause-at, asked for
UNENDED = (INTERRUPTED, PAUSED)  # after which a run is to go on as if nothing had been
MAX_TEXT_LENGTH, INTEGER_LIMIT = 4000, 2**63  # of a text, of a whole number
TEXT_KEYS = ("env_id", "variant", "status", "engine", "engine_reason", "env_backend", "env_backend_reason", "resume",
         "device", "git_hash", "failure")  # fmt: skip
INTEGER_KEYS = ("test_episodes", "env_steps")
NEWER_INTEGER_KEYS = ("test_wanted", "tests")  # whole numbers, too, but not in the outcomes of older versions
FULL_TEST_EPISODES = 100  # episodes of a test that needs no remark
NUMBER_KEYS = ("goal", "val_best", "test_mean", "test_std", "seconds")


def read_facts(run: Path) -> dict[str, Any]:
    """config.json of the run in this folder; UserError, one line, for one that no training wrote."""
    path = run / "config.json"
    return checked(read_json(path), path)


def checked(facts: object, path: Path) -> dict[str, Any]:
    """The facts that were read from `path`, checked in the same way."""
    if not isinstance(facts, dict):
        raise UserError(f"{path} is not a JSON object")
    problem = _problem(facts)
    if problem:
        raise UserError(f"{path} is damaged: {problem}")
    return _without_part_tests(facts)


def _without_part_tests(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts without a test of which not every episode ended; in older versions such a test decided.

    Short episodes end first, so the mean of those that ended is not the mean of all.
    """
    outcome, config = mapping(facts.get("outcome")), mapping(facts.get("config"))
    wanted_count = (
        config["test_episodes"] if whole(config.get("test_episodes")) else 0
    )  # older configs have no such key
    if not outcome or outcome["test_episodes"] >= max(1, wanted_count):
        return facts
    if not outcome["solved"] and outcome.get("test_mean") is None:
        return facts
    nothing = {"solved": False, "test_mean": None, "test_std": None, "test_wanted": wanted_count}
    return {**facts, "outcome": {**outcome, **nothing}}


def verdict(outcome: Mapping[str, object]) -> str:
    """How an outcome stands to its goal, in a word: solved, not solved, not tested; trained where there is no goal.

    Interrupted or paused where the run is to go on. Only a test decides: what was not tested is neither.
    """
    if outcome.get("solved") is True:
        return "solved"
    if (reason := outcome.get("reason")) in UNENDED:
        return str(reason)
    if outcome.get("goal") is None:
        return "trained"
    return "not tested" if outcome.get("test_mean") is None else "not solved"


def few(episodes: Collection[int]) -> str:
    """A remark for solved tests with fewer than 100 episodes: ` (5 episodes)`; "" for others."""
    episode_count = _episodes_text(episodes)
    return f" ({episode_count})" if episode_count else ""


def _episodes_text(episodes: Collection[int]) -> str:
    minimum = min(episodes, default=FULL_TEST_EPISODES)
    if minimum >= FULL_TEST_EPISODES:
        return ""
    suffix = " or more" if max(episodes) > minimum else ""
    return f"{minimum}{suffix} episode{'' if minimum == 1 and not suffix else 's'}"


def verdict_words(verdict_word: str, episodes: int) -> str:
    """A verdict as people see it: `solved (5 episodes)` where its test had fewer than 100."""
    return verdict_word + (few([episodes]) if verdict_word == "solved" else "")


def ending_words(outcome: Mapping[str, object]) -> str:
    """Verdict and reason: `solved (5 episodes; goal reached)`; the reason only where the verdict does not say it."""
    verdict_word, reason = verdict(outcome), str(outcome.get("reason", ""))
    test_remark = _episodes_text([episodes_of(outcome)]) if verdict_word == "solved" else ""
    remarks = "; ".join(filter(None, (test_remark, "" if reason == verdict_word else reason)))
    return f"{verdict_word} ({remarks})" if remarks else verdict_word


def episodes_of(outcome: Mapping[str, object]) -> int:
    """Episodes of its test that ended."""
    float_value = outcome.get("test_episodes")
    return float_value if type(float_value) is int else 0


def part_test(outcome: Mapping[str, object]) -> str:
    """Why a test decides nothing: `9 of 100 test episodes ended within eval_max_steps`; "" of one that does."""
    wanted_count, ended_count = outcome.get("test_wanted"), episodes_of(outcome)
    if not wanted_count or outcome.get("test_mean") is not None or outcome.get("reason") in UNENDED:
        return ""
    explanation = "ended within eval_max_steps" if ended_count else "counted: see run.log"
    return f"{ended_count} of {wanted_count} test episodes {explanation}"


def failure(facts: Mapping[str, object]) -> str:
    """Why a run failed, in the line that was said of it; "" of any other."""
    return str(facts.get("failure") or "no reason was recorded") if facts.get("status") == "failed" else ""


def finite(value: object) -> float | None:
    """A JSON number as a float, None for all that is none: NaN, infinities, what no float can hold, true and false."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        float_value = float(value)
    except OverflowError:
        return None
    return float_value if math.isfinite(float_value) else None


def mapping(value: object) -> dict[str, Any]:
    """The value where it is a JSON object, {} where it is none."""
    return value if isinstance(value, dict) else {}


def whole(value: object) -> bool:
    """Whether it is a whole number from zero to what 64 bits hold."""
    return type(value) is int and 0 <= value < INTEGER_LIMIT


def text(value: object) -> bool:
    """Whether it is printable text of a length that a line may have."""
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and value.isprintable()


def _problem(facts: dict[str, object]) -> str:
    """The first key that is not what it should be, in words; "" where all are."""
    for key in TEXT_KEYS:
        if key in facts and not text(facts[key]):
            return f"{key} is not a text"
    if facts.get("group") is not None and not text(facts["group"]):
        return "group is not a text"
    if facts.get("goal") is not None and finite(facts["goal"]) is None:
        return "goal is not a finite number"
    if "seed" in facts and not whole(facts["seed"]):
        return "seed is not a whole number"
    for key in ("config", "parent", "versions", "host", "outcome"):
        if key in facts and not isinstance(facts[key], dict):
            return f"{key} is not an object"
    for key in ("changes", "shipped"):
        texts = facts.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(item, str) and text(item) for item in texts):
            return f"{key} is not a list of texts"
    resumed = facts.get("resumed", [])
    if not isinstance(resumed, list) or not all(isinstance(item, dict) for item in resumed):
        return "resumed is not a list of objects"
    outcome = facts.get("outcome")
    return _outcome_problem(outcome) if isinstance(outcome, dict) else ""


def _outcome_problem(outcome: dict[str, object]) -> str:
    if type(outcome.get("solved")) is not bool or not text(outcome.get("reason", "")):
        return "outcome.solved and outcome.reason are not true or false and a text"
    for key in NUMBER_KEYS:
        if outcome.get(key) is not None and finite(outcome[key]) is None:
            return f"outcome.{key} is not a finite number"
    numbers = [outcome.get(key) for key in INTEGER_KEYS] + [outcome.get(key, 0) for key in NEWER_INTEGER_KEYS]
    return "" if all(map(whole, numbers)) else "outcome.env_steps is not a whole number"
