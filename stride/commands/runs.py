"""Everything about the runs that are there:   stride runs list   (--help says the rest)

A word of the command line is a function below; what only one of them needs is loaded there.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Sequence

from stride.commands.usage import spelled
from stride.config.commands.runs import parse_runs
from stride.report.ledger.selection import chosen, refreshed, select
from stride.report.ledger.table import COLUMNS, data, table
from stride.report.ledger.written import written
from stride.runstore.run_brief import Brief, Labels, read_labels, write_labels
from stride.runstore.run_index import RunIndex
from stride.runstore.run_names import runs_root
from stride.utils import entry
from stride.utils.one_line import printable

NARROWEST = 80
MOST_SHOWN = 50  # lines of a list on a terminal where no other number was given


def main(argv: list[str]) -> int:
    arguments = parse_runs(argv, spelled())
    if lines := WORDS[arguments.command](arguments):
        print("\n".join(map(printable, lines)))  # whatever a run's files say, it is one harmless line each
    return 0


def list_runs(asked: argparse.Namespace) -> list[str]:
    columns = _names(asked.columns)
    if asked.rebuild:
        refreshed(RunIndex(), rebuild=True)
    lines, fields = select(asked.filter, asked.sort, columns, asked.limit)
    if asked.json:
        return [json.dumps([data(line, fields) for line in lines])]
    if not lines:
        return [f"no run under {runs_root()}{' that matches' if asked.filter else ''}"]
    width = _width()
    here = lines[:MOST_SHOWN] if width and not asked.limit else lines
    told = table(here, columns or COLUMNS, fields, width)
    faults = [f"{line.id}: {line.fault or line.reason}" for line in here if line.fault or line.reason]
    more = [f"{len(here):,} of {len(lines):,} runs; --limit N shows more"] if len(here) < len(lines) else []
    return [*told, *faults, *more]


def show(asked: argparse.Namespace) -> list[str]:
    from stride.report.ledger.show import shown, told

    [run] = chosen([asked.run])
    return [json.dumps(told(run))] if asked.json else shown(run, _width() or 2 * NARROWEST)


def compare(asked: argparse.Namespace) -> list[str]:
    from stride.report.ledger.compare import compared, picture, told

    runs = chosen(asked.runs, least=2)
    metrics = _names(asked.metrics)
    if asked.svg:
        picture(runs, metrics, asked.svg)
    return [json.dumps(told(runs, metrics))] if asked.json else compared(runs, metrics, _width() or NARROWEST)


def export(asked: argparse.Namespace) -> list[str]:
    from stride.report.ledger.export import exported

    columns = _names(asked.columns)
    lines, fields = select(asked.filter, asked.sort, columns, asked.limit)
    text = exported(lines, columns, fields, asked.format, asked.by)
    if not asked.out:
        sys.stdout.write(text)  # of several lines, each of harmless cells
        return []
    written(asked.out, text)
    return [f"{len(lines):,} runs -> {asked.out}"]


def tag(asked: argparse.Namespace) -> list[str]:
    told = []
    for run in chosen([asked.run]):
        labels = read_labels(run.path)
        tags = {*labels.tags} - {*asked.tags} if asked.remove else {*labels.tags, *asked.tags}
        write_labels(run.path, labels._replace(tags=tuple(sorted(tags))))
        told.append(f"{run.id}: {' '.join(sorted(tags)) or 'no tags'}")
    return told


def note(asked: argparse.Namespace) -> list[str]:
    [run] = chosen([asked.run])
    write_labels(run.path, Labels(read_labels(run.path).tags, asked.text))
    return [f"{run.id}: {asked.text or 'no note'}"]


def cleanup(asked: argparse.Namespace) -> list[str]:
    from stride.report.ledger.cleanup import clean

    def read() -> Sequence[Brief]:
        return select(asked.filter, index=RunIndex(kept=False)).lines

    return clean(read, asked.keep_best, asked.recent, asked.dry_run, asked.yes)


def explain(asked: argparse.Namespace) -> list[str]:
    from stride.report.ledger.explain import explained, told

    return [json.dumps(told(asked.metric))] if asked.json else explained(asked.metric)


def diff(asked: argparse.Namespace) -> list[str]:
    from stride.agents.trained.tensors import first_tensor  # brings torch
    from stride.report.ledger.diff import configs, first_row, in_words

    first, second = chosen(asked.runs, least=2)
    found = {"configs": configs(first, second), "row": first_row(first, second), "tensor": first_tensor(first, second)}
    return [json.dumps(found)] if asked.json else in_words(first.id, second.id, found)


WORDS: dict[str, Callable[[argparse.Namespace], Sequence[str]]] = {
    "list": list_runs, "show": show, "compare": compare, "export": export, "tag": tag, "note": note,
    "cleanup": cleanup, "explain": explain, "diff": diff,
}  # fmt: skip


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _width() -> int | None:
    """Columns of the terminal, None in a pipe: programs read whole lines."""
    return max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns) if sys.stdout.isatty() else None


if __name__ == "__main__":
    entry.run_and_leave(main)
