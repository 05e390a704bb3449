"""The Gymnasium adapter against an environment that counts: ends, final observations, returns, seeds, blame."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from playing import leaves, random_actions

from stride.agents.experience.nouns import tree_map
from stride.envs_gym.gym_env import EnvError, GymEnv

ID = "stride-test/Counting-v0"


def counting(num_envs=2, max_episode_steps=None, **kwargs):
    env = GymEnv(ID, num_envs, kwargs, max_episode_steps)
    env.reset(0)
    return env


def play(env, steps):
    """Copies of what `steps` steps with action 1 returned."""
    action = torch.ones(env.num_envs, dtype=torch.int64)
    return [tree_map(torch.clone, env.step(action)) for _ in range(steps)]


@pytest.mark.parametrize(
    ("end", "length", "limit", "terminated", "truncated"),
    [
        ("terminated", 3, None, True, False),
        ("truncated", 3, None, False, True),
        ("both", 3, None, True, False),
        ("neither", 3, None, False, False),
        ("terminated", 3, 3, True, False),  # at the time limit
        ("terminated", 9, 3, False, True),
    ],
)
def test_terminated_truncated_both_neither(end, length, limit, terminated, truncated):
    env = counting(end=end, length=length, max_episode_steps=limit)
    steps = play(env, 3)
    assert env.time_limit == limit
    assert [step.terminated.tolist() for step in steps] == [[False] * 2, [False] * 2, [terminated] * 2]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2, [False] * 2, [truncated] * 2]


def test_same_step_reset_keeps_the_true_final_observation():
    env = counting(length=3)
    first = env.reset(0).clone()
    steps = play(env, 4)
    assert [step.obs[0, 0].item() for step in steps] == [1, 2, 0, 1]  # the third is already the next episode's first
    assert steps[2].final_obs[:, 0].tolist() == [3, 3]
    assert torch.equal(steps[2].final_obs[:, 1], first[:, 1])  # of the episode that ended
    assert not torch.equal(steps[2].obs[:, 1], first[:, 1])  # of the one that began
    assert torch.equal(steps[3].obs[:, 1], steps[2].obs[:, 1])


def test_returns_and_lengths_are_of_the_episode_the_step_belongs_to_in_each_world():
    env = counting(num_envs=2, length=3)
    env.envs[1].unwrapped.length = 2
    steps = play(env, 4)
    assert [step.terminated.tolist() for step in steps] == [[0, 0], [0, 1], [1, 0], [0, 1]]
    assert [step.episode_length.tolist() for step in steps] == [[1, 1], [2, 2], [3, 1], [1, 2]]
    rewards = torch.stack([step.reward for step in steps])
    returns = torch.stack([step.episode_return for step in steps])
    assert rewards.dtype == returns.dtype == torch.float32
    assert rewards.flatten().tolist() == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.1, 0.1, 0.2])
    assert returns.flatten().tolist() == pytest.approx([0.1, 0.1, 0.3, 0.3, 0.6, 0.1, 0.1, 0.3])


def test_the_return_is_added_up_in_double_precision():
    (*_, last) = play(counting(num_envs=1, length=3000), 3000)
    assert last.episode_return.item() == np.float32(sum(0.1 * k for k in range(1, 3001)))


def test_only_the_first_reset_is_seeded_and_no_global_generator_is_used():
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()
    env = counting(num_envs=3, length=2)
    play(env, 5)
    for world in env.envs:
        first, *rest = world.unwrapped.resets
        assert first is not None and rest == [None, None]
    assert np.random.get_state()[1].tolist() == before[0] and torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("discrete", lambda obs: obs),
        ("multi_discrete", lambda obs: obs[:, 0]),
        ("tuple", lambda obs: obs["0"]),
        ("dict", lambda obs: obs["count"]),
    ],
)
def test_structured_observations(kind, count):
    first, last = play(counting(kind=kind, length=2), 2)
    assert count(first.obs).tolist() == [1, 1] and last.terminated.all()
    assert count(last.obs).tolist() == [0, 0] and count(last.final_obs).tolist() == [2, 2]
    if kind == "dict":
        assert sorted(last.obs) == ["count", "deep.start"]
        assert not torch.equal(last.obs["deep.start"], last.final_obs["deep.start"])


def test_actions_reach_their_world_in_its_units():
    env = counting(num_envs=3)
    env.step(torch.tensor([2, 0, 1]))
    assert [world.unwrapped.actions for world in env.envs] == [[3], [1], [2]]
    env = counting(action="box")
    action = torch.tensor([[-1.0, 0.5], [7.0, -7.0]])
    env.step(action)
    action.zero_()  # what the world was given is its own
    assert [world.unwrapped.actions[0].tolist() for world in env.envs] == [[0.0, 2.0], [10.0, -4.0]]


@pytest.mark.parametrize(
    ("fault", "what", "cause"),
    [("raise", "the sky fell", ZeroDivisionError), ("shape", r"float32\[1\] does not fit float32\[2\]", ValueError)],
)
def test_a_fault_names_the_environment_and_the_world(fault, what, cause):
    env = counting(num_envs=3)
    env.envs[1].unwrapped.fault = fault
    play(env, 1)
    with pytest.raises(EnvError, match=f"{ID}, world 1: .*{what}") as caught:
        play(env, 1)
    assert isinstance(caught.value.__cause__, cause)


def starts(seed, num_envs, episodes=4):
    """The random start of each of the first episodes, per world."""
    env = GymEnv(ID, num_envs, {"length": 1})
    first = env.reset(seed)[:, 1].clone()
    return torch.stack([first, *(step.obs[:, 1] for step in play(env, episodes - 1))], dim=1)


def test_seeds_and_worlds_share_no_start_state_and_their_number_changes_none():
    every = torch.cat([starts(seed, 16) for seed in range(8)])
    assert len(every.unique()) == every.numel() == 8 * 16 * 4
    assert torch.equal(starts(5, 2), every[5 * 16 : 5 * 16 + 2])


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]
)
def test_against_gymnasium_itself(env_id):
    """The same worlds, seeds and actions through Gymnasium's own vector environment in SAME_STEP mode."""
    ours = GymEnv(env_id, 3)
    theirs = SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    scale = theirs.single_action_space.high if ours.action_space.shape else 1
    obs = ours.reset(3)
    expected, _ = theirs.reset(seed=ours._seeds)
    for action in random_actions(ours, 250):
        parts = expected if isinstance(expected, tuple) else [expected]
        for (_, mine), other in zip(leaves(obs), parts, strict=True):
            assert np.array_equal(mine, other)
        step = ours.step(action)
        expected, reward, terminated, truncated, _ = theirs.step(action.numpy() * scale)
        assert np.array_equal(step.reward, reward.astype(np.float32))
        assert np.array_equal(step.terminated, terminated)
        assert np.array_equal(step.truncated, truncated & ~terminated)
        obs = step.obs
