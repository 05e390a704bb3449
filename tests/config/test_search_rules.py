"""Who goes on in a search: by hand-computed cases."""

import math

from stride.config.search import promoted, ranked, rungs_below


def test_rungs_are_powers_below_the_budget():
    assert rungs_below(73_728, 8_192, 3) == (8_192, 24_576)
    assert rungs_below(73_729, 8_192, 3) == (8_192, 24_576, 73_728)
    assert rungs_below(10, 9, 2) == (9,)


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
