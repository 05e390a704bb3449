"""Two ways of training compared: equal ones are told to be the same, others are not."""

from xml.etree import ElementTree

import numpy as np
import pytest

from lab.evidence.ways import ENGINES, comparison, reached
from stride.utils.curve import Band, Point, bands_svg
from stride.utils.user_error import UserError


def test_two_of_a_kind_are_the_same_most_of_the_time():
    rng = np.random.default_rng(5)
    found = [comparison(rng.normal(0, 1, 10), rng.normal(0, 1, 10), ENGINES.level).same for _ in range(40)]
    assert sum(found) >= 36


@pytest.mark.parametrize("shift", [-3.0, 3.0])
def test_what_learns_worse_or_better_is_told_apart(shift):
    rng = np.random.default_rng(6)
    assert not any(comparison(rng.normal(0, 1, 10), rng.normal(shift, 1, 10), ENGINES.level).same for _ in range(20))


def test_a_small_but_steady_difference_between_equal_seeds_is_seen():
    """The seeds' intervals overlap; the pairs tell."""
    seeds = np.linspace(-100.0, 100.0, 10)
    assert comparison(seeds, seeds, ENGINES.level).same
    assert not comparison(seeds, seeds - 5.0, ENGINES.level).same


def test_one_seed_is_no_comparison():
    with pytest.raises(UserError, match="two seeds"):
        comparison([1.0], [1.0], 0.95)


def test_the_area_is_the_mean_height_of_the_curve():
    record = {"final": {"mean": 7}, "curve": {"val": [[100, 0.0], [200, 10.0], [400, 10.0]]}}
    assert reached(record, "area") == pytest.approx((5.0 * 100 + 10.0 * 200) / 300)
    assert reached(record, "final") == 7


def test_two_bands_and_their_means_are_drawn():
    line = [Point(0, 1), Point(10, 2)]
    band = Band(line, [Point(0, 0), Point(10, 1)], [Point(0, 2), Point(10, 3)])
    svg = ElementTree.fromstring(bands_svg("both", {"eager": band, "fused_cpu": band}, 2.5))
    space = "{http://www.w3.org/2000/svg}"
    assert [each.get("class") for each in svg.iter(f"{space}polyline")] == ["first", "second"]
    assert [each.get("class") for each in svg.iter(f"{space}polygon")] == ["firstband", "secondband"]
    assert {"eager", "fused_cpu"} <= {each.text for each in svg.iter(f"{space}text")}
