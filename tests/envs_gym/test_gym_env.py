"""The Gymnasium adapter against an environment that counts: ends, final observations, returns, seeds, blame."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from stride.envs_gym.gym_env import EnvError, GymEnv

ID = "stride-test/Counting-v0"


def counting(num_envs=2, max_episode_steps=None, **kwargs):
    env = GymEnv(ID, num_envs, kwargs, max_episode_steps)
    env.reset(0)
    return env


def play(env, steps):
    """Copies of what `steps` steps with action 1 returned."""
    action = torch.ones(env.num_envs, dtype=torch.int64)
    return [type(step)(*(leaf.clone() for leaf in step)) for step in (env.step(action) for _ in range(steps))]


@pytest.mark.parametrize(
    ("end", "terminated", "truncated"),
    [("terminated", True, False), ("truncated", False, True), ("both", True, False), ("neither", False, False)],
)
def test_terminated_truncated_both_neither(end, terminated, truncated):
    steps = play(counting(end=end), 3)
    assert not any(step.terminated.any() or step.truncated.any() for step in steps[:2])
    assert steps[2].terminated.tolist() == [terminated] * 2
    assert steps[2].truncated.tolist() == [truncated] * 2


def test_a_terminal_step_at_the_time_limit_is_terminated_only():
    (*_, last) = play(counting(length=3, max_episode_steps=3), 3)
    assert last.terminated.all() and not last.truncated.any()
    env = counting(length=9, max_episode_steps=3)
    (*_, last) = play(env, 3)
    assert last.truncated.all() and not last.terminated.any() and env.time_limit == 3


def test_same_step_reset_keeps_the_true_final_observation():
    env = counting(length=3)
    first = env.reset(0).clone()
    steps = play(env, 4)
    assert [step.obs[0, 0].item() for step in steps] == [1, 2, 0, 1]  # the third is already the next episode's first
    assert steps[2].final_obs[:, 0].tolist() == [3, 3]
    assert torch.equal(steps[2].final_obs[:, 1], first[:, 1])  # of the episode that ended
    assert not torch.equal(steps[2].obs[:, 1], first[:, 1])  # of the one that began
    assert torch.equal(steps[3].obs[:, 1], steps[2].obs[:, 1])


def test_worlds_end_one_by_one():
    env = counting(num_envs=2, length=3)
    env.envs[1].unwrapped.length = 2
    ended = [(step.terminated.tolist(), step.episode_length.tolist()) for step in play(env, 4)]
    assert ended == [
        ([False, False], [1, 1]),
        ([False, True], [2, 2]),
        ([True, False], [3, 1]),
        ([False, True], [1, 2]),
    ]


def test_returns_and_lengths_are_of_the_episode_the_step_belongs_to():
    steps = play(counting(length=3), 6)
    assert steps[0].reward.dtype == steps[0].episode_return.dtype == torch.float32
    rewards = [step.reward[0].item() for step in steps]
    assert rewards == pytest.approx([0.1, 0.2, 0.3] * 2)
    assert [step.episode_return[0].item() for step in steps] == pytest.approx([0.1, 0.3, 0.6] * 2)
    assert [step.episode_length[0].item() for step in steps] == [1, 2, 3] * 2


def test_the_return_is_added_up_in_double_precision():
    env = counting(num_envs=1, length=3000)
    (*_, last) = play(env, 3000)
    exact = sum(0.1 * k for k in range(1, 3001))
    assert last.episode_return.item() == np.float32(exact)


def test_only_the_first_reset_is_seeded():
    env = counting(num_envs=3, length=2)
    play(env, 5)
    for world in env.envs:
        first, *rest = world.unwrapped.resets
        assert first is not None and rest == [None, None]


@pytest.mark.parametrize("kind", ["discrete", "tuple", "dict", "multi_discrete"])
def test_structured_observations(kind):
    env = counting(kind=kind, length=2)
    action = torch.zeros(2, dtype=torch.int64)

    def count(obs):
        if kind == "discrete":
            return obs.tolist()
        return obs[:, 0].tolist() if kind == "multi_discrete" else obs["0" if kind == "tuple" else "count"].tolist()

    step = env.step(action)
    assert count(step.obs) == [1, 1]
    step = env.step(action)
    assert count(step.obs) == [0, 0] and count(step.final_obs) == [2, 2] and step.terminated.all()
    if kind == "dict":
        assert sorted(step.obs) == ["count", "deep.start"]
        assert not torch.equal(step.obs["deep.start"], step.final_obs["deep.start"])


def test_actions_reach_their_world_in_its_units():
    env = counting(num_envs=3)
    env.step(torch.tensor([2, 0, 1]))
    assert [world.unwrapped.actions for world in env.envs] == [[3], [1], [2]]
    env = counting(action="box")
    action = torch.tensor([[-1.0, 0.5], [7.0, -7.0]])
    env.step(action)
    action.zero_()  # what the world was given is its own
    given = [world.unwrapped.actions[0].tolist() for world in env.envs]
    assert given == [[0.0, 2.0], [10.0, -4.0]]


@pytest.mark.parametrize(
    "action", [torch.zeros(3, dtype=torch.int64), torch.zeros(2), torch.zeros(2, 1, dtype=torch.int64)]
)
def test_an_action_of_the_wrong_shape_or_type_is_refused(action):
    with pytest.raises(ValueError, match=r"takes actions torch.int64\[2\]"):
        counting().step(action)


@pytest.mark.parametrize(
    ("fault", "what"), [("raise", "the sky fell"), ("shape", r"float32\[1\] does not fit float32\[2\]")]
)
def test_a_fault_names_the_environment_and_the_world(fault, what):
    env = counting(num_envs=3)
    env.envs[1].unwrapped.fault = fault
    play(env, 1)
    with pytest.raises(EnvError, match=f"{ID}, world 1: .*{what}") as caught:
        play(env, 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError if fault == "raise" else ValueError)


def test_buffers_are_built_once():
    env = counting()
    obs = env.reset(1)
    first = env.step(torch.zeros(2, dtype=torch.int64))
    assert env.step(torch.zeros(2, dtype=torch.int64)) is first and first.obs is obs


def starts(seed, num_envs, episodes=4):
    """The random start of each of the first episodes, per world."""
    env = GymEnv(ID, num_envs, {"length": 1})
    found = [env.reset(seed)[:, 1].clone()]
    action = torch.zeros(num_envs, dtype=torch.int64)
    found += [env.step(action).obs[:, 1].clone() for _ in range(episodes - 1)]
    return torch.stack(found, dim=1)


def test_the_number_of_worlds_does_not_change_a_world():
    assert torch.equal(starts(5, 2), starts(5, 7)[:2])
    assert torch.equal(starts(5, 2), starts(5, 2))


def test_seeds_and_worlds_share_no_start_state():
    found = torch.cat([starts(seed, 16) for seed in range(8)]).flatten()
    assert len(set(found.tolist())) == found.numel() == 8 * 16 * 4


def test_the_global_generators_are_not_used():
    np.random.seed(1)
    torch.manual_seed(1)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()
    play(counting(), 5)
    assert np.random.get_state()[1].tolist() == before[0] and torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0"]
)
def test_against_gymnasium_itself(env_id):
    """The same worlds, seeds and actions through Gymnasium's own vector environment in SAME_STEP mode."""

    ours = GymEnv(env_id, 3)
    theirs = SyncVectorEnv([lambda: gymnasium.make(env_id)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    obs = ours.reset(3)
    expected, _ = theirs.reset(seed=ours._seeds)
    rng = np.random.default_rng(0)
    for _ in range(250):
        for mine, other in zip(leaves(obs), leaves(expected), strict=True):
            assert np.array_equal(mine, other)
        if ours.action_space.shape:
            action = torch.from_numpy(rng.uniform(-1, 1, (3, 1)).astype(np.float32))
            given = action.numpy() * theirs.single_action_space.high
        else:
            action = torch.from_numpy(rng.integers(0, ours.action_space.n, 3))
            given = action.numpy()
        step = ours.step(action)
        expected, reward, terminated, truncated, _ = theirs.step(given)
        assert np.array_equal(step.reward.numpy(), reward.astype(np.float32))
        assert np.array_equal(step.terminated.numpy(), terminated)
        assert np.array_equal(step.truncated.numpy(), truncated & ~terminated)
        obs = step.obs


def leaves(obs):
    if isinstance(obs, dict):
        return [obs[name].numpy() for name in sorted(obs)]
    if isinstance(obs, tuple):
        return list(obs)
    return [obs.numpy() if isinstance(obs, torch.Tensor) else obs]
