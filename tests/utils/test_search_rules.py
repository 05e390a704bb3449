"""Who goes on in a search: by hand-computed cases."""

import math

import pytest

from utils.search_rules import Fork, Space, forks, multiples_below, perturbed, promoted, ranked, rungs_below


def test_rungs_are_powers_below_the_budget():
    assert rungs_below(73_728, 8_192, 3) == (8_192, 24_576)
    assert rungs_below(73_729, 8_192, 3) == (8_192, 24_576, 73_728)
    assert rungs_below(10, 9, 2) == (9,)
    assert multiples_below(512, 128) == (128, 256, 384) and multiples_below(513, 128) == (128, 256, 384, 512)


def test_of_equals_the_older_is_better_and_what_is_no_number_is_worst():
    assert ranked({0: 5.0, 1: 7.0, 2: 5.0, 3: math.nan, 4: -math.inf}) == [1, 0, 2, 3, 4]


def test_nobody_goes_on_before_a_third_is_one():
    assert promoted({}, (), 3) is None
    assert promoted({0: 1.0, 1: 9.0}, (), 3) is None
    assert promoted({0: 1.0, 1: 9.0, 2: 4.0}, (), 3) == 1
    assert promoted({0: 1.0, 1: 9.0, 2: 4.0}, {1}, 3) is None


def test_the_best_third_goes_on_best_first_and_a_late_one_takes_its_place():
    there = {0: 1.0, 1: 9.0, 2: 4.0, 3: 5.0, 4: 0.0, 5: 3.0}  # the best two: 1 and 3
    assert promoted(there, {1}, 3) == 3
    assert promoted(there, {1, 3}, 3) is None
    assert promoted({**there, 6: 10.0}, {1, 3}, 3) == 6, "of seven still two, and the newest is the best of them"
    assert promoted({**there, 6: 8.0, 7: 7.0, 8: 6.0}, {1, 3}, 3) == 6, "of nine three: 1, 6 and 7"
    assert promoted({**there, 6: 8.0, 7: 7.0, 8: 6.0}, {1, 3, 6}, 3) == 7


def test_the_worst_quarter_forks_the_best():
    assert forks({0: 1.0, 1: 2.0, 2: 3.0}) == []
    assert forks({0: 4.0, 1: 2.0, 2: 3.0, 5: 9.0}) == [Fork(1, 5)]
    eight = dict(enumerate([5.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0]))
    assert forks(eight) == [Fork(3, 2), Fork(1, 2)]
    assert forks({0: 1.0, 1: math.nan, 2: 0.0, 3: 0.5}) == [Fork(1, 0)]


@pytest.mark.parametrize(
    ("value", "space", "less", "more"),
    [
        (0.01, Space("policy_lr", (), 1e-5, 1.0), 0.008, 0.0125),
        (0.9, Space("gamma", (), 0.8, 1.0), 0.8, 1.0),
        (10, Space("n_epochs", (), 1, 20, whole=True), 8, 12),
        (2, Space("n_epochs", (), 1, 20, whole=True), 1, 3),
        (20, Space("n_epochs", (), 1, 20, whole=True), 16, 20),
        (1, Space("n_epochs", (), 1, 20, whole=True), 1, 2),
    ],
)
def test_a_fork_has_other_values_within_their_range(value, space, less, more):
    assert perturbed(value, space, more=False) == pytest.approx(less)
    assert perturbed(value, space, more=True) == pytest.approx(more)
