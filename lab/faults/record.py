"""docs/reliability.md, a section per fault script: each writes its own and leaves the others alone; so do others on
pages of their own."""

import os
import platform
import re
import time
from pathlib import Path

from stride.commands.usage import called
from stride.utils.durable_file import replacing
from stride.utils.provenance import PROJECT

Told = tuple[list[str], bool]  # lines for the page, and whether all was as it should be
PAGE = PROJECT / "docs" / "reliability.md"


def record(name: str, title: str, lines: list[str], commit: str, page: Path = PAGE) -> None:
    """Put these lines in place of the section of that name, with the command, the commit it began at and the day."""
    cpus = len(os.sched_getaffinity(0))
    hash12, _, changes = commit.partition("+")
    stands = f"{hash12[:12]}{' and ' * bool(changes)}{changes}"
    where = f"Python {platform.python_version()}, {cpus} cores, {time.strftime('%Y-%m-%d')}, commit {stands}"
    body = "\n".join([f"## {title}", "", f"`{called()}`", "", *(f"- {line}" for line in lines), "", f"({where})"])
    text = replaced(page.read_text(encoding="utf-8"), name, body)
    with replacing(page) as file:
        file.write(text.encode())


def replaced(text: str, name: str, body: str) -> str:
    """A page with this in its section of that name, or at its end where it has none."""
    section = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda match: section, text)
    return f"{text.rstrip()}\n\n{section}\n"
