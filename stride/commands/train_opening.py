"""What train.py can answer before torch is loaded: --help, mistyped words, a finished run, the first lines of output.

The first lines of a training are shown while torch is loaded; the console prints the rest of the header below them.
"""

import ast
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

from rich.text import Text

from stride.commands.rank import is_worker, rank_of
from stride.commands.train_arguments import Arguments, build_parser, check_pause, parse_arguments
from stride.commands.train_detached import is_background, train_in_background
from stride.config.checks import check, nearest_sizes
from stride.config.extras import LOCAL, missing
from stride.config.general import Look
from stride.config.listing import print_variants
from stride.config.loader import from_plain, shipped_files, to_plain
from stride.config.manual import help_text
from stride.config.plugins import (
    TooEarlyError,
    check_module,
    check_names,
    is_dotted,
    postponed,
    registered,
    trust_in,
)
from stride.config.schema import ALGORITHMS, Config, RolloutConfig
from stride.report.console import opening_block, printed_labels, standard_output
from stride.report.json_events import JsonEvents
from stride.runstore import checkpoint_set
from stride.runstore.history import Alert
from stride.runstore.many.nursery import is_nursery
from stride.runstore.outcome import Outcome
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import PAUSED, mapping
from stride.runstore.run_files import exists
from stride.runstore.seed_group import claimed
from stride.utils.durable_file import check_room
from stride.utils.entry import GOAL_MISSED
from stride.utils.places import PROJECT
from stride.utils.streams import FAILED, Events, event_line
from stride.utils.user_error import UserError, nearest, printable

DEBUG_ITERATIONS = 10  # budget with --debug, if the user gave none


def answer_early(argv: list[str]) -> int | None:
    """Answer the command line if that needs no torch, and return the exit code; None if main must go on."""
    if is_nursery(argv) or is_worker(os.environ):
        return None
    try:
        return _answer_early(argv)
    except UserError as error:
        if "--json" in argv:
            print(event_line("end", result=FAILED, error=str(error)), flush=True)
        raise


def _answer_early(argv: list[str]) -> int | None:
    arguments = parse_arguments(argv)
    if not knows_all_algorithms() or arguments.shows_wrappers:  # wrappers import torch
        return None
    try:
        with postponed():
            if arguments.help:
                return print_help(arguments)
            if arguments.list_envs is not None:
                return print_variants(arguments.list_envs)
            config = checked(arguments)
    except TooEarlyError:  # main checks everything after torch is loaded
        return None
    if is_background(arguments):
        return train_in_background(argv, arguments)
    if arguments.many:
        if arguments.on != LOCAL and not arguments.require_goal:
            return start_on_cluster(
                arguments
            )  # not with --require-goal: the environment may have to be made for its goal
    elif config is not None and arguments.group and not arguments.json and not rank_of(os.environ):
        run = standing_run(arguments, config)
        if run and is_done(arguments, run):
            return report_again(arguments, run)
    if config is not None and not arguments.quiet and not arguments.several:
        announce(config, arguments.seeds)
    return None


def print_help(arguments: Arguments, look: Look | None = None) -> int:
    """Print the flags, and with ENV:VARIANT every key with its value there and its meaning."""
    keys = ""
    if arguments.config_id or arguments.file:
        try:
            config = arguments.load(look)
        except UserError as error:  # a user's own algorithm may lack only a budget, or need a larger one
            others = [override for override in arguments.overrides if not override.startswith("max_timesteps=")]
            config = replace(arguments, overrides=("max_timesteps=1e5", *others)).load(look)
            if arguments.is_budget_typed:
                print(f"with max_timesteps=1e5, as {error}", file=sys.stderr)
        keys = f"\n{help_text(config)}\n"
    build_parser().print_help()
    print(keys, end="")
    return 0


def checked(arguments: Arguments) -> Config | None:
    """Return the config to train (the first of several); None for a group, or if only the resumed run's folder has it.

    Raises UserError for everything that can be checked without torch. The training checks this again, and the rest.
    """
    if arguments.several:
        configs = [checked(part) for part in arguments.trainings()]
        return configs[0]
    if arguments.resumes_group:
        return None
    folder = runs_root()
    if arguments.resume:
        run = RunDir.find(arguments.resume)
        if arguments.checkpoint in ("", "last"):
            folder = run.path
        check_room(folder, 0)
        stored_config = run.facts().get("config")
        trust = trust_in(run, arguments.trust)
        check_names(stored_config, trust, run.id)
        if stored_config is None:  # resuming reports what is wrong
            return None
        config = from_plain(stored_config, run.id, arguments.overrides, trust)
    else:
        config = arguments.load()
        check_room(folder, 0)
        if not arguments.file:  # modules beside a --config file are not importable yet
            check_module(config.env_id, config.env_id)
            check_module(config.policy, "policy")
        extra = missing(config.env_id)
        if extra and config.env_id.replace("/", "-") in shipped_files():  # else another package may register it
            raise UserError(extra.need(config.env_id))
    check_policy(config)
    tiny = arguments.checks and not arguments.is_budget_typed
    return for_debugger(config, tiny) if arguments.debug else config


def check_policy(config: Config) -> None:
    """Raise UserError if there is no policy with this name.

    A user's own policy (`module:Name`) is looked up after torch is loaded, as are those of a user's environment module.
    """
    names = policy_names()
    if config.policy in names or is_dotted(config.env_id) or is_dotted(config.policy):
        return
    names = (*names, *registered("policies"))
    if config.policy not in names:
        raise UserError(f"unknown policy {config.policy!r}{nearest(config.policy, names)} (known: {', '.join(names)})")


def policy_names() -> tuple[str, ...]:
    """Return the names in the table of agents/networks/policies.py."""
    return _names_in_table("agents/networks/policies.py", "POLICIES")


def knows_all_algorithms() -> bool:
    """Whether config/schema.py has all rows of agents/algorithms.py; others are registered with torch."""
    return {*_names_in_table("agents/algorithms.py", "ALGORITHMS")} <= ALGORITHMS.keys()


@cache
def _names_in_table(file: str, table: str) -> tuple[str, ...]:
    """Return the keys of a table, read from the source text of its file, because importing it loads torch."""
    for node in ast.parse((PROJECT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            assert isinstance(node.value, ast.Dict)
            return tuple(str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
    raise RuntimeError(f"{file} has no table {table}")


def for_debugger(config: Config, tiny: bool = False) -> Config:
    """Return the config with one environment and one thread; batch_size stays if it still divides the rollout.

    `tiny`: reduce the budget to DEBUG_ITERATIONS.
    """
    config = replace(config, n_envs=1, threads=1, engine="eager", workers=0, shards=1, collectors=0)
    if isinstance(config, RolloutConfig):
        config = replace(config, n_steps=max(config.n_steps, 2))  # a single row has no standard deviation
        if config.policy in ("lstm", "gru", "mingru", "transformer"):
            config = replace(config, batch_size=1.0)  # minibatches of whole sequences
        rollout, rows = config.rollout_size, config.minibatch_size
        if rollout % rows or rows == 1:
            sizes = [size for size in nearest_sizes(rollout, max(rows, 2)) if size > 1]
            config = replace(config, batch_size=sizes[0])
        if config.n_epochs * (rollout // config.minibatch_size) % config.accumulate:
            config = replace(config, accumulate=1)
        if tiny:
            config = replace(config, max_timesteps=min(config.max_timesteps, DEBUG_ITERATIONS * rollout))
    check(config, f"{config.env_id}:{config.variant} under the debugger")
    return config


def standing_run(arguments: Arguments, config: Config) -> RunDir | None:
    """Return the run of --group with this config, None if there is none, or no longer."""
    run_id = claimed(arguments.group, to_plain(config))
    run = RunDir(runs_root() / run_id)
    return run if run_id and exists(run.config_json) else None


def is_done(arguments: Arguments, run: RunDir) -> bool:
    """Whether nothing is left to train, or nothing before --pause-at."""
    status = run.facts().get("status")
    if status != PAUSED or arguments.pause_at is None:
        return status == "finished"
    return bool(checkpoint_set.facts_of(run.checkpoints / "last.ckpt").get("env_steps", 0) >= arguments.pause_at)


def report_again(arguments: Arguments, run: RunDir, events: Events | None = None) -> int:
    """Print how a run ended, as it was printed then; return its exit code."""
    outcome = stored_outcome(mapping(run.facts().get("outcome")), run)
    if events:
        JsonEvents(events, run).end(outcome)
    elif arguments.quiet:
        print(printable(outcome.line()))
    else:
        print(f"  {run.id} is already trained: {outcome.sentence()}")
    missed = arguments.require_goal and outcome.reason != PAUSED and not outcome.solved
    return GOAL_MISSED if missed else 0


def stored_outcome(stored: Mapping[str, Any], run: RunDir) -> Outcome:
    """Return the outcome that a checked config.json contains."""
    values: dict[str, Any] = dict.fromkeys(("goal", "val_best", "test_mean", "test_std"))
    values |= {"test_episodes": 0, "env_steps": 0, "solved": False, "reason": "", "seconds": 0.0}
    names = {field.name for field in fields(Outcome)} - {"alerts", "cures", "phases", "dreams", "lost"}
    values |= {name: value for name, value in stored.items() if name in names}
    values["run_path"] = os.path.relpath(run.path)
    alert_names = {field.name for field in fields(Alert)}
    alerts = [alert for alert in stored.get("alerts") or () if isinstance(alert, dict) and alert.keys() == alert_names]
    return Outcome(**values, alerts=tuple(Alert(**alert) for alert in alerts))


def start_on_cluster(arguments: Arguments) -> int:
    """Start several runs on a cluster. Its nodes load what they need; this process loads nothing."""
    from stride.commands.train_several import start_all

    parts = [(part, part.load()) for part in arguments.trainings()]
    for _, config in parts:
        check_pause(arguments.pause_at, config.max_timesteps)
    return start_all(arguments, parts)


def announce(config: Config, seeds: Sequence[int] = ()) -> None:
    """Print the first lines of a training. With several seeds, each run also prints its own header."""
    lines, labels = opening_block(config, seeds)
    standard_output().print(Text("\n").append_text(lines), soft_wrap=True, highlight=False)
    if len(seeds) < 2:
        printed_labels.update(labels)  # so that the console does not repeat them
