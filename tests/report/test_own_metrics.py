"""metrics.mmap: numbers of anybody's loop and of our trainings, from the first step to the last word; what is written
is read, whole, however the writer was stopped and whatever lies there."""

import errno
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal, refusals
from snapshots import shown
from tiny_runs import tiny_run

import stride
from lab.faults.rig import forked, wait_until
from stride.commands import train
from stride.config.loader import load_config
from stride.report.metrics_file import MetricsFile
from stride.report.metrics_sinks import MetricsMmap
from stride.runstore import metrics_layout as at
from stride.runstore.history import STEPS, Alert, Event
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.metrics_table import read_csv
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.outcome import Header
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import verdict
from stride.utils.user_error import UserError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def reading(folder):
    return MetricsReader(folder / at.NAME)


def test_a_loop_of_ones_own_is_in_both_files(tmp_path):
    with stride.MetricsFile(tmp_path / "mine", max_steps=30, goal=2.5, facts={"robot": "arm"}) as m:
        assert reading(tmp_path / "mine").read().state == "begun"
        m.log(10, reward=1.0)
        m.log(20, {"train/loss": 0.5}, reward=2)
        m.say("waiting", paused=True)
        assert reading(tmp_path / "mine").read().state == "paused"
        m.log(30, reward=3.0)
    reader = reading(tmp_path / "mine")
    now = reader.read()
    assert (now.env_steps, now.max_timesteps, now.rows, now.state, now.result) == (30, 30, 3, "ended", "finished")
    assert reader.origin.facts == {"robot": "arm", "goal": 2.5, "first_step": 0} and reader.origin.run == "mine"
    assert reader.history("reward") == [(10, 1.0), (20, 2.0), (30, 3.0)]
    rows = [{STEPS: 10, "reward": 1}, {STEPS: 20, "reward": 2, "train/loss": 0.5}, {STEPS: 30, "reward": 3}]
    assert read_csv(tmp_path / "mine" / "metrics.csv") == rows


ENDS = [(KeyboardInterrupt(), "interrupted", ""), (ZeroDivisionError("oh"), "failed", "ZeroDivisionError: oh")]


@pytest.mark.parametrize(("error", "result", "line"), ENDS)
def test_the_end_of_with_says_how(tmp_path, error, result, line):
    with pytest.raises(type(error)), MetricsFile(tmp_path):
        raise error
    now = reading(tmp_path).read()
    assert (now.state, now.result, now.line) == ("ended", result, line)


def test_rows_of_before_are_kept(tmp_path):
    with MetricsFile(tmp_path) as m:
        for step in range(1, 6):
            m.log(step, reward=step)
    with pytest.raises(UserError, match="resume_at"):
        MetricsFile(tmp_path)
    with MetricsFile(tmp_path, resume_at=3) as m:
        assert reading(tmp_path).read()[6:8] == (3, "begun")
        m.log(4, reward=40)
    assert [row["reward"] for row in read_csv(tmp_path / "metrics.csv")] == [1, 2, 3, 40]
    reader = reading(tmp_path)
    assert reader.read().values["reward"] == (40, 4, 4) and len(reader.history("reward")) == 4


NO_ROWS = [
    (1, {"a,b": 1.0}, "is not the name of a metric"),
    (1, {"x" * 97: 1.0}, "is not the name of a metric"),
    (1, {"reward": "high"}, "reward takes a number, not str"),
    (1, {STEPS: 3}, "is the step itself"),
    (float("nan"), {}, "must be a number of steps"),
    ("one", {}, "step takes a number"),
]


def test_what_is_no_row_is_a_line_and_not_written(tmp_path):
    with MetricsFile(tmp_path) as m:
        m.log(0, reward=1)
        for step, values, words in NO_ROWS:
            with pytest.raises(UserError, match=words):
                m.log(step, values)
    assert reading(tmp_path).read().rows == len(read_csv(tmp_path / "metrics.csv")) == 1


def test_threads_may_log_side_by_side(tmp_path):
    with MetricsFile(tmp_path) as m, ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda n: [m.log(k, {f"of/{n}": float(k)}) for k in range(200)], range(4))]
    now = reading(tmp_path).read()
    assert now.rows == len(read_csv(tmp_path / "metrics.csv")) == 800
    assert all(now.values[f"of/{n}"] == (199, 199, 200) for n in range(4))


def test_a_folder_that_another_process_writes_is_left_to_it(tmp_path):
    child = forked(lambda: (MetricsFile(tmp_path), signal.pause()))
    wait_until((tmp_path / at.NAME).exists)
    with pytest.raises(UserError, match=f"is being written by process {child}"):
        MetricsFile(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with MetricsFile(tmp_path) as m:
        m.log(1, reward=1)


def test_the_page_is_a_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "metrics_file.md").read_text()
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
        exec(code, names)
    assert capsys.readouterr().out == re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)[1]


def test_a_training_tells_what_its_csv_holds_and_goes_on_with_it():
    run = tiny_run(test_episodes=2)
    reader, rows, outcome = reading(run.path), read_csv(run.metrics_csv), run.facts()["outcome"]
    now, origin, before = reader.read(), reader.origin, reader.history(STEPS)
    assert (now.state, now.result) == ("ended", verdict(outcome).replace(" ", "_"))
    assert now.env_steps == outcome["env_steps"] == now.max_timesteps and origin.run == run.id
    for name in {name for row in rows for name in row}:
        values = [(row[STEPS], row[name]) for row in rows if name in row]
        assert [(step, pytest.approx(value, 1e-6)) for step, value in values] == reader.history(name), name
    assert train.command(["--resume", run.id, "-q", "max_timesteps=96", "test_episodes=0"]) == 0
    now = reader.read()
    assert (now.env_steps, now.max_timesteps) == (96, 96) and origin.facts["first_step"] == 0
    assert reader.origin.facts["first_step"] == 64 and reader.origin.wall > origin.wall
    steps = [*before[:-1], (80, 80), (96, 96)]  # without the row of the closing test
    assert reader.history(STEPS) == steps


def test_alerts_are_counted_and_an_error_is_told(tmp_path):
    config = load_config("CartPole-v1", "ppo")
    header = Header("CartPole-v1:ppo", "ppo", "eager", "", "fast", "", "cpu", 2, 1, 10, 475.0, 64, str(tmp_path))
    sink = MetricsMmap(RunDir(tmp_path))
    sink.begin(header, config)
    kl, entropy = (Alert(name, name, "above 1", 1, 1, 1, 1, 2.0, "2", "", "") for name in ("kl", "entropy"))
    for begins, alert in ((True, kl), (True, entropy), (False, kl), (True, kl), (False, entropy)):
        sink.alert(Event(begins, alert, 10, "2"))
    now = reading(tmp_path).read()
    assert (now.alerts_open, now.alerts, now.line) == (1, 3, "ended: entropy 2, no longer above 1")
    sink.beat({"env_steps": 12, "iterations": 3, "updates": 4}, "evaluation")
    assert reading(tmp_path).read()[2:6] == (12, config.max_timesteps, 3, 4)
    sink.end(None)
    assert reading(tmp_path).read().result == "failed"


def test_a_training_does_without_where_the_file_cannot_be_made(monkeypatch):
    def refuse(*_: object, **__: object):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr("stride.runstore.metrics_writer.mmap.mmap", refuse)
    run = tiny_run(test_episodes=0)
    assert run.facts()["status"] == "finished" and len(read_csv(run.metrics_csv)) > 1
    assert "metrics.mmap cannot be created (No such device); monitors will read metrics.csv" in run.run_log.read_text()


READERS = ["python", pytest.param("c", marks=pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here"))]


@pytest.mark.parametrize("language", READERS)
def test_thirty_lines_read_it_too(tmp_path, language):
    with MetricsFile(tmp_path / "run") as m:
        for step in range(0, 40, 10):
            m.log(step, reward=step / 7, loss=-1e-12)
        m.log(123456789, reward=float("inf"))
    reader = [sys.executable, str(DOCS / "readers" / "metrics.py")]
    if language == "c":
        reader = [str(tmp_path / "reader")]
        flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
        subprocess.run(["cc", *flags, "-o", reader[0], str(DOCS / "readers" / "metrics.c")], check=True)
    file = tmp_path / "run" / at.NAME
    done = subprocess.run([*reader, str(file)], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "env_steps 123456789",
        "train/clock/env_steps 123456789 at 123456789, 5 values",
        "reward inf at 123456789, 5 values",
        "loss -1e-12 at 30, 4 values",
    ], done.stderr
    damaged = bytearray(file.read_bytes())
    damaged[8] = 2
    file.write_bytes(damaged)
    done = subprocess.run([*reader, str(file)], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == "not a metrics.mmap of version 1\n"


# ---- the file itself


@pytest.fixture
def path(tmp_path):
    return tmp_path / at.NAME


@pytest.fixture
def writer(path):
    made = MetricsWriter(path, "a-run", {"goal": 475.0}, metrics=3, points=4)
    yield made
    made.end("finished", "")


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
    assert "metrics.mmap is full: monitors will not show d" in record.message


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


RECORDS = at.Layout(3, 4).records
DAMAGES = {
    "shortened": lambda data: data[:-1],
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
    assert "shortened" in refusal(reader.read), "an error and no crash"


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
    page = (DOCS / "metrics_file.md").read_text()
    forms = []
    for table in page.split("|---|---|---|")[1:]:
        form, rows = "=", ROW.findall(table)
        for offset, kind, count in rows:
            assert int(offset) == int(rows[0][0]) + struct.calcsize(form), (offset, kind)
            form += f"{count}s" if count else TYPES[kind]
        forms.append(form)
    header, heartbeat, name, record, value, point = forms
    assert header == plain(at.PREFIX, at.HEADER) + "3848s" and struct.calcsize(header) == at.HEADER_BYTES
    assert (heartbeat, name) == ("=Q", f"={at.NAME_TEXT}sI4s")
    assert record == plain(at.SEQUENCE, at.CRC, at.RECORD) and struct.calcsize(record) == at.VALUES
    assert (value, point) == (plain(at.VALUE), plain(at.POINT, at.CRC))


def plain(*forms):
    """One after the other, each number by itself."""
    letters = "".join(form.format.removeprefix("=") for form in forms).replace("4x", "4s")
    return "=" + re.sub(r"(\d+)([IQqd])", lambda match: int(match[1]) * match[2], letters)
