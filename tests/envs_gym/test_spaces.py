"""Gymnasium's spaces as the policy sees them, and actions as worlds get them: of one world, and of whole batches."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given
from hypothesis import strategies as st
from playing import leaves

from stride.envs_fast.vec_env import CPU
from stride.envs_gym.batches import BatchActions, EpisodeCounts, observations, policy_space
from stride.envs_gym.spaces import actions, observation_space, observation_writer, zeros
from stride.utils.user_error import UserError

N = 3
SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
PARTS = st.one_of(
    st.builds(lambda shape, dtype: Box(-9, 9, shape, dtype), SHAPES, st.sampled_from([np.float32, np.float64])),
    st.builds(lambda shape: Box(0, 255, shape, np.uint8), st.sampled_from([(6,), (3, 9, 8), (1, 4, 5)])),
    st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)),
    st.builds(MultiDiscrete, COUNTS),
    st.builds(MultiBinary, st.integers(1, 4)),
)
NESTED = st.recursive(
    PARTS,
    lambda parts: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), parts, min_size=1, max_size=3).map(Dict),
        st.lists(parts, min_size=1, max_size=3).map(Tuple),
    ),
    max_leaves=5,
)


def flattened(space, value, name=""):
    """{name: what the policy sees of a value}, part by part."""
    if isinstance(space, Dict | Tuple):
        parts = space.items() if isinstance(space, Dict) else enumerate(space.spaces)
        result = {}
        for key, part in parts:
            result |= flattened(part, value[key], f"{name}.{key}" if name else str(key))
        return result
    if isinstance(space, Discrete | MultiDiscrete):
        return {name: torch.from_numpy(np.asarray(value - space.start, np.int64))}
    if space.dtype == np.uint8 and len(space.shape) == 3:
        return {name: torch.from_numpy(value)}
    return {name: torch.from_numpy(np.asarray(value, np.float32).reshape(space.shape or (1,)))}


def stacked(space, samples):
    """Tensors of all worlds' values, as a vector environment hands them over."""
    if isinstance(space, Dict):
        return {name: stacked(part, [sample[name] for sample in samples]) for name, part in space.items()}
    if isinstance(space, Tuple):
        return tuple(stacked(part, [sample[key] for sample in samples]) for key, part in enumerate(space.spaces))
    return torch.from_numpy(np.stack([np.asarray(sample) for sample in samples]))


@given(NESTED, st.integers(0, 99))
def test_observations_become_float32_and_integers_from_0_in_one_flat_dict(space, seed):
    """Images stay bytes; world by world and as a batch; a world's row is its own."""
    space.seed(seed)
    samples = [space.sample() for _ in range(N)]
    policy, expected = observation_space(space), [flattened(space, sample) for sample in samples]
    buffers = zeros(policy, N + 1)
    write = observation_writer(space, buffers)
    for world, sample in enumerate(samples):
        write(world, sample)
    batch = observations(space)(stacked(space, samples))
    assert policy_space(space) == policy and sorted(dict(leaves(batch))) == sorted(expected[0])
    for name, leaf in leaves(buffers):
        rows = torch.stack([values[name] for values in expected])
        read = dict(leaves(batch))[name]
        assert leaf.dtype == rows.dtype == read.dtype and torch.equal(leaf[:N], rows) and torch.equal(read, rows)
        assert not leaf[N].any()
        part = policy[name] if name else policy
        assert all(part.contains(row.numpy() if row.ndim else row.item()) for row in rows)


def stored(space, value, world=1):
    """What a buffer of two worlds holds after one value was written."""
    buffers = zeros(observation_space(space), 2)
    observation_writer(space, buffers)(world, value)
    return buffers


def test_observations_by_hand():
    multi = MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [0, -1]])
    assert observation_space(multi) == MultiDiscrete([2, 3, 4, 5])
    assert stored(multi, np.array([[1, 1], [0, 3]])).tolist() == [[0, 0, 0, 0], [1, 0, 0, 4]]
    assert stored(Box(-1, 1, (2,), np.float64), [0.25, 1]).tolist() == [[0, 0], [0.25, 1]]
    huge = observation_space(Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (1,), np.float64))
    assert huge.high.tolist() == [np.inf]
    masked = Dict({"seen": Box(-1, 1, (2,)), "action_mask": MultiBinary(3)})
    obs = {"seen": torch.zeros(1, 2), "action_mask": torch.tensor([[1, 0, 1]], dtype=torch.int8)}
    assert observations(masked)(obs)["action_mask"].tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("shape", "seen"), [((9, 8, 3), (3, 9, 8)), ((9, 8), (1, 9, 8)), ((4, 9, 8), (4, 9, 8)), ((3,), None)]
)
def test_images_of_a_batch_come_channels_first_and_nothing_is_copied(shape, seen):
    image = Box(0, 255, shape, np.uint8) if seen else Box(-1, 1, shape)
    value = torch.randint(0, 256, (N, *shape), dtype=torch.uint8) if seen else torch.randn(N, *shape)
    space = Dict({"a": Dict({"eye": image}), "a!": Box(0, 1, (1,))})
    batch = observations(space)({"a": {"eye": value}, "a!": torch.zeros(N, 1)})
    assert [*batch] == [*policy_space(space).spaces] == ["a!", "a.eye"]
    obs = batch["a.eye"]
    assert policy_space(space)["a.eye"].shape == obs.shape[1:] == (seen or shape)
    assert obs.data_ptr() == value.data_ptr()
    if seen:
        frames = value[:, None] if len(shape) == 2 else value
        assert torch.equal(obs, frames if shape == seen else frames.movedim(-1, 1) if len(shape) == 3 else frames)


MISFITS = {  # with what NumPy would do
    "broadcast": (Box(-1, 1, (4,)), np.zeros(1, np.float32)),
    "reshape": (Box(-1, 1, (4,)), np.zeros((4, 1), np.float32)),
    "drop a part": (Box(-1, 1, (2,)), np.zeros(2, np.complex64)),
    "truncate to 0": (Box(0, 255, (2, 2), np.uint8), np.full((2, 2), 0.5, np.float32)),
    "take a 4th of 3": (Discrete(3), 3),
    "take less than the first": (Discrete(3, start=1), 0),
    "take a fraction": (Discrete(3), 1.0),
    "take a 3rd of 2": (MultiDiscrete([2, 2]), np.array([0, 2])),
    "take fractions": (MultiDiscrete([2, 2]), np.array([0.0, 1.0])),
}


@pytest.mark.parametrize("what", MISFITS)
def test_what_does_not_fit_the_space_is_refused(what):
    with pytest.raises((ValueError, TypeError)):
        stored(*MISFITS[what])


LATE = MultiDiscrete([3, 3], start=[1, 0])
UNSUPPORTED = {
    "observation space": (
        observation_space,
        [gym.Text(5), gym.Sequence(Discrete(2)), Dict({"a": gym.Text(3)}), Dict({}), Tuple(())],
    ),
    "two entries with one name": (observation_space, [Dict({"a.b": Discrete(2), "a": Dict({"b": Discrete(2)})})]),
    r"action space .* not supported": (actions, [Dict({"a": Discrete(2)}), Tuple((Discrete(2),)), gym.Text(3)]),
    "observation space .* must start at 0": (observations, [LATE]),
    "action space .* must start at 0": (lambda space: BatchActions(space, N, CPU), [LATE]),
    "two or three dimensions": (policy_space, [Box(0, 255, (2, 3, 4, 5), np.uint8)]),
}


@pytest.mark.parametrize("words", UNSUPPORTED)
def test_unsupported_spaces_are_named(words):
    function, spaces = UNSUPPORTED[words]
    for space in spaces:
        with pytest.raises(UserError, match=words):
            function(space)


def converted(space, rows):
    """What worlds are given for these actions: one by one, and as a batch."""
    way = actions(space)
    action = np.array(rows, way.example.numpy().dtype)
    given = np.stack([np.asarray(value) for value in way.convert(action)])
    if not isinstance(space, MultiDiscrete) or not space.start.any():
        batch, tensor = BatchActions(space, len(rows), CPU), torch.from_numpy(action)
        assert batch.space == way.space
        batch.check(tensor, "x")
        assert np.allclose(batch.convert(tensor).numpy(), given, rtol=1e-6, atol=2e-6)
        with pytest.raises(ValueError, match="x takes actions"):
            batch.check(tensor[1:], "x")
    return given


@pytest.mark.parametrize(
    ("space", "policy", "rows", "given"),
    [
        (Discrete(3, start=5), Discrete(3), [0, 2], [5, 7]),
        (MultiDiscrete([3, 2]), MultiDiscrete([3, 2]), [[2, 1]], [[2, 1]]),
        (MultiDiscrete([[2, 3], [4, 5]], start=[[0, 0], [0, 1]]), MultiDiscrete([2, 3, 4, 5]), [[1, 2, 3, 4]],
         [[[1, 2], [3, 5]]]),
        (MultiBinary(2), MultiDiscrete([2, 2]), [[1, 0]], [[1, 0]]),
        (Box(0, 10, (2, 2), np.int64), Box(-1, 1, (4,)), [[-1, 0.29, 0.31, 1]], [[[0, 6], [7, 10]]]),
        (Box(-2, 2, ()), Box(-1, 1, (1,)), [[0.5]], [1.0]),
    ],
)  # fmt: skip
def test_actions_by_hand(space, policy, rows, given):
    assert actions(space).space == policy
    result = converted(space, rows)
    assert result.tolist() == given and all(space.contains(np.asarray(row, space.dtype)) for row in result)


BOUND = st.sampled_from([-np.inf, -4, -1, -0.3, 0, 0.7, 3, 10, 20, np.inf])


@given(
    st.lists(st.tuples(BOUND, BOUND).filter(lambda pair: -np.inf < pair[1] > pair[0] < np.inf), min_size=1, max_size=4),
    st.lists(st.floats(-9, 9, width=32), min_size=4, max_size=4),
)
def test_a_bounded_dimension_is_spanned_by_minus_1_to_1_and_others_are_clipped(bounds, numbers):
    n, (low, high) = len(bounds), np.array(bounds, np.float32).T
    space, action = Box(low, high), np.array([numbers[:n], [-1] * n, [1] * n], np.float32)
    bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        expected = np.where(bounded, (low + high) / 2 + action * (high - low) / 2, action)
    result = converted(space, action)
    assert actions(space).space == Box(np.where(bounded, -1, low), np.where(bounded, 1, high))
    assert result.dtype == np.float32 and all(space.contains(row) for row in result)
    assert np.allclose(result, np.clip(expected, low, high), rtol=1e-5, atol=1e-5)
    assert (result[1:, bounded] == [low[bounded], high[bounded]]).all()  # exactly


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
