"""How a script is called, and arguments whose complaints are one line: of all scripts."""

import shlex
import sys
from pathlib import Path

from config.commands.one_line import OneLineParser


def spelled() -> str:
    """How the running script is called: `python -m lab.faults kill`."""
    spec = sys.modules["__main__"].__spec__
    return f"python -m {spec.name.removesuffix('.__main__')}" if spec else f"python {Path(sys.argv[0]).name}"


def called() -> str:
    """The same with its words, as a shell takes them."""
    return f"{spelled()} {shlex.join(sys.argv[1:])}".rstrip()


def parser_of(doc: str | None) -> OneLineParser:
    """Explained by a module's docstring."""
    return OneLineParser(prog=spelled(), description=doc, allow_abbrev=True)
