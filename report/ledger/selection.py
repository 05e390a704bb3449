"""Runs as people name them, and as a filter finds them."""

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from runstore import run_shelf
from runstore.run_brief import Brief
from runstore.run_index import RunIndex
from runstore.run_query import FIELDS, Look, asked, further, in_order, looks, made_of, names_in
from runstore.run_shelf import details_of
from runstore.runs_root import runs_root
from utils.user_error import UserError, nearest

if TYPE_CHECKING:
    from runstore.run_dir import RunDir

GROUP = "group:"
NEWEST = 20
PATIENCE = 1.0  # seconds before it is said that runs are being read


class Selection(NamedTuple):
    """Lines in order, and every field that was asked for."""

    lines: list[Brief]
    fields: Mapping[str, Look]


def select(
    text: str = "",
    sort: str = "",
    columns: Sequence[str] = (),
    limit: int = 0,
    shown: Iterable[str] | None = None,
    index: RunIndex | None = None,
) -> Selection:
    """The runs that a filter lets through; UserError for a field that there is not.

    Where it is said what is shown, the lines may tell None of all else.
    """
    index = index or RunIndex()
    looked_at = made_of(names_in(text, sort))
    wanted = run_shelf.FIELDS if shown is None else looked_at | made_of(shown)
    first = looked_at if shown is None and text else wanted  # of the few that are found the rest comes later
    lines = all_lines(index, fields=first)
    keys = [*dict.fromkeys([*further(text, sort), *(name for name in columns if name not in FIELDS)])]
    more = looks(keys, index.values(keys, lines) if keys else {}, lambda: _known(lines)) if lines else {}
    tests = asked(text, more) if lines else ()
    found = [line for line in lines if all(test(line) for test in tests)] if tests else lines
    fields = {**FIELDS, **more}
    if sort:
        found = in_order([(fields[sort.lstrip("-")](line), line) for line in found], sort.startswith("-"))
    found = found[: limit or None]
    return Selection(found if first == wanted else index.whole(found), fields)


def _known(lines: Sequence[Brief]) -> list[str]:
    """Keys and metrics of the newest runs."""
    return [key for line in lines[:NEWEST] for part in details_of(runs_root() / line.id) for key in part]


def all_lines(index: RunIndex, rebuild: bool = False, fields: Collection[str] = run_shelf.FIELDS) -> list[Brief]:
    """Every run, as far as these fields are asked for; where many must be read that is told on a terminal."""
    began, live = time.monotonic(), sys.stderr.isatty()

    def told(done: int, of: int) -> None:
        if live and time.monotonic() - began > PATIENCE:
            print(f"\rreading {done:,} of {of:,} runs", end="", file=sys.stderr, flush=True)

    if rebuild:
        index.forget()
    lines = index.all(told, fields)
    index.save()
    if live and time.monotonic() - began > PATIENCE:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return lines


def chosen(words: Sequence[str], least: int = 1) -> "list[RunDir]":
    """Runs by their selectors, all runs of `group:NAME` by their seeds; each once."""
    from runstore.run_dir import RunDir  # a list does without

    found: dict[str, RunDir] = {}
    for word in words:
        for run in _group(word.removeprefix(GROUP)) if word.startswith(GROUP) else [RunDir.find(word)]:
            found[str(run.path)] = run
    if len(found) < least:
        raise UserError(f"{least} runs are wanted, and {' '.join(words)} is {len(found)}")
    return [*found.values()]


def _group(name: str) -> "list[RunDir]":
    from runstore.run_dir import RunDir

    lines = RunIndex().all()
    names = sorted({line.group for line in lines if line.group})
    name = names[-1] if name == "@last" and names else name
    found = sorted((line for line in lines if line.group == name and name), key=lambda line: (line.seed or 0, line.id))
    if not found:
        raise UserError(f"no run belongs to a group {name[:60]!r}{nearest(name, names)}")
    return [RunDir(runs_root() / line.id) for line in found]
