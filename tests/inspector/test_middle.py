"""The middle of a group and its band: what each run adds, where it begins and where it ends."""

import numpy as np
import pytest

from stride.inspector.charts import Line
from stride.inspector.compare import GRID, SURE, middle_curve
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
    assert line.points[0] == (10, 1) and line.points[-1] == (50, 2) and len(line.points) == GRID
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


@pytest.mark.parametrize("count", [2, SURE - 1, SURE, 8])
def test_few_runs_have_a_range_and_more_an_interval(count):
    line = middle_curve("x", curves([60] * count), (), CLOCKS, "steps")
    heights = np.arange(count, dtype=float)
    wanted = (0.0, count - 1.0) if count < SURE else interval(heights, resamples=400)
    assert line.points[5].y == pytest.approx(iqm(heights))
    assert (line.low[5], line.high[5]) == pytest.approx(wanted)
