"""Batches of tensors are read and acted upon as spaces.py does it for one world after the other."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from stride.envs_fast.vec_env import CPU
from stride.envs_gym.batches import BatchActions, EpisodeCounts, observations, policy_space
from stride.envs_gym.spaces import actions, observation_space, observation_writer, zeros
from stride.utils.user_error import UserError

N = 5
BOX = gym.spaces.Box
SEEN = [
    BOX(-1, 1, (3,), np.float32),
    BOX(-np.inf, np.inf, (2, 3), np.float64),
    BOX(0, 1, (), np.float64),
    gym.spaces.Discrete(7, start=2),
    gym.spaces.MultiDiscrete([3, 4]),
    gym.spaces.MultiBinary(4),
    BOX(0, 255, (3, 9, 8), np.uint8),
    BOX(0, 255, (6,), np.uint8),
    gym.spaces.Dict({"policy": BOX(-1, 1, (2,), np.float32), "deep": gym.spaces.Dict({"one": gym.spaces.Discrete(3)})}),
    gym.spaces.Tuple((gym.spaces.Discrete(4), BOX(-1, 1, (1,), np.float64))),
    gym.spaces.Dict({"seen": BOX(-1, 1, (2,), np.float32), "action_mask": gym.spaces.MultiBinary(3)}),
]


def batch(space, samples):
    """As a vector environment hands it over."""
    if isinstance(space, gym.spaces.Dict):
        return {name: batch(part, [each[name] for each in samples]) for name, part in space.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(batch(part, [each[index] for each in samples]) for index, part in enumerate(space))
    return torch.from_numpy(np.stack([np.asarray(each) for each in samples]))


def named(obs):
    return obs if isinstance(obs, dict) else {"": obs}


@pytest.mark.parametrize("space", SEEN, ids=str)
def test_a_batch_is_read_as_its_worlds_are(space):
    space.seed(3)
    samples = [space.sample() for _ in range(N)]
    wanted = zeros(observation_space(space), N)
    write = observation_writer(space, wanted)
    for world, sample in enumerate(samples):
        write(world, sample)
    assert policy_space(space) == observation_space(space)
    got = named(observations(space)(batch(space, samples)))
    assert [*got] == [*named(wanted)]
    for name, leaf in named(wanted).items():
        assert got[name].dtype == leaf.dtype and torch.equal(got[name], leaf)


def test_images_come_channels_first_and_nothing_is_copied():
    for shape, seen in (((9, 8, 3), (3, 9, 8)), ((9, 8), (1, 9, 8)), ((4, 9, 8), (4, 9, 8))):
        space = BOX(0, 255, shape, np.uint8)
        value = torch.randint(0, 256, (N, *shape), dtype=torch.uint8)
        got = observations(space)(value)
        assert policy_space(space).shape == seen == got.shape[1:]
        assert got.data_ptr() == value.data_ptr()
        assert torch.equal(
            got[2, 0], value[2] if len(shape) == 2 else value[2, 0] if shape == seen else value[2, ..., 0]
        )
    deep = gym.spaces.Dict({"a": gym.spaces.Dict({"eye": BOX(0, 255, (9, 8, 3), np.uint8)}), "a!": BOX(0, 1, (1,))})
    picture = torch.zeros(N, 9, 8, 3, dtype=torch.uint8)
    got = observations(deep)({"a": {"eye": picture}, "a!": torch.zeros(N, 1)})
    assert [*got] == [*policy_space(deep).spaces] == ["a!", "a.eye"]
    assert got["a.eye"].shape[1:] == policy_space(deep)["a.eye"].shape == (3, 9, 8)
    numbers = torch.randn(N, 3)
    assert observations(SEEN[0])(numbers).data_ptr() == numbers.data_ptr()


ACTED = [
    gym.spaces.Discrete(4, start=3),
    gym.spaces.MultiDiscrete([3, 2]),
    BOX(np.array([0, -4], np.float32), np.array([10, 4], np.float32)),
    BOX(-np.inf, np.inf, (3,), np.float32),
    BOX(np.array([-2, -np.inf], np.float32), np.array([np.inf, 3], np.float32)),
    BOX(0, np.array([39, 19]), (2,), np.int32),
]


@pytest.mark.parametrize("space", ACTED, ids=str)
def test_a_batch_acts_as_its_worlds_do(space):
    known, acting = actions(space), BatchActions(space, N, CPU)
    assert acting.space == known.space and acting.shape == (N, *known.example.shape)
    if known.example.dtype == torch.int64:
        top = torch.as_tensor(known.space.n if isinstance(known.space, gym.spaces.Discrete) else known.space.nvec)
        action = torch.randint(0, 100, acting.shape) % top
    else:
        action = torch.randn(acting.shape) * 2  # beyond the bounds, too
    acting.check(action, "x")
    given = acting.convert(action)
    wanted = np.stack([np.asarray(each) for each in known.convert(action.numpy())])
    assert np.allclose(given.numpy(), wanted, rtol=1e-6) and given.data_ptr() != action.data_ptr()
    with pytest.raises(ValueError, match="x takes actions"):
        acting.check(action[:2], "x")


def test_what_no_batch_can_be_is_refused():
    late = gym.spaces.MultiDiscrete([3, 3], start=[1, 0])
    for make in (lambda: BatchActions(late, N, CPU), lambda: observations(late)):
        with pytest.raises(UserError, match="begins elsewhere than at 0"):
            make()
    with pytest.raises(UserError, match="two or three dimensions"):
        policy_space(BOX(0, 255, (2, 3, 4, 5), np.uint8))


def test_an_episode_counts_until_it_ends_and_no_longer():
    counts, obs = EpisodeCounts(3, CPU), torch.zeros(3, 1)
    off = torch.zeros(3, dtype=torch.bool)
    counts.step(obs, torch.tensor([1.0, 2.0, float("nan")]), off, off, obs)
    ended = torch.tensor([True, False, True])
    both = counts.step(obs, torch.tensor([1.0, 2.0, 1.0]), ended, torch.tensor([True, True, False]), obs)
    assert both.terminated.tolist() == [True, False, True] and both.truncated.tolist() == [False, True, False]
    assert both.episode_return[:2].tolist() == [2, 4] and both.episode_length.tolist() == [2, 2, 2]
    after = counts.step(obs, torch.ones(3), off, off, obs)
    assert after.episode_return.tolist() == [1, 1, 1] == after.episode_length.tolist()
