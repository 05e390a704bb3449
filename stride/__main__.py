"""The command `stride`: `stride train`, `stride play`, ... each run a module of stride/commands as a program.

Nothing slow is imported here: --help, --version and mistyped words need only a table.
"""

import os
import runpy
import sys
from importlib.metadata import version
from typing import NoReturn

from stride.commands.usage import COMMANDS, Command
from stride.utils import entry
from stride.utils.places import CALLED, program
from stride.utils.user_error import UserError, nearest

TAIL = """
`stride COMMAND --help` explains a command. Try first: stride train CartPole-v1:ppo
Runs are stored in the current project (`stride new` makes one), otherwise in ./runs. STRIDE_RUNS=FOLDER changes that.
"""


def main() -> NoReturn:
    entry.run(run_command)


def run_command(argv: list[str]) -> int:
    """Run the command that the first word names, with the rest as its arguments."""
    # Tab was pressed in a shell: argcomplete sets this variable, and COMP_LINE has the line to complete
    command_name, *arguments = ["completion"] if "_ARGCOMPLETE" in os.environ else argv or ["--help"]
    commands = {command.name: command for command in COMMANDS}
    if command_name in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if command_name in ("-V", "--version"):
        print(f"stride {version('stride-rl')}")
        return 0
    if command_name not in commands:
        raise UserError(
            f"stride has no command {command_name!r}{nearest(command_name, commands)}; stride --help lists them"
        )
    return become(commands[command_name], arguments)


def help_text() -> str:
    width = max(len(command.name) for command in COMMANDS) + 2
    lines = [f"  {command.name:<{width}}{command.meaning}\n" for command in COMMANDS]
    return "".join(["usage: stride COMMAND ...\n\n", *lines, TAIL])


def become(command: Command, rest: list[str]) -> int:
    """Run a command: the four with a file at the top (train.py, ...) in a new Python process, the others here."""
    arguments = [*command.words, *rest]
    if command.at_top:
        os.environ[CALLED] = "1"
        os.execv(sys.executable, [*program(command.file), *arguments])
    sys.argv = [f"stride {command.name}", *arguments]
    runpy.run_module(f"stride.commands.{command.file}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    main()
