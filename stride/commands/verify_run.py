"""Check that a run can be repeated: train its first iterations again from config and seed, and compare.

    stride verify @last                 up to its earliest checkpoint
    stride verify RUN --iterations 50   every checkpoint of the first 50 iterations
    stride verify RUN --test            and the closing test, with the weights of the last checkpoint

It compares the rows of metrics.csv, and at each checkpoint the complete state: weights, optimizer, environments and
their episodes, counters. Then it checks that the run's files agree with each other on scores, outcome and goal. The
last line also says what was not verified. Exit code 0 if identical or the same within tolerance, else 1.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import math
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stride.commands.run_arguments import look_for_run, parse_verify
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(look_for_run(parse_verify), "loading torch ...")  # here, as the imports below take seconds

import stride.utils.lean_lightning  # isort: skip  # noqa: F401  # before any import of Lightning

from stride.commands.plain_tree import Difference, differences
from stride.commands.repeated_run import CompareAt, Sidecars, repeat_test, repeat_training
from stride.config.loader import from_plain
from stride.config.metrics import load_metrics
from stride.config.plugins import check_names, trust_in
from stride.config.schema import Config
from stride.config.sizes import check_foreign
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import env_info
from stride.envs_gym.own_code import import_code_of
from stride.report.metrics_sinks import STEPS
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import format_number, read_csv
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import UNENDED, finite, mapping
from stride.runstore.run_names import temporary_runs
from stride.trainer_callbacks.resume import host_facts
from stride.utils.user_error import UserError, one_line

quick_start.loaded()

ITERATIONS = "train/clock/iterations"  # may be missing in the closing test's row
MAX_SHOWN = 5  # differences that are printed
VAL_MEAN, VAL_BEST, TEST_MEAN = "val/roll/ep_rew/mean", "val/roll/ep_rew/best", "test/roll/ep_rew/mean"
TEST_METRICS = {"test_mean": TEST_MEAN, "test_std": "test/roll/ep_rew/std", "test_episodes": "test/roll/episodes"}
Plain = dict[str, Any]
MetricsRow = Mapping[str, float]


class Verdict(NamedTuple):
    """The result: identical, same within tolerance, or different; lines to print; how far the runs were compared."""

    word: str
    lines: list[str]
    extent: str

    @property
    def last_line(self) -> str:
        return f"{self.word}: {self.extent}"


def main(argv: list[str]) -> int:
    """Verify a run and print the result; return the exit code."""
    arguments = parse_verify(argv)
    verdict = verify(RunDir.find(arguments.run_id), arguments)
    print("\n".join([*verdict.lines, verdict.last_line]))
    return 0 if verdict.word != "different" else 1


def verify(run: RunDir, arguments: Namespace) -> Verdict:
    """Train the run's first iterations again and compare everything with the stored files."""
    info, sidecars = run.facts(), checkpoint_set.known(run.checkpoints)
    config = repeatable(run, info)
    names = compared_checkpoints(run, sidecars, arguments.iterations)
    last = sidecars[names[-1]]
    rows = read_csv(run.metrics_csv)
    goal = env_info(config).reward_threshold if config.spec.goal is None else config.spec.goal
    results = contradictions(run, info, sidecars, rows, goal, config.test_episodes)
    test = closing_test(rows) if arguments.test else {}
    if arguments.test and not test:
        raise UserError(f"{run.id} has no closing test to repeat")
    with temporary_runs():
        compare = CompareAt(run, config, {name: sidecars[name] for name in names})
        new_run = repeat_training(config, info.get("goal"), compare)
        results += compared_rows(rows, read_csv(new_run.metrics_csv), last)
        results += compare.differences
        results += test_differences(run, config, test) if test else []
    lines = [f"{run.id}, its first {last['iterations']} iterations ({last['env_steps']:,} env steps)"]
    lines += [f"warning: {key} was {then}, is {now}" for key, then, now in drift(last)]
    lines += [one_line(f"  {difference.name} {difference.words}") for difference in results[:MAX_SHOWN]]
    missing_test = not test and bool(closing_test(rows) or info.get("outcome"))
    extent = extent_of(run, sidecars, names, missing_test)
    return Verdict(verdict_word(results, arguments.tolerance), lines, extent)


def repeatable(run: RunDir, info: Plain) -> Config:
    """Return the run's config with the env_backend it used; UserError if it cannot be trained again from the start."""
    if any(resumed.get("changed") for resumed in info.get("resumed") or ()):
        raise UserError(f"{run.id} was resumed with other settings; only a run with one config can be repeated")
    if info.get("parent"):
        raise UserError(f"{run.id} is a fork of {info['parent'].get('run')}; verify that run instead")
    if "config" not in info:
        raise UserError(f"{run.config_json} has no config")
    trust = trust_in(run, ())
    check_names(info["config"], trust, run.id)
    if not run.foreign:
        import_code_of(run)
    config = from_plain(info["config"], run.id, trust=trust)
    if run.foreign:
        check_foreign(config, run.id)
    return replace(config, env_backend=info.get("env_backend", "gym")) if config.env_backend == "auto" else config


def compared_checkpoints(run: RunDir, sidecars: Sidecars, iterations: int) -> list[str]:
    """Return the names of the checkpoints to compare: the earliest, or all within this number of iterations."""
    if not sidecars:
        raise UserError(f"{run.id} has no checkpoint")
    earliest = next(iter(sidecars))
    names = [name for name, sidecar in sidecars.items() if sidecar["iterations"] <= iterations]
    if iterations and not names:
        raise UserError(f"{run.id} has no checkpoint before iteration {sidecars[earliest]['iterations']}")
    return names or [earliest]


def extent_of(run: RunDir, sidecars: Sidecars, names: list[str], missing_test: bool) -> str:
    """Return in words how far the runs were compared, and what was not verified."""
    last = names[-1]
    compared_iterations, total_iterations = sidecars[last]["iterations"], list(sidecars.values())[-1]["iterations"]
    missing = []
    if len(names) < len(sidecars):
        links = [link for link in checkpoint_set.LINKS if linked(run, link) not in names]
        missing.append(f"{' and '.join(links) or 'later checkpoints'} (--iterations {total_iterations} compares them)")
    if missing_test:
        missing.append("the closing test (--test repeats it)")
    extent = f"compared up to iteration {compared_iterations:,} of {total_iterations:,} ({last})"
    return f"{extent}; not verified: {', '.join(missing)}" if missing else extent


def linked(run: RunDir, name: str) -> str:
    """Return the checkpoint that a link points to; "" if the link is wrong."""
    try:
        return checkpoint_set.target(run.checkpoints / f"{name}.ckpt")
    except UserError:  # `contradictions` reports it
        return ""


def verdict_word(results: list[Difference], tolerance: float) -> str:
    if not results:
        return "identical"
    return "same within tolerance" if all(result.size <= tolerance for result in results) else "different"


def drift(sidecar: Plain) -> list[tuple[str, Any, Any]]:
    """Return (name, then, now) of versions and CPU that have changed; then equal bits are not promised."""
    host = host_facts()
    current = {**host["versions"], "cpu": host["cpu"]}
    stored = {**sidecar.get("versions", {}), "cpu": sidecar.get("cpu")}
    return [(key, stored.get(key), current[key]) for key in current if stored.get(key) != current[key]]


def compared_rows(stored: Sequence[MetricsRow], again: Sequence[MetricsRow], sidecar: Plain) -> list[Difference]:
    """Return differences between the rows up to a checkpoint.

    A training that ends at the checkpoint writes one more row than one that goes on; that row is left out.
    """
    stored = [row for row in stored if row.get(STEPS, 0) <= sidecar["env_steps"] and ITERATIONS in row]
    end = max([sidecar["exported"], *(row[STEPS] for row in stored if STEPS in row)])
    return differences(_repeatable_metrics(stored), _repeatable_metrics([row for row in again if row[STEPS] <= end]))


def _repeatable_metrics(rows: Sequence[MetricsRow]) -> list[dict[str, float]]:
    """Return the rows without metrics of wall time and of the closing test."""
    wall = {name for name, metric in load_metrics().items() if metric.wall_time}
    return [{name: row[name] for name in row if name not in wall and not name.startswith("test/")} for row in rows]


def test_differences(run: RunDir, config: Config, row: MetricsRow) -> list[Difference]:
    """Return differences of the closing test, played again with the weights of the last checkpoint."""
    path = run.checkpoints / f"{linked(run, 'last')}.ckpt"
    numbers = {name: float(format_number(value)) for name, value in repeat_test(run, config, path).items()}
    return differences({name: row[name] for name in row if name.startswith("test/roll/")}, numbers)


def contradictions(
    run: RunDir, info: Plain, sidecars: Sidecars, rows: Sequence[MetricsRow], goal: float | None, episodes: int
) -> list[Difference]:
    """Return where sidecars, links, metrics.csv and config.json disagree; none of these files is trusted.

    `goal`: that of the config or its environment. `episodes`: how many the closing test should have.
    """
    results = _links(run, sidecars)
    for name, sidecar in sidecars.items():
        if sidecar.get("score") is not None:
            # the mean of the evaluation, or of the closing test if these weights were never evaluated
            rows_there = [row for row in rows if row.get(STEPS) == sidecar["env_steps"]]
            scores = [row[metric] for metric in (VAL_MEAN, TEST_MEAN) for row in rows_there if metric in row]
            results += _unequal(f"{name}.json: score", sidecar["score"], "metrics.csv", scores[0] if scores else None)
    results += _unequal("goal", info.get("goal"), "its config", goal)
    outcome = mapping(info.get("outcome"))
    return results + _outcome(outcome, info, sidecars, rows, episodes) if outcome else results


def closing_test(rows: Sequence[MetricsRow]) -> MetricsRow:
    """Return the row of the closing test, {} if there is none."""
    for row in reversed(rows):
        if any(name.startswith("test/roll/") for name in row):
            return row
    return {}


def _links(run: RunDir, sidecars: Sidecars) -> list[Difference]:
    results = []
    for name in checkpoint_set.LINKS:
        try:
            targets = {checkpoint_set.target(run.checkpoints / f"{name}.ckpt")}
            targets.add(checkpoint_set.target(run.checkpoints / f"{name}.json").removesuffix(".json"))
        except UserError as error:
            results.append(Difference(f"checkpoints/{name}", math.inf, f"cannot be compared: {error}"))
            continue
        if len(targets) > 1 or not targets <= sidecars.keys():
            message = "does not link to a checkpoint and its sidecar"
            results.append(Difference(f"checkpoints/{name}", math.inf, message))
    return results


def _outcome(
    outcome: Plain, info: Plain, sidecars: Sidecars, rows: Sequence[MetricsRow], episodes: int
) -> list[Difference]:
    """Return where the outcome disagrees with other files. A stopped run may lack rows after its last checkpoint."""
    results = []
    test, is_over = closing_test(rows), outcome.get("reason") not in UNENDED
    for key, metric in TEST_METRICS.items():
        stored, measured = outcome.get(key), test.get(metric)
        if key == "test_episodes":  # 0: there was no test
            stored, measured = stored or None, measured or None
        results += _unequal(f"outcome.{key}", stored, "metrics.csv", measured)
    results += _unequal("outcome.goal", outcome.get("goal"), "config.json", info.get("goal"))
    if is_over:
        steps = outcome.get("env_steps")
        best = next((row[VAL_BEST] for row in reversed(rows) if VAL_BEST in row), None)
        results += _unequal("outcome.val_best", outcome.get("val_best"), "metrics.csv", best)
        saved = list(sidecars.values())[-1]["env_steps"] if sidecars else None
        results += _unequal("outcome.env_steps", steps, "the last checkpoint", saved)
        if test:
            results += _unequal("outcome.env_steps", steps, "the row of the test", test.get(STEPS))
    # `solved` may be false with any mean if not all episodes of the test ended
    goal, mean, solved = finite(outcome.get("goal")), finite(outcome.get("test_mean")), outcome.get("solved")
    reached = goal is not None and mean is not None and mean >= goal
    is_complete = outcome.get("test_episodes") == episodes and is_over
    if (solved and not reached) or (reached and is_complete and not solved):
        message = f"is {solved}, with test_mean {mean} and goal {goal}"
        results.append(Difference("outcome.solved", math.inf, message))
    return results


def _unequal(name: str, stored: object, where: str, other: float | None) -> list[Difference]:
    """Return a difference if a number is not equal in two files, to the seven digits of metrics.csv; else []."""
    number = finite(stored)
    if other is None:
        is_equal = stored is None
    else:
        is_equal = number is not None and format_number(number) == format_number(other)
    return [] if is_equal else [Difference(name, math.inf, f"is {stored!r}, but {other!r} according to {where}"[:160])]


def command(argv: list[str]) -> int:
    """Run main and return the exit code; errors become one line. 2: the user can fix it; 1: the environment failed."""
    return entry.ended(main, argv, EnvError)


if __name__ == "__main__":
    quick_start.leave(command(sys.argv[1:]))
