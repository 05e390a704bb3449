"""How many updates are owed: nothing lost, nothing before warm-up, and Stable-Baselines3's words mean what they say."""

from fractions import Fraction

import pytest

from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.config.schema import DQNConfig


def test_whole_updates_are_paid_and_the_fraction_is_kept():
    ratio = Ratio(Fraction("0.375"), warmup=0)
    # debts 1.5, 0.5 + 1.5 = 2, 1.5, 2
    assert [ratio.due(4, 100) for _ in range(4)] == [1, 2, 1, 2]


@pytest.mark.parametrize("owed", [Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(5, 2)])
def test_over_time_the_ratio_is_kept(owed):
    ratio = Ratio(owed, warmup=0)
    assert sum(ratio.due(8, 10**6) for _ in range(1000)) == int(8000 * owed)


def test_nothing_is_owed_before_the_warm_up_and_nothing_is_caught_up():
    ratio = Ratio(Fraction(1), warmup=100)
    assert [ratio.due(10, env_steps) for env_steps in (10, 50, 100, 101, 111)] == [0, 0, 0, 10, 10]
    assert ratio.due(10, 200, ready=False) == 0 and ratio.due(10, 210) == 10


def test_the_fraction_survives_a_checkpoint():
    old, new = Ratio(Fraction("0.375"), 0), Ratio(Fraction("0.375"), 0)
    old.due(4, 1)
    new.load_state_dict(old.state_dict())
    assert [new.due(4, 1) for _ in range(5)] == [old.due(4, 1) for _ in range(5)] == [2, 1, 2, 1, 2]


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "n_envs", "each"),
    [(1, 1, 1, 1), (256, 128, 1, 128), (4, -1, 1, 4), (16, 8, 1, 8), (4, 1, 8, 1), (4, -1, 8, 32), (3, 7, 3, 7)],
)
def test_an_iteration_makes_the_gradient_steps_it_was_given(train_freq, gradient_steps, n_envs, each):
    """train_freq counts steps of each environment; -1 is one update per env step over all of them."""
    config = DQNConfig(env_id="CartPole-v1", train_freq=train_freq, gradient_steps=gradient_steps, n_envs=n_envs)
    ratio, new = Ratio(updates_per_step(config), warmup=0), train_freq * n_envs
    assert [ratio.due(new, (i + 1) * new) for i in range(50)] == [each] * 50


def test_a_ratio_of_ones_own_carries_its_debt():
    ratio = Ratio(updates_per_step(DQNConfig(env_id="CartPole-v1", updates_per_step=0.3)), warmup=0)
    assert [ratio.due(1, i + 1) for i in range(10)] == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]
