"""Groups in words and as data: one as a table of its seeds, several side by side and against the first of them."""

import os
import string
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from stride.config.diff import written
from stride.report.group import Group, Seed, caution, together
from stride.report.ledger.table import aligned
from stride.runstore.run_facts import mapping
from stride.utils.places import TRAIN
from stride.utils.statistics import FEWEST, chance_of_more, difference_interval, interval, iqm, mean_and_deviation
from stride.utils.typography import duration, plain, score

LETTERS = string.ascii_uppercase
NAMES = {"seed", "description", "variant", "env_id"}  # of a config: told elsewhere
RUN = "run"  # head of the column that is the widest
AT_LEFT = {"", "variant", "verdict", RUN}  # columns of words


def told(groups: Sequence[Group], how: str, width: int) -> list[str]:
    """What a person reads; `how`: the returns that are compared; a table takes at most `width` columns."""
    if len(groups) == 1:
        return _one(groups[0], how, width)
    return _several(groups, how, width)


def _one(group: Group, how: str, width: int) -> list[str]:
    seeds = group.seeds
    columns = {
        "seed": [str(each.seed) for each in seeds],
        "verdict": [each.verdict_words for each in seeds],
        "return": [_return(each) for each in seeds],
        "env steps": ["" if each.env_steps is None else f"{each.env_steps:,}" for each in seeds],
        "best val": ["" if each.best is None else score(each.best) for each in seeds],
        "time": ["" if each.seconds is None else duration(each.seconds) for each in seeds],
        RUN: [each.run.id if each.run else "" for each in seeds],
    }
    table = _table(columns, width, ("time", "best val", "env steps", RUN))
    reasons = [f"seed {each.seed}: {each.why}" for each in seeds if each.why]
    goal = "" if group.goal is None else f", goal {plain(group.goal)}"
    lines = [f"group {group.name}: {group.title}{goal}", f"returns: {how}", "", *table, "", *reasons]
    lines += [together(group), *filter(None, [caution(len(group.tested))])]
    if RUN not in table[0]:
        lines.append(f"ids of the runs: {os.path.relpath(group.folder / 'runs.csv')}")
    return [*lines, *([f"continue: {TRAIN} --resume group:{group.name}"] if group.unfinished else [])]


def _return(seed: Seed) -> str:
    if seed.mean is None:
        return ""
    return score(seed.mean) if seed.deviation is None else f"{score(seed.mean)} ± {score(seed.deviation)}"


def _several(groups: Sequence[Group], how: str, width: int) -> list[str]:
    names = letters(groups)
    columns = {
        "": names,
        "variant": [each.title for each in groups],
        "seeds": [str(len(each.seeds)) for each in groups],
        "solved": [f"{each.solved}{each.few}" if each.goal is not None else "" for each in groups],
        "mean": [_mean(each.tested) for each in groups],
        "IQM": [f"{iqm(each.tested):.2f}" if each.tested else "" for each in groups],
        "95 % interval": [_interval(each.tested) for each in groups],
        "env steps": [_median(each, "env_steps") for each in groups],
        "time": [_median(each, "seconds") for each in groups],
    }
    table = _table(columns, width, ("time", "env steps", "solved", "mean"))
    which = [
        f"{name}  group:{group.name}  {group.command if group.words else group.title}"
        for name, group in zip(names, groups, strict=True)
    ]
    apart = [f"apart in {key}: {' | '.join(values)}" for key, values in differences(groups).items()]
    lines = [f"returns: {how}", "", *which, "", *table, "", *(apart or ["apart in nothing but their seeds"])]
    return [*lines, *against_first(groups), *_cautions(groups)]


def letters(groups: Sequence[Group]) -> list[str]:
    return [LETTERS[place] if place < len(LETTERS) else str(place + 1) for place in range(len(groups))]


def against_first(groups: Sequence[Group]) -> Iterator[str]:
    """`B - A: IQM +12.30 [95 % -3.20 .. 27.80], a run of B beats one of A with probability 0.72`"""
    first = groups[0].tested
    for name, group in [*zip(letters(groups), groups, strict=True)][1:]:
        values = group.tested
        if not first or not values:
            yield f"{name} - A: nothing was tested on one side"
            continue
        line = f"{name} - A: IQM {iqm(values) - iqm(first):+.2f}"
        if min(len(first), len(values)) >= FEWEST:
            low, high = difference_interval(values, first)
            line += f" [95 % {low:.2f} .. {high:.2f}]"
        yield f"{line}, a run of {name} beats one of A with probability {chance_of_more(values, first):.2f}"


def _cautions(groups: Sequence[Group]) -> list[str]:
    whys = zip(letters(groups), (caution(len(each.tested)) for each in groups), strict=True)
    few = [f"{name}: {why}" for name, why in whys if why]
    apart = len({each.facts.get("env_id") for each in groups}) > 1
    return [*few, *(["these are different environments: their returns do not compare"] if apart else [])]


def differences(groups: Sequence[Group]) -> dict[str, tuple[str, ...]]:
    """Keys of the configs on which the groups do not agree, with the value of each group."""
    configs = [mapping(each.facts.get("config")) for each in groups]
    keys = sorted({key for config in configs for key in config} - NAMES)
    found = {key: tuple(written(config.get(key)) for config in configs) for key in keys}
    return {key: values for key, values in found.items() if len(set(values)) > 1}


def data(groups: Sequence[Group], how: str) -> dict[str, Any]:
    """The same for a program."""
    return {
        "returns": how,
        "groups": [_data(each) for each in groups],
        "differences": differences(groups),
        "against_first": [
            {
                "group": each.name,
                "iqm_difference": iqm(each.tested) - iqm(groups[0].tested),
                "interval": [*difference_interval(each.tested, groups[0].tested)]
                if min(len(each.tested), len(groups[0].tested)) >= FEWEST else None,
                "chance_of_more": chance_of_more(each.tested, groups[0].tested),
            }
            for each in groups[1:] if each.tested and groups[0].tested
        ],
    }  # fmt: skip


def _data(group: Group) -> dict[str, Any]:
    means = group.tested
    mean, deviation = mean_and_deviation(means) if means else (None, None)
    return {
        "group": group.name,
        "env_id": group.facts.get("env_id"),
        "variant": group.facts.get("variant"),
        "goal": group.goal,
        "command": group.command if group.words else None,
        "solved": group.solved,
        "mean": mean,
        "std": deviation,
        "iqm": iqm(means) if means else None,
        "interval": [*interval(means)] if len(means) >= FEWEST else None,
        "runs": [
            {
                "seed": each.seed, "run_id": each.run.id if each.run else None, "verdict": each.verdict,
                "mean_return": each.mean, "std_return": each.deviation, "episodes": each.episodes,
                "val_best": each.best, "env_steps": each.env_steps, "seconds": each.seconds, "why": each.why,
            }
            for each in group.seeds
        ],
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
    found = [value for each in group.seeds if each.finished and (value := getattr(each, name)) is not None]
    if not found:
        return ""
    return duration(median(found)) if name == "seconds" else f"{median(found):,.0f}"


def _table(columns: Mapping[str, Sequence[str]], width: int, dispensable: Sequence[str]) -> list[str]:
    """By their heads; columns are left out, in the order of `dispensable`, until the rest fits."""
    return aligned({head: [head, *cells] for head, cells in columns.items()}, AT_LEFT, width, dispensable)
