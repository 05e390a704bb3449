"""docs/reliability.md, a section per fault script: each writes its own and leaves the others alone."""

import os
import platform
import re
import shlex
import sys
import time
from pathlib import Path

from utils.durable_file import replacing
from utils.provenance import git_hash

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reliability.md"


def record(name: str, title: str, lines: list[str]) -> None:
    """Put these lines in place of the section of that name, with the command, the code and the day."""
    command = shlex.join(["python", f"scripts/faults/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    cpus = len(os.sched_getaffinity(0))
    where = f"Python {platform.python_version()}, {cpus} cores, {time.strftime('%Y-%m-%d')}, commit {git_hash()[:12]}"
    body = "\n".join([f"## {title}", "", f"`{command}`", "", *(f"- {line}" for line in lines), "", f"({where})"])
    section = f"<!-- {name} -->\n{body}\n<!-- /{name} -->"
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
    if pattern.search(page):
        page = pattern.sub(lambda match: section, page)
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    with replacing(PAGE) as file:
        file.write(page.encode())
