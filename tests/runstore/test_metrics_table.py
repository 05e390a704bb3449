"""metrics.csv: its one reader, against a naive reading of the file, whatever has happened to it; and what its writer
leaves: growth, resume, torn ends."""

import math
import os

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from snapshots import shown

from stride.report.metrics_sinks import MetricsCsv
from stride.runstore import metrics_table
from stride.runstore.history import STEPS, TRAIN, VAL, VAL_BEST
from stride.runstore.metrics_table import (
    SPREAD_BYTES,
    TAIL_BYTES,
    TAIL_METRICS,
    MetricsTable,
    Point,
    Tail,
    format_number,
    read_csv,
)
from stride.runstore.run_facts import INTEGER_LIMIT

NAMES = (*TAIL_METRICS, metrics_table.EPOCH, "train/loss/policy")
SOUND = st.sampled_from(("", "1", "20", "0.5", "300"))
CELLS = SOUND | st.sampled_from(("nan", "inf", "-5", "1e400", "x", "9e18", "1e19", "\0\0", "\x1b[2J", "\u00e9", "1,2"))
JUNK = st.sampled_from(("", "9" * 100, "\0" * 20))


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
    return [row for row in rows if 0 <= row.get(STEPS, 0.0) < INTEGER_LIMIT] if STEPS in columns else []


@st.composite
def files(draw):
    """As a training leaves it, a full disk, a power cut at any byte, or somebody."""
    names = draw(st.lists(st.sampled_from((STEPS, STEPS, VAL, *NAMES)), min_size=1, max_size=6))
    sizes = {"min_size": len(names), "max_size": len(names)}
    row = st.lists(SOUND, **sizes).map(",".join)
    lines = draw(st.lists(row | row | st.lists(CELLS, **sizes).map(",".join) | JUNK, max_size=6))
    lines = lines * draw(st.sampled_from((1, 10, 100))) + draw(st.sampled_from(([], [], ["9" * 100_000])))
    end = draw(st.sampled_from(("\n", "\n", "\r\n")))
    text = "".join(f"{line}{end}" for line in [",".join(names), *lines]).encode()
    return text[: draw(st.none() | st.integers(0, len(text)))]


def change(path, way, contents):
    """What may happen between two looks."""
    if way == "append":
        with open(path, "ab") as file:
            file.write(contents.partition(b"\n")[2])
    elif way == "replace":
        (path.parent / "other").write_bytes(contents)
        (path.parent / "other").replace(path)
    elif way == "empty":
        path.write_bytes(b"")
    elif way == "gone":
        path.unlink(missing_ok=True)
    elif path.exists():
        os.utime(path)


CHANGES = st.tuples(st.sampled_from(("append", "append", "replace", "empty", "gone", "touch")), files())


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])
@given(files(), st.lists(CHANGES, max_size=4))
def test_every_question_is_answered_as_by_a_naive_reading(tmp_path_factory, contents, changes):
    path = tmp_path_factory.mktemp("run") / "metrics.csv"
    few, every = Taken(path, (STEPS, VAL)), Taken(path)
    for way, more in [("replace", contents), *changes]:
        change(path, way, more)
        every.refresh()
        few.refresh()
        columns, wanted = naive(path)
        sound = with_a_clock(columns, wanted)
        assert repr(every.taken) == repr(sound)
        assert repr(few.taken) == repr(with_a_clock(*naive(path, (STEPS, VAL))))
        assert repr(every.points(VAL)) == repr(curve(sound))
        if not path.exists():
            continue
        assert repr(read_csv(path)) == repr(wanted)
        last = {name: value for row in wanted for name, value in row.items()}
        if path.read_bytes().count(b"\n") <= 40 and path.stat().st_size < TAIL_BYTES[1]:
            assert repr(sorted(MetricsTable(path).last().items())) == repr(sorted(last.items()) * (STEPS in columns))
        if path.stat().st_size < TAIL_BYTES[0]:
            check_tail(MetricsTable(path).tail(), *naive(path, TAIL_METRICS))


def curve(rows):
    points, steps = [], 0.0
    for row in rows:
        steps = float(int(row.get(STEPS, steps)))
        points += [Point(steps, row[VAL])] if VAL in row else []
    return points


def check_tail(tail, columns, rows):
    if STEPS not in columns or len(with_a_clock(columns, rows)) < len(rows):
        assert tail.fault or not columns
        return
    name, record = (VAL, VAL_BEST) if any(VAL in row for row in rows) else (TRAIN, metrics_table.TRAIN_BEST)
    returns = [row[name] for row in rows if name in row]
    finite = [value for value in returns + [row[record] for row in rows if record in row] if math.isfinite(value)]
    assert tail.steps == max((int(row.get(STEPS, 0)) for row in rows), default=0)
    assert repr(tail.last) == repr(returns[-1] if returns else None)
    assert tail.best == max(finite, default=None) and tail.evaluated == (name == VAL or (not rows and bool(tail.fault)))


WRONG = {
    "no clock": "a,b\n1,2\n",
    "no names": "x" * 70_000 + "\n",
    "a negative clock": f"{STEPS},{VAL}\n-1,2\n",
    "an infinite clock": f"{STEPS},{VAL}\ninf,2\n",
    "no row": f"{STEPS},{VAL}\n1\n",
}


def test_what_is_wrong_is_a_line_and_no_error(tmp_path, snapshot):
    path, faults = tmp_path / "metrics.csv", []
    for name, text in WRONG.items():
        path.write_text(text)
        tail, table = MetricsTable(path).tail(), MetricsTable(path)
        assert tail.fault and tail == Tail(fault=tail.fault)
        faults.append(f"{name}: {tail.fault}")
        table.refresh()
        assert table.fault == tail.fault or name == "no row"
        version = table.version
        table.refresh()
        assert table.version == version and not table.points(VAL)
        path.unlink()
        path.write_text(f"{STEPS},{VAL}\n1,2\n")
        table.refresh()
        assert not table.fault and table.points(VAL) == [(1.0, 2.0)]
    assert shown("\n".join(faults)) == snapshot


def test_of_a_large_file_the_end_is_read(tmp_path):
    """What is read of one that is drawn whole: inspector/test_table.py."""
    path = tmp_path / "metrics.csv"
    count = 3 * SPREAD_BYTES // 40
    path.write_text(f"{STEPS},{VAL}\n" + "".join(f"{n},{n % 7}{' ' * 30}\n" for n in range(count)))
    table = Taken(path)
    table.refresh()
    xs = [point.x for point in table.points(VAL)]
    assert xs == sorted(xs) and xs[0] > 0 and xs[-1] == count - 1 and not table.sampled
    assert len(table.taken) * 32 < 1.1 * TAIL_BYTES[-1]


# ---- as it is written


ORDER = (TRAIN, VAL, STEPS)  # the clock is declared last and still comes first


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.csv"


def write(path, rows, resume_at=None):
    path.parent.mkdir(exist_ok=True)
    log = MetricsCsv(path, resume_at, ORDER)
    for row in rows:
        log.row(row)
    log.end(None)
    return path.read_text()


def rows(first, last):
    """Every third row carries an evaluation."""
    return [{STEPS: 10 * n, TRAIN: n / 7} | ({VAL: n / 3} if n % 3 == 0 else {}) for n in range(first, last)]


def test_numbers_keep_seven_digits_and_integers_all_of_them():
    assert [format_number(x) for x in (1 / 3, 12345678.0, -2, 1e300)] == ["0.3333333", "12345678", "-2", "1e+300"]
    assert [format_number(x) for x in (math.nan, math.inf, -0.0)] == ["nan", "inf", "0"]


def test_header_grows_in_declared_order_the_clock_first_and_keeps_the_rows(path):
    text = write(path, [{VAL: 2.5, STEPS: 10}, {STEPS: 20, TRAIN: 1, "x/b/c": 3, "x/a/c": 4}])
    assert text == f"{STEPS},{TRAIN},{VAL},x/a/c,x/b/c\n10,,2.5,,\n20,1,,4,3\n"
    assert [file.name for file in path.parent.iterdir()] == ["metrics.csv"]


def test_a_row_is_in_the_file_before_close(path):
    log = MetricsCsv(path)  # the declared columns
    log.row({VAL: 2.0, STEPS: 10})
    assert read_csv(path) == [{STEPS: 10, VAL: 2.0}] and path.read_text().startswith(STEPS)
    log.end(None)
    log.end(None)


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_resumed_file_equals_the_uninterrupted_one(path, tmp_path, cut):
    """The resumed process starts behind `cut`; the first one got further and was torn."""
    straight = write(tmp_path / "straight" / "metrics.csv", rows(1, 12))
    write(path, rows(1, 10))
    with open(path, "a") as file:
        file.write("100,1.4")
    assert write(path, rows(cut + 1, 12), resume_at=10 * cut) == straight


LOSS, TEST = {"train/loss/policy": 9.0}, {STEPS: 10, "test/roll/ep_rew/mean": 9.0}


@pytest.mark.parametrize(
    ("before", "after", "remaining"),
    [
        # a row without clock goes with that above it
        ([{STEPS: 10}, LOSS, {STEPS: 20}, LOSS], [], [{STEPS: 10}, LOSS]),
        ([{STEPS: 10}, TEST], [{STEPS: 20}], [{STEPS: 10}, {STEPS: 20}]),  # the test that ended it was of the end
        (None, [{STEPS: 30}], [{STEPS: 30}]),
        ("train/clock/env", [{STEPS: 30}], [{STEPS: 30}]),  # half a header
    ],
)
def test_a_resumed_file_keeps_the_rows_up_to_there(path, before, after, remaining):
    if isinstance(before, str):
        path.write_text(before)
    elif before:
        write(path, before)
    write(path, after, resume_at=10)
    assert read_csv(path) == remaining
