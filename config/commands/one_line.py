"""argparse for commands whose complaints are one line like all others. Loads in no time."""

import argparse
from typing import Any, NoReturn

from stride.utils.places import VARIABLE, as_typed, name_project
from stride.utils.user_error import UserError, nearest


class OneLineParser(argparse.ArgumentParser):
    """What is wrong is a UserError. Texts are shown as they are written, and no flag may be shortened."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})

    @property
    def flags(self) -> list[str]:
        return [flag for action in self._actions for flag in action.option_strings]

    def parse_all(self, argv: list[str]) -> argparse.Namespace:
        """Every word of argv; UserError names the first that is unknown, and the nearest flag."""
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
    text = (
        f"the folder of your own modules and [tool.stride]; also {VARIABLE}; else where you are, or where RUN was made"
    )
    parser.add_argument("--project", metavar="FOLDER", action=NameProject, default=argparse.SUPPRESS, help=text)
