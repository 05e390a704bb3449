"""docs/reliability.md, a section per fault script: each writes its own and leaves the others alone; so do others on
pages of their own."""

import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from stride.commands.usage import called
from stride.utils.durable_file import replacing
from stride.utils.provenance import PROJECT
from stride.utils.typography import duration

PAGE = PROJECT / "docs" / "reliability.md"


def record(name: str, title: str, lines: list[str], commit: str, page: Path = PAGE) -> None:
    """Put these lines in place of the section of that name, with the command, the commit it began at and the day."""
    cpus = len(os.sched_getaffinity(0))
    hash12, _, changes = commit.partition("+")
    stands = f"{hash12[:12]}{' and ' * bool(changes)}{changes}"
    where = f"Python {platform.python_version()}, {cpus} cores, {time.strftime('%Y-%m-%d')}, commit {stands}"
    body = "\n".join([f"## {title}", "", f"`{called()}`", "", *(f"- {line}" for line in lines), "", f"({where})"])
    section = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    if pattern.search(text):
        text = pattern.sub(lambda match: section, text)
    else:
        text = f"{text.rstrip()}\n\n{section}\n"
    with replacing(page) as file:
        file.write(text.encode())


def trials(count: int) -> Iterator[int]:
    """0 to count, and on the terminal how many are behind and how long the others will take."""
    began = time.monotonic()
    for number in range(count):
        yield number
        left = (time.monotonic() - began) / (number + 1) * (count - number - 1)
        print(f"{number + 1} of {count}, left {duration(left)}", file=sys.stderr, flush=True)
