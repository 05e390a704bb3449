"""metrics.mmap: what is written is read, whole, however the writer was stopped and whatever lies there."""

import math
import os
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal, refusals
from snapshots import shown

from lab.faults.rig import forked
from stride.runstore import metrics_layout as at
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.metrics_writer import MetricsWriter


@pytest.fixture
def path(tmp_path):
    return tmp_path / at.NAME


@pytest.fixture
def writer(path):
    made = MetricsWriter(path, "a-run", {"goal": 475.0}, metrics=3, points=4)
    yield made
    made.end("finished", "")


def test_what_is_told_is_read(path, writer):
    reader = MetricsReader(path)
    assert (reader.read().state, reader.read().values) == ("begun", {})
    assert (reader.origin.run, reader.origin.facts) == ("a-run", {"goal": 475.0})
    writer.max_timesteps = 1000
    writer.row(10, {"loss": 0.5, "return": math.inf})
    writer.row(20, {"loss": 0.25})
    writer.progress(30, 3, 12, "evaluation")
    writer.say("two open", alerts=(2, 5))
    now = reader.read()
    assert now[2:11] == (30, 1000, 3, 12, 2, "training", 2, 5, "evaluation")
    assert now.line == "two open" and now.values == {"loss": (0.25, 20, 2), "return": (math.inf, 10, 1)}
    assert reader.lives() and reader.silence() < 60
    writer.end("solved", "Solved: 500 over 100 episodes")
    assert reader.read()[7:] == ("ended", 2, 5, "", "solved", "Solved: 500 over 100 episodes", now.values)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(allow_nan=False), max_size=4), max_size=12))
def test_the_reader_has_what_was_written(tmp_path_factory, rows):
    """The last value of the first three metrics, and the last four points of each."""
    path = tmp_path_factory.mktemp("run") / at.NAME
    writer, points = MetricsWriter(path, "a-run", {}, metrics=3, points=4), {}
    for step, row in enumerate(rows):
        writer.row(step, row)
        for name, value in row.items():
            if name in points or len(points) < 3:
                points.setdefault(name, []).append((step, value))
    reader = MetricsReader(path)
    assert reader.read().values == {name: (some[-1][1], some[-1][0], len(some)) for name, some in points.items()}
    for name in "abcd":
        history = points.get(name, [])
        assert reader.history(name) == history[-4:]
        first, data = at.Layout(3, 4).rings + [*points, name].index(name) * 4 * at.POINT_BYTES, path.read_bytes()
        for number in range(max(1, len(history) - 3), len(history) + 1):  # number k in place (k - 1) modulo 4
            assert at.POINT.unpack_from(data, first + (number - 1) % 4 * at.POINT_BYTES)[2] == number
    writer.end("finished", "")


def test_a_metric_too_many_is_reported_once(path, writer, caplog):
    for step in range(2):
        writer.row(step, dict.fromkeys("abcd", 1.0))
    (record,) = caplog.records
    assert "metrics.mmap has no room for d" in record.message


@given(st.integers(0, at.VALUES + 3 * at.VALUE.size - 8))
def test_a_writer_killed_inside_a_record_leaves_the_one_before(tmp_path_factory, bytes_written):
    path = tmp_path_factory.mktemp("run") / at.NAME
    writer = MetricsWriter(path, "a-run", {}, metrics=3, points=4)
    writer.row(10, {"loss": 0.5})
    before = MetricsReader(path).read()
    with path.open("r+b") as file:  # as it stands after so many bytes
        file.seek(at.Layout(3, 4).record(before.sequence + 2))
        file.write((before.sequence + 3).to_bytes(8, "little") + b"\xff" * bytes_written)
    assert MetricsReader(path).read() == before
    writer.end("finished", "")


def test_every_byte_of_a_record_is_guarded(path, writer):
    writer.row(10, {"loss": 0.5})
    sound, reader = path.read_bytes(), MetricsReader(path)
    newest = reader.read()
    start = at.Layout(3, 4).record(newest.sequence)
    for place in range(start, start + at.VALUES + at.VALUE.size):
        damaged = bytearray(sound)
        damaged[place] ^= 0x10
        with path.open("r+b") as file:
            file.write(damaged)
        assert reader.read().sequence == newest.sequence - 2, place


def test_a_reader_follows_the_file_that_takes_its_place(path, writer):
    reader = MetricsReader(path)
    writer.row(10, {"loss": 0.5})
    assert [*reader.read().values] == ["loss"]
    other = MetricsWriter(path, "another", {}, metrics=9, points=2)
    other.row(1, {"gain": 1.0})
    assert [*reader.read().values] == ["gain"] and reader.origin.run == "another"
    other.end("finished", "")
    path.unlink()
    assert reader.read().result == "finished"


RECORDS = at.Layout(3, 4).records
DAMAGES = {
    "cut short": lambda data: data[:-1],
    "empty": lambda data: b"",
    "another format": lambda data: b"a,b\n" * 2000,
    "another version": lambda data: data[:8] + b"\x02" + data[9:],
    "another byte order": lambda data: data[:8] + data[8:12][::-1] + data[12:],
    "more metrics than there are": lambda data: data[:24] + b"\xff" * 4 + data[28:],
    "facts": lambda data: data[: at.FACTS] + b"!" + data[at.FACTS + 1 :],
    "both records": lambda data: data[:RECORDS].ljust(len(data), b"\0"),
}


def copied(path, change):
    path.with_name("copy").mkdir(exist_ok=True)
    copy = path.with_name("copy") / at.NAME
    copy.write_bytes(change(path.read_bytes()))
    return copy


def test_what_is_damaged_is_said_in_a_line(path, writer, snapshot):
    lines = refusals(lambda name: MetricsReader(copied(path, DAMAGES[name])).read(), DAMAGES)
    assert shown(lines) == snapshot
    reader = MetricsReader(copied(path, bytes))
    assert reader.read()
    os.truncate(path.with_name("copy") / at.NAME, 5000)
    assert "cut short" in refusal(reader.read), "an error and no crash"


def test_a_dead_writer_is_taken_for_dead_and_a_forked_one_writes_nothing(path, writer):
    os.waitpid(forked(lambda: (writer.row(10, {"loss": 0.5}), writer.end("failed", ""))), 0)
    assert MetricsReader(path).read().state == "begun"
    os.waitpid(forked(lambda: MetricsWriter(path, "a-run", {}).row(10, {"loss": 0.5})), 0)
    reader = MetricsReader(path)
    assert reader.read().state == "training" and not reader.lives()


ROW = re.compile(r"\| (\d+) \| (\w+)(?:\[(\d+)\])? \|")
TYPES = {"u32": "I", "u64": "Q", "i64": "q", "f64": "d"}


def test_the_page_tells_the_bytes_there_are():
    """Each table: offsets follow from types, and types are those of the code."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "metrics_file.md").read_text()
    tables = [ROW.findall(part) for part in page.split("|---|---|---|")[1:]]
    forms = []
    for rows in tables:
        form, place = "=", int(rows[0][0])
        for offset, kind, count in rows:
            assert int(offset) == place, (offset, kind)
            form += f"{count}s" if count else TYPES[kind]
            place += struct.calcsize(f"={form[1:] and form[-len(count + 's') if count else -1 :]}")
        forms.append(form)
    header, heartbeat, name, record, value, point = forms
    assert header == plain(at.PREFIX, at.HEADER) + "3848s" and struct.calcsize(header) == at.HEADER_BYTES
    assert (heartbeat, name) == ("=Q", f"={at.NAME_TEXT}sI4s")
    assert record == plain(at.SEQUENCE, at.CRC, at.RECORD) and struct.calcsize(record) == at.VALUES
    assert (value, point) == (plain(at.VALUE), plain(at.POINT, at.CRC))


def plain(*forms):
    """One after the other, each number by itself."""
    letters = "".join(form.format.removeprefix("=") for form in forms).replace("4x", "4s")
    return "=" + re.sub(r"(\d+)([IQqd])", lambda found: int(found[1]) * found[2], letters)
