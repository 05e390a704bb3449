"""The index of runs: what it keeps between commands is never the truth, and never in the way."""

import json
import math
import os
import sqlite3
import time
from contextlib import closing

import pytest

from lab.bench.runs import make
from stride.runstore import run_brief, run_index, run_shelf
from stride.runstore.run_brief import Labels, write_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_index import RunIndex
from stride.runstore.run_query import FIELDS, in_sql, parse
from stride.runstore.run_shelf import NAME

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


def in_file(root, *statements):
    with closing(sqlite3.connect(root / NAME)) as file, file:
        return [file.execute(statement).fetchall() for statement in statements][-1]


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


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET variant = 'x'",
        "UPDATE runs SET seen = 5 WHERE seed = 3",
        "DELETE FROM runs WHERE seed = 3",
        "DELETE FROM checksums",
        "INSERT INTO checksums VALUES (1)",
        "UPDATE details SET contents = replace(contents, 'policy_lr', 'gamma')",
        "UPDATE details SET contents = '{' || contents",
        "DELETE FROM details WHERE id LIKE '%-s3-%'",
        "UPDATE details SET seen = 5",
    ],
)
def test_what_was_changed_in_the_file_is_read_anew(root, reads, statement):
    make(root, RUNS)
    first, values = indexed(), values_of(RunIndex())
    in_file(root, statement)
    reads.clear()
    assert indexed() == first and bool(reads) == ("details" not in statement)
    assert values_of(RunIndex()) == values
    reads.clear()
    assert indexed() == first and not reads


def values_of(index):
    index.refresh()
    return index.values(["policy_lr"])


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


def test_values_of_keys_and_metrics_are_the_same_with_and_without_the_file(root, monkeypatch):
    ids = make(root, RUNS, damaged=0)
    keys = ["policy_lr", "train/policy/entropy", "nothing"]
    index = RunIndex()
    index.refresh()
    direct = index.values(keys)
    index.save()
    later = RunIndex()
    later.refresh()
    monkeypatch.setattr(run_index, "picked", None)  # nothing is read from the files of a run
    shelved = later.values(keys)
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
    told.refresh()
    shelved = {key: values[ids[0]] for key, values in told.values(keys).items()}
    assert shelved == run_shelf.picked(root / ids[0], keys)
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
    for table in ("runs", "details"):
        assert {run_id for (run_id,) in in_file(root, f"SELECT id FROM {table}")} == {*index.ids()}
    values = values_of(RunIndex())["policy_lr"]
    assert values[ids[3]] is None and ids[4] not in values and values["20270101-000000-moved"] is not None


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_is_the_same_for_sqlite(root, name, monkeypatch):
    ids = make(root, RUNS)
    write_labels(root / ids[5], Labels(("good", "best"), "a note"))
    monkeypatch.setattr(time, "time", lambda: 1.8e9)  # an age is the same
    index = RunIndex()
    lines = index.all()
    for value in (value for value in (FIELDS[name](line) for line in lines) if value is not None):
        equal = index.select(f"{in_sql(name)} = ?", [value])
        assert equal == [line for line in lines if FIELDS[name](line) == value]
    assert index.select(f"{in_sql(name)} IS NULL") == [line for line in lines if FIELDS[name](line) is None]


@pytest.mark.parametrize(
    "word", ["cartpole-v1:ppo", "GOOD", "failed", "s3", "20260921", "solved", "stra\u00dfe", "nothing"]
)
def test_words_are_looked_for_in_all_that_a_line_says(root, word):
    ids = make(root, RUNS)
    write_labels(root / ids[5], Labels(("good",), ""))
    facts = json.loads((root / ids[3] / "config.json").read_text())
    (root / ids[3] / "config.json").write_text(json.dumps({**facts, "status": "failed", "failure": "STRASSE (x.py:3)"}))
    index = RunIndex()
    lines = index.all()
    said = {
        line.id: " ".join((line.id, line.variant, line.status, line.result, line.group, line.reason, *line.labels.tags))
        for line in lines
    }
    wanted = [line for line in lines if word.casefold() in said[line.id].casefold()]
    assert index.select(*parse(word).where) == wanted and bool(wanted) == (word != "nothing")


def test_a_running_run_is_not_written_down_as_long_as_it_moves(root, monkeypatch):
    ids = make(root, RUNS, damaged=0)
    facts = json.loads((root / ids[0] / "config.json").read_text())
    del facts["outcome"]
    (root / ids[0] / "config.json").write_text(json.dumps({**facts, "status": "running"}))
    index = RunIndex()
    index.all()
    index.save()
    assert {run_id for (run_id,) in in_file(root, "SELECT id FROM runs")} == {*ids[1:]}
    monkeypatch.setattr(run_index, "QUIET", -1)
    indexed()
    assert {run_id for (run_id,) in in_file(root, "SELECT id FROM runs")} == {*ids}
