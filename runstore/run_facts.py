"""Read and check config.json of a run ("facts"): every key that readers use has its type. Also words for its outcome.

Used by all commands and screens that show runs. No torch.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from stride.runstore.run_files import read_json
from stride.utils.user_error import UserError

INTERRUPTED, PAUSED = "interrupted", "paused"  # reasons of an end by a signal, and by --pause-at
UNENDED = (INTERRUPTED, PAUSED)  # after these a run can be resumed exactly
MAX_TEXT_LENGTH = 4000  # characters
INTEGER_LIMIT = 2**63  # whole numbers are below this
TEXT_KEYS = ("env_id", "variant", "status", "engine", "engine_reason", "env_backend", "env_backend_reason", "resume",
         "device", "git_hash", "failure")  # fmt: skip
INTEGER_KEYS = ("test_episodes", "env_steps")
NEWER_INTEGER_KEYS = ("test_wanted", "tests")  # missing in outcomes that older versions wrote
FULL_TEST_EPISODES = 100  # a solved test with fewer episodes is shown with their number
NUMBER_KEYS = ("goal", "val_best", "test_mean", "test_std", "seconds")


def read_facts(run: Path) -> dict[str, Any]:
    """Return config.json of the run in this folder; UserError, one line, if no training wrote such a file."""
    path = run / "config.json"
    return checked(read_json(path), path)


def checked(facts: object, path: Path) -> dict[str, Any]:
    """Return `facts`, read from `path`, after checking the type of each key; UserError, one line, if one is wrong."""
    if not isinstance(facts, dict):
        raise UserError(f"{path} is not a JSON object")
    problem = _problem(facts)
    if problem:
        raise UserError(f"{path} is damaged: {problem}")
    return _without_part_tests(facts)


def _without_part_tests(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts without the result of a test in which not every episode ended. Older versions stored these.

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
    no_result = {"solved": False, "test_mean": None, "test_std": None, "test_wanted": wanted_count}
    return {**facts, "outcome": {**outcome, **no_result}}


def verdict(outcome: Mapping[str, object]) -> str:
    """Return in words how an outcome relates to its goal: solved, not solved, not tested, or trained (it has no goal).

    Returns interrupted or paused if the run can be resumed. Only a test decides: without one a run is "not tested".
    """
    if outcome.get("solved") is True:
        return "solved"
    if (reason := outcome.get("reason")) in UNENDED:
        return str(reason)
    if outcome.get("goal") is None:
        return "trained"
    return "not tested" if outcome.get("test_mean") is None else "not solved"


def few(episodes: Collection[int]) -> str:
    """Return a remark for solved tests with fewer than 100 episodes: ` (5 episodes)`; "" if all had at least 100."""
    episode_count = _episodes_text(episodes)
    return f" ({episode_count})" if episode_count else ""


def _episodes_text(episodes: Collection[int]) -> str:
    """Return `5 episodes`, or `5 or more episodes` if the tests had different counts; "" if all had at least 100."""
    minimum = min(episodes, default=FULL_TEST_EPISODES)
    if minimum >= FULL_TEST_EPISODES:
        return ""
    suffix = " or more" if max(episodes) > minimum else ""
    return f"{minimum}{suffix} episode{'' if minimum == 1 and not suffix else 's'}"


def verdict_words(verdict_word: str, episodes: int) -> str:
    """Return a verdict as screens show it: `solved (5 episodes)` if its test had fewer than 100."""
    return verdict_word + (few([episodes]) if verdict_word == "solved" else "")


def ending_words(outcome: Mapping[str, object]) -> str:
    """Return verdict and reason: `solved (5 episodes; goal reached)`; no reason if the verdict already says it."""
    verdict_word, reason = verdict(outcome), str(outcome.get("reason", ""))
    test_remark = _episodes_text([episodes_of(outcome)]) if verdict_word == "solved" else ""
    remarks = "; ".join(filter(None, (test_remark, "" if reason == verdict_word else reason)))
    return f"{verdict_word} ({remarks})" if remarks else verdict_word


def episodes_of(outcome: Mapping[str, object]) -> int:
    """Return how many episodes of the outcome's test ended."""
    count = outcome.get("test_episodes")
    return count if type(count) is int else 0


def part_test(outcome: Mapping[str, object]) -> str:
    """Return why a test decides nothing: `9 of 100 test episodes ended within eval_max_steps`; "" if it decides."""
    wanted_count, ended_count = outcome.get("test_wanted"), episodes_of(outcome)
    if not wanted_count or outcome.get("test_mean") is not None or outcome.get("reason") in UNENDED:
        return ""
    explanation = "ended within eval_max_steps" if ended_count else "counted: see run.log"
    return f"{ended_count} of {wanted_count} test episodes {explanation}"


def failure(facts: Mapping[str, object]) -> str:
    """Return why a run failed, as it was reported; "" if it did not fail."""
    return str(facts.get("failure") or "no reason was recorded") if facts.get("status") == "failed" else ""


def finite(value: object) -> float | None:
    """Return a JSON number as a float; None for NaN, infinities, true, false, numbers too large, and other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def mapping(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def whole(value: object) -> bool:
    """Whether the value is a whole number from 0 to 2**63 - 1."""
    return type(value) is int and 0 <= value < INTEGER_LIMIT


def text(value: object) -> bool:
    """Whether the value is printable text of at most MAX_TEXT_LENGTH characters."""
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH and value.isprintable()


def _problem(facts: dict[str, object]) -> str:
    """Return what is wrong with the first key of the wrong type; "" if all are right."""
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
