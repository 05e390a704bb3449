"""The one reader of metrics.csv, against a naive reading of the file, whatever has happened to it."""

import math
import os
import random

import pytest

from stride.runstore.metrics_table import (
    EPOCH,
    OF_TAIL,
    POINTS,
    RATE,
    SECONDS,
    SPANS,
    STEPS,
    TRAIN,
    VAL,
    VAL_BEST,
    WHOLE,
    MetricsTable,
    Point,
    Tail,
    read_csv,
)
from stride.runstore.run_facts import LARGEST
from stride.utils.user_error import UserError

NAMES = (STEPS, EPOCH, SECONDS, RATE, TRAIN, VAL, VAL_BEST, "train/loss/policy")
CELLS = ("nan", "inf", "-5", "1e400", "x", "", "9e18", "1e19", "\0\0", "\x1b[2J", "\u00e9", "1,2", "\n")


class Taken(MetricsTable):
    """Keeps the rows that it was given since the file was another one."""

    def begin(self):
        self.taken = []

    def take(self, row):
        self.taken.append(row)


def naive(path, names=()):
    """(columns, rows) by the words of the module's first lines; without a clock that can be, no row."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    columns = lines[0].decode("utf-8", "replace").rstrip("\r\n").split(",") if lines else []
    rows = []
    for line in lines[1:]:
        cells = line.split(b",")
        row = {}
        try:
            assert len(cells) == len(columns)
            for place, (name, cell) in enumerate(zip(columns, cells, strict=True)):
                if cell and columns.index(name) == place and (not names or name in names):
                    row[name] = float(cell)
        except (ValueError, AssertionError):
            continue
        if row:
            rows.append(row)
    return columns, rows


def with_a_clock(columns, rows):
    """As `refresh` tells them."""
    return [row for row in rows if 0 <= row.get(STEPS, 0.0) < LARGEST] if STEPS in columns else []


def table(draw, first=0):
    """A line of names, in any order and not all, and rows."""
    names = [STEPS, *(name for name in NAMES[1:] if draw.random() < 0.8)]
    draw.shuffle(names)
    return [",".join(names), *rows(draw, names, first, draw.choice((0, 1, 40, 400)))]


def rows(draw, names, first, count):
    for number in range(first, first + count):
        cells = {STEPS: str(10 * number), EPOCH: str(number)}
        yield ",".join(
            cells.get(name) or ("" if draw.random() < 0.3 else f"{draw.gauss(0, 100):.7g}") for name in names
        )


def damaged(draw, lines):
    """The bytes of a file that a full disk, a power cut or somebody has left."""
    way = draw.randrange(8)
    place = draw.randrange(len(lines))
    if way == 1:
        lines[place] = lines[place][: draw.randrange(len(lines[place]) + 1)]
    elif way == 2:
        lines[place] = "\0" * len(lines[place])
    elif way == 3:
        cells = lines[place].split(",")
        cells[draw.randrange(len(cells))] = draw.choice(CELLS)
        lines[place] = ",".join(cells)
    elif way == 4:
        lines.insert(1 + place, "9" * draw.choice((100, 100_000)))
    elif way == 5:
        lines = [f"{line}\r" for line in lines]
    elif way == 6:
        lines = [f"{line},{line.partition(',')[0]}" for line in lines]
    text = "".join(f"{line}\n" for line in lines).encode()
    return text[: draw.randrange(len(text) + 1)] if way == 7 else text


def change(draw, path):
    """What may happen between two looks."""
    way = draw.choice(("append", "append", "half", "replace", "empty", "gone", "touch"))
    if way in ("append", "half") and path.exists():
        names = path.read_bytes().partition(b"\n")[0].decode("utf-8", "replace").split(",")
        text = "".join(f"{line}\n" for line in rows(draw, names, 1000, draw.choice((1, 30)))).encode()
        with open(path, "ab") as file:
            file.write(text[:-2] if way == "half" else text)
    elif way == "replace":
        (path.parent / "other").write_bytes(damaged(draw, table(draw)))
        (path.parent / "other").replace(path)
    elif way == "empty":
        path.write_bytes(b"")
    elif way == "gone":
        path.unlink(missing_ok=True)
    elif path.exists():
        os.utime(path)


@pytest.mark.parametrize("number", range(60))
def test_every_question_is_answered_as_by_a_naive_reading(tmp_path, number):
    draw = random.Random(number)
    path = tmp_path / "metrics.csv"
    path.write_bytes(damaged(draw, table(draw)))
    few, every = Taken(path, (STEPS, VAL)), Taken(path)
    for _ in range(5):
        every.refresh()
        few.refresh()
        columns, wanted = naive(path)
        sound = with_a_clock(columns, wanted)
        assert repr(every.taken) == repr(sound)
        assert repr(few.taken) == repr(with_a_clock(*naive(path, (STEPS, VAL))))
        assert repr(every.points(VAL)) == repr(curve(sound))
        if path.exists():
            assert repr(read_csv(path)) == repr(wanted)
        if path.exists() and path.stat().st_size < SPANS[1]:
            last = {name: value for row in wanted[-40:] for name, value in row.items()}
            told = sorted(MetricsTable(path).last().items())
            assert wanted[40:] or repr(told) == repr(sorted(last.items()) if STEPS in columns else [])
        if path.exists() and path.stat().st_size < SPANS[0]:
            check_tail(MetricsTable(path).tail(), *naive(path, OF_TAIL))
        change(draw, path)


def curve(rows):
    points, steps = [], 0.0
    for row in rows:
        steps = row.get(STEPS, steps)
        points += [Point(steps, row[VAL])] if VAL in row else []
    return points


def check_tail(tail, columns, rows):
    if STEPS not in columns or len(with_a_clock(columns, rows)) < len(rows):
        assert tail.fault or not columns
        return
    name, record = (VAL, VAL_BEST) if any(VAL in row for row in rows) else (TRAIN, "")
    returns = [row[name] for row in rows if name in row]
    finite = [value for value in returns + [row[record] for row in rows if record in row] if math.isfinite(value)]
    assert tail.steps == max((row.get(STEPS, 0) for row in rows), default=0)
    assert repr(tail.last) == repr(returns[-1] if returns else None)
    assert tail.best == max(finite, default=None) and tail.evaluated == (name == VAL or (not rows and bool(tail.fault)))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,b\n1,2\n", "metrics.csv has no column train/clock/env_steps"),
        ("x" * 70_000 + "\n", "metrics.csv begins with no line of names"),
        (f"{STEPS},{VAL}\n-1,2\n", "metrics.csv is damaged: train/clock/env_steps is -1"),
        (f"{STEPS},{VAL}\ninf,2\n", "metrics.csv is damaged: train/clock/env_steps is inf"),
        (f"{STEPS},{VAL}\n1\n", "metrics.csv is damaged: none of its rows can be read"),
    ],
)
def test_what_is_wrong_is_a_line_and_no_error(tmp_path, text, fault):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    assert MetricsTable(path).tail() == Tail(fault=fault)
    table = MetricsTable(path)
    table.refresh()
    assert table.fault == fault or "none of its rows" in fault
    version = table.version
    table.refresh()
    assert table.version == version and not table.points(VAL)
    path.unlink()
    path.write_text(f"{STEPS},{VAL}\n1,2\n")
    table.refresh()
    assert not table.fault and table.points(VAL) == [(1.0, 2.0)]


def test_no_link_is_followed_and_nothing_missing_is_an_error(tmp_path):
    (tmp_path / "secret").write_text(f"{STEPS},{VAL}\n1,2\n")
    path = tmp_path / "metrics.csv"
    table = MetricsTable(path)
    table.refresh()
    assert not table.fault and MetricsTable(path).last() == {} and "does not exist" in MetricsTable(path).tail().fault
    path.symlink_to(tmp_path / "secret")
    table.refresh()
    assert "is a link" in table.fault and not table.points(VAL)
    assert "is a link" in MetricsTable(path).tail().fault and MetricsTable(path).last() == {}
    with pytest.raises(UserError, match="is a link"):
        read_csv(path)


@pytest.mark.parametrize("spread", [False, True])
def test_of_a_large_file_a_bounded_part_is_read(tmp_path, spread):
    path = tmp_path / "metrics.csv"
    count = 3 * WHOLE // 40
    path.write_text(f"{STEPS},{VAL}\n" + "".join(f"{n},{n % 7}{' ' * 30}\n" for n in range(count)))
    table = Taken(path, spread=spread)
    table.refresh()
    xs = [point.x for point in table.points(VAL)]
    assert xs == sorted(xs) and len(xs) <= POINTS + 1 and xs[-1] == count - 1
    assert len(table.taken) * 32 < 1.1 * (WHOLE if spread else SPANS[-1])
    assert (xs[0] == 0) == spread and table.sampled == (path.stat().st_size if spread else 0)
