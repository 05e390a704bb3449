"""dreams.json and what is said of it: means, metrics and words by hand; damaged files are one line."""

import json
import math

import pytest

from stride.config.metrics import declared
from stride.runstore.dreams import Dreams, read_dreams, words, write_dreams
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

NAN = float("nan")
DREAMS = Dreams(
    (1, 5, 15), ("angle", "never moves", "speed"),
    [[0.2, 0.4, NAN], [NAN, NAN, NAN], [0.4, 0.6, NAN]],
    [[0.5, 0.7, NAN], [NAN, NAN, NAN], [0.7, 0.9, NAN]],
    (9, 4, 0),
)  # fmt: skip
METRICS = {"test/dream/error/1": 0.3, "test/dream/error/5": 0.5}
METRICS |= {"test/dream/unchanged/1": 0.6, "test/dream/unchanged/5": 0.8}
DAMAGES = [{"steps": []}, {"steps": [1.5, 2, 3]}, {"starts": [1]}, {"observations": {}}, {"observations": ["x"]},
           {"observations": [{"name": "x", "dreamt": [1], "unchanged": [1, 2, 3]}]}]  # fmt: skip


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


def test_means_are_over_what_ever_changes_and_over_steps_that_were_reached():
    assert DREAMS.metrics() == pytest.approx(METRICS)
    assert all(declared(f"test/dream/{kind}/{step}") for kind in ("error", "unchanged") for step in (1, 5, 15))
    assert words(METRICS) == "error 0.30 / 0.50 standard deviations after 1 / 5 steps; 0.60 / 0.80 if nothing changed"
    assert words({}) == words({"test/roll/ep_rew/mean": 3.0}) == ""


def test_what_is_written_is_read_again(run):
    assert read_dreams(run) is None
    write_dreams(run, DREAMS)
    assert "NaN" not in run.dreams.read_text()
    dreams = read_dreams(run)
    assert (dreams.names, dreams.steps, dreams.starts) == (DREAMS.names, DREAMS.steps, DREAMS.starts)
    assert dreams.metrics() == pytest.approx(METRICS)
    head, lines = dreams.table()
    assert head == ["observation", *(f"{kind} +{step}" for kind in ("dreamt", "unchanged") for step in (1, 5, 15))]
    assert lines[0] == ["angle", "0.20", "0.40", "-", "0.50", "0.70", "-"]
    assert lines[-1] == ["all", "0.30", "0.50", "-", "0.60", "0.80", "-"]


@pytest.mark.parametrize("change", DAMAGES)
def test_another_file_is_one_line(run, change):
    write_dreams(run, DREAMS)
    facts = json.loads(run.dreams.read_text())
    run.dreams.write_text(json.dumps({**facts, **change}))
    with pytest.raises(UserError, match="does not have the errors of dreams"):
        read_dreams(run)


def test_numbers_that_are_none_are_none(run):
    write_dreams(run, DREAMS)
    text = run.dreams.read_text().replace("0.2,", '"<b>",').replace("0.4,", "true,", 1)
    run.dreams.write_text(text)
    assert math.isnan(read_dreams(run).dreamt[0][0])
