"""The table of all runs: its columns, and how the line of a run becomes a row of it and a row a line. No torch."""

import math
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from utils.metrics_table import Tail
from utils.run_brief import Brief
from utils.run_labels import Labels

TEXT, WHOLE, WHOLE_OR_NOTHING, NUMBER = "TEXT NOT NULL", "INTEGER NOT NULL", "INTEGER", "REAL"
NAN = "nan"  # SQLite has no such number; of a line only the last return may be none
# what shows that a run has changed, and what was wrong with which of its files
BEHIND = {
    "seen": WHOLE, "folder": TEXT, "config": TEXT, "metrics": TEXT, "checkpoints": TEXT, "own": TEXT,
    "head_fault": TEXT, "best_fault": TEXT, "labels_fault": TEXT, "rest": WHOLE,
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
# `checksum` is that of the other columns, NULL of a row that is not kept between two commands
RUNS = f"runs ({', '.join(f'[{name}] {kind}' for name, kind in COLUMNS.items())}, checksum INTEGER) STRICT"


def cells_of(line: Brief) -> list[Any]:
    """Of LINE."""
    _, status, variant, tail, *others = line
    labels, *rest = others[-4:]
    steps, best, last, *of_tail = tail
    last = NAN if last is not None and math.isnan(last) else last
    return [status, variant, steps, best, last, *of_tail, *others[:-4], " ".join(labels.tags), labels.note, *rest]


def line_of(row: Sequence[Any]) -> Brief:
    """Of LINE_NAMES."""
    run_id, status, variant, steps, best, last, fault, seconds, evaluated, rate, *others = row
    tail = Tail(steps, best, math.nan if last == NAN else last, fault, seconds, bool(evaluated), rate)
    *others, tags, note, episodes, budget, standing = others
    labels = Labels(tuple(tags.split()), note)
    return Brief(run_id, status, variant, tail, *others, labels, episodes, budget, standing)


def checksum_of(*cells: object) -> int:
    return crc32(repr(cells).encode())


def is_sound(*row: Any) -> bool:
    """Whether a row has the checksum at its end, and no text that a terminal would not print."""
    *cells, checksum = row
    text = repr(tuple(cells))
    if crc32(text.encode()) != checksum:
        return False
    return "\\" not in text or all(cell.isprintable() for cell in cells if isinstance(cell, str))
