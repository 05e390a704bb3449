"""The end of a metrics.csv: where a run stands and what was best, however long the file is."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from runstore.run_facts import LARGEST
from runstore.run_files import open_file
from utils.user_error import UserError

MOST_HEADER = 1 << 16  # bytes of the line with the names
SPANS = (1 << 14, 1 << 17, 1 << 20)  # bytes from the end, more only while no evaluation was found in less
STEPS = "train/clock/env_steps"
TRAIN = "train/roll/ep_rew/mean"
VAL = "val/roll/ep_rew/mean"
TRAIN_BEST = "train/roll/ep_rew/best"
VAL_BEST = "val/roll/ep_rew/best"
LAST_ROWS = 40  # in which the last number of a metric is looked for
SECONDS = "train/time/seconds"
NAMES = (STEPS, TRAIN, TRAIN_BEST, VAL, VAL_BEST, SECONDS)


class Tail(NamedTuple):
    """Of a run at this instant; the best is None where only all of a large file would tell."""

    steps: int = 0
    best: float | None = None
    last: float | None = None
    fault: str = ""
    seconds: float | None = None
    evaluated: bool = True
    """whether best and last are evaluations; else they are returns of training"""


def read_tail(path: Path) -> Tail:
    """Evaluations, or training where nothing was evaluated; what is wrong with the file is its `fault`."""
    try:
        with open_file(path) as file:
            return _read(file)
    except UserError as error:
        return Tail(fault=str(error))
    except OSError as error:
        return Tail(fault=f"cannot read {path}: {error.strerror}")


def last_values(path: Path) -> dict[str, float]:
    """The last number of each metric, as far as the end of the file tells; {} where it tells nothing."""
    found: dict[str, float] = {}
    try:
        with open_file(path) as file:
            columns = header(file)
            start = max(file.tell(), os.fstat(file.fileno()).st_size - SPANS[1])
            file.seek(start)
            lines = file.read(SPANS[1]).split(b"\n")[:-1]
    except (UserError, OSError):
        return {}
    for line in lines[-LAST_ROWS:]:
        cells = line.split(b",")
        if len(cells) == len(columns):
            with suppress(ValueError):  # a line that was overwritten
                found |= {name: float(cell) for name, cell in zip(columns, cells, strict=True) if cell}
    return found


def header(file: BinaryIO) -> list[str]:
    """The names of the columns, [] as long as there is no whole line; UserError for what no training wrote."""
    line = file.readline(MOST_HEADER)
    if not line.endswith(b"\n"):
        if len(line) == MOST_HEADER:
            raise UserError("metrics.csv begins with no line of names")
        return []
    columns = line.decode("utf-8", "replace").rstrip("\r\n").split(",")
    if STEPS not in columns:
        raise UserError(f"metrics.csv has no column {STEPS}")
    return columns


def steps_of(value: float) -> int:
    """A clock as a whole number; UserError for one that no training can have shown."""
    if not math.isfinite(value) or not 0 <= value < LARGEST:
        raise UserError(f"metrics.csv is damaged: {STEPS} is {value:g}")
    return int(value)


def _read(file: BinaryIO) -> Tail:
    columns = header(file)
    if not columns:
        return Tail()
    begin, size = file.tell(), os.fstat(file.fileno()).st_size
    wanted = VAL if VAL in columns else TRAIN
    found: dict[str, list[float]] = {}
    for span in SPANS:
        start = max(begin, size - span)
        file.seek(start)
        lines = file.read(size - start).split(b"\n")[:-1]
        found = _columns(columns, lines if start == begin else lines[1:])
        if start == begin or wanted in found:
            break
    if lines and not found:
        raise UserError("metrics.csv is damaged: none of its rows can be read")
    return _judge(found, start == begin)


def _columns(columns: list[str], lines: list[bytes]) -> dict[str, list[float]]:
    """The numbers of NAMES, top to bottom, without those that have none; lines that were cut or overwritten skipped."""
    places = [(name, columns.index(name)) for name in NAMES if name in columns]
    depth, commas = max(place for _, place in places) + 1, len(columns) - 1
    found: dict[str, list[float]] = {}
    for line in lines:
        if line.count(b",") != commas:
            continue
        cells = line.split(b",", depth)
        try:
            row = [(name, float(cells[place])) for name, place in places if cells[place]]
        except ValueError:
            continue
        for name, value in row:
            found.setdefault(name, []).append(value)
    return found


def _judge(found: dict[str, list[float]], whole: bool) -> Tail:
    steps = max((steps_of(value) for value in found.get(STEPS, ())), default=0)
    name, record = (VAL, VAL_BEST) if VAL in found else (TRAIN, TRAIN_BEST)
    records = [value for value in found.get(record, ()) if math.isfinite(value)]
    values = [value for value in found.get(name, ()) if math.isfinite(value)]
    best = max([*records, *values], default=None) if whole or records else None
    last = found[name][-1] if name in found else None
    seconds = next((value for value in found.get(SECONDS, ())[::-1] if 0 <= value < LARGEST), None)
    return Tail(steps, best, last, "", seconds, name == VAL)
