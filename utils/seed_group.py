"""Runs of one command that differ in their seed alone: started side by side, told as they finish, then summed up.

What stops a group stops each of its runs as it would stop one alone; `--resume group:NAME` goes on with all of them.
"""

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from utils.cores import SHARE, cores
from utils.entry import GOAL_MISSED
from utils.interrupted import Noted, name_of
from utils.process_pool import run_all
from utils.run_dir import RunDir, runs_root, sound_runs
from utils.run_facts import finite, verdict
from utils.run_files import exists, list_names, make_folder, read_json, write_json
from utils.run_names import GROUP
from utils.statistics import interval, iqm
from utils.user_error import UserError, nearest

PREFIX = "group:"  # of a group, where a run can be named


class Job(NamedTuple):
    """A run to be trained: its seed, and what train.py is told."""

    seed: int
    words: tuple[str, ...]


class Member(NamedTuple):
    """A run of a group, and its config.json."""

    run: RunDir
    facts: dict[str, Any]


def train_seeds(
    program: Sequence[str], words: Sequence[str], seeds: Sequence[int], workers: int, require_goal: bool = False
) -> int:
    """One process per seed, at most `workers` at a time; the exit code is 0 when all of theirs were.

    `require_goal`: and when all are solved, else GOAL_MISSED.
    """
    group = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    write_plan(group, words, seeds)
    return _train(program, group, _beginning(words, group, seeds), workers) or _missed(group, require_goal)


def resume_seeds(
    program: Sequence[str], selector: str, changes: Sequence[str], cores: int, require_goal: bool = False
) -> int:
    """Go on with every unfinished run of a group, and begin those it never came to."""
    group = find_group(selector)
    found, (words, seeds) = members(group), read_plan(group)
    there = {member.facts.get("seed") for member in found}
    jobs = [
        Job(int(facts.get("seed", 0)), ("--resume", run.id, "--quiet", *changes))
        for run, facts in found if facts.get("status") != "finished"
    ]  # fmt: skip
    jobs += _beginning((*words, *changes), group, [seed for seed in seeds if seed not in there])
    if not jobs:
        print(f"\n  group {group}: every run is finished\n\n  {summary(outcomes(group))}")
        return _missed(group, require_goal)
    threads = max((_threads(member.facts) for member in found), default=1)
    return _train(program, group, jobs, max(1, cores // threads)) or _missed(group, require_goal)


def _missed(group: str, require_goal: bool) -> int:
    """The exit code of a group all of whose runs ended well."""
    return GOAL_MISSED if require_goal and any(verdict(each) != "solved" for each in outcomes(group)) else 0


def _beginning(words: Sequence[str], group: str, seeds: Sequence[int]) -> list[Job]:
    return [Job(seed, (*words, "--quiet", "--group", group, "--seed", str(seed))) for seed in seeds]


def _train(program: Sequence[str], group: str, jobs: Sequence[Job], workers: int) -> int:
    print(f"\n  group {group}: {len(jobs)} seeds, {min(workers, len(jobs))} at a time\n", flush=True)
    worst, ended_well = 0, 0
    with Noted() as noted:
        commands = [[*program, *job.words] for job in jobs]
        share = {SHARE: str(max(1, cores() // max(1, min(workers, len(jobs)))))}  # side by side, not all on every core
        for done in run_all(commands, workers, share, stop=lambda: noted.number):
            # ended by a signal: Popen says -number, shells and we say 128 + number
            code = done.returncode if done.returncode >= 0 else 128 - done.returncode
            lines = done.output_tail.strip().splitlines() or [f"ended with code {code} and no word"]
            worst, ended_well = max(worst, code), ended_well + (code == 0)
            print(f"  seed {jobs[done.index].seed:>3}  {lines[-1]}", flush=True)
        print(f"\n  {summary(outcomes(group))}")
        if ended_well == len(jobs):
            print(f"  group {group}\n")
            return 0
        why = f"stopped by {name_of(noted.number)}, " if noted.number else ""
        print(f"  {why}{len(jobs) - ended_well} of {len(jobs)} unfinished")
        print(f"  continue: python train.py --resume {PREFIX}{group}", flush=True)
        return 128 + noted.number if noted.number else worst


def find_group(selector: str) -> str:
    """The group that `group:NAME` names, or one line with the nearest."""
    name = selector.removeprefix(PREFIX)
    trained = {str(facts.get("group")) for _, facts in _runs()}
    planned = {name.removesuffix(".json") for name in list_names(_plans())}
    known = {name for name in trained | planned if GROUP.fullmatch(name)}
    if name not in known:
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise UserError(f"no group {shown!r} under {runs_root()}{nearest(shown, known)}")
    return name


def members(group: str) -> list[Member]:
    """The runs of a group, oldest first."""
    return [member for member in _runs() if member.facts.get("group") == group]


def _runs() -> list[Member]:
    """Every sound run, oldest first."""
    return [Member(run, facts) for run, facts in sound_runs()][::-1]


def _threads(facts: Mapping[str, object]) -> int:
    config = facts.get("config")
    threads = config.get("threads") if isinstance(config, dict) else 1
    return threads if isinstance(threads, int) and threads > 0 else 1


def _plans() -> Path:
    return runs_root().resolve() / "groups"


def write_plan(group: str, words: Sequence[str], seeds: Sequence[int]) -> None:
    """What was asked for, beside the runs: a group that is stopped early has seeds without a run."""
    try:
        make_folder(_plans())
        write_json(_plans() / f"{group}.json", {"words": list(words), "seeds": list(seeds)})
    except OSError as error:
        raise UserError(f"cannot write under {runs_root()}: {error.strerror}") from error


def read_plan(group: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Words and seeds; none where the runs alone are left of a group."""
    path = _plans() / f"{group}.json"
    if not exists(path):
        return (), ()
    plan = read_json(path)
    words, seeds = (plan.get("words"), plan.get("seeds")) if isinstance(plan, dict) else (None, None)
    if not isinstance(words, list) or not isinstance(seeds, list):
        raise UserError(f"{path} does not say what the group is to train")
    return tuple(str(word) for word in words), tuple(seed for seed in seeds if type(seed) is int)


def outcomes(group: str) -> list[dict[str, Any]]:
    """How each finished run of a group ended, oldest first."""
    found = [member.facts.get("outcome") for member in members(group) if member.facts.get("status") == "finished"]
    return [outcome for outcome in found if isinstance(outcome, dict)]


def summary(ended: Sequence[Mapping[str, object]]) -> str:
    """Mean, interquartile mean with its 95 % interval, and how many solved it, or what else is said of them."""
    means = [mean for outcome in ended if (mean := finite(outcome.get("test_mean"))) is not None]
    if not means:
        return f"{len(ended)} runs finished, none was tested"
    low, high = interval(means)
    mean = sum(means) / len(means)
    told = ", ".join(f"{count} {word}" for word, count in Counter(map(verdict, ended)).most_common())
    return f"{len(means)} runs: mean {mean:.2f}, IQM {iqm(means):.2f} [95 % {low:.2f} .. {high:.2f}], {told}"
