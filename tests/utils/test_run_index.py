"""The index of runs: what it keeps between commands is never the truth, and never in the way."""

import json
import os
import sqlite3
import time

import pytest

from scripts.bench.runs import make
from utils import run_brief, run_index
from utils.run_dir import RunDir
from utils.run_index import RunIndex
from utils.run_labels import Labels, write_labels
from utils.run_shelf import NAME

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
    assert shelved == direct and {*direct} == {*ids}
    assert all(each["policy_lr"] in (1e-3, 3e-4, 1e-4) and each["nothing"] is None for each in direct.values())
    last = (root / ids[0] / "metrics.csv").read_text().splitlines()[-1].split(",")
    assert direct[ids[0]]["train/policy/entropy"] == float(last[4])
