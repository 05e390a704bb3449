"""The table of all runs: its columns, and how the line of a run becomes a row of it and a row a line. No torch."""

import math
from collections.abc import Sequence
from typing import Any

from stride.runstore.metrics_table import Tail
from stride.runstore.run_brief import Brief
from stride.runstore.run_labels import Labels

TEXT, WHOLE, WHOLE_OR_NOTHING, NUMBER = "TEXT NOT NULL", "INTEGER NOT NULL", "INTEGER", "REAL"
NAN = "nan"  # SQLite has no such number; of a line only the last return may be none
# what shows that a run has changed, and what was wrong with which of its files
BEHIND = {
    "seen": WHOLE, "folder": TEXT, "config": TEXT, "metrics": TEXT, "checkpoints": TEXT, "own": TEXT,
    "head_fault": TEXT, "best_fault": TEXT, "labels_fault": TEXT, "rest": WHOLE, "kept": WHOLE,
}  # fmt: skip
# what a line tells, in the order of Brief, of Tail and of Labels
LINE = {
    "status": TEXT, "variant": TEXT, "steps": WHOLE, "best": NUMBER,
    "last": f"ANY CHECK (typeof(last) IN ('real', 'null') OR last = '{NAN}')", "tail_fault": TEXT, "seconds": NUMBER,
    "evaluated": WHOLE, "rate": NUMBER, "goal": NUMBER, "group": TEXT, "fault": TEXT, "reason": TEXT, "result": TEXT,
    "seed": WHOLE_OR_NOTHING, "started": NUMBER, "spent": NUMBER, "test": NUMBER, "env": TEXT, "score": NUMBER,
    "commit": TEXT, "settings": TEXT, "tags": TEXT, "note": TEXT, "episodes": WHOLE, "budget": WHOLE, "standing": TEXT,
}  # fmt: skip
COLUMNS = {"id": f"{TEXT} PRIMARY KEY", **BEHIND, **LINE}
NAMES = ", ".join(f"[{name}]" for name in COLUMNS)
LINE_NAMES = ", ".join(f"[{name}]" for name in ("id", *LINE))
RUNS = f"runs ({', '.join(f'[{name}] {kind}' for name, kind in COLUMNS.items())}) STRICT, WITHOUT ROWID"
SAID = ("own", "head_fault", "best_fault", "labels_fault", *(name for name, kind in LINE.items() if kind == TEXT))
TEXTS = " || ".join(f"[{name}]" for name in ("id", *SAID))  # that people see
NO_LABELS = Labels()


def cells_of(line: Brief) -> list[Any]:
    """Of LINE."""
    steps, best, last, fault, seconds, evaluated, rate = line.tail
    last_cell = NAN if last is not None and math.isnan(last) else last
    of_tail = (steps, best, last_cell, fault, seconds, int(evaluated), rate)
    labels = " ".join(line.labels.tags), line.labels.note
    return [line.status, line.variant, *of_tail, *line[4:-4], *labels, line.episodes, line.budget, line.standing]


def line_of(row: Sequence[Any]) -> Brief:
    """Of LINE_NAMES."""
    steps, best, last, fault, seconds, evaluated, rate = row[3:10]
    tail = Tail(steps, best, math.nan if last == NAN else last, fault, seconds, bool(evaluated), rate)
    tags, note = row[-5:-3]
    labels = Labels(tuple(tags.split()), note) if tags or note else NO_LABELS
    return Brief._make((*row[:3], tail, *row[10:-5], labels, *row[-3:]))
