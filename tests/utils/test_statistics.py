"""Aggregates over seeds against numbers worked out by hand."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stride.utils.statistics import interval, iqm, mean_and_deviation


def test_iqm_drops_a_quarter_on_each_side():
    assert iqm([100, 1, 2, 3, 4, 5, 6, -1000]) == 3.5
    assert iqm([0, 500, 490, 480, 1e9]) == 490.0
    assert iqm([1, 2, 3]) == 2.0 and iqm([7]) == 7.0
    assert math.isnan(iqm([1, math.nan, math.nan, math.nan, 2]))
    with pytest.raises(ValueError, match="no values"):
        iqm([])


def test_interval_is_reproducible_and_holds_the_statistic():
    x = np.arange(20.0)
    low, high = interval(x)
    assert (low, high) == interval(x) != interval(x, seed=1)
    assert low < iqm(x) < high
    narrow = interval(x, level=0.5)
    assert low < narrow[0] < narrow[1] < high
    assert interval([5.0]) == (5.0, 5.0)


def test_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for i in range(200):
        low, high = interval(rng.normal(size=30), statistic=np.mean, resamples=300, seed=i)
        covered += low < 0 < high
    assert 165 < covered < 200  # binomial(200, .93) leaves this range less than once in 10**5


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40))
@example([1e308, 1e308, 1e308])
@example([-1e308, 1e308])
@example([5e-324, 0.0])
def test_no_finite_number_is_too_large_for_a_mean(values):
    mean, deviation = mean_and_deviation(values)
    assert mean == pytest.approx(math.fsum(x / len(values) for x in values)) and math.isfinite(deviation)
    if max(map(abs, values)) < 1e100:
        assert (mean, deviation) == (statistics.fmean(values), statistics.pstdev(values))
    assert all(math.isnan(x) for wrong in (math.nan, math.inf) for x in mean_and_deviation([*values, wrong]))
