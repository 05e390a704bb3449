"""The index of runs: what it keeps between commands is never the truth, and never in the way."""

import json
import math
import operator
import os
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.runs import make
from stride.runstore import run_brief, run_index, run_shelf
from stride.runstore.run_brief import Labels, write_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_index import RunIndex, folded
from stride.runstore.run_query import EXACT_FIELDS, FIELDS, WORDS, order_of, parse
from stride.runstore.run_shelf import NAME, Shelf

RUNS = 60
NOW = lambda: 1.8e9  # noqa: E731  (so that an age stays as it is)
MOVED = "20270101-000000-moved"
COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@pytest.fixture(autouse=True)
def settled(root, monkeypatch):
    monkeypatch.setattr(run_index, "REST_NS", -1)  # as if the runs had been made long ago


@pytest.fixture
def reads(monkeypatch):
    """The runs whose config.json was read."""
    names, real = [], run_brief.head_of
    monkeypatch.setattr(run_index, "head_of", lambda folder: (names.append(folder.name), real(folder))[1])
    return names


def indexed():
    index = RunIndex()
    lines = index.all()
    index.save()
    return lines


def in_file(root, *statements):
    with closing(sqlite3.connect(root / NAME)) as file, file:
        return [file.execute(statement).fetchall() for statement in statements][-1]


def change_facts(run, **changes):
    facts = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**facts, **changes}))
    return facts


def values_of(*keys):
    index = RunIndex()
    index.refresh()
    return index.values(keys)


def test_a_second_command_reads_nothing_and_knows_the_same(root, reads, monkeypatch):
    ids = make(root, RUNS)
    first = indexed()
    assert [line.id for line in first] == ids and len(reads) == RUNS
    reads.clear()
    assert indexed() == first and not reads
    monkeypatch.setattr(run_index, "REST_NS", 10**12)  # what changed in the moment of reading is not kept
    (root / NAME).unlink()
    indexed(), reads.clear(), indexed()
    assert len(reads) == RUNS
    assert [line.status for line in first[-3:]] == ["damaged"] * 3
    assert "best.json" in first[-3].fault and "metrics.csv" in first[-2].fault and "config.json" in first[-1].fault


def test_what_has_changed_is_read_again_and_nothing_else(root, reads):
    ids = make(root, RUNS, damaged=0)
    indexed()
    reads.clear()
    config = change_facts(root / ids[3], seed=77)["config"]
    del config["policy_lr"]
    change_facts(root / ids[3], config=config)
    write_labels(root / ids[5], Labels(("good",), "a note"))
    os.rename(root / ids[7], root / MOVED)
    lines = {line.id: line for line in indexed()}
    assert {*reads} == {ids[3], MOVED}
    assert lines[ids[3]].seed == 77 and lines[ids[5]].labels == Labels(("good",), "a note")
    assert ids[7] not in lines and next(iter(lines)) == MOVED
    assert {line.id: line for line in indexed()} == lines
    for table in ("runs", "details"):
        assert {run_id for (run_id,) in in_file(root, f"SELECT id FROM {table}")} == {*lines}
    values = values_of("policy_lr")["policy_lr"]
    assert values[ids[3]] is None and ids[7] not in values and values[MOVED] is not None


def test_a_link_in_its_place_is_neither_read_nor_written_through(root, reads):
    make(root, RUNS)
    first = indexed()
    elsewhere = (root / NAME).rename(root / "elsewhere")
    data = elsewhere.read_bytes()
    (root / NAME).symlink_to(elsewhere)
    reads.clear()
    assert indexed() == first and len(reads) == RUNS and elsewhere.read_bytes() == data


def test_a_file_that_another_command_holds_is_not_waited_for_and_few_runs_have_none(root):
    ids = make(root, RUNS)
    first = indexed()
    with closing(sqlite3.connect(root / NAME, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        assert indexed() == first
    (root / NAME).unlink()
    for run_id in ids[5:]:
        shutil.rmtree(root / run_id)
    assert len(indexed()) == 5 and not (root / NAME).exists()


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
RATE = '"policy_lr": '  # of the details, as JSON
DAMAGE = {  # what another has done with the file, in SQL
    "a view that comes to no end": f"DROP TABLE runs; CREATE VIEW runs AS {ENDLESS} SELECT x AS id FROM c",
    "a trigger": "CREATE TRIGGER slow AFTER DELETE ON runs BEGIN DELETE FROM details; END",
    "another column": "ALTER TABLE details ADD COLUMN more BLOB AS (hex(zeroblob(1e8)))",
    "a table that is missing": "DROP TABLE details",
    "no JSON": f"UPDATE details SET contents = replace(contents, '{RATE}', '{RATE}[')",
    "a list for a number": f"UPDATE details SET contents = replace(contents, '{RATE}', '{RATE}[], \"x\": ')",
    "colours of a terminal": "UPDATE runs SET variant = char(27) || '[31mred'",
}


def spoil(path, way):
    content = path.read_bytes()
    path.unlink()
    if way in DAMAGE:
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.executescript(DAMAGE[way])
    elif way == "a FIFO":
        os.mkfifo(path)
    elif way == "a FIFO beside it":
        path.write_bytes(content)
        os.mkfifo(f"{path}-journal")
    elif way == "a folder":
        path.mkdir()
    else:
        half = len(content) // 2
        path.write_bytes({"cut": content[:half], "shifted": content[1:], "zeros": bytes(half), "empty": b""}[way])


@pytest.mark.parametrize("way", [*DAMAGE, "a FIFO", "a FIFO beside it", "a folder", "cut", "shifted", "zeros", "empty"])
def test_whatever_lies_there_a_list_is_right(root, way):
    """A question that came to no end would hang here."""
    make(root, RUNS)
    first, values = indexed(), values_of("policy_lr")
    spoil(root / NAME, way)
    assert values_of("policy_lr") == values
    assert indexed() == first and indexed() == first


def test_a_question_that_comes_to_no_end_is_given_up(root):
    root.mkdir()
    with pytest.raises(sqlite3.OperationalError, match="interrupted"), Shelf(root)._connected(0.01) as file:
        file.execute(f"{ENDLESS} SELECT max(x) FROM c")


def test_best_is_that_of_the_files_themselves(root):
    ids = make(root, RUNS)
    indexed()
    new = next(run_id for run_id in ids if "-CartPole-v1-" in run_id)
    (root / new / "checkpoints" / "best.json").unlink()
    (root / new / "checkpoints" / "best.json").write_text('{"score": 999}')
    os.utime(root / new)  # a training has its lock there meanwhile, and writes config.json at its end
    write_labels(root / new, Labels())
    assert RunDir.find("@best:CartPole-v1").id == new


def test_what_only_json_can_say_is_kept_as_it_is_without_the_file(root):
    """A number that no cell of SQLite holds, half a character, a metric that ended as NaN, what a run was before."""
    ids = make(root, RUNS, damaged=0)
    odd = {"large": 10**30, "half": "\ud800!", "list": [1, 2], "on": True, "lines": "a\nb"}
    config = change_facts(root / ids[0])["config"]
    change_facts(root / ids[0], config={**config, **odd, "odd key": 1})
    text = (root / ids[0] / "metrics.csv").read_text()
    (root / ids[0] / "metrics.csv").write_text(text.replace("val/roll/ep_rew/mean", "nothing") + "21000,,nan,,,,,\n")
    (root / ids[1] / "metrics.csv").write_text(text + "21000,,nan,,,,,\n")
    first = indexed()
    assert repr(indexed()) == repr(first)  # NaN is not equal to itself
    assert math.isnan(next(line for line in first if line.id == ids[1]).tail.last)
    stored = {key: values[ids[0]] for key, values in values_of(*odd).items()}
    assert stored == run_shelf.picked(root / ids[0], [*odd])
    assert stored == {"large": 1e30, "half": "?!", "list": "[1, 2]", "on": "true", "lines": "a\nb"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """An index of runs with labels and without, failed and damaged ones among them, and its lines as a list."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("table")
        patch.setattr(time, "time", NOW)
        patch.setenv("STRIDE_RUNS", str(root))
        ids = make(root, RUNS)
        write_labels(root / ids[5], Labels(("good", "best"), "a note"))
        change_facts(root / ids[3], status="failed", failure="STRASSE (x.py:3)", group="night")
        index = RunIndex()
        return index, index.all()


def said(line):
    return " ".join((line.id, line.variant, line.status, line.result, line.group, line.reason, *line.labels.tags))


def holds(line, key, how, value):
    """What a word of a filter means."""
    if not key:
        return value.casefold() in folded(said(line))
    present = FIELDS[key](line)
    if key in WORDS:
        text = folded(present).replace(" ", "-")
        return text == value if key in EXACT_FIELDS else value in text
    return present is not None and COMPARED[how](present, value)


@st.composite
def words(draw, lines):
    """A word of a filter about what a line says, in its parts."""
    key, line = draw(st.sampled_from(["", *FIELDS])), draw(st.sampled_from(lines))
    if not key:
        return key, "", draw(st.sampled_from([*said(line).split(), "GOOD", "stra\u00dfe", "zzz"]))
    if key in WORDS:
        text = folded(FIELDS[key](line)).replace(" ", "-") or "nothing"
        return key, ":", text if key in EXACT_FIELDS else text[draw(st.integers(0, len(text) - 1)) :]
    return key, draw(st.sampled_from([*COMPARED])), FIELDS[key](line) or 0


@given(st.data())
def test_a_filter_and_an_order_are_those_of_a_plain_list(table, data):
    index, lines = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", NOW)
        asked = data.draw(st.lists(words(lines), min_size=1, max_size=3))
        key, down = data.draw(st.sampled_from([*FIELDS])), data.draw(st.booleans())
        where = parse(" ".join("".join(map(str, word)) for word in asked)).where
        assert index.select(*where) == [line for line in lines if all(holds(line, *word) for word in asked)]
        values = [FIELDS[key](line) for line in index.select(order=order_of("-" * down + key, ()))]
    present = [value for value in values if value is not None]
    assert values == sorted(present, reverse=down) + [None] * (RUNS - len(present))


def test_a_running_run_is_not_written_down_as_long_as_it_moves(root, monkeypatch):
    ids = make(root, RUNS, damaged=0)
    facts = change_facts(root / ids[0], status="running")
    del facts["outcome"]
    (root / ids[0] / "config.json").write_text(json.dumps({**facts, "status": "running"}))
    indexed()
    assert {run_id for (run_id,) in in_file(root, "SELECT id FROM runs")} == {*ids[1:]}
    monkeypatch.setattr(run_index, "RUNNING_REST_NS", -1)
    indexed()
    assert {run_id for (run_id,) in in_file(root, "SELECT id FROM runs")} == {*ids}
