"""`stride train|play|...`: each is a module of stride/commands, run as a program.

Nothing heavy is imported here: what --help, --version and a mistyped word need is a table.
"""

import os
import runpy
import sys
from importlib.metadata import version
from typing import NoReturn

from stride.config.commands.table import Command, commands
from stride.utils import entry
from stride.utils.places import program
from stride.utils.user_error import UserError, nearest

HEAD = """\
usage: stride COMMAND ...

"""
TAIL = """
`stride COMMAND --help` tells its words. A first one: stride train CartPole-v1:ppo
Runs lie in the project one stands in (`stride new` makes one), else in ./runs; STRIDE_RUNS=FOLDER says otherwise.
"""


def main() -> NoReturn:
    entry.run(called)


def called(argv: list[str]) -> int:
    """The command that the first word names, with the rest."""
    # a shell asks for words that complete a line: argcomplete's variable, the line is in COMP_LINE
    word, *rest = ["completion"] if "_ARGCOMPLETE" in os.environ else argv or ["--help"]
    known = commands()
    if word in ("-h", "--help", "help"):
        print(help_text(known), end="")
        return 0
    if word in ("-V", "--version"):
        print(f"stride {version('stride-rl')}")
        return 0
    if word not in known:
        raise UserError(f"stride has no command {word!r}{nearest(word, known)}; stride --help lists them")
    return become(known[word], rest)


def help_text(known: dict[str, Command]) -> str:
    width = max(map(len, known)) + 2
    return HEAD + "".join(f"  {each.name:<{width}}{each.meaning}\n" for each in known.values()) + TAIL


def become(command: Command, rest: list[str]) -> int:
    """The four that have a file at the top (train.py, ...) start a Python of their own; the others run here."""
    words = [*command.words, *rest]
    if command.at_top:
        os.execv(sys.executable, [*program(command.file), *words])
    sys.argv = [f"stride {command.name}", *words]
    runpy.run_module(f"stride.commands.{command.file}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    main()
