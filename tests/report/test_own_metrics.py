"""Numbers of anybody's loop, and of our trainings, in metrics.mmap: from the first step to the last word."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tiny_runs import tiny_run

import stride
from stride.commands import train
from stride.config.loader import load_config
from stride.report.metrics_file import MetricsFile
from stride.report.metrics_sinks import MetricsMmap
from stride.runstore.history import STEPS, Alert, Event
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.metrics_table import read_csv
from stride.runstore.outcome import Header
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import verdict
from stride.utils.user_error import UserError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def reading(folder: Path) -> MetricsReader:
    return MetricsReader(folder / NAME)


def test_a_loop_of_ones_own_is_in_both_files(tmp_path: Path) -> None:
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
def test_the_end_of_with_says_how(tmp_path: Path, error: BaseException, result: str, line: str) -> None:
    with pytest.raises(type(error)), MetricsFile(tmp_path):
        raise error
    now = reading(tmp_path).read()
    assert (now.state, now.result, now.line) == ("ended", result, line)


def test_rows_of_before_are_kept(tmp_path: Path) -> None:
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
    (1, {"": 1.0}, "is not the name of a metric"),
    (1, {"x" * 97: 1.0}, "is not the name of a metric"),
    (1, {"reward": "high"}, "reward takes a number, not str"),
    (1, {"reward": [1, 2]}, "reward takes a number, not list"),
    (1, {STEPS: 3}, "is the step itself"),
    (float("nan"), {}, "not a number of steps"),
    ("one", {}, "step takes a number"),
]


def test_what_is_no_row_is_a_line_and_not_written(tmp_path: Path) -> None:
    with MetricsFile(tmp_path) as m:
        m.log(0, reward=1)
        for step, values, words in NO_ROWS:
            with pytest.raises(UserError, match=words):
                m.log(step, values)
    assert reading(tmp_path).read().rows == len(read_csv(tmp_path / "metrics.csv")) == 1


def test_threads_may_log_side_by_side(tmp_path: Path) -> None:
    def log(n: int) -> None:
        for k in range(200):
            m.log(k, {f"of/{n}": float(k)})

    with MetricsFile(tmp_path) as m:
        threads = [threading.Thread(target=log, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    now = reading(tmp_path).read()
    assert now.rows == len(read_csv(tmp_path / "metrics.csv")) == 800
    assert all(now.values[f"of/{n}"] == (199, 199, 200) for n in range(4))


def test_a_folder_that_another_process_writes_is_left_to_it(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        MetricsFile(tmp_path)
        os.write(write, b".")
        signal.pause()
    os.read(read, 1)
    with pytest.raises(UserError, match=f"is being written by process {child}"):
        MetricsFile(tmp_path)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with MetricsFile(tmp_path) as m:
        m.log(1, reward=1)


def test_no_torch_is_loaded(tmp_path: Path) -> None:
    code = f"import sys, stride; stride.MetricsFile({str(tmp_path)!r}).close(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=DOCS.parent)
    assert done.stdout == "False\n", done.stderr


def test_the_page_is_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "metrics_file.md").read_text()
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
        exec(code, names)
    assert capsys.readouterr().out == re.search(r"^```text\n(.*?)^```$", page, re.M | re.S)[1]


def test_a_training_tells_what_its_csv_holds_and_goes_on_with_it() -> None:
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


def test_alerts_are_counted_and_an_error_is_told(tmp_path: Path) -> None:
    config = load_config("CartPole-v1", "ppo")
    header = Header("CartPole-v1:ppo", "ppo", "eager", "", "fast", "", "cpu", 2, 1, 10, 475.0, 64, str(tmp_path))
    sink = MetricsMmap(RunDir(tmp_path))
    sink.begin(header, config)
    kl, entropy = (Alert(name, name, "above 1", 1, 1, 1, 1, 2.0, "2", "", "") for name in ("kl", "entropy"))
    for begins, alert in ((True, kl), (True, entropy), (False, kl), (True, kl), (False, entropy)):
        sink.alert(Event(begins, alert, 10, "2"))
    now = reading(tmp_path).read()
    assert (now.alerts_open, now.alerts, now.line) == (1, 3, "over: entropy 2, no longer above 1")
    sink.beat({"env_steps": 12, "iterations": 3, "updates": 4}, "evaluation")
    assert reading(tmp_path).read()[2:6] == (12, config.max_timesteps, 3, 4)
    sink.end(None)
    assert reading(tmp_path).read().result == "failed"


def test_a_training_does_without_where_the_file_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr("stride.runstore.metrics_writer.mmap.mmap", refuse)
    run = tiny_run(test_episodes=0)
    assert run.facts()["status"] == "finished" and len(read_csv(run.metrics_csv)) > 1
    assert "metrics.mmap cannot be made (No such device): monitors will read metrics.csv" in run.run_log.read_text()


READERS = ["python", pytest.param("c", marks=pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here"))]


@pytest.mark.parametrize("language", READERS)
def test_thirty_lines_read_it_too(tmp_path: Path, language: str) -> None:
    with MetricsFile(tmp_path / "run") as m:
        for step in range(0, 40, 10):
            m.log(step, reward=step / 7, loss=-1e-12)
        m.log(123456789, reward=float("inf"))
    reader = [sys.executable, str(DOCS / "readers" / "metrics.py")]
    if language == "c":
        reader = [str(tmp_path / "reader")]
        flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined"]
        subprocess.run(["cc", *flags, "-o", reader[0], str(DOCS / "readers" / "metrics.c")], check=True)
    file = tmp_path / "run" / NAME
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
