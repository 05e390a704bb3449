"""What there is to train, for `--list-envs [TERM]`: one row per shipped variant."""

from collections.abc import Mapping
from typing import NamedTuple

from config.loader import environment_files, load_config
from config.variants import EnvironmentFile
from utils.run_dir import sound_runs
from utils.run_fate import failure, reached
from utils.user_error import UserError, nearest

NOT_MEASURED = "not measured"


class Row(NamedTuple):
    """One variant, in the words of the table."""

    env: str
    variant: str
    algorithm: str
    goal: str
    description: str
    last: str


def list_environments(term: str = "", results: Mapping[str, str] | None = None) -> list[Row]:
    """Rows whose environment, variant, algorithm or description contains `term`, in any case.

    `results` maps ENV:VARIANT to the last local result, already in words."""
    rows = [row for stem in environment_files() for row in _rows(stem, results or {})]
    wanted = term.casefold()
    found = [row for row in rows if any(wanted in text.casefold() for text in (f"{row.env}:{row.variant}", *row[:5]))]
    if not found:
        options = dict.fromkeys(word for row in rows for word in (row.env, row.variant, row.algorithm))
        raise UserError(f"no environment or variant matches {term!r}{nearest(term, options)}")
    return found


def _rows(stem: str, results: Mapping[str, str]) -> list[Row]:
    file = EnvironmentFile.read(environment_files()[stem])
    rows = []
    for variant in file.variants:
        config = load_config(stem, variant)
        env = config.env_id if config.env_id.replace("/", "-") == stem else stem  # what one types: without the module
        goal = "none" if config.spec.goal is None else f"{config.spec.goal:g}"
        last = results.get(f"{config.env_id}:{variant}", NOT_MEASURED)
        rows.append(Row(env, variant, config.algo_id, goal, config.description, last))
    return rows


def print_variants(term: str) -> int:
    """The shipped variants and what each last reached on this machine."""
    last: dict[str, str] = {}
    failed: set[str] = set()  # whose newest run did
    for _, facts in sound_runs():  # the newest first
        name = f"{facts.get('env_id')}:{facts.get('variant')}"
        if failure(facts) and name not in last:
            failed.add(name)
        if words := reached(facts):
            last.setdefault(name, words)
    last |= {name: f"failed; {last[name]} before" if name in last else "failed" for name in failed}
    rows = [("env:variant", "algorithm", "goal", "last result here", "description")]
    for env, variant, algorithm, goal, description, result in list_environments(term, last):
        rows += [(f"{env}:{variant}", algorithm, goal, result, description)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    return 0
