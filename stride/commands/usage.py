"""How a script is called, and arguments whose complaints are one line: of all scripts."""

import shlex
import sys
from pathlib import Path

from stride.config.commands.one_line import OneLineParser
from stride.config.commands.table import COMMANDS


def spelled() -> str:
    """How the running program is called: `stride check-env`, or `python -m lab.faults.kill` of a checkout."""
    spec = sys.modules["__main__"].__spec__
    if not spec:
        return f"python {Path(sys.argv[0]).name}"
    name = spec.name.removesuffix(".__main__")
    file = name.removeprefix("stride.commands.")
    words = [command.name for command in COMMANDS if command.file == file]
    return f"stride {words[0]}" if words and name != file else f"python -m {name}"


def called() -> str:
    """The same with its words, as a shell takes them."""
    return f"{spelled()} {shlex.join(sys.argv[1:])}".rstrip()


def parser_of(doc: str | None) -> OneLineParser:
    """Explained by a module's docstring."""
    return OneLineParser(prog=spelled(), description=doc, allow_abbrev=True)
