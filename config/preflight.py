"""What a command answers or refuses before anything heavy is loaded: words and keys it does not know, a full disk."""

import ast
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from stride.config.commands.train import Arguments, build_parser
from stride.config.debugger import for_debugger
from stride.config.general import Look
from stride.config.listing import print_variants
from stride.config.loader import from_plain
from stride.config.manual import help_text
from stride.config.plugins import check_names, is_dotted, registered, trust_in
from stride.config.schema import ALGORITHMS, Config
from stride.runstore.run_dir import LAST, RunDir, runs_root
from stride.runstore.run_names import HUB_PREFIX
from stride.runstore.seed_group import names_group
from stride.utils.durable_file import check_room
from stride.utils.user_error import UserError, nearest

AGENTS = Path(__file__).parent.parent / "agents"


class OfRun(Protocol):
    """The words of a command about a run."""

    @property
    def run_id(self) -> str: ...


def answered(arguments: Arguments) -> int | None:
    """The exit code where the answer was --help or --list-envs, None where a training is wanted."""
    if arguments.help:
        return print_help(arguments)
    return None if arguments.list_envs is None else print_variants(arguments.list_envs)


def print_help(arguments: Arguments, look: Look | None = None) -> int:
    """The flags, and with ENV:VARIANT every key it has: its value there and what it means."""
    keys = f"\n{help_text(_loaded(arguments, look))}" if arguments.config_id or arguments.file else ""
    build_parser().print_help()
    print(keys, end="\n" if keys else "")
    return 0


def _loaded(arguments: Arguments, look: Look | None) -> Config:
    """The config to show, with a budget where there is none: settings of one's own algorithm may have no other gap."""
    try:
        return arguments.load(look)
    except UserError:
        return replace(arguments, overrides=("max_timesteps=1e5", *arguments.overrides)).load(look)


def checked(arguments: Arguments) -> Config | None:
    """The config to be trained, the first of several, of which no more can be known yet; None for a group that goes on.

    UserError for whatever can be refused by now. Who trains checks the rest, and all of this again.
    """
    if arguments.several:
        configs = [checked(each) for each in arguments.each()]
        return configs[0]
    if names_group(arguments.resume):
        return None
    if arguments.resume:
        run = RunDir.find(arguments.resume)
        check_room(run.path if arguments.checkpoint in ("", "last") else runs_root(), 0)
        facts = run.facts()
        trust = trust_in(run, arguments.trust)
        check_names(facts.get("config"), trust, run.id)
        config = from_plain(facts["config"], run.id, arguments.overrides, trust) if "config" in facts else None
    else:
        config = arguments.load()
        check_room(runs_root(), 0)
    if config is None:  # who resumes says what is wrong
        return None
    check_policy(config)
    if arguments.debug:
        config = for_debugger(config, tiny=not any(word.startswith("max_timesteps=") for word in arguments.overrides))
    return config


def check_policy(config: Config) -> None:
    """UserError where there is no policy of that name; one's own is looked for when torch is loaded, and a module of
    one's own that makes worlds may bring more."""
    names = policy_names()
    if config.policy not in names and not is_dotted(config.env_id) and not is_dotted(config.policy):
        names = (*names, *registered("policies"))
        if config.policy in names:
            return
        known = ", ".join(names)
        raise UserError(f"unknown policy {config.policy!r}{nearest(config.policy, names)} (known: {known})")


def policy_names() -> tuple[str, ...]:
    """The rows of agents/networks/policies.py."""
    return rows_of(AGENTS / "networks" / "policies.py", "POLICIES")


def knows_all_algorithms() -> bool:
    """Whether schema.py has the keys of every row of agents/algorithms.py; others are known once torch is loaded."""
    return {*rows_of(AGENTS / "algorithms.py", "ALGORITHMS")} <= {*ALGORITHMS}


@cache
def rows_of(file: Path, table: str) -> tuple[str, ...]:
    """The names in a table, read off its file: importing it brings torch."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            assert isinstance(node.value, ast.Dict)
            return tuple(str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
    raise RuntimeError(f"{file} has no table {table}")


def look_for_run(parse: Callable[[list[str]], OfRun], must_be_there: bool = True) -> Callable[[list[str]], None]:
    """For commands about a run: their words, and whether the run that they name is there."""

    def first(argv: list[str]) -> None:
        named = parse(argv).run_id
        if not named.startswith(HUB_PREFIX) and not names_group(named) and (must_be_there or named != LAST):
            RunDir.find(named)

    return first
