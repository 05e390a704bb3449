"""Bandit-v0: what its arms pay, when it ends, and that the compiled and the plain environment are one task."""

import gymnasium
import numpy as np
import pytest
import torch
from goodness import ALPHA, kolmogorov_smirnov
from gymnasium.utils.env_checker import check_env

from stride.envs_fast.registry import make
from stride.envs_gym.gym_env import GymEnv
from stride.utils.user_error import UserError

ARMS = {"n_arms": 3, "means": [-1.0, 0.5, 2.0], "stds": [0.1, 1.0, 3.0]}


def gauss(mean, std):
    return lambda x: torch.special.ndtr(torch.from_numpy((x - mean) / std)).numpy()


@pytest.mark.parametrize("episode_length", [1, 50])
def test_arms_pay_their_normal(episode_length):
    """A million pulls of every arm, across worlds as well as along them."""
    env = make("Bandit-v0", 3000, seed=1, episode_length=episode_length, **ARMS)
    actions = (torch.arange(3000) % 3).expand(1000, 3000)
    reward = env.advance(actions).reward.numpy()
    for arm, (mean, std) in enumerate(zip(ARMS["means"], ARMS["stds"], strict=True)):
        assert kolmogorov_smirnov(reward[:, arm::3].reshape(-1), gauss(mean, std)) > ALPHA / 6


def test_pulls_are_independent():
    """Correlation of neighbouring pulls, worlds and seeds: a million pairs each, 6 sigma."""
    first, second = (
        make("Bandit-v0", 1001, seed=seed, means=[0.0] * 10, episode_length=7)
        .advance(torch.zeros((1001, 1001), dtype=torch.int64))
        .reward.numpy()
        for seed in (5, 6)
    )
    pairs = [
        (first[1:], first[:-1]),
        (first[:, 1:], first[:, :-1]),
        (first[7:], first[:-7]),  # the same pull of two episodes
        (first[7:, :-1], first[:-7, 1:]),  # the next episode of one world, this one of the next
        (first, second),
        (first[:, 1:], second[:, :-1]),
    ]
    for left, right in pairs:
        assert abs((left * right).mean()) < 6 / left.size**0.5


def test_a_reward_is_drawn_by_world_episode_and_pull_alone():
    """The noise is the same whichever arm is pulled."""
    means, stds = np.array(ARMS["means"]), np.array(ARMS["stds"])
    noises = []
    for arm in range(3):
        env = make("Bandit-v0", 50, seed=2, episode_length=4, **ARMS)
        noises.append((env.advance(torch.full((9, 50), arm)).reward.numpy() - means[arm]) / stds[arm])
    assert np.allclose(noises[0], noises[1], atol=2e-5)
    assert np.allclose(noises[2], noises[1], atol=2e-5)


def test_episodes_end_by_themselves_or_by_the_time_limit():
    env = make("Bandit-v0", 2, seed=0, episode_length=3)
    steps = env.advance(torch.zeros((6, 2), dtype=torch.int64))
    assert steps.terminated[:, 0].tolist() == [False, False, True] * 2
    assert not steps.truncated.any()
    assert steps.episode_length[[2, 5]].tolist() == [[3.0, 3.0]] * 2
    total = steps.reward.double().view(2, 3, 2).sum(1)
    assert torch.allclose(steps.episode_return[[2, 5]].double(), total, atol=1e-6)
    assert (steps.obs == 0).all()

    cut = make("Bandit-v0", 2, seed=0, episode_length=3, max_episode_steps=2)
    steps = cut.advance(torch.zeros((4, 2), dtype=torch.int64))
    assert steps.truncated[:, 0].tolist() == [False, True] * 2
    assert not steps.terminated.any()
    both = make("Bandit-v0", 2, seed=0, episode_length=2, max_episode_steps=2)
    step = both.advance(torch.zeros((2, 2), dtype=torch.int64))
    assert step.terminated[1].all()
    assert not step.truncated.any()


def test_means_come_from_their_seed():
    drawn = [make("Bandit-v0", 1, arms_seed=seed).setting.tables[0] for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.isin(drawn[0], drawn[2]).any()
    many = make("Bandit-v0", 1, n_arms=100_000).setting.tables[0]
    assert np.array_equal(many[:10], drawn[0])
    assert kolmogorov_smirnov(many, gauss(0.0, 1.0)) > ALPHA


def test_the_gymnasium_environment_is_the_same_task():
    check_env(gymnasium.make("Bandit-v0", **ARMS).unwrapped, skip_render_check=True)
    kwargs = {**ARMS, "episode_length": 2, "stds": 0.5}
    ours, theirs = make("Bandit-v0", 2, seed=0, **kwargs), GymEnv("Bandit-v0", 2, kwargs)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    assert (ours.time_limit, ours.reward_threshold) == (theirs.time_limit, theirs.reward_threshold)
    theirs.reset(0)
    rewards, pulls = [], torch.tensor([2, 0])
    for t in range(2000):
        step = theirs.step(pulls)
        rewards.append(step.reward.numpy().copy())
        assert step.terminated.all() == (t % 2 == 1)
    rewards = np.array(rewards)
    assert kolmogorov_smirnov(rewards[:, 0], gauss(2.0, 0.5)) > ALPHA
    assert kolmogorov_smirnov(rewards[:, 1], gauss(-1.0, 0.5)) > ALPHA
    default = gymnasium.make("Bandit-v0", arms_seed=4).unwrapped
    assert np.array_equal(default.means, make("Bandit-v0", 1, arms_seed=4).setting.tables[0])


WRONG = [
    ({"n_arms": 0}, "n_arms must be a whole number from 1 to"),
    ({"n_arms": 2.0}, "n_arms must be a whole number"),
    ({"n_arms": 2, "means": [1.0]}, "means must be 2 numbers"),
    ({"n_arms": 2, "means": 1.0}, "means must be 2 numbers"),
    ({"n_arms": 2, "means": [1.0, None]}, "means must be 2 finite numbers"),
    ({"stds": -1.0}, "stds must not be negative"),
    ({"stds": [1.0]}, "stds must be 10 numbers"),
    ({"stds": float("nan")}, "stds must be 10 finite numbers"),
    ({"episode_length": 2**31}, "episode_length must be a whole number from 1"),
    ({"episode_length": 0}, "episode_length must be a whole number from 1 to"),
    ({"arms_seed": -1}, "arms_seed must be a whole number from 0 to"),
    ({"arms_seed": 2**63}, "arms_seed must be"),
    ({"arm_means": [1]}, "no argument 'arm_means'"),
]


@pytest.mark.parametrize(("kwargs", "line"), WRONG)
def test_wrong_arguments_are_one_clear_line(kwargs, line):
    with pytest.raises(UserError, match=line) as error:
        make("Bandit-v0", 2, **kwargs)
    assert "\n" not in str(error.value)
