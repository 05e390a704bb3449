"""How many updates are owed: nothing lost, nothing before warm-up."""

import pytest

from agents.experience.ratio import Ratio


def test_whole_updates_are_paid_and_the_fraction_is_kept():
    ratio = Ratio(0.375, warmup=0)
    # debts 1.5, 0.5 + 1.5 = 2, 1.5, 2: exact in binary
    assert [ratio.due(4, 100) for _ in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize("per_env_step", [0.1, 1 / 3, 1.0, 2.5])
def test_over_time_the_ratio_is_kept(per_env_step):
    ratio = Ratio(per_env_step, warmup=0)
    assert abs(sum(ratio.due(8, 10**6) for _ in range(1000)) - 8000 * per_env_step) <= 1


def test_nothing_is_owed_before_the_warm_up_and_nothing_is_caught_up():
    ratio = Ratio(1.0, warmup=100)
    assert [ratio.due(10, remembered) for remembered in (10, 50, 99, 100, 110)] == [0, 0, 0, 10, 10]


def test_the_fraction_survives_a_checkpoint():
    old, new = Ratio(0.375, 0), Ratio(0.375, 0)
    old.due(4, 1)
    new.load_state_dict(old.state_dict())
    assert [new.due(4, 1) for _ in range(5)] == [old.due(4, 1) for _ in range(5)] == [2, 1, 2, 1, 2]
