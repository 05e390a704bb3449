"""A world's kernels for a GPU, compiled for this processor, against its Numba kernels: no bit differs."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from reachable import N, actions, on_host, states_of

from stride.envs_fast.device_code import twin_of
from stride.envs_fast.registry import WORLDS, make

SEED = (5 << 33) + 12345  # both halves of it count
TWINS = [(env_id, {}) for env_id, world in WORLDS.items() if twin_of(world).exists()]
VARIED = [
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {"goal_velocity": 0.03}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
    ("Pendulum-v1", {"g": 3.7}),
    ("FrozenLake-v1", {"desc": ["SFF", "FSF", "HFG"]}),
    ("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.9, "reward_schedule": [3.0, -2.5, 0.1]}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    ("Taxi-v4", {"fickle_passenger": True, "fickle_probability": 0.5}),
    ("Blackjack-v1", {"natural": True, "sab": False}),
    ("Blackjack-v1", {"sab": False}),
    ("Bandit-v0", {"n_arms": 3, "stds": [0.5, 0.0, 2.0], "episode_length": 3}),
    ("Bandit-v0", {"n_arms": 1, "means": [0.0], "stds": 0.0, "episode_length": 2}),
]
CASES = [*TWINS, *(pytest.param(*case, marks=pytest.mark.slow) for case in VARIED if twin_of(WORLDS[case[0]]).exists())]
BOXES = [env_id for env_id, _ in TWINS if isinstance(WORLDS[env_id].setting().action_space, Box)]
LIMIT = 20  # steps of an episode here, so that many are truncated
NEVER_ENDS = ("Pendulum-v1",)


def test_every_world_has_a_twin():
    assert [world.env_id for world in WORLDS.values() if not twin_of(world).exists()] == []


def both(env_id, number, limit=None, order=0, **kwargs):
    """The twin's worlds, whose threads run in that order, and Numba's."""
    mine, theirs = (of(env_id, number, SEED, limit, **kwargs) for of in (on_host, make))
    mine._kernels.order = order
    return mine, theirs


def scatter(envs, rng):
    """Put each world into some state it can be in, at some age of some episode; the same in both."""
    mine, theirs = envs
    values = (
        states_of(theirs),
        rng.integers(0, theirs.time_limit or 3, theirs.num_envs),
        rng.integers(0, 2**31 - 2, theirs.num_envs),
        rng.normal(0.0, 30.0, theirs.num_envs),
    )
    for there, here, value in zip(worlds_of(mine), worlds_of(theirs), values, strict=True):
        here[:] = value
        there.copy_(torch.from_numpy(here))


def worlds_of(env):
    return env.state, env.ages, env.episodes, env.returns


def assert_no_bit_differs(these, those):
    for this, that in zip(these, those, strict=True):
        this, that = np.ascontiguousarray(this), np.ascontiguousarray(that)
        assert (this.shape, this.itemsize) == (that.shape, that.itemsize)
        np.testing.assert_array_equal(this.view(f"u{this.itemsize}"), that.view(f"u{that.itemsize}"))


def compared(envs, given, legal=None, wrong=False):
    """What both tell of these actions, or Numba's of the legal ones nearest to them."""
    mine, theirs = envs
    result, expected = mine.advance(given), theirs.advance(given if legal is None else legal)
    assert_no_bit_differs([*result.arrays, *worlds_of(mine)], [*expected.arrays, *worlds_of(theirs)])
    assert bool(mine.wrong) is wrong
    return result


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_one_step_from_anywhere(env_id, kwargs):
    envs, rng = both(env_id, N, order=1, **kwargs), np.random.default_rng(1)
    scatter(envs, rng)
    for env in envs:
        env.ages[::4] = 0
    step = compared(envs, actions(envs[1], rng, 1, N))
    assert env_id in NEVER_ENDS or step.terminated.sum() > 100


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_resets(env_id, kwargs):
    """Of all worlds; then of some of them, in the midst of episodes."""
    envs, rng = both(env_id, N, **kwargs), np.random.default_rng(2)
    for mask in (np.ones(N, np.bool_), rng.random(N) < 0.3):
        scatter(envs, rng)
        mine, theirs = ([env.restart(mask), env.last.arrays[0], *worlds_of(env)][1:] for env in envs)
        assert_no_bit_differs(mine, theirs)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_free_steps(env_id, kwargs):
    """With autoreset, and nothing that brings the two together again."""
    envs, rng = both(env_id, 500, LIMIT, order=2, **kwargs), np.random.default_rng(3)
    scatter(envs, rng)
    steps = compared(envs, actions(envs[1], rng, 200, 500))
    assert env_id in NEVER_ENDS or steps.terminated.any()
    assert WORLDS[env_id].time_limit is None or steps.truncated.any()


@pytest.mark.parametrize("gymnasiums", [False, True])
@pytest.mark.parametrize("env_id", BOXES)
def test_actions_beyond_the_bounds(env_id, gymnasiums):
    """They are legal, infinities too, and cost more where Gymnasium charges for all of them; zeros have both signs."""
    envs, rng = both(env_id, N), np.random.default_rng(7)
    scatter(envs, rng)
    for env in envs:
        env.state[:, ::7] = 0.0
        if gymnasiums:
            env.charge_as_gymnasium()
    action = 3.0 * actions(envs[1], rng, 1, N)
    action[0, ::5] = -0.0
    action[0, :6, 0] = torch.tensor([1.0, -1.0, 0.0, -0.0, torch.inf, -torch.inf])
    compared(envs, action)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_a_wrong_action_is_told_and_the_nearest_legal_one_is_played(env_id, kwargs):
    """One action in ten, or one alone; a choice far out of range would be read far beyond a table."""
    envs, rng = both(env_id, 130, LIMIT, **kwargs), np.random.default_rng(5)
    tape = actions(envs[1], rng, 30, 130)
    where = rng.random(tape.shape) < 0.1
    odd, near = np.float32(np.nan), np.float32(0.0)
    if tape.dtype == torch.int64:
        highest = int(envs[1].action_space.n) - 1
        odd = rng.choice([-(2**63), -(2**40), -1, highest + 1, 2**31, 2**63 - 1], tape.shape)
        near = np.clip(odd, 0, highest)
    given, legal = (torch.from_numpy(np.where(where, instead, tape)) for instead in (odd, near))
    compared(envs, given, legal, wrong=True)
    envs[0].wrong.zero_()
    compared(envs, tape[:1])
    tape[1, 129] = -1 if tape.dtype == torch.int64 else float("nan")
    envs[0].advance(tape[:2])
    assert envs[0].wrong
