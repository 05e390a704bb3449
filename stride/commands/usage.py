"""The commands after `stride`, how each is called, and parsers whose error messages are one line. Loads in no time."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from stride.utils.places import VARIABLE, as_typed, name_project
from stride.utils.user_error import UserError, check_file_name, nearest


class Command(NamedTuple):
    """`stride NAME` runs stride/commands/FILE.py with `words` before its other arguments."""

    name: str
    file: str
    meaning: str
    words: tuple[str, ...] = ()

    @property
    def at_top(self) -> bool:
        """Whether a checkout has a file of this name at its top: train.py, run_play.py, ..."""
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
    """A parser that raises UserError. Texts are shown as they are written, and no flag may be shortened."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})

    @property
    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def parse_all(self, argv: list[str]) -> argparse.Namespace:
        """All of argv; UserError names the first unknown argument, and the nearest flag."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            raise UserError(f"unknown argument {unknown[0]!r}{nearest(unknown[0], self.flags)}; --help shows the flags")
        return arguments

    def format_help(self) -> str:
        return as_typed(super().format_help())

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows the flags")


class NameProject(argparse.Action):
    """--project FOLDER: set as the variable, which every process that is started from here knows, on any node."""

    def __call__(self, parser: Any, namespace: Any, value: Any, option: str | None = None) -> None:
        name_project(value)


def add_project(parser: argparse.ArgumentParser) -> None:
    """The flag, for commands that import modules of the user's own."""
    text = f"folder with your modules and [tool.stride]; also {VARIABLE}; default: the current folder or RUN's project"
    parser.add_argument("--project", metavar="FOLDER", action=NameProject, default=argparse.SUPPRESS, help=text)


def check_output_file(flag: str, name: str) -> None:
    """UserError where no file of this name can be written; "" is left to the command."""
    if not name:
        return
    check_file_name(name, flag)
    path = Path(name).absolute()
    if not path.parent.is_dir():
        raise UserError(f"{flag} {name}: there is no folder {path.parent}")
    if path.is_dir():
        raise UserError(f"{flag} {name} is a folder; give a file in it")


def parser_of(doc: str | None) -> OneLineParser:
    """A parser that is explained by a module's docstring."""
    return OneLineParser(prog=spelled(), description=doc, allow_abbrev=True)


def spelled() -> str:
    """How the running program is called: `stride check-env`, or `python -m lab.faults.kill` of a checkout."""
    module_spec = sys.modules["__main__"].__spec__
    if not module_spec:
        return f"python {Path(sys.argv[0]).name}"
    module = module_spec.name.removesuffix(".__main__")
    for command in COMMANDS:
        if module == f"stride.commands.{command.file}":
            return f"stride {command.name}"
    return f"python -m {module}"


def called() -> str:
    """The running command line, for records; of an absolute path only the name, since records are published."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return f"{spelled()} {shlex.join(words)}".rstrip()
