"""docs/reliability.md, a section per fault script: each writes its own and leaves the others alone; so do others on
pages of their own."""

import os
import platform
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from report.typography import duration
from scripts.usage import called, parser_of
from utils.durable_file import replacing
from utils.entry import Main
from utils.provenance import PROJECT, git_hash

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


Run = Callable[[dict[str, int], random.Random, Path], tuple[list[str], bool]]


def command_line(doc: str | None, name: str, title: str, run: Run, **counts: int) -> Main:
    """A fault script's main: `--COUNT N` for each count, --seed, --record; 0 when all is as it should be."""

    def main(argv: list[str]) -> int:
        parser = parser_of(doc)
        for count, default in counts.items():
            parser.add_argument(f"--{count}", type=int, default=default, metavar="N", help=f"default {default}")
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default 0)")
        parser.add_argument("--record", action="store_true", help="write the figures into docs/reliability.md")
        options, commit = parser.parse_args(argv), git_hash()  # before it runs: the checkout may move
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        try:
            given = {count: getattr(options, count) for count in counts}
            lines, good = run(given, random.Random(options.seed), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print("\n".join(lines))
        if options.record:
            record(name, title, lines, commit)
        return 0 if good else 1

    return main
