"""Runs of one command that differ in their seed alone: started side by side, told as they go, and found again.

What stops a group stops each of its runs as it would stop one alone; `--resume group:NAME` goes on with all of them.
What people see and read of a group is in report/group*.py; no torch.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from utils.cores import SHARE, cores
from utils.entry import GOAL_MISSED
from utils.interrupted import Noted, name_of
from utils.process_pool import Finished, run_all
from utils.run_dir import RunDir, root_of_groups, run_lines, runs_root, sound_runs
from utils.run_facts import mapping, verdict
from utils.run_files import exists, list_names, make_folder, read_json, write_json
from utils.run_names import GROUP, TIMED
from utils.user_error import UserError, nearest

PREFIX = "group:"  # of a group, where a run can be named
LAST_GROUP = "@last-group"  # the same as group:@last
Pool = Callable[..., Iterator[Finished]]  # which runs commands: process_pool.run_all, or one of its signature


class Job(NamedTuple):
    """A run to be trained: its seed, what train.py is told, and its folder where there is one already."""

    seed: int
    words: tuple[str, ...]
    run: RunDir | None = None


class Member(NamedTuple):
    """A run of a group, and its config.json."""

    run: RunDir
    facts: dict[str, Any]


class Standing(NamedTuple):
    """A seed that a group was asked for, and its run, None where it was never begun."""

    seed: int
    run: RunDir | None = None
    facts: Mapping[str, Any] = {}

    @property
    def status(self) -> str:
        """finished, interrupted, failed, running; or not begun."""
        return str(self.facts.get("status", "?")) if self.run else "not begun"

    @property
    def outcome(self) -> dict[str, Any]:
        """How its last training ended; {} where none did."""
        return mapping(self.facts.get("outcome")) if self.status != "failed" else {}


class Ending(NamedTuple):
    """How a group's command ended: how many of its jobs did not end well, and what stopped it, "" for nothing."""

    unfinished: int
    jobs: int
    stopped_by: str


class Watcher:
    """Who is told of a group while it trains: begin, then began, look and ended in any number, then end."""

    def begin(self, group: str, jobs: Sequence[Job], workers: int) -> None:
        """Before the first of them is started."""

    def began(self, index: int) -> None:
        """The process of this job was started."""

    def look(self) -> None:
        """Some twenty times a second, while nothing ends."""

    def ended(self, index: int, code: int, line: str) -> None:
        """Its exit code as a shell has it, and the last line that it said."""

    def end(self, group: str, ending: Ending | None) -> None:
        """Nothing comes after this; None: an error, which others tell, broke off the group."""


def spelled_out(selector: str) -> str:
    """The same; `@last-group` as group:@last."""
    return f"{PREFIX}@last" if selector == LAST_GROUP else selector


def names_group(selector: str) -> bool:
    """Whether this is a group where a run can be named."""
    return spelled_out(selector).startswith(PREFIX)


def each_of(selectors: str) -> list[str]:
    """`group:A,group:B` as a list; `group:` need be said but once."""
    words = [spelled_out(word.strip()) for word in selectors.split(",")]
    return [word if names_group(word) else f"{PREFIX}{word}" for word in words if word]


def train_seeds(
    program: Sequence[str],
    words: Sequence[str],
    seeds: Sequence[int],
    workers: int,
    watchers: Sequence[Watcher],
    require_goal: bool = False,
    pool: Pool = run_all,
) -> int:
    """One process per seed, at most `workers` at a time; the exit code is 0 when all of theirs were.

    `require_goal`: and when all are solved, else GOAL_MISSED.
    """
    group = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    write_plan(group, words, seeds)
    return _train(program, group, _beginning(words, group, seeds), workers, watchers, pool) or _missed(
        group, require_goal
    )


def resume_seeds(
    program: Sequence[str],
    selector: str,
    changes: Sequence[str],
    cores: int,
    watchers: Sequence[Watcher],
    require_goal: bool = False,
    pool: Pool = run_all,
) -> int:
    """Go on with every unfinished run of a group, with the finished ones, too, where `changes` give a budget, and begin
    those it never came to."""
    group = find_group(selector)
    more = any(word.startswith("max_timesteps=") for word in changes)
    words, seeds = read_plan(group)
    jobs = []
    for seed, run, facts in standings(group):
        if run is None:
            jobs += _beginning(changed(words, changes), group, [seed])
        elif more or facts.get("status") != "finished":
            jobs.append(Job(seed, ("--resume", run.id, "--quiet", *changes), run))
    if changes and not jobs:
        raise UserError(
            f"every run of group {group} is finished; a budget, --max-timesteps N, is what they can be given"
        )
    if changes and words:
        write_plan(group, changed(words, changes), seeds)
    threads = max((_threads(member.facts) for member in members(group)), default=1)
    return _train(program, group, jobs, max(1, cores // threads), watchers, pool) or _missed(group, require_goal)


def _missed(group: str, require_goal: bool) -> int:
    """The exit code of a group all of whose runs ended well."""
    return GOAL_MISSED if require_goal and any(verdict(each.outcome) != "solved" for each in standings(group)) else 0


def changed(words: Sequence[str], changes: Sequence[str]) -> list[str]:
    """What a group was told, with what it is told now in its place: a key is given once."""
    keys = {change.lstrip("-").partition("=")[0] for change in changes}
    return [*(word for word in words if "=" not in word or word.lstrip("-").partition("=")[0] not in keys), *changes]


def _beginning(words: Sequence[str], group: str, seeds: Sequence[int]) -> list[Job]:
    return [Job(seed, (*words, "--quiet", "--group", group, "--seed", str(seed))) for seed in seeds]


def _train(
    program: Sequence[str],
    group: str,
    jobs: Sequence[Job],
    workers: int,
    watchers: Sequence[Watcher],
    pool: Pool,
) -> int:
    worst, ended_well = 0, 0

    def began(index: int) -> None:
        for watcher in watchers:
            watcher.began(index)

    def look() -> None:
        for watcher in watchers:
            watcher.look()

    with Noted() as noted:
        try:
            for watcher in watchers:
                watcher.begin(group, jobs, min(workers, len(jobs)))
            commands = [[*program, *job.words] for job in jobs]
            share = {SHARE: str(max(1, cores() // max(1, min(workers, len(jobs)))))}
            for done in pool(commands, workers, share, meanwhile=look, stop=lambda: noted.number, began=began):
                # ended by a signal: Popen says -number, shells and we say 128 + number
                code = done.returncode if done.returncode >= 0 else 128 - done.returncode
                lines = done.output_tail.strip().splitlines() or [f"ended with code {code} and no word"]
                worst, ended_well = max(worst, code), ended_well + (code == 0)
                for watcher in watchers:
                    watcher.ended(done.index, code, lines[-1])
        except BaseException:
            for watcher in watchers:
                watcher.end(group, None)
            raise
        unfinished = len(jobs) - ended_well
        ending = Ending(unfinished, len(jobs), name_of(noted.number) if noted.number and unfinished else "")
        for watcher in watchers:
            watcher.end(group, ending)
        return 0 if not unfinished else 128 + noted.number if noted.number else worst


def find_group(selector: str) -> str:
    """The group that `group:NAME`, `group:@last` or `@last-group` names, or one line with the nearest."""
    name = spelled_out(selector).removeprefix(PREFIX)
    begun: dict[str, str] = {}  # by group, the id of its newest run
    for line in run_lines():
        begun.setdefault(line.group, line.id)
    planned = {name.removesuffix(".json") for name in list_names(root_of_groups())}
    known = {name for name in begun.keys() | planned if GROUP.fullmatch(name)}
    if name == "@last" and known:  # of what begins with the time
        return max(known, key=lambda name: (begun.get(name) or (name if TIMED.fullmatch(name) else ""), name))
    if name not in known:
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise UserError(f"no group {shown!r} under {runs_root()}{nearest(shown, known)}")
    return name


def members(group: str) -> list[Member]:
    """The runs of a group, oldest first."""
    return [Member(run, facts) for run, facts in sound_runs(group)][::-1]


def standings(group: str) -> list[Standing]:
    """Every seed that was asked for, in that order, with the newest of its runs; then runs that nobody planned."""
    runs = [Standing(int(facts.get("seed", 0)), run, facts) for run, facts in members(group)]
    found, planned = {each.seed: each for each in runs}, read_plan(group)[1]
    return [found.get(seed, Standing(seed)) for seed in (*planned, *sorted(found.keys() - set(planned)))]


def _threads(facts: Mapping[str, object]) -> int:
    threads = mapping(facts.get("config")).get("threads")
    return threads if isinstance(threads, int) and threads > 0 else 1


def folder_of(group: str) -> Path:
    """Where a group's plan and report lie, beside the runs, which are elsewhere."""
    return root_of_groups() / group


def write_plan(group: str, words: Sequence[str], seeds: Sequence[int]) -> None:
    """What was asked for, beside the runs: a group that is stopped early has seeds without a run."""
    try:
        make_folder(folder_of(group))
        write_json(folder_of(group) / "plan.json", {"words": list(words), "seeds": list(seeds)})
    except OSError as error:
        raise UserError(f"cannot write under {runs_root()}: {error.strerror}") from error


def read_plan(group: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Words and seeds; none where the runs alone are left of a group."""
    if not GROUP.fullmatch(group):
        return (), ()  # of runs that somebody else groups
    path = folder_of(group) / "plan.json"
    if not exists(path) and TIMED.fullmatch(group):
        path = root_of_groups() / f"{group}.json"  # of groups that had no folder yet
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
