"""Where this program lies and how it is started: as a checkout, or as the one package `stride` of a wheel.

The same files in both: `scripts/wheel` moves the checkout's packages below `stride` and its four commands to
`stride/commands`. This file knows by its own name which of the two it is.
"""

import sys
from pathlib import Path

PACKAGE = __name__.rpartition("utils.")[0]  # "" in a checkout, "stride." in a wheel
PROJECT = Path(__file__).resolve().parent.parent  # whose folders are utils, config, agents, ...
COMMANDS = PROJECT / "commands" if PACKAGE else PROJECT  # of train.py and its like
RUN = "run_"  # run_play.py is `stride play`


def program(command: str) -> list[str]:
    """What starts `train` or `run_play` in a process of its own.

    From a wheel never as a file, nor from where one stands (-P): their folder would hide the user's own modules, or
    what lies there would hide ours.
    """
    if PACKAGE:
        return [sys.executable, "-P", "-m", f"{PACKAGE}commands.{command}"]
    return [sys.executable, str(COMMANDS / f"{command}.py")]


def spelled(command: str) -> list[str]:
    """How a person types it: python train.py, or stride train."""
    return ["stride", command.removeprefix(RUN)] if PACKAGE else ["python", f"{command}.py"]


def module_of(path: str) -> str:
    """The dotted name, here, of a file named from the project's root."""
    return PACKAGE + path.removesuffix(".py").replace("/", ".")
