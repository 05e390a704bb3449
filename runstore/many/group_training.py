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
    has_budget = any(word.startswith("max_timesteps=") for word in changes)
    jobs, plan = [], read_plan(group)
    keys_by_seed: dict[tuple[tuple[str, ...], int], str] = {}  # of those that begin with the changes
    for standing in standings(group):
        if standing.run is None:
            words = changed(standing.words, changes)
            keys_by_seed[standing.words, standing.seed] = (
                key(words, standing.seed) if changes and standing.key else standing.key
            )
            new_standing = standing._replace(words=tuple(words), key=keys_by_seed[standing.words, standing.seed])
            jobs.append(_job(new_standing, group))
        elif has_budget or standing.status != "finished":
            words = ["--resume", standing.run.id, "--quiet", *changes]
            jobs.append(SeedJob(standing.seed, tuple(words), standing.run, standing.key, standing.label))
    if changes and not jobs:
        raise UserError(f"every run of group {group} is finished; give them more with --max-timesteps N")
    if changes and plan.parts:
        changed_parts = []
        for part in plan.parts:
            new_keys = tuple(keys_by_seed.get((part.words, seed), old_key) for seed, old_key in part.pairs())
            changed_parts.append(
                SeedPart(tuple(changed(part.words, changes)), part.seeds, new_keys if part.keys else ())
            )
        write_plan(group, plan._replace(parts=tuple(changed_parts)))
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
    keys_by_seed = {change.lstrip("-").partition("=")[0] for change in changes}
    return [
        *(word for word in words if "=" not in word or word.lstrip("-").partition("=")[0] not in keys_by_seed),
        *changes,
    ]


def _job(standing: Standing, group: str) -> SeedJob:
    """The job that begins a run, or continues it: the arguments are the same."""
    words = (*standing.words, "--quiet", "--group", group, "--seed", str(standing.seed))
    return SeedJob(standing.seed, words, standing.run, standing.key, standing.label)


def _train(
    program: Sequence[str], group: str, jobs: Sequence[SeedJob], workers: int, watchers: Sequence[Watcher], pool: Pool
) -> int:
    worst_code, ended_well = 0, 0

    def began(index: int) -> None:
        for watcher in watchers:
            watcher.began(index)

    def look() -> None:
        for watcher in watchers:
            watcher.look()

    with Noted() as noted_signal:
        try:
            for watcher in watchers:
                watcher.begin(group, jobs, min(workers, len(jobs)))
            commands = [[*program, *job.words] for job in jobs]
            core_limit = {CORES_VARIABLE: str(max(1, cores() // max(1, min(workers, len(jobs)))))}
            for finished in pool(
                commands, workers, core_limit, meanwhile=look, stop=lambda: noted_signal.number, began=began
            ):
                # ended by a signal: Popen says -number, shells and we say 128 + number
                exit_code = finished.returncode if finished.returncode >= 0 else 128 - finished.returncode
                lines = finished.output_tail.strip().splitlines() or [f"exit code {exit_code}, no message"]
                worst_code, ended_well = max(worst_code, exit_code), ended_well + (exit_code == 0)
                for watcher in watchers:
                    watcher.ended(finished.index, exit_code, lines[-1])
        except BaseException:
            for watcher in watchers:
                watcher.end(group, None)
            raise
        unfinished = len(jobs) - ended_well
        ending = Ending(
            unfinished, len(jobs), name_of(noted_signal.number) if noted_signal.number and unfinished else ""
        )
        for watcher in watchers:
            watcher.end(group, ending)
        return 0 if not unfinished else 128 + noted_signal.number if noted_signal.number else worst_code
