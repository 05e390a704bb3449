"""Search for hyperparameters:   stride sweep config/sweeps/cartpole.yaml   (--help says the rest)

The story of a search: the file -> trials that Optuna proposes -> runs that pause at rungs, of which the best go on ->
the best three on seeds that nobody used -> a block of YAML. All that is kept is the journal and the runs themselves:
what was under way when a search was stopped is begun by the same words again, which continue it.
"""

import json
import signal
from collections.abc import Sequence
from pathlib import Path

from stride.commands.sweep_flights import Sweep
from stride.commands.usage import spelled
from stride.config.commands.sweep import parse_sweep
from stride.config.commands.train import parse_arguments
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


class NothingFoundError(RuntimeError):
    """No trial of a search came to its end."""


def main(argv: list[str]) -> int:
    """Exit code."""
    asked = parse_sweep(argv, spelled())
    search, program = read_search(asked.file, asked.trials, load), places.program("train")
    with pool_on(asked.on, search.threads, search.gpus, program) as (pool, workers):
        folder = folder_for(search)
        with locked(folder), Noted() as noted:
            check_same(folder, search)
            journal = Journal(folder, search.spaces, search.method, search.maximize, search.seeds[0])
            sweep = Sweep(search, journal, program)
            print(f"  {search.trials} trials of {search.variant}, {workers} runs at a time; {folder}", flush=True)
            whole = sweep.run(pool, workers, noted)
            if whole and not sweep.best():
                raise NothingFoundError(f"no trial of {search.name} came to its end; their lines say why")
            found = sweep.confirm(pool, workers, noted) if whole else None
            if found is None or noted.number:
                by = f" by {name_of(noted.number)}" if noted.number else ""
                print(f"  stopped{by}; the same command goes on", flush=True)
                return 128 + (noted.number or signal.SIGTERM)
            write_json(folder / "result.json", found.plain())
            print("\n".join(["", *found.lines(search)]))
    return 0


def load(words: Sequence[str]) -> Config:
    return parse_arguments([*words]).load(look)


def look(config: Config) -> Task:
    from stride.envs_gym.task import (
        task_of,  # brings torch, and only environments without a config of their own want it
    )

    return task_of(config)


def folder_for(search: Search) -> Path:
    folder = runs_root() / "sweeps" / search.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}") from error
    return folder


def check_same(folder: Path, search: Search) -> None:
    """UserError where another search has begun in this folder."""
    path, plain = folder / "search.json", json.loads(json.dumps(search.plain()))
    before = mapping(read_json(path)) if path.exists() else plain
    if other := [key for key in plain if plain[key] != before.get(key)]:
        raise UserError(f"{folder} holds a search with another {', '.join(other)}; a file of another name begins anew")
    write_json(path, plain)


if __name__ == "__main__":
    entry.run(main, NothingFoundError)
