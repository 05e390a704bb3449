"""Gymnasium's spaces as the policy sees them, and its actions as the world gets them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces as gym

from stride.envs_gym.spaces import actions, observation_space, observation_writer, zeros
from stride.utils.user_error import UserError


def stored(space, value, world=1):
    """What a buffer of two worlds holds after one value was written."""
    buffers = zeros(observation_space(space), 2)
    observation_writer(space, buffers)(world, value)
    return buffers


def test_boxes_become_float32_and_images_stay_bytes():
    assert observation_space(gym.Box(-1, 3, (2,), np.float64)) == gym.Box(-1, 3, (2,), np.float32)
    image = gym.Box(0, 255, (3, 4, 4), np.uint8)
    assert observation_space(image) is image
    assert stored(image, np.full((3, 4, 4), 200, np.uint8))[1].unique().tolist() == [200]
    assert observation_space(gym.Box(0, 255, (128,), np.uint8)).dtype == np.float32  # a vector of bytes is no image
    assert stored(gym.Box(-1, 1, (), np.float32), np.float32(0.5)).tolist() == [[0.0], [0.5]]
    assert stored(gym.Box(-1, 1, (2,), np.float64), [0.25, 1]).tolist() == [[0, 0], [0.25, 1]]
    huge = observation_space(gym.Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (1,), np.float64))
    assert huge.high.tolist() == [np.inf]


def test_integers_start_at_zero():
    assert observation_space(gym.Discrete(5, start=-2)) == gym.Discrete(5)
    assert stored(gym.Discrete(5, start=-2), np.int64(2)).tolist() == [0, 4]
    multi = gym.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [0, -1]])
    assert observation_space(multi) == gym.MultiDiscrete([2, 3, 4, 5])
    assert stored(multi, np.array([[1, 1], [0, 3]])).tolist() == [[0, 0, 0, 0], [1, 0, 0, 4]]
    assert stored(gym.MultiBinary(3), np.array([1, 0, 1], np.int8)).tolist() == [[0, 0, 0], [1, 0, 1]]


def test_nested_dicts_and_tuples_become_one_flat_dict():
    inner = gym.Dict({"position": gym.Box(-1, 1, (2,)), "pair": gym.Tuple((gym.Discrete(3), gym.MultiBinary(1)))})
    space = gym.Dict({"a": inner, "b": gym.Discrete(4, start=1)})
    seen = observation_space(space)
    assert sorted(seen.spaces) == ["a.pair.0", "a.pair.1", "a.position", "b"]
    value = {"b": 4, "a": {"pair": (2, np.array([1], np.int8)), "position": np.array([0.5, -0.5], np.float32)}}
    buffers = stored(space, value)
    assert {name: leaf[1].tolist() for name, leaf in buffers.items()} == {
        "a.pair.0": 2,
        "a.pair.1": [1.0],
        "a.position": [0.5, -0.5],
        "b": 3,
    }
    assert all(leaf[0].abs().sum() == 0 for leaf in buffers.values())  # the other world was not touched


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (gym.Box(-1, 1, (4,)), np.zeros(1, np.float32)),  # NumPy would broadcast it
        (gym.Box(-1, 1, (4,)), np.zeros((4, 1), np.float32)),
        (gym.Box(-1, 1, (2,)), np.zeros(2, np.complex64)),
        (gym.Box(0, 255, (2, 2), np.uint8), np.full((2, 2), 0.5, np.float32)),  # NumPy would truncate it to 0
        (gym.Discrete(3), 3),
        (gym.Discrete(3, start=1), 0),
        (gym.Discrete(3), 1.0),
        (gym.MultiDiscrete([2, 2]), np.array([0, 2])),
        (gym.MultiDiscrete([2, 2]), np.array([0.0, 1.0])),
    ],
)
def test_what_does_not_fit_the_space_is_refused(space, value):
    with pytest.raises((ValueError, TypeError)):
        stored(space, value)


@pytest.mark.parametrize(
    "space",
    [gym.Text(5), gym.Sequence(gym.Discrete(2)), gym.Dict({"a": gym.Text(3)}), gym.Dict({}), gym.Tuple(())],
)
def test_unsupported_observations_are_named(space):
    with pytest.raises(UserError, match="observation space"):
        observation_space(space)


def test_two_entries_of_one_flattened_name_are_refused():
    with pytest.raises(UserError, match="two entries of one name"):
        observation_space(gym.Dict({"a.b": gym.Discrete(2), "a": gym.Dict({"b": gym.Discrete(2)})}))


def test_discrete_actions_are_shifted():
    way = actions(gym.Discrete(3, start=5))
    assert way.space == gym.Discrete(3) and way.example.dtype == torch.int64 and way.example.shape == ()
    assert way.convert(np.array([0, 2])) == [5, 7]


def test_multi_discrete_and_multi_binary_actions():
    way = actions(gym.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 0], [0, 1]]))
    assert way.space == gym.MultiDiscrete([2, 3, 4, 5]) and way.example.shape == (4,)
    assert way.convert(np.array([[1, 2, 3, 4]])).tolist() == [[[1, 2], [3, 5]]]
    binary = gym.MultiBinary(2)
    way = actions(binary)
    assert way.space == gym.MultiDiscrete([2, 2]) and binary.contains(way.convert(np.array([[1, 0]]))[0])


def test_box_actions_span_asymmetric_bounds_and_are_clipped():
    space = gym.Box(np.array([-1, 10, -0.3], np.float32), np.array([3, 20, 0.7], np.float32))
    way = actions(space)
    assert way.space == gym.Box(-1, 1, (3,))
    out = way.convert(np.array([[-1, -1, -1], [0, 0, 0], [1, 1, 1], [-9, 9, 9]], np.float32))
    assert out.dtype == np.float32
    assert out[0].tolist() == space.low.tolist() and out[2].tolist() == space.high.tolist()  # the ends exactly
    assert out[1] == pytest.approx([1, 15, 0.2], abs=1e-6)
    assert all(space.contains(row) for row in out)


def test_unbounded_dimensions_pass_through():
    low, high = np.array([-np.inf, 0, -2], np.float32), np.array([np.inf, np.inf, 2], np.float32)
    way = actions(gym.Box(low, high))
    assert way.space == gym.Box(np.array([-np.inf, 0, -1], np.float32), np.array([np.inf, np.inf, 1], np.float32))
    assert way.convert(np.array([[7.5, 7.5, 0.5], [-7.5, -7.5, -9]], np.float32)).tolist() == [
        [7.5, 7.5, 1],
        [-7.5, 0, -2],
    ]


def test_box_actions_take_the_shape_and_type_of_the_space():
    way = actions(gym.Box(0, 10, (2, 2), np.int64))
    assert way.example.shape == (4,)
    out = way.convert(np.array([[-1, 0.29, 0.31, 1]], np.float32))
    assert out.dtype == np.int64 and out.tolist() == [[[0, 6], [7, 10]]]
    assert actions(gym.Box(-2, 2, ())).convert(np.array([[0.5]], np.float32)).tolist() == [1.0]


@pytest.mark.parametrize("space", [gym.Dict({"a": gym.Discrete(2)}), gym.Tuple((gym.Discrete(2),)), gym.Text(3)])
def test_unsupported_actions_are_named(space):
    with pytest.raises(UserError, match=r"action space .* not supported"):
        actions(space)
