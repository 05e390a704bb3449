"""Compare: the middle of a group and its band, trials of a search by their settings, drawn on a phone, too."""

import json
import re

import numpy as np
import pytest
from gallery import gallery_copy
from inspector_browsing import opened

from stride.inspector.charts import Line
from stride.inspector.compare import GRID_POINTS, MIN_INTERVAL_RUNS, choices, chosen, compare_runs, middle_curve
from stride.inspector.runs import Runs
from stride.inspector.trials import MAX_KEYS, number_of, trials
from stride.utils.curve import Point
from stride.utils.statistics import interval, iqm

CLOCKS = {f"r{number}": {"steps": [0.0, 100.0], "time": [0.0, 10.0]} for number in range(9)}


def curves(ends, level=1.0):
    """A line for each run from 10 to its end, at a height of its own."""
    return [
        Line("x", [Point(10.0, level * number), Point(float(end), level * number)], "c0", run=f"r{number}")
        for number, end in enumerate(ends)
    ]


def test_a_run_that_ended_sooner_stays_at_its_last_value():
    short, long = [Point(10.0, 0.0)], [Point(10.0, 2.0), Point(50.0, 4.0)]
    lines = [Line("x", short, "c0", run="r0"), Line("x", long, "c0", run="r1")]
    line = middle_curve("x", lines, (), CLOCKS, "steps")
    assert line.points[0] == (10, 1) and line.points[-1] == (50, 2) and len(line.points) == GRID_POINTS
    assert (line.low[-1], line.high[-1]) == (0, 4)


def test_who_still_runs_ends_the_curve():
    own = curves([30, 90])
    assert middle_curve("x", own, {"r0"}, CLOCKS, "steps").points[-1].x == 30
    assert middle_curve("x", own, {"r1"}, CLOCKS, "steps").points[-1].x == 90
    assert middle_curve("x", curves([10, 10]), (), CLOCKS, "steps") is None


def test_the_axis_is_each_runs_own_clock():
    own = curves([50, 100])
    clocks = {"r0": CLOCKS["r0"], "r1": {"steps": [0.0, 100.0], "time": [0.0, 40.0]}}
    line = middle_curve("x", own, (), clocks, "time")
    assert (line.points[0].x, line.points[-1].x, line.axis) == (4, 40, "time")
    assert middle_curve("x", own, (), clocks, "episodes") is None


@pytest.mark.parametrize("count", [2, MIN_INTERVAL_RUNS - 1, MIN_INTERVAL_RUNS, 8])
def test_few_runs_have_a_range_and_more_an_interval(count):
    line = middle_curve("x", curves([60] * count), (), CLOCKS, "steps")
    heights = np.arange(count, dtype=float)
    wanted = (0.0, count - 1.0) if count < MIN_INTERVAL_RUNS else interval(heights, resamples=400)
    assert line.points[5].y == pytest.approx(iqm(heights))
    assert (line.low[5], line.high[5]) == pytest.approx(wanted)


# ---- trials

GAMMAS = (0.9, 0.95, 0.99, 0.999)


@pytest.fixture(scope="module")
def runs(root):
    """Four trials of a search, in settings and in returns apart."""
    result = []
    for number, gamma in enumerate(GAMMAS):
        run = gallery_copy("ppo", root)
        folder = run.path.rename(root / f"2026010{number + 1}-000000-CartPole-v1-ppo-s1-tri{number}")
        facts = json.loads((folder / "config.json").read_text())
        facts |= {"group": "sweep-x", "outcome": {**facts["outcome"], "test_mean": 100.0 + number}}
        facts["config"] |= {"gamma": gamma, "activation": "relu" if number else "tanh"}
        (folder / "config.json").write_text(json.dumps(facts))
        result.append(folder.name)
        (root / "@last").unlink()
        (root / "@last").symlink_to(folder.name)
    return result


def test_settings_are_numbers_or_names_and_runs_are_trials(runs):
    found = Runs()
    assert choices(found)[0] == ("CartPole-v1:ppo, 4 trials, sweep-x", "group:sweep-x")
    assert choices(found)[1] == ("CartPole-v1-ppo-s1-tri3, 2026-01-04 00:00", runs[3])
    text = re.search(r'data-trials="([^"]*)"', compare_runs(found, ["group:sweep-x"], ["return"])[0])[1]
    data = json.loads(text.replace("&quot;", '"').replace("&#123;", "{").replace("&#125;", "}"))
    assert sorted(data["keys"]) == ["activation", "gamma"] and len(data["keys"]) <= MAX_KEYS
    place = data["keys"].index("gamma")
    assert {(run["numbers"][place], run["return"]) for run in data["runs"]} == {
        *zip(GAMMAS, (100, 101, 102, 103), strict=True)
    }
    assert [number_of(text) for text in ("0.001", "lin_3e-4", "tanh", "1e999", "[64,64]")] == [0.001, 3e-4] + [None] * 3
    assert trials(chosen(found, runs[:2])) == ""  # two settings are no picture


@pytest.mark.browser
def test_trials_are_drawn_and_read_on_a_phone(browser, served, runs):
    with opened(browser, served[1], 390) as page:
        page.tab("Compare")
        page.expect(page.all("#compared .trial-dot")).to_have_count(4)
        page.expect(page.all("#several")).to_contain_text("4 trials")
        page.expect(page.all("#compared")).not_to_contain_text("choose")
        page.all(".trials select").select_option("gamma")
        page.all("#compared .trial-dot").nth(0).hover()
        page.expect(page.all(".trial-said")).to_contain_text("gamma=0.9 ")
        page.expect(page.all("#compared .trial-line.chosen")).to_have_count(1)
        assert page.all("#compared .trials").bounding_box()["width"] <= 390
