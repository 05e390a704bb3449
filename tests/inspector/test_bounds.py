"""What many runs and long runs cost: nothing is read twice, nothing is kept that cannot be seen."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from stride.agents.trained.player import Mode
from stride.inspector import app, rooms, runs
from stride.inspector.episode import MOST_STEPS
from stride.inspector.runs import PAGE, Runs
from stride.runstore import metrics_table, run_state
from stride.runstore import run_brief as brief
from stride.runstore import run_index as listing
from stride.runstore.history import STEPS, TRAIN, VAL, VAL_BEST
from stride.runstore.metrics_table import POINTS, WHOLE, MetricsTable, Tail
from stride.runstore.run_dir import list_runs
from stride.runstore.run_index import Listing
from stride.runstore.run_lock import locked

ROOT = Path(__file__).resolve().parents[2]
HEAD = f"{STEPS},{TRAIN},{VAL},{VAL_BEST},{'a' * 60}\n"


def make(root, run_id, rows=3, **facts):
    folder = root / run_id
    folder.mkdir(parents=True)
    facts = {"env_id": "A-v0", "variant": "ppo", "status": "finished", **facts}
    (folder / "config.json").write_text(json.dumps(facts))
    (folder / "metrics.csv").write_text(HEAD + "".join(row(number) for number in range(rows)))
    return folder


def row(number, padding=0):
    """An evaluation in each tenth; the returns rise to 500 and fall again."""
    value = 500 - abs(number - 500)
    evaluated = f"{value},{min(number, 500)}" if number % 10 == 0 else ","
    return f"{number * 8},{value},{evaluated},{'1' * padding}\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def counted(monkeypatch):
    """How often files of runs are read."""
    found = []

    def count(module, name):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda path, *rest: (found.append(path), real(path, *rest))[1])

    for module, name in ((brief, "read_facts"), (metrics_table, "open_file")):
        count(module, name)
    return found


def test_a_table_of_many_runs_is_read_once_and_then_only_what_changed(root, counted):
    for number in range(PAGE + 30):
        make(root, f"20260101-{number:06d}-a")
    found = Runs()
    page = found.page()
    assert len(page.lines) == PAGE and page.matching == PAGE + 30 and page.goes_on
    assert page.lines[0].id == f"20260101-{PAGE + 29:06d}-a" and len(counted) == 2 * PAGE
    assert found.page() == page and len(counted) == 2 * PAGE
    with open(root / page.lines[7].id / "metrics.csv", "a") as file:
        file.write(row(90))
    again = found.page()
    assert len(counted) == 2 * PAGE + 1 and again.lines[7].tail == Tail(720, 90.0, 90.0)
    assert not found.page(most=9999).goes_on and len(counted) == 2 * PAGE + 61
    assert found.page("a-v0:PPO finished").matching == PAGE + 30 and len(counted) == 2 * PAGE + 61


def test_a_dead_run_is_not_read_at_each_look_and_lives_again_when_it_is_resumed(root, counted, monkeypatch):
    folder = make(root, "20260101-000001-a", status="running")
    os.utime(folder / "config.json", (1, 1))  # begun long ago
    (folder / ".lock").touch()  # held by nobody
    reads, real = [], run_state.read_facts
    monkeypatch.setattr(run_state, "read_facts", lambda path: (reads.append(path), real(path))[1])
    found = Runs()
    assert [line.status for _ in range(4) for line in found.page().lines] == ["dead"] * 4
    assert len(counted) == 2 and len(reads) == 1
    with locked(folder):
        assert [line.status for line in found.page().lines] == ["running"]
    assert [line.status for line in found.page().lines] == ["dead"]


def test_a_filter_sees_a_run_that_is_resumed_within_a_few_looks(root):
    for number in range(20):
        make(root, f"20260101-{number:06d}-a")
    found = Runs()
    assert found.page("status:running").matching == 0
    config = root / "20260101-000003-a" / "config.json"
    config.write_text(config.read_text().replace("finished", "running"))
    assert (
        1 in [found.page("status:running").matching for _ in range(runs.TURNS)]
        and found.page("status:running").matching == 1
    )


def test_runs_that_come_and_go_are_listed(root, monkeypatch):
    found, scans = Listing(), []
    real = os.scandir
    monkeypatch.setattr(listing.os, "scandir", lambda path: (scans.append(path), real(path))[1])
    assert [*found.ids()] == []
    for name in ("20260101-000001-a", "named-by-hand", "20260101-000002-b"):
        make(root, name)
    (root / "20260101-000003-late").mkdir()
    (root / "not a run").mkdir()
    (root / "@last").symlink_to("20260101-000001-a")
    assert (
        [*found.ids()] == [run.id for run in list_runs()] == ["20260101-000002-b", "20260101-000001-a", "named-by-hand"]
    )
    (root / "20260101-000003-late" / "config.json").touch()  # the root's own time does not change
    assert next(iter(found.ids())) == "20260101-000003-late"
    (root / "named-by-hand").rename(root.parent / "elsewhere")
    assert "named-by-hand" not in found.ids() and len(found.ids()) == 3
    os.utime(root, (1, 1))
    found.ids()
    before = len(scans)
    assert len(found.ids()) == 3 and len(scans) == before


def test_the_end_of_a_long_file_tells_the_best(root, monkeypatch):
    folder = make(root, "20260101-000001-a", rows=20_000)
    size, taken = (folder / "metrics.csv").stat().st_size, []
    real = metrics_table.open_file
    monkeypatch.setattr(metrics_table, "open_file", lambda path: Reading(real(path), taken))
    assert MetricsTable(folder / "metrics.csv").tail() == Tail(19_999 * 8, 500.0, float(500 - abs(19_990 - 500)))
    assert size > 300_000 and sum(taken) < 30_000
    (folder / "metrics.csv").write_text(f"{STEPS},{VAL}\n" + "".join(f"{n},{n % 7}\n" for n in range(300_000)))
    assert MetricsTable(folder / "metrics.csv").tail() == Tail(
        299_999, None, float(299_999 % 7)
    )  # only all of it would tell


class Reading:
    """A file that notes how much was taken from it."""

    def __init__(self, file, taken):
        self.file, self.taken = file, taken

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def read(self, size=-1):
        found = self.file.read(size)
        self.taken.append(len(found))
        return found

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_large_file_is_sampled_and_read_on(root, monkeypatch):
    folder = make(root, "20260101-000001-a", rows=0)
    path, taken, real = folder / "metrics.csv", [], metrics_table.open_file
    monkeypatch.setattr(metrics_table, "open_file", lambda path: Reading(real(path), taken))
    with open(path, "a") as file:
        file.writelines(row(number, padding=200) for number in range(30_000))
    found = MetricsTable(path, spread=True)
    found.refresh()
    assert found.sampled == path.stat().st_size > 3 * WHOLE and sum(taken) < 1.2 * WHOLE
    xs, ys = zip(*found.points(TRAIN), strict=True)
    assert len(xs) <= POINTS + 1 and list(xs) == sorted(xs) and xs[0] == 0 and xs[-1] == 29_999 * 8
    assert max(b - a for a, b in pairwise(xs)) < 29_999 * 8 / 100
    assert all(y == 500 - abs(x / 8 - 500) for x, y in zip(xs, ys, strict=True))
    assert len(found.points(VAL)) > 200
    taken.clear()
    found.refresh()
    version = found.version
    with open(path, "a") as file:
        file.write(row(30_000) + "240008,")
    found.refresh()
    assert found.points(TRAIN)[-1].x == 240_000 and found.version == version + 1 and sum(taken) < 1000
    with open(path, "a") as file:
        file.write("7,,,\n")
    found.refresh()
    assert found.points(TRAIN)[-1] == (240_008, 7)
    path.write_text(HEAD + row(0) + row(1))
    found.refresh()
    assert found.points(TRAIN) == [(0, 0), (8, 1)] and not found.sampled


def test_a_replaced_file_is_read_anew_and_a_curve_keeps_its_end(root):
    folder = make(root, "20260101-000001-a", rows=5)
    found = MetricsTable(folder / "metrics.csv", spread=True)
    found.refresh()
    (folder / "other").write_text(HEAD + "".join(row(number + 100) for number in range(3 * POINTS)))
    (folder / "other").replace(folder / "metrics.csv")
    found.refresh()
    assert found.points(TRAIN)[0].x == 800 and found.points(TRAIN)[-1].x == (3 * POINTS + 99) * 8
    assert POINTS / 2 < len(found.points(TRAIN)) <= POINTS + 1


def test_the_tables_need_no_torch():
    program = "import sys; from stride.commands import run_inspect; "
    program += "assert not {'torch', 'lightning', 'gradio'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_what_app_repeats_so_as_not_to_load_torch_is_what_others_say():
    assert get_args(Mode) == rooms.MODES and app.MOST_STEPS == MOST_STEPS
