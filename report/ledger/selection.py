"""Runs as people name them, and as a filter finds them."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stride.runstore.run_brief import Brief
from stride.runstore.run_index import NEWEST_FIRST, RunIndex
from stride.runstore.run_names import runs_root
from stride.runstore.run_query import FIELDS, Look, asked, further, looks, order_of
from stride.runstore.run_shelf import details_of
from stride.utils.user_error import UserError, nearest

if TYPE_CHECKING:
    from stride.runstore.run_dir import RunDir

GROUP = "group:"
NEWEST = 20
PATIENCE = 1.0  # seconds before it is said that runs are being read


class Selection(NamedTuple):
    """Lines in order, and every field that was asked for."""

    lines: list[Brief]
    fields: Mapping[str, Look]


def select(
    text: str = "", sort: str = "", columns: Sequence[str] = (), limit: int = 0, index: RunIndex | None = None
) -> Selection:
    """The runs that a filter lets through; UserError for a field that there is not."""
    index = index or RunIndex()
    refreshed(index)
    keys = [*dict.fromkeys([*further(text, sort), *(name for name in columns if name not in FIELDS)])]
    if not index.ids():
        return Selection([], FIELDS)
    values = index.values(keys) if keys else {}
    more = looks(keys, values, lambda: _keys_of(index.select(limit=NEWEST)))
    texts = [key for key in keys if any(isinstance(value, str) for value in values[key].values())]
    order = f"{order_of(sort, texts)}, {NEWEST_FIRST}" if sort else NEWEST_FIRST
    return Selection(index.select(*asked(text, more), order, limit), {**FIELDS, **more})


def _keys_of(lines: Sequence[Brief]) -> list[str]:
    """The keys and metrics of these runs."""
    return [key for line in lines for part in details_of(runs_root() / line.id) for key in part]


def refreshed(index: RunIndex, rebuild: bool = False) -> RunIndex:
    """The same, every run as it is now; where many must be read that is told on a terminal."""
    start, live = time.monotonic(), sys.stderr.isatty()

    def report(done: int, of: int) -> None:
        if live and time.monotonic() - start > PATIENCE:
            print(f"\rreading {done:,} of {of:,} runs", end="", file=sys.stderr, flush=True)

    if rebuild:
        index.forget()
    index.refresh(report)
    index.save()
    if live and time.monotonic() - start > PATIENCE:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return index


def chosen(words: Sequence[str], least: int = 1) -> "list[RunDir]":
    """Runs by their selectors, all runs of `group:NAME` by their seeds; each once."""
    from stride.runstore.run_dir import RunDir  # a list does without

    found: dict[str, RunDir] = {}
    for word in words:
        for run in _group(word.removeprefix(GROUP)) if word.startswith(GROUP) else [RunDir.find(word)]:
            found[str(run.path)] = run
    if len(found) < least:
        raise UserError(f"{least} runs are wanted, and {' '.join(words)} is {len(found)}")
    return [*found.values()]


def _group(name: str) -> "list[RunDir]":
    from stride.runstore.run_dir import RunDir

    index = RunIndex()
    index.refresh()
    names = sorted({line.group for line in index.select("[group] <> ''")})
    name = names[-1] if name == "@last" and names else name
    lines = index.select("[group] = ? AND [group] <> ''", [name], "coalesce(seed, 0), id")
    if not lines:
        raise UserError(f"no run belongs to a group {name[:60]!r}{nearest(name, names)}")
    return [RunDir(runs_root() / line.id) for line in lines]
