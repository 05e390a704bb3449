"""Bandits: what their arms pay, when they end, that compiled and plain environment are one task, and their names."""

import gymnasium
import numpy as np
import pytest
import torch
from goodness import ALPHA, kolmogorov_smirnov
from gymnasium.utils.env_checker import check_env
from tiny_runs import tiny_run

from stride.commands import train
from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.registry import make
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import make_envs

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


@pytest.mark.parametrize(
    ("length", "limit", "terminated", "truncated"),
    [(3, None, [0, 0, 1] * 2, [0] * 6), (3, 2, [0] * 6, [0, 1] * 3), (2, 2, [0, 1] * 3, [0] * 6)],
)
def test_episodes_end_by_themselves_or_by_the_time_limit(length, limit, terminated, truncated):
    env = make("Bandit-v0", 2, seed=0, episode_length=length, max_episode_steps=limit)
    steps = env.advance(torch.zeros((6, 2), dtype=torch.int64))
    assert steps.terminated[:, 0].tolist() == terminated and steps.truncated[:, 0].tolist() == truncated
    assert (steps.obs == 0).all()


def test_means_come_from_their_seed():
    drawn = [make("Bandit-v0", 1, arms_seed=seed).setting.tables[0] for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.isin(drawn[0], drawn[2]).any()
    many = make("Bandit-v0", 1, n_arms=100_000).setting.tables[0]
    assert np.array_equal(many[:10], drawn[0])
    assert kolmogorov_smirnov(many, gauss(0.0, 1.0)) > ALPHA


def test_the_gymnasium_environment_is_the_same_task():
    check_env(gymnasium.make("Bandit-v0", **ARMS).unwrapped, skip_render_check=True)
    theirs = GymEnv("Bandit-v0", 2, {**ARMS, "episode_length": 2, "stds": 0.5})
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


# `Bandit/NAME`: the name decides the arms


@pytest.fixture(autouse=True)
def forgotten():
    """Names that a test registers are nobody else's."""
    yield
    for table in (registry.WORLDS, gymnasium.registry):
        for name in [name for name in table if name.startswith("Bandit/")]:
            del table[name]


def means(name, **kwargs):
    return make_envs(Config(env_id=name, env_kwargs=kwargs), 2).setting.tables.means.tolist()


@pytest.mark.parametrize("name", ["", "a b", "ä/b", "x" * 300 + " "])
def test_a_name_that_no_id_can_have_is_one_line(name, capsys):
    assert train.command([f"Bandit/{name}:ppo", "-q"]) == 2
    assert "is not an environment id" in capsys.readouterr().err


def test_a_name_is_a_bandit_of_its_own():
    red = means("Bandit/red")
    assert len(red) == 10 and red == means("Bandit/red") and red != means("Bandit/blue")
    plain = make_envs(Config(env_id="Bandit/red", env_backend="gym"), 1)
    assert plain.envs[0].unwrapped.means.tolist() == red
    assert means("Bandit/red", n_arms=2) == red[:2] and means("Bandit/red", means=[0.0] * 10) == [0.0] * 10


def test_it_trains_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run("Bandit/red:ppo", test_episodes=2)
    assert run.facts()["env_id"] == "Bandit/red" and run.facts()["env_backend"] == "fast"
