"""Find runs for the commands of `stride runs`: by a filter, or by the names that a person typed."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stride.runstore.run_brief import Brief
from stride.runstore.run_index import NEWEST_FIRST, RunIndex
from stride.runstore.run_names import runs_root
from stride.runstore.run_query import FIELDS, Look, asked, further, looks, order_of
from stride.runstore.run_shelf import details_of
from stride.runstore.select import parse_selector
from stride.utils.user_error import UserError, nearest

if TYPE_CHECKING:
    from stride.runstore.run_dir import RunDir

NEWEST_RUNS = 20  # runs whose keys are suggested if a filter has an unknown one
PATIENCE = 1.0  # seconds until a line says that runs are being read


class Selection(NamedTuple):
    """The runs that match a filter, and functions that read their fields."""

    lines: list[Brief]
    fields: Mapping[str, Look]
    """by name of a field: a function from a Brief to its value"""


def select(
    text: str = "", sort: str = "", columns: Sequence[str] = (), limit: int = 0, index: RunIndex | None = None
) -> Selection:
    """Select runs by a filter, sorted; UserError for an unknown field.

    `text`: the filter, "" for all runs. `sort`: a field, "" for the newest first. `columns`: more fields to read.
    `limit`: number of runs, 0 for all.
    """
    index = index or RunIndex()
    refreshed(index)
    if not index.ids():
        return Selection([], FIELDS)
    other_columns = [column_name for column_name in columns if column_name not in FIELDS]
    keys = [*dict.fromkeys([*further(text, sort), *other_columns])]
    values = index.values(keys) if keys else {}
    other_fields = looks(keys, values, lambda: _keys_of(index.select(limit=NEWEST_RUNS)))
    order = NEWEST_FIRST
    if sort:
        text_keys = [
            field_key for field_key in keys if any(isinstance(value, str) for value in values[field_key].values())
        ]
        order = f"{order_of(sort, text_keys)}, {NEWEST_FIRST}"
    return Selection(index.select(*asked(text, other_fields), order, limit), {**FIELDS, **other_fields})


def _keys_of(briefs: Sequence[Brief]) -> list[str]:
    """Return the names of all config keys and metrics of these runs."""
    return [
        field_key for run_brief in briefs for details in details_of(runs_root() / run_brief.id) for field_key in details
    ]


def refreshed(index: RunIndex, rebuild: bool = False) -> RunIndex:
    """Bring the index up to date with the files of all runs and return it; a terminal shows the progress.

    `rebuild`: read all runs again, not only those that changed.
    """
    start = time.monotonic()

    def show(text: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - start > PATIENCE:
            print(text, end="", file=sys.stderr, flush=True)

    if rebuild:
        index.forget()
    index.refresh(lambda done, total: show(f"\rreading {done:,} of {total:,} runs"))
    index.save()
    show("\r\033[K")
    return index


def find_runs(selectors: Sequence[str], least: int = 1) -> "list[RunDir]":
    """Return the runs that selectors name, each once; `group:NAME` stands for all runs of a group in order of seeds.

    UserError if they are fewer than `least`.
    """
    from stride.runstore.run_dir import RunDir  # imported here, because `stride runs list` does not need it

    runs: dict[str, RunDir] = {}
    for selector in selectors:
        kind, name, _ = parse_selector(selector)
        if kind == "group":
            selected = [RunDir(runs_root() / run_id) for run_id in _ids_of_group(name)]
        else:
            selected = [RunDir.find(selector)]
        runs |= {str(run.path): run for run in selected}
    if len(runs) < least:
        raise UserError(f"this command needs {least} runs, but {' '.join(selectors)} names {len(runs)}")
    return [*runs.values()]


def _ids_of_group(name: str) -> list[str]:
    index = RunIndex()
    index.refresh()
    groups = sorted({run_brief.group for run_brief in index.select("[group] <> ''")})
    if name == "@last" and groups:
        name = groups[-1]
    briefs = index.select("[group] = ? AND [group] <> ''", [name], "coalesce(seed, 0), id")
    if not briefs:
        raise UserError(f"no runs have the group {name[:60]!r}{nearest(name, groups)}")
    return [run_brief.id for run_brief in briefs]
