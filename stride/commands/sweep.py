"""Search for hyperparameters: stride sweep config/sweeps/cartpole.yaml (--help shows all flags)

A search, top to bottom: the file -> trials that Optuna proposes -> runs that pause at rungs, from which the best
continue -> the best three on fresh seeds -> a block of YAML. Only the journal and the runs are stored. If a search was
stopped, the same command continues it from these.
"""

import json
import signal
from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from stride.commands.sweep_runs import SearchRuns
from stride.commands.train_arguments import parse_arguments
from stride.commands.usage import OneLineParser
from stride.config.extras import LOCAL, NEEDS_OPTUNA, check_machines
from stride.config.general import Task
from stride.config.schema import Config
from stride.config.search import Search, read_search
from stride.runstore.many.ray_pool import pool_on
from stride.runstore.many.search_journal import Journal
from stride.runstore.run_dir import runs_root
from stride.runstore.run_facts import mapping
from stride.runstore.run_lock import locked
from stride.utils import entry, places
from stride.utils.durable_file import read_json, write_json
from stride.utils.interrupted import Noted, name_of
from stride.utils.user_error import UserError

EXAMPLES = """\
examples:
  stride sweep config/sweeps/cartpole.yaml        27 trials in parallel; docs/scale.md describes the file
  stride sweep mine.yaml --trials 54              continue the same search, with more trials
  stride sweep mine.yaml --on ray                 on a cluster
exit codes:
  0 searched and confirmed; 1 no trial finished; 2 wrong arguments or a wrong file, nothing was started;
  130 and 143 stopped by Ctrl-C or SIGTERM: the same command continues
"""
MAX_TRIALS = 10_000


class NothingFoundError(RuntimeError):
    """No trial of a search finished."""


def build_sweep_parser() -> OneLineParser:
    parser = OneLineParser(
        prog="stride sweep",
        description="Search for hyperparameters: the best of many short runs continue, and new seeds confirm them.",
        epilog=EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="a sweep in W&B's format, with `variant` and Stride's own keys")
    text = "where to train: local; ray (a cluster); or ray:local (a cluster for this command); see docs/scale.md"
    parser.add_argument("--on", metavar="WHERE", default=LOCAL, help=text)
    parser.add_argument("--trials", metavar="N", help="number of trials; replaces run_cap of the file")
    return parser


def parse_sweep(argv: list[str]) -> Namespace:
    """Parse argv, without the program's name: `file`, `on` and `trials` (a number or None).

    UserError if something is unknown, out of range or not installed.
    """
    arguments = build_sweep_parser().parse_all(argv)
    check_machines(arguments.on)
    trials = arguments.trials
    if trials is not None:
        if not (trials.isdecimal() and 1 <= int(trials) <= MAX_TRIALS):
            raise UserError(f"--trials must be a whole number from 1 to {MAX_TRIALS:,}, not {trials}")
        arguments.trials = int(trials)
    if find_spec("optuna") is None:
        raise UserError(NEEDS_OPTUNA)
    arguments.file = Path(arguments.file)
    return arguments


def main(argv: list[str]) -> int:
    """Run the search; return the exit code."""
    arguments = parse_sweep(argv)
    search, program = read_search(arguments.file, arguments.trials, load), places.program("train")
    with pool_on(arguments.on, search.threads, search.gpus, program) as (pool, workers):
        folder = folder_for(search)
        with locked(folder), Noted() as noted:
            check_same(folder, search)
            journal = Journal(folder, search.spaces, search.method, search.maximize, search.seeds[0])
            runs = SearchRuns(search, journal, program)
            print(f"  {search.trials} trials of {search.variant}, {workers} runs at a time; {folder}", flush=True)
            is_over = runs.run(pool, workers, noted)
            if is_over and not runs.best():
                raise NothingFoundError(f"no trial of {search.name} finished; the lines above say why")
            result = runs.confirm(pool, workers, noted) if is_over else None
            if result is None or noted.number:
                by = f" by {name_of(noted.number)}" if noted.number else ""
                print(f"  stopped{by}; the same command continues", flush=True)
                return 128 + (noted.number or signal.SIGTERM)
            write_json(folder / "result.json", result.plain())
            print("\n".join(["", *result.lines(search)]))
    return 0


def load(words: Sequence[str]) -> Config:
    return parse_arguments([*words]).load(look)


def look(config: Config) -> Task:
    from stride.envs_gym.task import task_of  # loads torch, for environments without a config of their own

    return task_of(config)


def folder_for(search: Search) -> Path:
    folder = runs_root() / "sweeps" / search.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def check_same(folder: Path, search: Search) -> None:
    """Raise UserError if the folder belongs to a search with other settings; else store these."""
    path, plain = folder / "search.json", json.loads(json.dumps(search.plain()))
    before = mapping(read_json(path)) if path.exists() else plain
    if different := [key for key in plain if plain[key] != before.get(key)]:
        names = ", ".join(different)
        raise UserError(f"{folder} has a search with a different {names}; rename your file to start a new search")
    write_json(path, plain)


if __name__ == "__main__":
    entry.run(main, NothingFoundError)
