"""Train and load runs from Python: `train` and `load` take the words of the command line as arguments and return a run.

Wrong arguments raise a UserError of one line before anything starts.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from stride.commands.train import train_run  # isort: skip  # before any import of Lightning: it does that in its way

from stride.agents.trained.loading import LoadedRun, load_run
from stride.commands.train_arguments import parse_arguments
from stride.config.diff import override_text
from stride.config.fields import check_algorithm
from stride.envs_gym.make import Maker, id_of, is_given, lent
from stride.report.console import in_notebook
from stride.runstore.run_dir import RunDir
from stride.runstore.select import names_published
from stride.utils.places import in_project
from stride.utils.provenance import called
from stride.utils.user_error import UserError


def train(
    config_id: str = "",
    /,
    *,
    env: Maker | None = None,
    algo: str = "",
    config: str | Path = "",
    resume: str | Path = "",
    checkpoint: str = "",
    trust: Sequence[str] = (),
    project: str | Path = "",
    quiet: bool | None = None,
    **changes: object,
) -> LoadedRun:
    """Train `ENV:VARIANT`, with `changes` to its config keys, and return the finished run.

    `env` makes your own environments, for the algorithm `algo`. `config` is a YAML file. `resume` names a run to
    continue; with `checkpoint`, a new run starts from that checkpoint of it. `project` is the folder of your modules,
    if it is not the current folder. `quiet` prints one line at the end. It is the default, except in a notebook, where
    a display below the cell is updated. `quiet=False` elsewhere prints the console of `train.py`.
    """
    if threading.current_thread() is not threading.main_thread():
        raise UserError(
            "stride.train must be called in the main thread, which receives Ctrl-C; use processes to train in parallel"
        )
    quiet = not in_notebook() if quiet is None else quiet
    flags = {"config": os.fspath(config), "resume": os.fspath(resume), "checkpoint": checkpoint}
    flags |= {"trust": ",".join(trust), "project": os.fspath(project)}
    _check_call(config_id, env is not None, algo, flags)
    with in_project(project), nullcontext("") if env is None else given(env, flags["resume"]) as env_id:
        arguments_typed = [f"{env_id}:{algo}"] if algo else [config_id] if config_id else []
        arguments_typed += [f"--{name}={value}" for name, value in flags.items() if value]
        arguments_typed += [override_text(key, value) for key, value in changes.items()]
        arguments = parse_arguments([*arguments_typed, *["-q"] * quiet])
        with called("train", arguments_typed):
            code, run = train_run(replace(arguments, debug=False))  # a debugger attached to the program changes nothing
        if code > 128:
            signal.raise_signal(code - 128)  # the run is saved; now the program itself gets the signal
        if run is None:
            raise KeyboardInterrupt
        return load_run(str(run.path), trust=trust)


def load(
    selector: str | Path = "@last",
    checkpoint: str = "best",
    trust: Sequence[str] = (),
    env: Maker | None = None,
    project: str | Path = "",
) -> LoadedRun:
    """Load the run named by `@last`, `@best`, an id, a folder or `hub:user/repo`, at checkpoint best, last or epoch=NN.

    `env`: the `env` that `train` was called with, if any. `project`: the folder of your modules, if it is not recorded.
    """
    selector = os.fspath(selector)
    with in_project(project), nullcontext() if env is None else given(env, selector):
        return load_run(selector, checkpoint, trust)


def _check_call(config_id: str, has_env: bool, algo: str, flags: dict[str, str]) -> None:
    """Raise UserError if the arguments exclude each other."""
    if config_id.startswith("-") or "=" in config_id:
        raise UserError(
            f"{config_id!r} is not ENV:VARIANT; give config keys as keywords: stride.train('CartPole-v1:ppo', seed=3)"
        )
    if algo and not has_env:
        raise UserError(f"algo= needs env=; in an id, put the algorithm after a colon: 'CartPole-v1:{algo}'")
    if has_env and (config_id or flags["config"]):
        raise UserError(
            "env= already gives the environment: give the algorithm with algo=, and config keys as keywords"
        )
    if has_env and bool(algo) == bool(flags["resume"]):
        raise UserError("env= needs algo= (for example algo='ppo') or resume=")
    if algo:
        check_algorithm(algo, "algo")


@contextmanager
def given(env: Maker, selector: str) -> Iterator[str]:
    """Yield the id under which `env` makes environments inside the block; UserError if the named run had other ones."""
    env_id = id_of(env)
    if selector:
        trained_on = "" if names_published(selector) else str(RunDir.find(selector).facts().get("env_id"))
        if not is_given(trained_on):
            raise UserError(f"{selector} was not trained on an environment of env=; leave env= out")
        if trained_on != env_id:
            raise UserError(f"{selector} was trained on {trained_on}, but env= makes {env_id}")
    with lent(env_id, env):
        yield env_id
