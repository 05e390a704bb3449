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
    Command("train", "train", "train an agent: ENV:VARIANT, and key=value for whatever is to be different"),
    Command("play", "run_play", "watch, film, measure or steer what was trained"),
    Command("inspect", "run_inspect", "look into runs and episodes in the browser"),
    Command("monitor", "monitor", "look on while runs train, in any terminal"),
    Command("publish", "run_publish", "put a run on the Hugging Face Hub; --dry-run shows what would be sent"),
    Command("runs", "runs", "what was trained: find, compare, export, tag, explain, clean up"),
    Command("sweep", "sweep", "search for hyperparameters that a YAML file in W&B's format describes"),
    Command("list", "train", "what there is to train, and what it reached; TERM shows more", ("--list-envs",)),
    Command("verify", "verify_run", "train a run's first iterations again: is the result the same?"),
    Command("new", "new", "a project of your own: an environment, its settings, a test; trains at once"),
    Command("check-env", "check_env", "what is wrong with an environment, and how to cure it"),
    Command("export", "export", "a trained policy for programs without this one"),
    Command("setup-wandb-dashboard", "setup_wandb_dashboard", "a page of W&B for the runs of a project"),
    Command("info", "info", "what a report of a problem needs: versions, processor, a run's config; no secrets"),
    Command("schema", "schema", "the JSON Schema of a YAML file, for editors"),
    Command("completion", "completion", "what bash, zsh or fish needs to complete these words"),
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
    text = f"folder of your own modules and [tool.stride]; also {VARIABLE}; else where you are, or where RUN was made"
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
        raise UserError(f"{flag} {name} is a folder; name a file in it")


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
    """How the running program is called, with its arguments, as a shell takes them."""
    return f"{spelled()} {shlex.join(sys.argv[1:])}".rstrip()
