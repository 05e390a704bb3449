"""The table of commands after `stride`, and argument parsers with one-line error messages. Imports nothing slow."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from stride.utils.places import VARIABLE, as_typed, name_project
from stride.utils.user_error import UserError, check_file_name, nearest


class Command(NamedTuple):
    """A command: `stride NAME` runs stride/commands/FILE.py with `words` before its other arguments."""

    name: str
    file: str
    meaning: str
    words: tuple[str, ...] = ()

    @property
    def at_top(self) -> bool:
        """Whether a checkout has a file for it at the top: train.py, run_play.py, ..."""
        return self.file == "train" or self.file.startswith("run_")


COMMANDS = (
    Command("train", "train", "train an agent: ENV:VARIANT, and key=value to change settings"),
    Command("play", "run_play", "watch, record or measure a trained agent, or play yourself"),
    Command("inspect", "run_inspect", "inspect runs and episodes in the browser"),
    Command("monitor", "monitor", "watch runs while they train, in a terminal"),
    Command("publish", "run_publish", "put a run on the Hugging Face Hub; --dry-run shows what would be sent"),
    Command("runs", "runs", "find, compare, export, tag, explain and clean up runs"),
    Command("sweep", "sweep", "search for hyperparameters, described by a YAML file in W&B's format"),
    Command("list", "train", "list the shipped variants and their results; TERM shows more", ("--list-envs",)),
    Command("verify", "verify_run", "train a run's first iterations again and compare the results"),
    Command("new", "new", "make a project: an environment, its settings, a test; it trains at once"),
    Command("check-env", "check_env", "check an environment for faults; says how to fix them"),
    Command("export", "export", "export a trained policy for programs without Stride"),
    Command("setup-wandb-dashboard", "setup_wandb_dashboard", "make a W&B dashboard for the runs of a project"),
    Command("info", "info", "print versions, processor and a run's config for a report of a problem; no secrets"),
    Command("schema", "schema", "print the JSON Schema of a config file, for editors"),
    Command("completion", "completion", "print the completion code for bash, zsh or fish"),
)


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises UserError. Help texts are printed as written; flags cannot be abbreviated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})

    @property
    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def parse_all(self, argv: list[str]) -> argparse.Namespace:
        """Parse all of argv; UserError names the first unknown argument and the nearest flag."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            raise UserError(f"unknown argument {unknown[0]!r}{nearest(unknown[0], self.flags)}; --help shows the flags")
        return arguments

    def format_help(self) -> str:
        return as_typed(super().format_help())

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows the flags")


class NameProject(argparse.Action):
    """--project FOLDER: sets an environment variable, so that processes started from here know it, on any node."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        name_project(value)


def add_project(parser: argparse.ArgumentParser) -> None:
    """Add --project, for commands that import the user's own modules."""
    text = f"folder with your modules and [tool.stride]; also {VARIABLE}; default: the current folder or RUN's project"
    parser.add_argument("--project", metavar="FOLDER", action=NameProject, default=argparse.SUPPRESS, help=text)


def check_output_file(flag: str, name: str) -> None:
    """Raise UserError if no file with this name can be written; "" is not checked."""
    if not name:
        return
    check_file_name(name, flag)
    path = Path(name).absolute()
    if not path.parent.is_dir():
        raise UserError(f"{flag} {name}: there is no folder {path.parent}")
    if path.is_dir():
        raise UserError(f"{flag} {name} is a folder; give a file in it")


def parser_of(doc: str | None) -> OneLineParser:
    """Return a parser whose description is a module's docstring."""
    return OneLineParser(prog=spelled(), description=doc, allow_abbrev=True)


def spelled() -> str:
    """Return how the running program is called: `stride check-env`, or in a checkout `python -m lab.faults.kill`."""
    module_spec = sys.modules["__main__"].__spec__
    if not module_spec:
        return f"python {Path(sys.argv[0]).name}"
    module = module_spec.name.removesuffix(".__main__")
    for command in COMMANDS:
        if module == f"stride.commands.{command.file}":
            return f"stride {command.name}"
    return f"python -m {module}"


def called() -> str:
    """Return the command line for records; of absolute paths only the name, because records are published."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return f"{spelled()} {shlex.join(words)}".rstrip()
