"""Show groups of seeds for `stride play --run-id group:NAME`: one as a table of its seeds, several compared.

Several groups are shown side by side, each also against the first. Each form exists as text and as data for --json.
"""

import os
from collections.abc import Sequence
from typing import Any

from stride.report.group import Group, caution, together
from stride.report.group_page import measured, middle_texts, plus_minus
from stride.report.ledger.compare import differences
from stride.report.ledger.plot import letters
from stride.report.ledger.table import aligned
from stride.utils.places import TRAIN
from stride.utils.statistics import FEWEST, chance_of_more, difference_interval, interval, iqm, mean_and_deviation
from stride.utils.typography import mean_text, plain

RUN = "run"  # head of the widest column
LEFT_ALIGNED = {"", "variant", "verdict", RUN}  # columns of text

Groups = Sequence[Group]


def comparison_lines(groups: Groups, how: str, width: int) -> list[str]:
    """Return lines of text. `how`: which returns are compared, in words; `width`: columns of a table at most."""
    if len(groups) == 1:
        return _one_group(groups[0], how, width)
    return _several_groups(groups, how, width)


def _one_group(group: Group, how: str, width: int) -> list[str]:
    table_rows = []
    for seed_result in group.seeds:
        best, env_steps, seconds = measured(seed_result)
        table_rows.append((
            str(seed_result.seed), seed_result.verdict_words, plus_minus(seed_result), env_steps, best, seconds,
            seed_result.run.id if seed_result.run else "",
        ))  # fmt: skip
    head = ("seed", "verdict", "return", "env steps", "best evaluation", "time", RUN)
    table = aligned(head, table_rows, LEFT_ALIGNED, width, ("time", "best evaluation", "env steps", RUN))
    goal = "" if group.goal is None else f", goal {plain(group.goal)}"
    text_lines = [f"group {group.name}: {group.title}{goal}", f"returns: {how}", "", *table, ""]
    text_lines += [f"seed {seed_result.seed}: {seed_result.why}" for seed_result in group.seeds if seed_result.why]
    text_lines.append(together(group))
    if warning := caution(len(group.tested)):
        text_lines.append(warning)
    if RUN not in table[0]:
        text_lines.append(f"ids of the runs: {os.path.relpath(group.folder / 'runs.csv')}")
    if group.unfinished:
        text_lines.append(f"continue: {TRAIN} --resume group:{group.name}")
    return text_lines


def _several_groups(groups: Groups, how: str, width: int) -> list[str]:
    text_lines = [f"returns: {how}", ""]
    table_rows = []
    cautions = []
    for group_letter, group in zip(letters(len(groups)), groups, strict=True):
        text_lines.append(f"{group_letter}  group:{group.name}  {group.command if group.words else group.title}")
        solved = "" if group.goal is None else f"{group.solved}{group.few}"
        counts = (str(len(group.seeds)), solved)
        table_rows.append((group_letter, group.title, *counts, *_statistics(group.tested), *middle_texts(group)))
        if warning := caution(len(group.tested)):
            cautions.append(f"{group_letter}: {warning}")
    head = ("", "variant", "seeds", "solved", "mean", "IQM", "95 % interval", "env steps", "time")
    text_lines += ["", *aligned(head, table_rows, LEFT_ALIGNED, width, ("time", "env steps", "solved", "mean")), ""]
    config_lines = [
        f"differ in {config_key}: {' | '.join(values)}" for config_key, values in _differences(groups).items()
    ]
    text_lines += config_lines or ["differ only in their seeds"]
    text_lines += [*against_first(groups), *cautions]
    if len({group.facts.get("env_id") for group in groups}) > 1:
        text_lines.append("these are different environments: their returns cannot be compared")
    return text_lines


def against_first(groups: Groups) -> list[str]:
    """Return a line for each group but the first, A.

    Example: `B - A: IQM +12.30 [95 % -3.20 .. 27.80], a run of B beats one of A with probability 0.72`
    """
    text_lines = []
    first = groups[0].tested
    for group_letter, group in zip(letters(len(groups))[1:], groups[1:], strict=True):
        values = group.tested
        if not first or not values:
            text_lines.append(f"{group_letter} - A: one of them has no closing test")
            continue
        line = f"{group_letter} - A: IQM {iqm(values) - iqm(first):+.2f}"
        limits = _difference_limits(values, first)
        if limits:
            line += f" [95 % {limits[0]:.2f} .. {limits[1]:.2f}]"
        text_lines.append(
            f"{line}, a run of {group_letter} beats one of A with probability {chance_of_more(values, first):.2f}"
        )
    return text_lines


def _difference_limits(values: Sequence[float], first: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the difference of IQMs; None with fewer than FEWEST runs on a side."""
    return difference_interval(values, first) if min(len(first), len(values)) >= FEWEST else None


def _differences(groups: Groups) -> dict[str, tuple[str, ...]]:
    """Return the config keys in which groups differ, sorted, with the value of each group."""
    different = differences([group.facts for group in groups], missing="null")
    return dict(sorted(different.items()))


def comparison_data(groups: Groups, how: str) -> dict[str, Any]:
    """Return the comparison as data for --json."""
    first = groups[0].tested
    against = []
    for group in groups[1:]:
        values = group.tested
        if values and first:
            against.append({
                "group": group.name, "iqm_difference": iqm(values) - iqm(first),
                "interval": _difference_limits(values, first), "chance_of_more": chance_of_more(values, first),
            })  # fmt: skip
    return {
        "returns": how, "groups": [_group_data(group) for group in groups], "differences": _differences(groups),
        "against_first": against,
    }  # fmt: skip


def _group_data(group: Group) -> dict[str, Any]:
    means = group.tested
    mean, deviation = mean_and_deviation(means) if means else (None, None)
    runs = [
        {
            "seed": seed_result.seed, "run_id": seed_result.run.id if seed_result.run else None,
            "verdict": seed_result.verdict, "mean_return": seed_result.mean, "std_return": seed_result.deviation,
            "episodes": seed_result.episodes, "val_best": seed_result.best, "env_steps": seed_result.env_steps,
            "seconds": seed_result.seconds, "why": seed_result.why,
        }
        for seed_result in group.seeds
    ]  # fmt: skip
    return {
        "group": group.name, "env_id": group.facts.get("env_id"), "variant": group.facts.get("variant"),
        "goal": group.goal, "command": group.command if group.words else None, "solved": group.solved, "mean": mean,
        "std": deviation, "iqm": iqm(means) if means else None,
        "interval": interval(means) if len(means) >= FEWEST else None, "runs": runs,
    }  # fmt: skip


def _statistics(values: Sequence[float]) -> tuple[str, str, str]:
    """Return mean with deviation, IQM, and its 95 % interval, as texts."""
    if not values:
        return "", "", "none"
    mean, deviation = mean_and_deviation(values)
    limits = "none"
    if len(values) >= FEWEST:
        low, high = interval(values)
        limits = f"{low:.2f} .. {high:.2f}"
    return mean_text(mean, deviation, len(values)), f"{iqm(values):.2f}", limits
