"""README: figures are those of the evidence files, picture and sample those of real runs, and it stays short.

Generated pages of docs/ are up to date, and one that is not is noticed.
"""

import json
import re

import pytest

from lab import page_tables, readme, resumed, write_docs
from lab.resumed import FIGURES, IMAGE, drawn, measure
from stride.commands import train

TEXT = readme.README.read_text(encoding="utf-8")
LOOSE = ("threads", "time")  # header lines that depend on the machine and its load


def test_it_is_read_in_90_seconds_and_its_figures_are_those_of_the_files(tmp_path, monkeypatch, capsys):
    assert TEXT.count("\n") <= 110 and len(TEXT.split()) <= 900
    assert readme.main(["--check"]) == 0
    other = json.loads((readme.BENCHMARKS / "train.json").read_text())
    other["solve"]["median_seconds"] = 9.9
    for file in readme.BENCHMARKS.glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "train.json").write_text(json.dumps(other))
    monkeypatch.setattr(readme, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(readme, "PROJECT", tmp_path.parent)
    monkeypatch.setattr(readme, "RESULTS", tmp_path.parent / "none")
    monkeypatch.setattr(readme, "seeds", lambda: readme.start_to_solved())
    monkeypatch.setattr(page_tables, "BENCHMARKS", tmp_path)
    assert readme.main(["--check"]) == 1
    assert capsys.readouterr().err == "README.md is stale: run python -m lab.readme\n"


def test_its_picture_is_of_two_runs_that_ended_in_the_same_bits():
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    figures |= {name: [tuple(pair) for pair in figures[name]] for name in ("straight", "killed", "resumed")}
    assert figures["equal"] and len({*figures["digests"]}) == 1
    assert figures["straight"] == figures["resumed"] and len(figures["straight"]) > 100
    assert figures["killed"] == figures["straight"][: len(figures["killed"])]
    assert figures["killed"][-1][0] <= figures["killed_at"] < figures["budget"]
    assert IMAGE.read_text(encoding="utf-8") == drawn(figures)


@pytest.mark.slow
def test_the_picture_can_be_made_again(tmp_path):
    figures = measure(tmp_path, 10_240)
    assert figures["equal"] and 0 < figures["killed_at"] < 10_240
    assert figures["straight"] == figures["resumed"] and resumed.sentence(figures)


def test_its_sample_is_what_a_training_prints(capsys, tmp_path, monkeypatch):
    """Line by line without numbers; another processor may need other steps."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    assert train.command(["CartPole-v1:ppo"]) == 0
    printed = plain(readme.shown(capsys.readouterr().out))
    assert plain(re.search(r"<!-- sample -->\n```\n(.*?)```", TEXT, re.S)[1]) == printed


def plain(text):
    """Its different lines without digits, for what does not depend on the machine."""
    lines = (re.sub(r"[\d.,:%+-]+\S*", "#", line).split() for line in text.splitlines())
    return {" ".join(line) for line in lines if line and line[0] not in (*LOOSE, "#", "run", "engine")}


def test_a_generated_page_that_is_stale_is_named(tmp_path, monkeypatch, capsys):
    assert write_docs.main(["--check"]) == 0
    monkeypatch.setattr(write_docs, "FOLDER", tmp_path)
    assert write_docs.main([]) == 0 and write_docs.main(["--check"]) == 0
    (tmp_path / "wrappers.md").write_text("# Old\n")
    assert write_docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/wrappers.md is stale: run python -m lab.write_docs\n"
