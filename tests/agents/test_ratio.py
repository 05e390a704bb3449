"""How many updates are owed: nothing lost, nothing before warm-up, and Stable-Baselines3's words mean what they say."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.config.schema import DQNConfig


@given(st.fractions(0, 5, max_denominator=400), st.lists(st.integers(1, 40), min_size=1), st.integers(0, 300))
def test_whole_updates_are_paid_as_soon_as_they_are_owed_and_the_rest_is_saved(owed, steps, warmup):
    """Nothing is owed up to the warm-up nor while no row can be drawn, and nothing of it is caught up."""
    ratio, total, counted, paid = Ratio(owed, warmup), 0, 0, 0
    for new in steps:
        total, ready = total + new, new % 7 != 0
        counted += new if total > warmup and ready else 0
        restored = Ratio(owed, warmup)
        restored.load_state_dict(ratio.state_dict())
        ratio = restored
        paid += ratio.due(new, total, ready)
        assert paid == int(counted * owed)


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "n_envs", "updates"),
    [(1, 1, 1, 1), (256, 128, 1, 128), (4, -1, 1, 4), (16, 8, 1, 8), (4, 1, 8, 1), (4, -1, 8, 32), (3, 7, 3, 7)],
)
def test_an_iteration_makes_the_gradient_steps_it_was_given(train_freq, gradient_steps, n_envs, updates):
    """train_freq counts steps of each environment; -1 is one update per env step over all of them."""
    config = DQNConfig(env_id="CartPole-v1", train_freq=train_freq, gradient_steps=gradient_steps, n_envs=n_envs)
    ratio, new = Ratio(updates_per_step(config), warmup=0), train_freq * n_envs
    assert [ratio.due(new, (i + 1) * new) for i in range(50)] == [updates] * 50


def test_a_ratio_of_ones_own_is_no_float():
    assert updates_per_step(DQNConfig(env_id="CartPole-v1", updates_per_step=0.3)) == Fraction(3, 10)
