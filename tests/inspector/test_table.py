"""The table of runs: what its line of words finds and in which order; and what many runs and long ones cost: nothing
is read twice, nothing is kept that cannot be seen."""

import json
import os
import re
import time
from contextlib import contextmanager
from itertools import pairwise
from typing import get_args
from unittest.mock import Mock

import pytest

from stride.agents.trained.player import Mode
from stride.inspector import app, rooms, runs
from stride.inspector.episode import MAX_STEPS
from stride.inspector.runs import PAGE_RUNS, Page, Runs, middle
from stride.inspector.table import HEADINGS, filters, runs_table
from stride.runstore import metrics_table, run_state
from stride.runstore import run_brief as brief
from stride.runstore import run_index as listing
from stride.runstore.history import STEPS, TRAIN, VAL, VAL_BEST
from stride.runstore.metrics_table import MAX_POINTS, SPREAD_BYTES, MetricsTable, Tail
from stride.runstore.run_brief import Brief
from stride.runstore.run_dir import list_runs
from stride.runstore.run_index import INSERT_RUN, IndexEntry, Listing, RunIndex
from stride.runstore.run_lock import locked
from stride.runstore.run_query import parse

COLUMNS = f"{STEPS},{TRAIN},{VAL},{VAL_BEST},{'a' * 60}\n"


def make(root, run_id, rows=3, **facts):
    folder = root / run_id
    folder.mkdir(parents=True)
    facts = {"env_id": "A-v0", "variant": "ppo", "status": "finished", **facts}
    (folder / "config.json").write_text(json.dumps(facts))
    (folder / "metrics.csv").write_text(COLUMNS + "".join(row(number) for number in range(rows)))
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


def counted(monkeypatch, module, name):
    """The first arguments of all calls of that function from now on."""
    paths, real = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda path, *rest: (paths.append(path), real(path, *rest))[1])
    return paths


@pytest.fixture
def reads(monkeypatch):
    """How often files of runs are read."""
    configs = counted(monkeypatch, brief, "read_facts")
    tables = counted(monkeypatch, metrics_table, "open_file")
    return lambda: len(configs) + len(tables)


@pytest.fixture
def sizes(monkeypatch):
    """Of all that is read of tables, the bytes."""
    result, real = [], metrics_table.open_file

    @contextmanager
    def opened(path):
        with real(path) as file:

            def read(size=-1):
                data = file.read(size)
                result.append(len(data))
                return data

            yield Mock(wraps=file, read=read)

    monkeypatch.setattr(metrics_table, "open_file", opened)
    return result


def test_a_table_of_many_runs_is_read_once_and_then_only_what_changed(root, reads):
    for number in range(PAGE_RUNS + 30):
        make(root, f"20260101-{number:06d}-a")
    table = Runs()
    page = table.page()
    assert len(page.lines) == PAGE_RUNS and page.matching == PAGE_RUNS + 30 and page.goes_on
    assert page.lines[0].id == f"20260101-{PAGE_RUNS + 29:06d}-a" and reads() == 2 * PAGE_RUNS
    assert table.page() == page and reads() == 2 * PAGE_RUNS
    with open(root / page.lines[7].id / "metrics.csv", "a") as file:
        file.write(row(90))
    again = table.page()
    assert reads() == 2 * PAGE_RUNS + 1 and again.lines[7].tail == Tail(720, 90.0, 90.0)
    assert not table.page(most=9999).goes_on and reads() == 2 * PAGE_RUNS + 61
    assert table.page("a-v0:PPO finished").matching == PAGE_RUNS + 30 and reads() == 2 * PAGE_RUNS + 61


def test_a_dead_run_is_not_read_at_each_look_and_lives_again_when_it_is_resumed(root, reads, monkeypatch):
    folder = make(root, "20260101-000001-a", status="running")
    os.utime(folder / "config.json", (1, 1))  # begun long ago
    (folder / ".lock").touch()  # held by nobody
    states, table = counted(monkeypatch, run_state, "read_facts"), Runs()
    assert [line.status for _ in range(4) for line in table.page().lines] == ["dead"] * 4
    assert reads() == 2 and len(states) == 1 and "ended without a message" in table.page().lines[0].reason
    with locked(folder):
        assert [line.status for line in table.page().lines] == ["running"]
        monkeypatch.setattr(run_state, "SILENT_AFTER", -1.0)
        assert [line.status for line in table.page().lines] == ["silent"]
    assert [line.status for line in table.page().lines] == ["dead"]


def test_a_filter_sees_a_run_that_is_resumed_within_a_few_looks(root):
    for number in range(20):
        make(root, f"20260101-{number:06d}-a")
    table = Runs()
    assert table.page("status:running").matching == 0
    config = root / "20260101-000003-a" / "config.json"
    config.write_text(config.read_text().replace("finished", "running"))
    assert 1 in [table.page("status:running").matching for _ in range(runs.CHECK_TURNS)]
    assert table.page("status:running").matching == 1


def test_runs_that_come_and_go_are_listed(root, monkeypatch):
    names = Listing()
    assert [*names.ids()] == []
    for name in ("20260101-000001-a", "named-by-hand", "20260101-000002-b"):
        make(root, name)
    (root / "20260101-000003-late").mkdir()
    (root / "not a run").mkdir()
    (root / "@last").symlink_to("20260101-000001-a")
    listed = ["20260101-000002-b", "20260101-000001-a", "named-by-hand"]
    assert [*names.ids()] == [run.id for run in list_runs()] == listed
    (root / "20260101-000003-late" / "config.json").touch()  # the root's own time does not change
    assert next(iter(names.ids())) == "20260101-000003-late"
    (root / "named-by-hand").rename(root.parent / "elsewhere")
    assert "named-by-hand" not in names.ids() and len(names.ids()) == 3
    os.utime(root, (1, 1))
    names.ids()
    scans = counted(monkeypatch, listing.os, "scandir")
    assert len(names.ids()) == 3 and scans == []


def test_the_end_of_a_long_file_tells_the_best(root, sizes):
    path = make(root, "20260101-000001-a", rows=20_000) / "metrics.csv"
    assert MetricsTable(path).tail() == Tail(19_999 * 8, 500.0, float(500 - abs(19_990 - 500)))
    assert path.stat().st_size > 300_000 and sum(sizes) < 30_000
    path.write_text(f"{STEPS},{VAL}\n" + "".join(f"{n},{n % 7}\n" for n in range(300_000)))
    assert MetricsTable(path).tail() == Tail(299_999, None, float(299_999 % 7))  # only all of it would tell the best


def test_a_large_file_is_sampled_and_read_on(root, sizes):
    path = make(root, "20260101-000001-a", rows=0) / "metrics.csv"
    table = MetricsTable(path, spread=True)

    def append(*lines):
        with open(path, "a") as file:
            file.writelines(lines)
        table.refresh()

    append(*(row(number, padding=200) for number in range(30_000)))
    assert table.sampled == path.stat().st_size > 3 * SPREAD_BYTES and sum(sizes) < 1.2 * SPREAD_BYTES
    xs, ys = zip(*table.points(TRAIN), strict=True)
    assert len(xs) <= MAX_POINTS + 1 and list(xs) == sorted(xs) and xs[0] == 0 and xs[-1] == 29_999 * 8
    assert max(b - a for a, b in pairwise(xs)) < 29_999 * 8 / 100
    assert all(y == 500 - abs(x / 8 - 500) for x, y in zip(xs, ys, strict=True))
    assert len(table.points(VAL)) > 200
    sizes.clear()
    table.refresh()
    version = table.version
    append(row(30_000), "240008,")
    assert table.points(TRAIN)[-1].x == 240_000 and table.version == version + 1 and sum(sizes) < 1000
    append("7,,,\n")
    assert table.points(TRAIN)[-1] == (240_008, 7)


def test_what_app_repeats_so_as_not_to_load_torch_is_what_others_say():
    assert get_args(Mode) == rooms.MODES and app.MAX_STEPS == MAX_STEPS


# ---- the line of words

NOW = time.time()


def selected(words):
    """The lines that SQLite finds among LINES."""
    index = RunIndex()
    index._table.executemany(INSERT_RUN, [IndexEntry(each.id, line=each).row for each in LINES])
    return index.select(*parse(words).where)


def line(number, **changes):
    told = {"status": "finished", "variant": "CartPole-v1:ppo", "seed": number, "started": NOW - 3600 * number}
    return Brief(f"20260101-00000{number}-x-{number}", **{**told, **changes})


LINES = [
    line(1, result="solved", tail=Tail(1000, 500.0, 480.0, seconds=30.0), test=490.0, group="20260101-000000-aa11"),
    line(2, result="not solved", tail=Tail(3000, 200.0, 100.0, seconds=90.0), test=150.0, group="20260101-000000-aa11"),
    line(3, result="not tested", tail=Tail(2000, -5.0, -7.0, seconds=7200.0), variant="Acrobot-v1:dqn"),
    line(4, status="failed", reason="EnvError: no licence (my_env.py:7)", tail=Tail(0), started=None),
    line(5, result="trained", tail=Tail(10_000, None, None, evaluated=False), started=NOW - 9 * 86400),
]


ALL = {1, 2, 3, 4, 5}
FOUND = {  # words -> the seeds of the lines that they find; each key and sign: runstore/test_run_index.py
    "": ALL, "cartpole DQN": set(), "status:failed,finished": ALL, "result:not-solved": {2}, "group:aa11": {1, 2},
    "group:none": {3, 4, 5}, "seed:2-3,5": {2, 3, 5}, "age<2h": {1}, "age<1d": {1, 2, 3}, "took>=2h": {3},
    "steps>=2k best>100": {2}, "last>1e2": {1}, "test>400 cartpole": {1},
    f"started:{time.strftime('%Y-%m-%d', time.localtime(NOW - 9 * 86400))}": {5},
    "best>many": set(),  # no number: looked for as a word
    "sort:nothing": set(),
}  # fmt: skip


@pytest.mark.parametrize("words", FOUND)
def test_words_find_runs(words):
    assert {each.seed for each in selected(words)} == FOUND[words]


def order(words):
    return [[each.seed for each in members] for members in parse(words).arrange(LINES, middle)]


def test_runs_are_sorted_by_any_column_and_what_has_no_value_comes_last():
    assert order("sort:-best by:run") == [[1], [2], [3], [4], [5]]
    assert order("sort:best by:run") == [[3], [2], [1], [4], [5]]
    assert order("sort:-steps by:run") == [[5], [2], [3], [1], [4]]
    assert order("sort:run by:run")[0] == [3] and order("sort:-run by:run")[-1] == [3]
    assert order("sort:started by:run")[-1] == [4]
    assert all(len(order(f"sort:{key} by:run")) == len(LINES) for key in HEADINGS)


def test_seeds_of_a_group_stand_together_at_their_middle():
    assert order("sort:-test") == [[1, 2], [3], [4], [5]]  # 320 is the mean of both
    assert order("sort:-best") == [[1, 2], [3], [4], [5]]
    assert order("seed:2 sort:-best") == order("sort:-best")  # arranging does not filter
    assert order("")[0] == [1, 2]


def test_a_group_is_a_row_over_those_of_its_seeds():
    page = runs_table(Page(parse("").arrange(LINES, middle), 5, parse("sort:-best")))
    assert page.count("data-fold") == 1 and page.count('class="member"') == 2 and page.count("data-run") == 5
    group = re.search(r"<tr data-fold.*?</tr>", page)[0]
    assert "2 seeds" in group and "1–2" in group and "solved" in group and "1 of 2" in group and "350.0" in group
    assert page.count("aria-sort") == 1 and 'aria-sort="descending"' in page
    assert "EnvError: no licence (my_env.py:7)" in page and "of-training" in page


def test_the_menus_say_what_the_line_understands():
    terms = [term for term in re.findall(r'value="([^"]+)"', filters()) if term]
    assert len(terms) > 15
    for term in terms:
        words = term.replace("&gt;", ">").replace("&lt;", "<")
        query = parse(words)
        assert query.conditions or not query.grouped
        assert {each.seed for each in selected(words)} != ALL or not query.grouped or "<30d" in term


def test_a_group_is_not_cut_where_the_table_ends(root):
    for number in range(6):
        make(root, f"20260101-00000{number}-a", group="g" if number in (1, 2, 3) else "", seed=number)
    page = Runs().page(most=3)
    assert time.strftime("%Y%m%d-%H%M%S", time.localtime(page.lines[0].started)) == "20260101-000005"
    assert [len(members) for members in page.items] == [1, 1, 3] and page.goes_on
    assert [len(members) for members in Runs().page("sort:-seed", 3).items] == [1, 1, 3]
