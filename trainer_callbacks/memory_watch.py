"""Which rows of a run found that memory runs short.

logs/memory.csv is there only where it once was half of it: metrics.csv is compared between machines, this is not.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stride.runstore import run_files
from stride.runstore.history import STEPS
from stride.runstore.metrics_table import format_number, read_csv
from stride.utils.memory_use import limit, used

MEMORY = "train/time/memory"
NOTED = 0.5  # share from which on every row is noted
HEAD = f"{STEPS},{MEMORY}"


class Memory:
    """Looks at each row; a resumed run goes on with the notes up to where it resumes."""

    def __init__(self, logs: Path, up_to: float = 0.0) -> None:
        self._file = logs / "memory.csv"
        kept = {steps: share for steps, share in remembered(logs).items() if steps <= up_to}
        self._noting = bool(kept)
        if kept or run_files.exists(self._file):
            lines = [f"{format_number(steps)},{format_number(share)}\n" for steps, share in kept.items()]
            run_files.write_text(self._file, "".join([f"{HEAD}\n", *lines]))

    def look(self, row: Mapping[str, float]) -> dict[str, float]:
        """The share in use now, as a metric."""
        share = used() / limit()
        if STEPS in row and (share > NOTED or self._noting):
            self._note(f"{format_number(row[STEPS])},{format_number(share)}\n")
        return {MEMORY: share}

    def _note(self, line: str) -> None:
        self._noting = True
        with suppress(OSError), run_files.open_to_write(self._file, append=True) as file:  # no room: the note is lost
            file.write((line if file.seek(0, os.SEEK_END) else f"{HEAD}\n{line}").encode())


def remembered(logs: Path) -> dict[float, float]:
    """Env steps -> share, of the rows that were noted."""
    file = logs / "memory.csv"
    rows = read_csv(file) if run_files.exists(file) else []
    return {row[STEPS]: row[MEMORY] for row in rows if STEPS in row and MEMORY in row}
