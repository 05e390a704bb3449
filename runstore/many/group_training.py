"""The runs of a group, trained side by side and told as they go, and gone on with.

What stops a group stops each of its runs as it would stop one alone; `--resume group:NAME` goes on with all of them.
"""

import secrets
import time
from collections.abc import Callable, Sequence

from stride.runstore.many.process_pool import run_all
from stride.runstore.many.ray_pool import Pool
from stride.runstore.run_facts import verdict
from stride.runstore.seed_group import (
    Ending,
    GroupPlan,
    SeedJob,
    SeedPart,
    Standing,
    Watcher,
    find_group,
    read_plan,
    standings,
    write_plan,
)
from stride.utils.entry import GOAL_MISSED
from stride.utils.interrupted import Noted, name_of
from stride.utils.resources import CORES_VARIABLE, cores
from stride.utils.user_error import UserError

Key = Callable[[Sequence[str], int], str]  # of the config that these words with this seed mean


def train_all(
    program: Sequence[str],
    plan: GroupPlan,
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
    jobs = [_job(standing, group) for standing in standings(group) if standing.words and standing.status != "finished"]
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
    for standing in standings(group):
        if standing.run is None:
            words = changed(standing.words, changes)
            keys[standing.words, standing.seed] = (
                key(words, standing.seed) if changes and standing.key else standing.key
            )
            begun = standing._replace(words=tuple(words), key=keys[standing.words, standing.seed])
            jobs.append(_job(begun, group))
        elif more or standing.status != "finished":
            words = ["--resume", standing.run.id, "--quiet", *changes]
            jobs.append(SeedJob(standing.seed, tuple(words), standing.run, standing.key, standing.label))
    if changes and not jobs:
        raise UserError(
            f"every run of group {group} is finished; a budget, --max-timesteps N, is what they can be given"
        )
    if changes and plan.parts:
        parts = []
        for part in plan.parts:
            new = tuple(keys.get((part.words, seed), old) for seed, old in part.pairs())
            parts.append(SeedPart(tuple(changed(part.words, changes)), part.seeds, new if part.keys else ()))
        write_plan(group, plan._replace(parts=tuple(parts)))
    return _train([*program, *flags], group, jobs, workers, watchers, pool) or _missed(group, require_goal)


def _missed(group: str, require_goal: bool) -> int:
    """The exit code of a group all of whose runs ended well."""
    return (
        GOAL_MISSED
        if require_goal and any(verdict(standing.outcome) != "solved" for standing in standings(group))
        else 0
    )


def changed(words: Sequence[str], changes: Sequence[str]) -> list[str]:
    """The arguments of a group with `changes` in place of the earlier ones: each key occurs once."""
    keys = {change.lstrip("-").partition("=")[0] for change in changes}
    return [*(word for word in words if "=" not in word or word.lstrip("-").partition("=")[0] not in keys), *changes]


def _job(standing: Standing, group: str) -> SeedJob:
    """The job that begins a run, or continues it: the arguments are the same."""
    words = (*standing.words, "--quiet", "--group", group, "--seed", str(standing.seed))
    return SeedJob(standing.seed, words, standing.run, standing.key, standing.label)


def _train(
    program: Sequence[str],
    group: str,
    jobs: Sequence[SeedJob],
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
            share = {CORES_VARIABLE: str(max(1, cores() // max(1, min(workers, len(jobs)))))}
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
