"""Does a run repeat? Trains its first iterations again from the stored config and seed, and compares.

    stride verify @last                 up to its earliest checkpoint
    stride verify RUN --iterations 50   every checkpoint of the first 50 iterations
    stride verify RUN --test            and the closing test, with the weights of the last checkpoint

Compared are the rows of metrics.csv, and at each checkpoint everything a run consists of: weights, optimizer, where
every world and episode stands, counters. Then what the run says of itself in several files: scores, outcome, goal. The
last line says what was not verified. Exit code 0 when identical or the same within tolerance, 1 when not.
"""

from stride.utils import quick_start  # isort: skip  # before all others

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stride.config.commands.verify import VerifyArguments, parse_verify
from stride.config.preflight import look_for_run
from stride.utils import entry

if __name__ == "__main__":
    entry.begin(look_for_run(parse_verify), "loading torch ...")  # here, as the imports below take seconds

import stride.utils.late_dynamo  # isort: skip  # noqa: F401  # before whoever imports Lightning

from stride.commands.plain_tree import Difference, differences
from stride.commands.repeated_run import CompareAt, repeated, scratch, tested
from stride.commands.run_claims import Row, Sidecars, closing_test, contradictions
from stride.config.loader import from_plain
from stride.config.metrics import load_metrics
from stride.config.plugins import check_names, trust_in
from stride.config.schema import Config
from stride.config.sizes import check_foreign
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import env_info
from stride.envs_gym.own_code import import_code_of
from stride.report.metrics_csv import STEPS
from stride.runstore import checkpoint_set
from stride.runstore.metrics_table import format_number, read_csv
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.resume import host_facts
from stride.utils.one_line import one_line
from stride.utils.user_error import UserError

quick_start.loaded()

ITERATIONS = "train/clock/iterations"  # the closing test's row may have none
SHOWN = 5  # differences


class Verdict(NamedTuple):
    """identical, same within tolerance, or different; how far it was compared, and what differs."""

    word: str
    lines: list[str]
    extent: str

    @property
    def last_line(self) -> str:
        return f"{self.word}: {self.extent}"


def main(argv: list[str]) -> int:
    """Exit code."""
    arguments = parse_verify(argv)
    verdict = verify(RunDir.find(arguments.run_id), arguments)
    print("\n".join([*verdict.lines, verdict.last_line]))
    return 0 if verdict.word != "different" else 1


def verify(run: RunDir, arguments: VerifyArguments) -> Verdict:
    facts, sidecars = run.facts(), checkpoint_set.known(run.checkpoints)
    config = repeatable(run, facts)
    stems = compared_checkpoints(run, sidecars, arguments.iterations)
    last = sidecars[stems[-1]]
    warnings = [f"warning: {key} was {then}, is {now}" for key, then, now in drift(last)]
    rows = read_csv(run.metrics_csv)
    reached = env_info(config).reward_threshold if config.spec.goal is None else config.spec.goal
    claims = contradictions(run, facts, sidecars, rows, reached, config.test_episodes)
    test = closing_test(rows) if arguments.test else {}
    if arguments.test and not test:
        raise UserError(f"{run.id} has no closing test to play again")
    with scratch():
        compare = CompareAt(run, config, {stem: sidecars[stem] for stem in stems})
        again = repeated(config, facts.get("goal"), compare)
        found = compared_rows(rows, read_csv(again.metrics_csv), last) + compare.found
        found += test_differences(run, config, test) if test else []
    first = f"{run.id}, its first {last['iterations']} iterations ({last['env_steps']:,} env steps)"
    shown = [one_line(f"  {each.name} {each.words}") for each in [*claims, *found][:SHOWN]]
    extent = extent_of(run, sidecars, stems, "" if test else mentioned_test(facts, rows))
    return Verdict(word(claims + found, arguments.tolerance), [first, *warnings, *shown], extent)


def repeatable(run: RunDir, facts: dict[str, Any]) -> Config:
    """The run's config, on the worlds it was trained on; UserError where it cannot be trained again from the start."""
    if facts.get("resumed") and any(again.get("changed") for again in facts["resumed"]):
        raise UserError(f"{run.id} was resumed with other settings; only what one config made can be repeated")
    if facts.get("parent"):
        raise UserError(f"{run.id} is a fork of {facts['parent'].get('run')}; verify that one")
    if "config" not in facts:
        raise UserError(f"{run.config_json} holds no config")
    trust = trust_in(run, ())
    check_names(facts["config"], trust, run.id)
    if not run.foreign:
        import_code_of(run)
    config = from_plain(facts["config"], run.id, trust=trust)
    if run.foreign:
        check_foreign(config, run.id)
    return replace(config, env_backend=facts.get("env_backend", "gym")) if config.env_backend == "auto" else config


def compared_checkpoints(run: RunDir, sidecars: Sidecars, iterations: int) -> list[str]:
    """The earliest checkpoint, or all within so many iterations."""
    if not sidecars:
        raise UserError(f"{run.id} has no checkpoint")
    earliest = next(iter(sidecars))
    within = [stem for stem, facts in sidecars.items() if facts["iterations"] <= iterations]
    if iterations and not within:
        raise UserError(f"{run.id} has no checkpoint before iteration {sidecars[earliest]['iterations']}")
    return within or [earliest]


def extent_of(run: RunDir, sidecars: Sidecars, stems: list[str], test: str) -> str:
    """How far it was compared, and what was not verified."""
    done, end = (list(among)[-1] for among in (stems, sidecars))
    upto, whole = sidecars[done]["iterations"], sidecars[end]["iterations"]
    links = [name for name in checkpoint_set.LINKS if linked(run, name) not in stems]
    later = f"{' and '.join(links) or 'later checkpoints'} (--iterations {whole} compares them)"
    missing = [later] * (len(stems) < len(sidecars)) + [test] * bool(test)
    told = f"compared up to iteration {upto:,} of {whole:,} ({done})"
    return f"{told}; not verified: {', '.join(missing)}" if missing else told


def linked(run: RunDir, name: str) -> str:
    try:
        return checkpoint_set.target(run.checkpoints / f"{name}.ckpt")
    except UserError:  # is among the contradictions
        return ""


def mentioned_test(facts: dict[str, Any], rows: Sequence[Row]) -> str:
    """What to say of a closing test that was not played again, "" where there is none."""
    return "the closing test (--test plays it again)" if closing_test(rows) or facts.get("outcome") else ""


def word(found: list[Difference], tolerance: float) -> str:
    if not found:
        return "identical"
    return "same within tolerance" if all(d.size <= tolerance for d in found) else "different"


def drift(sidecar: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Versions and the CPU where they are not what they were: then equal bits are not promised."""
    now = {**host_facts()["versions"], "cpu": host_facts()["cpu"]}
    then = {**sidecar.get("versions", {}), "cpu": sidecar.get("cpu")}
    return [(key, then.get(key), now[key]) for key in now if then.get(key) != now[key]]


def compared_rows(mine: Sequence[Row], theirs: Sequence[Row], sidecar: dict[str, Any]) -> list[Difference]:
    """Rows up to a checkpoint. Behind the last one due there is one more where the training ended with it."""
    mine = [row for row in mine if row.get(STEPS, 0) <= sidecar["env_steps"] and ITERATIONS in row]
    upto = max([sidecar["exported"], *(row[STEPS] for row in mine if STEPS in row)])
    return differences(*([told(row) for row in rows] for rows in (mine, [r for r in theirs if r[STEPS] <= upto])))


def told(row: Row) -> dict[str, float]:
    """Without what tells of wall time, and without the closing test."""
    metrics = load_metrics()
    return {
        name: value
        for name, value in row.items()
        if not name.startswith("test/") and not (name in metrics and metrics[name].wall_time)
    }


def test_differences(run: RunDir, config: Config, row: Row) -> list[Difference]:
    """The closing test, played again with the weights of the last checkpoint."""
    path = run.checkpoints / f"{linked(run, 'last')}.ckpt"
    numbers = {name: float(format_number(value)) for name, value in tested(run, config, path).items()}
    return differences({name: row[name] for name in row if name.startswith("test/roll/")}, numbers)


def command(argv: list[str]) -> int:
    """main with its errors as one line: 2 for what the person can right, 1 for what an environment did."""
    return entry.ended(main, argv, EnvError)


if __name__ == "__main__":
    quick_start.leave(command(sys.argv[1:]))
