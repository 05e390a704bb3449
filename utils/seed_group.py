"""Runs of one command, which differ in their seeds, or in a few words, too: started side by side, told as they go, and
found again.

What stops a group stops each of its runs as it would stop one alone; `--resume group:NAME` goes on with all of them.
What people see and read of a group is in report/group*.py; no torch.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runstore import claim
from runstore.many.pools import Pool
from runstore.many.process_pool import run_all
from runstore.run_dir import RunDir, root_of_groups, run_lines, runs_root, sound_runs
from runstore.run_facts import mapping, verdict
from runstore.run_files import exists, list_names, make_folder, read_json, write_json
from runstore.run_names import CLAIM, GROUP, GROUP_PREFIX, TIMED
from utils.cores import SHARE, cores
from utils.entry import GOAL_MISSED
from utils.interrupted import Noted, name_of
from utils.user_error import UserError, nearest

LAST_GROUP = "@last-group"  # the same as group:@last
Key = Callable[[Sequence[str], int], str]  # of the config that these words with this seed mean


class Part(NamedTuple):
    """Runs of a group that differ in nothing but their seed."""

    words: tuple[str, ...]
    """what train.py is told of them"""
    seeds: tuple[int, ...]
    keys: tuple[str, ...] = ()
    """the hash of each one's config, by which its claim is called; none of groups older than claims"""

    def each(self) -> list[tuple[int, str]]:
        return [*zip(self.seeds, self.keys or [""] * len(self.seeds), strict=True)]


class Plan(NamedTuple):
    """What a group was asked for."""

    parts: tuple[Part, ...] = ()
    asked: tuple[str, ...] = ()
    """what was typed of several parts"""

    @property
    def labels(self) -> list[str]:
        """What each part has apart from the others; "" of a single one."""
        common: set[str] = set.intersection(*({*part.words} for part in self.parts)) if self.parts else set()
        return [" ".join(word for word in part.words if word not in common) for part in self.parts]

    @property
    def keyed(self) -> bool:
        """Whether its runs are found by their claims."""
        return any(key for part in self.parts for key in part.keys)

    def joined(self, more: "Plan") -> "Plan":
        """What both ask for, each run once."""
        runs = {part.words: part.each() for part in self.parts}
        known = {key for part in self.parts for key in part.keys}
        for part in more.parts:
            runs.setdefault(part.words, []).extend(each for each in part.each() if each[1] not in known)
        return Plan(tuple(Part(words, *zip(*each, strict=True)) for words, each in runs.items() if each), more.asked)


class Job(NamedTuple):
    """A run to be trained: its seed, what train.py is told, its folder where there is one, the key of its claim, and
    what tells its part from others."""

    seed: int
    words: tuple[str, ...]
    run: RunDir | None = None
    key: str = ""
    label: str = ""

    def is_of(self, run: RunDir, group: str, facts: Mapping[str, object]) -> bool:
        """Whether this is the run that this job has begun."""
        mine = facts.get("group") == group and facts.get("seed") == self.seed
        return mine and (not self.key or claim.run_of(group, self.key) == run.id)


class Member(NamedTuple):
    """A run of a group, and its config.json."""

    run: RunDir
    facts: dict[str, Any]


class Standing(NamedTuple):
    """A seed that a group was asked for, and its run, None where it was never begun."""

    seed: int
    run: RunDir | None = None
    facts: Mapping[str, Any] = {}
    label: str = ""
    key: str = ""
    words: tuple[str, ...] = ()

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
    return f"{GROUP_PREFIX}@last" if selector == LAST_GROUP else selector


def names_group(selector: str) -> bool:
    """Whether this is a group where a run can be named."""
    return spelled_out(selector).startswith(GROUP_PREFIX)


def each_of(selectors: str) -> list[str]:
    """`group:A,group:B` as a list; `group:` need be said but once."""
    words = [spelled_out(word.strip()) for word in selectors.split(",")]
    return [word if names_group(word) else f"{GROUP_PREFIX}{word}" for word in words if word]


def train_all(
    program: Sequence[str],
    plan: Plan,
    workers: int,
    watchers: Sequence[Watcher],
    require_goal: bool = False,
    pool: Pool = run_all,
    flags: Sequence[str] = (),
    name: str = "",
) -> int:
    """One process per run, at most `workers` at a time; the exit code is 0 when all of theirs were.

    `name`: of a group that may be there already, of whose runs only those that are not finished are trained.
    `flags`: of every process, beside what makes the run what it is.
    `require_goal`: and when all are solved, else GOAL_MISSED.
    """
    group = name or f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    if name:
        plan = read_plan(group).joined(plan)
    write_plan(group, plan)
    jobs = [_job(each, group) for each in standings(group) if each.words and each.status != "finished"]
    return _train([*program, *flags], group, jobs, workers, watchers, pool) or _missed(group, require_goal)


def resume_seeds(
    program: Sequence[str],
    selector: str,
    changes: Sequence[str],
    workers: int,
    watchers: Sequence[Watcher],
    require_goal: bool = False,
    pool: Pool = run_all,
    flags: Sequence[str] = (),
    key: Key = lambda words, seed: "",
) -> int:
    """Go on with every unfinished run of a group, with the finished ones, too, where `changes` give a budget, and begin
    those it never came to, whose configs have the hash `key`."""
    group = find_group(selector)
    more = any(word.startswith("max_timesteps=") for word in changes)
    jobs, plan = [], read_plan(group)
    keys: dict[tuple[tuple[str, ...], int], str] = {}  # of those that begin with the changes
    for each in standings(group):
        if each.run is None:
            words = changed(each.words, changes)
            keys[each.words, each.seed] = key(words, each.seed) if changes and each.key else each.key
            begun = each._replace(words=tuple(words), key=keys[each.words, each.seed])
            jobs.append(_job(begun, group))
        elif more or each.status != "finished":
            words = ["--resume", each.run.id, "--quiet", *changes]
            jobs.append(Job(each.seed, tuple(words), each.run, each.key, each.label))
    if changes and not jobs:
        raise UserError(
            f"every run of group {group} is finished; a budget, --max-timesteps N, is what they can be given"
        )
    if changes and plan.parts:
        parts = []
        for part in plan.parts:
            new = tuple(keys.get((part.words, seed), old) for seed, old in part.each())
            parts.append(Part(tuple(changed(part.words, changes)), part.seeds, new if part.keys else ()))
        write_plan(group, plan._replace(parts=tuple(parts)))
    return _train([*program, *flags], group, jobs, workers, watchers, pool) or _missed(group, require_goal)


def _missed(group: str, require_goal: bool) -> int:
    """The exit code of a group all of whose runs ended well."""
    return GOAL_MISSED if require_goal and any(verdict(each.outcome) != "solved" for each in standings(group)) else 0


def changed(words: Sequence[str], changes: Sequence[str]) -> list[str]:
    """What a group was told, with what it is told now in its place: a key is given once."""
    keys = {change.lstrip("-").partition("=")[0] for change in changes}
    return [*(word for word in words if "=" not in word or word.lstrip("-").partition("=")[0] not in keys), *changes]


def _job(each: Standing, group: str) -> Job:
    """What begins a run, or goes on with it: the words are the same."""
    words = (*each.words, "--quiet", "--group", group, "--seed", str(each.seed))
    return Job(each.seed, words, each.run, each.key, each.label)


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
    name = spelled_out(selector).removeprefix(GROUP_PREFIX)
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
    """Every run that was asked for, in that order; then runs that nobody planned.

    A run is found by its claim; where there are none, it is the newest with its seed.
    """
    found = members(group)
    by_id, by_seed = {member.run.id: member for member in found}, {_seed(member): member for member in found}
    plan = read_plan(group)
    planned: list[Standing] = []
    for part, label in zip(plan.parts, plan.labels, strict=True):
        for seed, key in part.each():
            run, facts = (by_id.get(claim.run_of(group, key)) if key else by_seed.get(seed)) or (None, {})
            planned.append(Standing(seed, run, facts, label, key, part.words))
    known = {each.run.id for each in planned if each.run}
    if not plan.keyed:
        known |= {member.run.id for member in found if _seed(member) in {each.seed for each in planned}}
    others = sorted((member for member in found if member.run.id not in known), key=_seed)
    titles = [f"{member.facts.get('env_id')}:{member.facts.get('variant')}" for member in others]
    apart = bool(planned and others) or len({*titles}) > 1
    told = [title if apart else "" for title in titles]
    return [*planned, *(Standing(_seed(m), m.run, m.facts, label) for m, label in zip(others, told, strict=True))]


def _seed(member: Member) -> int:
    seed = member.facts.get("seed")
    return seed if isinstance(seed, int) else 0


def needs_of(group: str) -> tuple[int, int]:
    """Threads and GPUs that one of its runs may take."""
    configs = [mapping(member.facts.get("config")) for member in members(group)]
    threads = [number for each in configs if isinstance(number := each.get("threads"), int) and number > 0]
    return max(threads, default=1), int(any(str(each.get("device", "")).startswith("cuda") for each in configs))


def folder_of(group: str) -> Path:
    """Where a group's plan and report lie, beside the runs, which are elsewhere."""
    return root_of_groups() / group


def write_plan(group: str, plan: Plan) -> None:
    """What was asked for, beside the runs: a group that is stopped early has seeds without a run."""
    parts = [{"words": [*each.words], "seeds": [*each.seeds], "keys": [*each.keys]} for each in plan.parts]
    try:
        make_folder(folder_of(group))
        write_json(folder_of(group) / "plan.json", {"parts": parts, "asked": [*plan.asked]})
    except OSError as error:
        raise UserError(f"cannot write under {runs_root()}: {error.strerror}") from error


def read_plan(group: str) -> Plan:
    """An empty one where the runs alone are left of a group."""
    if not GROUP.fullmatch(group):
        return Plan()  # of runs that somebody else groups
    path = folder_of(group) / "plan.json"
    if not exists(path) and TIMED.fullmatch(group):
        path = root_of_groups() / f"{group}.json"  # of groups that had no folder yet
    if not exists(path):
        return Plan()
    told = read_json(path)
    parts = told.get("parts", [told]) if isinstance(told, dict) else None
    if not isinstance(parts, list) or not parts:
        raise UserError(f"{path} does not say what the group is to train")
    asked = told.get("asked", [])
    return Plan(tuple(_part(each, path) for each in parts), tuple(map(str, asked)) if isinstance(asked, list) else ())


def _part(told: object, path: Path) -> Part:
    words, seeds, keys = (told.get(name, []) if isinstance(told, dict) else None for name in ("words", "seeds", "keys"))
    if not (isinstance(words, list) and isinstance(seeds, list) and isinstance(keys, list)):
        raise UserError(f"{path} does not say what the group is to train")
    numbers = tuple(seed for seed in seeds if type(seed) is int)
    sound = len(keys) == len(numbers) and all(isinstance(key, str) and CLAIM.fullmatch(key) for key in keys)
    return Part(tuple(str(word) for word in words), numbers, tuple(keys) if sound else ())


def outcomes(group: str) -> list[dict[str, Any]]:
    """How each finished run of a group ended, oldest first."""
    found = [member.facts.get("outcome") for member in members(group) if member.facts.get("status") == "finished"]
    return [outcome for outcome in found if isinstance(outcome, dict)]
