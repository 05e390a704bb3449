"""Writes the results of a fault script into its section of docs/reliability.md and leaves the other sections unchanged.

Other measuring scripts write sections of their own pages with it, too.
"""

import os
import platform
import re
import time
from pathlib import Path

from stride.commands.usage import called
from stride.utils.durable_file import replacing
from stride.utils.provenance import PROJECT

Report = tuple[list[str], bool]  # lines for the page, and whether all was as it should be
PAGE = PROJECT / "docs" / "reliability.md"


def record(name: str, title: str, lines: list[str], commit: str, page: Path = PAGE) -> None:
    """Replace the section `name` of a page by these lines, with the command, the commit it started at and the date.

    `commit` is as `git_hash` returns it: the hash, and after "+" what was changed since.
    """
    cores = len(os.sched_getaffinity(0))
    hash12, _, changes = commit.partition("+")
    version = f"{hash12[:12]}{' and ' * bool(changes)}{changes}"
    origin = f"Python {platform.python_version()}, {cores} cores, {time.strftime('%Y-%m-%d')}, commit {version}"
    body = "\n".join([f"## {title}", "", f"`{called()}`", "", *(f"- {line}" for line in lines), "", f"({origin})"])
    text = replaced(page.read_text(encoding="utf-8"), name, body)
    with replacing(page) as file:
        file.write(text.encode())


def replaced(text: str, name: str, body: str) -> str:
    """Return the text of a page with `body` as its section `name`; a new section is added at the end."""
    section = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    if pattern.search(text):
        return pattern.sub(lambda match: section, text)
    return f"{text.rstrip()}\n\n{section}\n"
