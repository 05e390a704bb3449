"""The line of words above the table: what it finds, in which order, and the table that it makes."""

import json
import re
import time

import pytest

from stride.inspector.runs import Page, Runs, middle
from stride.inspector.table import HEAD, filters, runs_table
from stride.runstore.metrics_table import Tail
from stride.runstore.run_brief import Brief
from stride.runstore.run_index import PUT, IndexEntry, RunIndex
from stride.runstore.run_query import parse

NOW = time.time()


def selected(words):
    """The lines that SQLite finds among LINES."""
    index = RunIndex()
    index._table.executemany(PUT, [IndexEntry(each.id, line=each).row for each in LINES])
    return index.select(*parse(words).where)


def line(number, **changes):
    told = {"status": "finished", "variant": "CartPole-v1:ppo", "seed": number, "started": NOW - 3600 * number}
    return Brief(f"20260101-00000{number}-x-{number}", **{**told, **changes})


LINES = [
    line(1, result="solved", tail=Tail(1000, 500.0, 480.0, seconds=30.0), test=490.0, group="20260101-000000-aa11"),
    line(2, result="not solved", tail=Tail(3000, 200.0, 100.0, seconds=90.0), test=150.0, group="20260101-000000-aa11"),
    line(3, result="not tested", tail=Tail(2000, -5.0, -7.0, seconds=7200.0), variant="Acrobot-v1:dqn"),
    line(4, status="failed", reason="EnvError: no licence (my_env.py:7)", tail=Tail(0), started=None),
    line(5, result="trained", tail=Tail(9000, None, None, evaluated=False), started=NOW - 9 * 86400),
]


ALL = {1, 2, 3, 4, 5}
FOUND = {  # words -> the seeds of the lines that they find
    "": ALL, "cartpole DQN": set(), "acrobot": {3}, "licence": {4}, "status:failed": {4},
    "status:failed,finished": ALL, "result:solved": {1}, "result:not-solved": {2}, "group:aa11": {1, 2},
    "group:none": {3, 4, 5}, "seed:2-3,5": {2, 3, 5}, "age<2h": {1}, "age<1d": {1, 2, 3}, "took>1m": {2, 3},
    "took>=2h": {3}, "steps>=2k best>100": {2}, "best<0": {3}, "last>1e2": {1}, "test>400 cartpole": {1},
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
    assert all(len(order(f"sort:{key} by:run")) == len(LINES) for key in HEAD)


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


def test_a_group_is_not_cut_where_the_table_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    for number in range(6):
        folder = tmp_path / f"20260101-00000{number}-a"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"group": "g" if number in (1, 2, 3) else "", "seed": number}))
    page = Runs().page(most=3)
    assert time.strftime("%Y%m%d-%H%M%S", time.localtime(page.lines[0].started)) == "20260101-000005"
    assert [len(members) for members in page.items] == [1, 1, 3] and page.goes_on
    assert [len(members) for members in Runs().page("sort:-seed", 3).items] == [1, 1, 3]
