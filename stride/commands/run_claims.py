"""What a run says of itself in several files, compared: nothing is trained here, and no file is believed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stride.commands.plain_tree import Difference
from stride.report.metrics_csv import STEPS
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import format_number
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import UNENDED, finite, mapping
from stride.utils.user_error import UserError

VALIDATED, BEST, TESTED = "val/roll/ep_rew/mean", "val/roll/ep_rew/best", "test/roll/ep_rew/mean"
TESTED_AS = {"test_mean": TESTED, "test_std": "test/roll/ep_rew/std", "test_episodes": "test/roll/episodes"}

Row = Mapping[str, float]
Sidecars = dict[str, dict[str, Any]]  # of checkpoints, by name, oldest first


def contradictions(
    run: RunDir, facts: Mapping[str, Any], sidecars: Sidecars, rows: Sequence[Row], goal: float | None, episodes: int
) -> list[Difference]:
    """Where sidecars, links, metrics.csv and config.json do not agree.

    `goal`: what the config and its environment say it is. `episodes`: how many a closing test has.
    """
    outcome = mapping(facts.get("outcome"))
    found = [*_links(run, sidecars), *_scores(sidecars, rows), _apart("goal", facts.get("goal"), "its config", goal)]
    if outcome:
        found += [*_tested(outcome, closing_test(rows)), *_ended(outcome, facts, sidecars, rows)]
        found += [_verdict(outcome, episodes)]
    return [each for each in found if each]


def closing_test(rows: Iterable[Row]) -> Row:
    """The row of the closing test, {} where there is none."""
    return next((row for row in reversed([*rows]) if any(name.startswith("test/roll/") for name in row)), {})


def _links(run: RunDir, sidecars: Sidecars) -> Iterable[Difference]:
    for name in checkpoint_set.LINKS:
        try:
            named = {checkpoint_set.target(run.checkpoints / f"{name}.ckpt")}
            named.add(checkpoint_set.target(run.checkpoints / f"{name}.json").removesuffix(".json"))
        except UserError as error:
            yield Difference(f"checkpoints/{name}", math.inf, f"cannot be compared: {error}")
            continue
        if len(named) > 1 or not named <= sidecars.keys():
            yield Difference(f"checkpoints/{name}", math.inf, "is no pair of links to a checkpoint and its sidecar")


def _scores(sidecars: Sidecars, rows: Sequence[Row]) -> Iterable[Difference | None]:
    """A score is the evaluation's; the closing test's where those weights were never evaluated."""
    for stem, facts in sidecars.items():
        if facts.get("score") is None:
            continue
        there = [row for row in rows if row.get(STEPS) == facts["env_steps"]]
        said = [row[name] for name in (VALIDATED, TESTED) for row in there if name in row]
        yield _apart(f"{stem}.json: score", facts["score"], "metrics.csv", said[0] if said else None)


def _tested(outcome: Mapping[str, Any], row: Row) -> Iterable[Difference | None]:
    for key, name in TESTED_AS.items():
        said, there = outcome.get(key), row.get(name)
        if key == "test_episodes":  # 0 where there was no test
            said, there = said or None, there or None
        yield _apart(f"outcome.{key}", said, "metrics.csv", there)


def _ended(
    outcome: Mapping[str, Any], facts: Mapping[str, Any], sidecars: Sidecars, rows: Sequence[Row]
) -> Iterable[Difference | None]:
    """What else an outcome repeats; a run that was stopped may have lost what came after its last checkpoint."""
    yield _apart("outcome.goal", outcome.get("goal"), "config.json", facts.get("goal"))
    if outcome.get("reason") in UNENDED:
        return
    best = [row[BEST] for row in rows if BEST in row]
    yield _apart("outcome.val_best", outcome.get("val_best"), "metrics.csv", best[-1] if best else None)
    steps = [each["env_steps"] for each in sidecars.values()]
    yield _apart("outcome.env_steps", outcome.get("env_steps"), "the last checkpoint", steps[-1] if steps else None)
    if row := closing_test(rows):
        yield _apart("outcome.env_steps", outcome.get("env_steps"), "the row of the test", row.get(STEPS))


def _verdict(outcome: Mapping[str, Any], episodes: int) -> Difference | None:
    """`solved` may be false where not all episodes of the test ended, whatever their mean."""
    goal, mean = finite(outcome.get("goal")), finite(outcome.get("test_mean"))
    reached = goal is not None and mean is not None and mean >= goal
    whole = outcome.get("test_episodes") == episodes and outcome.get("reason") not in UNENDED
    wrong = not reached if outcome.get("solved") else reached and whole
    said = f"is {outcome.get('solved')}, with test_mean {mean} and goal {goal}"
    return Difference("outcome.solved", math.inf, said) if wrong else None


def _apart(name: str, said: object, where: str, there: float | None) -> Difference | None:
    """A number that should be the same in two places, to the seven digits of metrics.csv."""
    number = finite(said)
    same = said is None if there is None else number is not None and format_number(number) == format_number(there)
    return None if same else Difference(name, math.inf, f"is {said!r}, and {there!r} by {where}"[:160])
