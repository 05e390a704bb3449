"""Groups as text and as data: one as a table of its seeds, several side by side and against the first of them."""

import os
import string
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from stride.config.written import written
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
        "seed": [str(seed.seed) for seed in seeds],
        "verdict": [seed.verdict_words for seed in seeds],
        "return": [_plus_minus(seed.mean, seed.deviation) for seed in seeds],
        "env steps": ["" if seed.env_steps is None else f"{seed.env_steps:,}" for seed in seeds],
        "best val": ["" if seed.best is None else score(seed.best) for seed in seeds],
        "time": ["" if seed.seconds is None else duration(seed.seconds) for seed in seeds],
        RUN: [seed.run.id if seed.run else "" for seed in seeds],
    }
    table = _table(columns, width, ("time", "best val", "env steps", RUN))
    goal = "" if group.goal is None else f", goal {plain(group.goal)}"
    lines = [f"group {group.name}: {group.title}{goal}", f"returns: {how}", "", *table, ""]
    lines += [f"seed {seed.seed}: {seed.why}" for seed in seeds if seed.why]
    lines.append(together(group))
    if warning := caution(len(group.tested)):
        lines.append(warning)
    if RUN not in table[0]:
        lines.append(f"ids of the runs: {os.path.relpath(group.folder / 'runs.csv')}")
    if group.unfinished:
        lines.append(f"continue: {TRAIN} --resume group:{group.name}")
    return lines


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
    lines = [f"returns: {how}", ""]
    for name, group in zip(names, groups, strict=True):
        lines.append(f"{name}  group:{group.name}  {group.command if group.words else group.title}")
    lines += ["", *_table(columns, width, ("time", "env steps", "solved", "mean")), ""]
    config_lines = [f"apart in {key}: {' | '.join(values)}" for key, values in differences(groups).items()]
    lines += config_lines or ["apart in nothing but their seeds"]
    lines += against_first(groups)
    for name, group in zip(names, groups, strict=True):
        if warning := caution(len(group.tested)):
            lines.append(f"{name}: {warning}")
    if len({group.facts.get("env_id") for group in groups}) > 1:
        lines.append("these are different environments: their returns do not compare")
    return lines


def letters(groups: Groups) -> list[str]:
    """A, B, ..; numbers behind Z."""
    alphabet = string.ascii_uppercase
    return [alphabet[index] if index < len(alphabet) else str(index + 1) for index in range(len(groups))]


def against_first(groups: Groups) -> list[str]:
    """`B - A: IQM +12.30 [95 % -3.20 .. 27.80], a run of B beats one of A with probability 0.72`"""
    lines = []
    names = letters(groups)
    first = groups[0].tested
    for name, group in zip(names[1:], groups[1:], strict=True):
        values = group.tested
        if not first or not values:
            lines.append(f"{name} - A: nothing was tested on one side")
            continue
        line = f"{name} - A: IQM {iqm(values) - iqm(first):+.2f}"
        limits = _difference_limits(values, first)
        if limits:
            line += f" [95 % {limits[0]:.2f} .. {limits[1]:.2f}]"
        lines.append(f"{line}, a run of {name} beats one of A with probability {chance_of_more(values, first):.2f}")
    return lines


def _difference_limits(values: Sequence[float], first: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the difference; None of too few runs."""
    return difference_interval(values, first) if min(len(first), len(values)) >= FEWEST else None


def differences(groups: Groups) -> dict[str, tuple[str, ...]]:
    """Keys of the configs on which the groups do not agree, with the value of each group."""
    configs = [mapping(group.facts.get("config")) for group in groups]
    keys = {key for config in configs for key in config} - IGNORED_KEYS
    result = {}
    for key in sorted(keys):
        values = tuple(written(config.get(key)) for config in configs)
        if len(set(values)) > 1:
            result[key] = values
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
            "seed": seed.seed, "run_id": seed.run.id if seed.run else None, "verdict": seed.verdict,
            "mean_return": seed.mean, "std_return": seed.deviation, "episodes": seed.episodes, "val_best": seed.best,
            "env_steps": seed.env_steps, "seconds": seed.seconds, "why": seed.why,
        }
        for seed in group.seeds
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


def _median(group: Group, name: str) -> str:
    """Over the runs that finished."""
    values = known_values(group, name)
    if not values:
        return ""
    return duration(median(values)) if name == "seconds" else f"{median(values):,.0f}"


def _table(columns: Columns, width: int, dispensable: Sequence[str]) -> list[str]:
    """Columns are left out, in the order of `dispensable`, until the table fits."""
    return aligned({head: [head, *cells] for head, cells in columns.items()}, LEFT_ALIGNED, width, dispensable)
