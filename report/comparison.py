"""Groups as text and as data: one as a table of its seeds, several side by side and against the first of them."""

import os
import string
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stride.config.diff import written
from stride.report.group import Group, caution, together
from stride.report.group_page import known_values
from stride.report.ledger.table import aligned
from stride.runstore.run_facts import mapping
from stride.utils.places import TRAIN
from stride.utils.statistics import FEWEST, chance_of_more, difference_interval, interval, iqm, mean_and_deviation
from stride.utils.typography import duration, plain, score

IGNORED_KEYS = {"seed", "description", "variant", "env_id"}  # of a config: shown elsewhere
RUN = "run"  # head of the column that is the widest
LEFT_ALIGNED = {"", "variant", "verdict", RUN}  # columns of text

Groups = Sequence[Group]
Columns = Mapping[str, Sequence[str]]  # cells by head


def comparison_lines(groups: Groups, how: str, width: int) -> list[str]:
    """Lines for people; `how`: the returns that are compared; a table takes at most `width` columns."""
    if len(groups) == 1:
        return _one_group(groups[0], how, width)
    return _several_groups(groups, how, width)


def _one_group(group: Group, how: str, width: int) -> list[str]:
    seeds = group.seeds
    columns = {
        "seed": [str(seed_result.seed) for seed_result in seeds],
        "verdict": [seed_result.verdict_words for seed_result in seeds],
        "return": [_plus_minus(seed_result.mean, seed_result.deviation) for seed_result in seeds],
        "env steps": ["" if seed_result.env_steps is None else f"{seed_result.env_steps:,}" for seed_result in seeds],
        "best val": ["" if seed_result.best is None else score(seed_result.best) for seed_result in seeds],
        "time": ["" if seed_result.seconds is None else duration(seed_result.seconds) for seed_result in seeds],
        RUN: [seed_result.run.id if seed_result.run else "" for seed_result in seeds],
    }
    table = _table(columns, width, ("time", "best val", "env steps", RUN))
    goal = "" if group.goal is None else f", goal {plain(group.goal)}"
    text_lines = [f"group {group.name}: {group.title}{goal}", f"returns: {how}", "", *table, ""]
    text_lines += [f"seed {seed_result.seed}: {seed_result.why}" for seed_result in seeds if seed_result.why]
    text_lines.append(together(group))
    if warning := caution(len(group.tested)):
        text_lines.append(warning)
    if RUN not in table[0]:
        text_lines.append(f"ids of the runs: {os.path.relpath(group.folder / 'runs.csv')}")
    if group.unfinished:
        text_lines.append(f"continue: {TRAIN} --resume group:{group.name}")
    return text_lines


def _plus_minus(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return ""
    return score(mean) if deviation is None else f"{score(mean)} ± {score(deviation)}"


def _several_groups(groups: Groups, how: str, width: int) -> list[str]:
    names = letters(groups)
    columns = {
        "": names,
        "variant": [group.title for group in groups],
        "seeds": [str(len(group.seeds)) for group in groups],
        "solved": [f"{group.solved}{group.few}" if group.goal is not None else "" for group in groups],
        "mean": [_mean(group.tested) for group in groups],
        "IQM": [f"{iqm(group.tested):.2f}" if group.tested else "" for group in groups],
        "95 % interval": [_interval(group.tested) for group in groups],
        "env steps": [_median(group, "env_steps") for group in groups],
        "time": [_median(group, "seconds") for group in groups],
    }
    text_lines = [f"returns: {how}", ""]
    for group_letter, group in zip(names, groups, strict=True):
        text_lines.append(f"{group_letter}  group:{group.name}  {group.command if group.words else group.title}")
    text_lines += ["", *_table(columns, width, ("time", "env steps", "solved", "mean")), ""]
    config_lines = [
        f"apart in {config_key}: {' | '.join(values)}" for config_key, values in differences(groups).items()
    ]
    text_lines += config_lines or ["apart in nothing but their seeds"]
    text_lines += against_first(groups)
    for group_letter, group in zip(names, groups, strict=True):
        if warning := caution(len(group.tested)):
            text_lines.append(f"{group_letter}: {warning}")
    if len({group.facts.get("env_id") for group in groups}) > 1:
        text_lines.append("these are different environments: their returns do not compare")
    return text_lines


def letters(groups: Groups) -> list[str]:
    """A, B, ..; numbers behind Z."""
    alphabet = string.ascii_uppercase
    return [alphabet[index] if index < len(alphabet) else str(index + 1) for index in range(len(groups))]


def against_first(groups: Groups) -> list[str]:
    """`B - A: IQM +12.30 [95 % -3.20 .. 27.80], a run of B beats one of A with probability 0.72`"""
    text_lines = []
    names = letters(groups)
    first = groups[0].tested
    for group_letter, group in zip(names[1:], groups[1:], strict=True):
        values = group.tested
        if not first or not values:
            text_lines.append(f"{group_letter} - A: nothing was tested on one side")
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
    """The 95 % interval of the difference; None of too few runs."""
    return difference_interval(values, first) if min(len(first), len(values)) >= FEWEST else None


def differences(groups: Groups) -> dict[str, tuple[str, ...]]:
    """Keys of the configs on which the groups do not agree, with the value of each group."""
    configs = [mapping(group.facts.get("config")) for group in groups]
    keys = {config_key for config in configs for config_key in config} - IGNORED_KEYS
    result = {}
    for config_key in sorted(keys):
        values = tuple(written(config.get(config_key)) for config in configs)
        if len(set(values)) > 1:
            result[config_key] = values
    return result


def comparison_data(groups: Groups, how: str) -> dict[str, Any]:
    """An object for programs."""
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
        "returns": how, "groups": [_group_data(group) for group in groups], "differences": differences(groups),
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


def _mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f} ± {deviation:.2f}"


def _interval(values: Sequence[float]) -> str:
    if len(values) < FEWEST:
        return "none"
    low, high = interval(values)
    return f"{low:.2f} .. {high:.2f}"


def _median(group: Group, group_letter: str) -> str:
    """Over the runs that finished."""
    values = known_values(group, group_letter)
    if not values:
        return ""
    return duration(median(values)) if group_letter == "seconds" else f"{median(values):,.0f}"


def _table(columns: Columns, width: int, dispensable: Sequence[str]) -> list[str]:
    """Columns are left out, in the order of `dispensable`, until the table fits."""
    return aligned({head: [head, *cells] for head, cells in columns.items()}, LEFT_ALIGNED, width, dispensable)
