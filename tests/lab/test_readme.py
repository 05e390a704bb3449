"""README: figures are those of the evidence files, picture and sample those of real runs, and it stays short."""

import json
import re

import pytest

from lab import resumed
from lab.evidence.runs import Store
from lab.resumed import FIGURES, IMAGE, drawn, measure
from lab.site import measured
from lab.site.blocks import filled
from stride.commands import train
from stride.utils.places import PROJECT as ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LOOSE = ("threads", "time")  # header lines that depend on the machine and its load


def test_it_is_read_in_90_seconds():
    assert TEXT.count("\n") <= 110 and len(TEXT.split()) <= 900


def test_its_figures_are_those_of_the_files(tmp_path, monkeypatch):
    """With other numbers in the files each row is another one."""
    assert filled(TEXT) == TEXT
    rows = [*measured.table().splitlines()[2:], measured.resumed()]
    for name in ("benchmarks", "results"):
        (tmp_path / "docs" / name).mkdir(parents=True)
        for file in (ROOT / "docs" / name).glob("*.json"):
            (tmp_path / "docs" / name / file.name).write_text(json.dumps(other(json.loads(file.read_text()))))
    monkeypatch.setattr(measured, "PROJECT", tmp_path)
    monkeypatch.setattr(measured, "BENCHMARKS", tmp_path / "docs" / "benchmarks")
    monkeypatch.setattr(measured, "RESULTS", tmp_path / "docs" / "results")
    monkeypatch.setattr(measured, "RESUMED", tmp_path / "docs" / "benchmarks" / "resumed.json")
    changed = [*measured.table().splitlines()[2:], measured.resumed()]
    assert [row for row in rows if row in changed] == []


def other(data, factor=3):
    """Data of the same form with another value for each number, except for how many seeds ended and the version."""
    if isinstance(data, dict):
        return {key: value if key in ("finished", "version") else other(value, len(key)) for key, value in data.items()}
    if isinstance(data, list):
        return [other(value, factor) for value in data]
    return factor * data + 1 if type(data) in (int, float) else data


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs" / "learners").glob("*.md"))], ids=lambda path: path.stem
)
def test_no_figure_is_typed_by_hand(page):
    """Numbers with a unit are in generated parts, where a changed file changes them."""
    prose = re.sub(r"<!-- generated.*?<!-- end -->|```.*?```|`[^`]+`", "", page.read_text(), flags=re.S)
    figure = r"(?<![\w-])\d+(?:[.,]\d+)* ?(?:s|ms|us|seconds|minutes|(?:env )?steps|times|million|[MG])\b"
    assert re.findall(figure, prose) == []


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
    printed = plain(measured.shown(capsys.readouterr().out))
    assert plain(re.search(r"<!-- sample -->\n```\n(.*?)```", TEXT, re.S)[1]) == printed


def test_its_sample_and_the_results_have_one_answer():
    """The training that README shows is the beginning of the evidence's seed 1: equal evaluations at equal steps."""
    curve = dict(Store().curve("CartPole-v1:ppo", 1)["val"])
    sample = re.search(r"<!-- sample -->\n(.*?)<!-- /sample -->", TEXT, re.S)[1]
    shown = re.findall(r"([\d,]+) steps .* evaluation ([\d.]+) / goal", sample)
    assert shown
    for steps, score in shown:
        assert curve[int(steps.replace(",", ""))] == pytest.approx(float(score), abs=0.06), "rounded to one digit"


def plain(text):
    """Its different lines without digits, for what does not depend on the machine."""
    lines = (re.sub(r"[\d.,:%+-]+\S*", "#", line).split() for line in text.splitlines())
    return {" ".join(line) for line in lines if line and line[0] not in (*LOOSE, "#", "run", "engine")}
