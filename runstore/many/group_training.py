"""Train the runs of a group in a pool of processes, and continue a group that was stopped. train_several.py calls it.

A signal that stops the group stops each run as if it were alone: it saves. `--resume group:NAME` continues them all.
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

Key = Callable[[Sequence[str], int], str]  # arguments of train.py, seed -> hash of their config


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
    """Train a group, one process per run, at most `workers` at a time; return 0 if all ended well.

    `name`: a group that may exist already; then only its runs that are not finished are trained. `flags`: arguments for
    every process that do not belong to a run's config. `require_goal`: return GOAL_MISSED if a run is not solved. If a
    run failed, return the largest exit code; if a signal stopped the group, 128 + its number.
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
    """Continue every unfinished run of a group, and start the runs that it never started; exit code as in `train_all`.

    `changes` are overrides for all of them. If they raise the budget, finished runs are continued, too. `key` computes
    the config hash of a run that starts with changed arguments.
    """
    group = find_group(selector)
    has_budget = any(word.startswith("max_timesteps=") for word in changes)
    jobs, plan = [], read_plan(group)
    keys_by_seed: dict[tuple[tuple[str, ...], int], str] = {}  # (words, seed) -> config hash of runs that start now
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
    """Return GOAL_MISSED if the goal is required and a run is not solved, else 0."""
    return (
        GOAL_MISSED
        if require_goal and any(verdict(standing.outcome) != "solved" for standing in standings(group))
        else 0
    )


def changed(words: Sequence[str], changes: Sequence[str]) -> list[str]:
    """Return the arguments with `changes` in place of earlier overrides: each key occurs once."""
    changed_keys = {change.lstrip("-").partition("=")[0] for change in changes}
    return [
        *(word for word in words if "=" not in word or word.lstrip("-").partition("=")[0] not in changed_keys),
        *changes,
    ]


def _job(standing: Standing, group: str) -> SeedJob:
    """Return the job that starts a run or continues it; the arguments are the same."""
    words = (*standing.words, "--quiet", "--group", group, "--seed", str(standing.seed))
    return SeedJob(standing.seed, words, standing.run, standing.key, standing.label)


def _train(
    program: Sequence[str], group: str, jobs: Sequence[SeedJob], workers: int, watchers: Sequence[Watcher], pool: Pool
) -> int:
    """Run the jobs in the pool, report to the watchers, and return the exit code of all."""
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
                # for a process ended by a signal, Popen has -number; shells and this program use 128 + number
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
