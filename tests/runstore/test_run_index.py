"""The index of runs: what it keeps between commands is never the truth, and never in the way."""

import json
import math
import os
import sqlite3
import time
from contextlib import closing

import pytest

from lab.bench.runs import make
from runstore import run_brief, run_index
from runstore.run_dir import RunDir
from runstore.run_index import RunIndex
from runstore.run_labels import Labels, write_labels
from runstore.run_query import FIELDS, made_of
from runstore.run_shelf import NAME, Shelf

RUNS = 60


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    monkeypatch.setattr(run_index, "SETTLED", -1)  # as if the runs had been made long ago
    return tmp_path


@pytest.fixture
def reads(monkeypatch):
    """The runs whose config.json was read."""
    found, real = [], run_brief.head_of
    monkeypatch.setattr(run_index, "head_of", lambda folder: (found.append(folder.name), real(folder))[1])
    return found


def indexed():
    index = RunIndex()
    lines = index.all()
    index.save()
    return lines


def test_a_second_command_reads_nothing_and_knows_the_same(root, reads):
    ids = make(root, RUNS)
    first = indexed()
    assert [line.id for line in first] == ids and len(reads) == RUNS
    reads.clear()
    assert indexed() == first and not reads
    assert [line.status for line in first[-3:]] == ["damaged"] * 3
    assert "best.json" in first[-3].fault and "metrics.csv" in first[-2].fault and "config.json" in first[-1].fault


def test_what_has_changed_is_read_again_and_nothing_else(root, reads):
    ids = make(root, RUNS, damaged=0)
    indexed()
    reads.clear()
    facts = json.loads((root / ids[3] / "config.json").read_text())
    (root / ids[3] / "config.json").write_text(json.dumps({**facts, "seed": 77}))
    write_labels(root / ids[5], Labels(("good",), "a note"))
    os.rename(root / ids[7], root / "20270101-000000-moved")
    found = {line.id: line for line in indexed()}
    assert {*reads} == {ids[3], "20270101-000000-moved"}
    assert found[ids[3]].seed == 77 and found[ids[5]].labels == Labels(("good",), "a note")
    assert ids[7] not in found and next(iter(found)) == "20270101-000000-moved"
    assert {line.id: line for line in indexed()} == found


def test_what_changed_in_the_moment_of_reading_is_not_kept(root, reads, monkeypatch):
    monkeypatch.setattr(run_index, "SETTLED", 10**12)
    make(root, RUNS)
    indexed()
    reads.clear()
    indexed()
    assert len(reads) == RUNS


@pytest.mark.parametrize("spoil", ["garbage", "half", "other", "link", "folder", "empty"])
def test_whatever_the_file_is_the_lines_are_right(root, spoil):
    make(root, RUNS)
    first, file = indexed(), root / NAME
    text = file.read_bytes()
    file.unlink()
    if spoil == "folder":
        file.mkdir()
    elif spoil == "link":
        (root / "elsewhere").write_bytes(text)
        file.symlink_to(root / "elsewhere")
    elif spoil == "other":
        with sqlite3.connect(file) as other:
            other.execute("CREATE TABLE lines (id TEXT, folder TEXT)")
            other.execute("INSERT INTO lines VALUES ('x', 'y')")
    else:
        file.write_bytes({"garbage": b"no database " * 999, "half": text[: len(text) // 2], "empty": b""}[spoil])
    assert indexed() == first == indexed()
    if spoil == "link":
        assert (root / "elsewhere").read_bytes() == text  # neither read nor written through


def test_a_line_whose_rest_is_damaged_is_read_anew(root):
    make(root, RUNS)
    first = indexed()
    with sqlite3.connect(root / NAME) as file:
        file.execute("UPDATE lines SET rest = '[1'")
    index = RunIndex()
    index.ids()
    assert [index.brief(line.id) for line in first] == first


def test_another_command_that_holds_the_file_is_not_waited_for(root):
    make(root, RUNS)
    first = indexed()
    holder = sqlite3.connect(root / NAME, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.perf_counter()
    assert indexed() == first
    assert time.perf_counter() - began < 30
    holder.close()


def test_few_runs_leave_no_file(root):
    make(root, 5, damaged=0)
    assert len(indexed()) == 5 and not (root / NAME).exists()


def test_best_is_that_of_the_files_themselves(root):
    make(root, RUNS)
    indexed()
    scores = {path.parts[-3]: json.loads(path.read_text()) for path in root.glob("*/checkpoints/best.json")}
    of_env = {
        name: each["score"] for name, each in scores.items() if "-CartPole-v1-" in name and each["score"] != "high"
    }
    readable = {name: score for name, score in of_env.items() if (root / name / "config.json").read_text() != "{"}
    assert RunDir.find("@best:CartPole-v1").id == max(readable, key=readable.__getitem__)
    new = min(readable, key=readable.__getitem__)
    (root / new / "checkpoints" / "best.json").unlink()
    (root / new / "checkpoints" / "best.json").write_text('{"score": 999}')
    os.utime(root / new)  # a training has its lock there meanwhile, and writes config.json at its end
    write_labels(root / new, Labels())
    assert RunDir.find("@best:CartPole-v1").id == new


def test_values_of_keys_and_metrics_are_the_same_with_and_without_the_file(root):
    ids = make(root, RUNS, damaged=0)
    keys = ["policy_lr", "train/policy/entropy", "nothing"]
    index = RunIndex()
    direct = index.values(keys, index.all())
    index.save()
    later = RunIndex()
    shelved = later.values(keys, later.all())
    assert shelved == direct and [*direct] == keys and all({*each} == {*ids} for each in direct.values())
    assert {*direct["policy_lr"].values()} <= {1e-3, 3e-4, 1e-4} and {*direct["nothing"].values()} == {None}
    last = (root / ids[0] / "metrics.csv").read_text().splitlines()[-1].split(",")
    assert direct["train/policy/entropy"][ids[0]] == float(last[4])


def test_what_only_json_can_say_is_kept_as_it_is_told_without_the_file(root):
    """A number that no cell of SQLite holds, half a character, a metric that ended as NaN, what a run was before."""
    ids = make(root, RUNS, damaged=0)
    facts = json.loads((root / ids[0] / "config.json").read_text())
    facts["config"] |= {"large": 10**30, "half": "\ud800!", "list": [1, 2], "on": True, "lines": "a\nb", "odd key": 1}
    (root / ids[0] / "config.json").write_text(json.dumps(facts))
    text = (root / ids[0] / "metrics.csv").read_text()
    (root / ids[0] / "metrics.csv").write_text(text.replace("val/roll/ep_rew/mean", "nothing") + "21000,,nan,,,,,\n")
    (root / ids[1] / "metrics.csv").write_text(text + "21000,,nan,,,,,\n")
    first = indexed()
    assert repr(indexed()) == repr(first)  # NaN is not equal to itself
    assert math.isnan(next(line for line in first if line.id == ids[1]).tail.last)
    keys = ["large", "half", "list", "on", "lines"]
    told = RunIndex()
    told.all()
    shelved = {key: values[ids[0]] for key, values in told.values(keys, told.all()).items()}
    assert shelved == run_index.picked(root / ids[0], keys)
    assert shelved == {"large": 1e30, "half": "?!", "list": "[1, 2]", "on": "true", "lines": "a\nb"}


def test_a_run_that_was_kept_has_only_the_values_it_has_now(root):
    ids = make(root, RUNS, damaged=0)
    indexed()
    facts = json.loads((root / ids[3] / "config.json").read_text())
    del facts["config"]["policy_lr"]
    (root / ids[3] / "config.json").write_text(json.dumps(facts))
    os.rename(root / ids[4], root / "20270101-000000-moved")
    index = RunIndex()
    index.all()
    index.save()
    with closing(sqlite3.connect(root / NAME)) as file:
        left = file.execute("SELECT count(*) FROM cells WHERE line NOT IN (SELECT number FROM lines)").fetchone()
    assert left == (0,)
    later = RunIndex()
    values = later.values(["policy_lr"], later.all())["policy_lr"]
    assert values[ids[3]] is None and ids[4] not in values and values["20270101-000000-moved"] is not None


@pytest.mark.parametrize("name", ["id", "seen", "status", "test", "tail.steps", "labels", "settings"])
@pytest.mark.parametrize("told", ["[1", "[]", "7", '{"a": 1}', None])
def test_columns_that_are_damaged_are_made_anew(root, reads, name, told):
    make(root, RUNS)
    first = indexed()
    with sqlite3.connect(root / NAME) as file:
        file.execute("UPDATE columns SET told = ? WHERE name = ?", [told, name])
    assert indexed() == first
    reads.clear()
    assert indexed() == first and not reads


def test_a_row_that_another_command_put_there_meanwhile_is_not_taken_for_what_was_seen(root):
    ids = make(root, RUNS, damaged=0)
    indexed()
    early = RunIndex()
    some = early.all(fields={"id", "env"})
    facts = json.loads((root / ids[3] / "config.json").read_text())
    (root / ids[3] / "config.json").write_text(json.dumps({**facts, "seed": 77}))
    indexed()
    assert [line.seed for line in early.whole(some) if line.id == ids[3]] == [77]
    with sqlite3.connect(root / NAME) as file:
        file.execute("UPDATE lines SET seen = 5")
    early = RunIndex()
    assert early.whole(early.all(fields={"id"})) == RunIndex().all()


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", FIELDS)
def test_each_field_says_the_same_of_a_line_of_which_nothing_else_is_read(root, name, many, monkeypatch):
    """MADE_OF says what is read for it; None stands for all else."""
    if many:
        monkeypatch.setattr(run_index, "FEW", 1)
    ids = make(root, RUNS)
    write_labels(root / ids[5], Labels(("good",), "a note"))
    monkeypatch.setattr(time, "time", lambda: 1.8e9)  # an age is the same
    whole = indexed()
    index = RunIndex()
    some = index.all(fields=made_of([name]))
    told = [FIELDS[name](line) for line in whole]
    assert [FIELDS[name](line) for line in some] == told and {*told} != {None}
    assert all(line.commit is None for line in some[:-3]) or name == "commit"
    assert index.whole(some) == whole


def test_words_are_looked_for_in_all_that_they_were_looked_for_in(root):
    ids = make(root, RUNS)
    write_labels(root / ids[5], Labels(("good",), ""))
    whole = indexed()
    assert [line.words for line in RunIndex().all(fields=made_of([""]))] == [line.words for line in whole]


def test_a_running_run_is_not_written_down_as_long_as_it_moves(root, monkeypatch):
    ids = make(root, RUNS, damaged=0)
    facts = json.loads((root / ids[0] / "config.json").read_text())
    del facts["outcome"]
    (root / ids[0] / "config.json").write_text(json.dumps({**facts, "status": "running"}))
    index = RunIndex()
    index.all()
    index.save()
    assert {*Shelf(root).columns().marks()} == {*ids[1:]}
    monkeypatch.setattr(run_index, "QUIET", -1)
    indexed()
    assert {*Shelf(root).columns().marks()} == {*ids}
