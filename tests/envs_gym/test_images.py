"""Images on their way to the network: layout, grey, size, stack, and CartPole drawn."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from playing import refused
from torch.nn import functional as F

from stride.config.schema import Config
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.wrappers.images import gray

CAMERA = "stride-test/Camera-v0"
ACTION = torch.zeros(1, dtype=torch.int64)


def camera(shape=(6, 8, 3), named=False, **keys):
    config = Config(env_id=CAMERA, env_kwargs={"shape": list(shape), "named": named}, **keys)
    envs = make_envs(config, 1)
    envs.reset(1)
    return envs, envs.envs[0].unwrapped.shown


def channels_first(*frames):
    return np.concatenate([frame.transpose(2, 0, 1) for frame in frames])


@pytest.mark.parametrize(
    ("shape", "seen"), [((6, 8, 3), (3, 6, 8)), ((6, 8), (1, 6, 8)), ((3, 6, 8), (3, 6, 8)), ((6, 8, 1), (1, 6, 8))]
)
def test_channels_come_first(shape, seen):
    envs, shown = camera(shape)
    assert envs.observation_space.shape == seen and envs.observation_space.dtype == np.uint8
    obs = envs.step(ACTION).obs
    assert obs.dtype == torch.uint8
    frame = shown[-1] if len(shape) == 3 else shown[-1][..., None]
    assert np.array_equal(obs[0], frame if shape == seen else channels_first(frame))


def test_gray_by_hand():
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [0, 0, 0], [10, 20, 30]], np.uint8)
    assert gray(colours.T[:, None]).tolist() == [[[77, 149, 29, 255, 0, 18]]]
    envs, shown = camera(grayscale_obs=True)
    obs = envs.step(ACTION).obs[0]
    exact = shown[-1].astype(float) @ [0.299, 0.587, 0.114]
    assert obs.shape == (1, 6, 8) and np.abs(obs[0].numpy() - exact).max() <= 1


@given(height=st.integers(4, 12), width=st.integers(4, 12), size=st.tuples(st.integers(1, 14), st.integers(1, 14)))
def test_a_resized_picture_is_the_mean_of_a_finer_grid(height, width, size):
    envs, shown = camera(shape=(height, width, 3), resize_obs=size)
    obs = envs.step(ACTION).obs
    fine = torch.from_numpy(channels_first(shown[-1])).double()
    fine = fine.repeat_interleave(size[0], 1).repeat_interleave(size[1], 2)
    assert obs.shape == (1, 3, *size) and (obs[0] - F.avg_pool2d(fine, (height, width))).abs().max() <= 0.5 + 1e-4


def test_frames_are_stacked_along_channels_oldest_first():
    envs, shown = camera(frame_stack=3)
    first = shown[-1]
    assert envs.observation_space.shape == (9, 6, 8)
    assert np.array_equal(envs._step.obs[0], channels_first(first, first, first))
    obs = envs.step(ACTION).obs
    assert np.array_equal(obs[0], channels_first(first, first, shown[-1]))
    envs.step(ACTION), envs.step(ACTION)
    assert np.array_equal(obs[0], channels_first(*shown[-3:]))
    small, _ = camera(shape=(4, 4, 3), frame_stack=4)
    assert small.observation_space.shape == (12, 4, 4)  # channels first, though there are more of them than rows


def test_frames_of_an_episode_do_not_leak_into_the_next():
    envs, shown = camera(frame_stack=2, max_episode_steps=2)
    envs.step(ACTION)
    step = envs.step(ACTION)
    first = shown[-1]  # the reset's frame
    assert step.truncated.all() and np.array_equal(step.obs[0], channels_first(first, first))
    assert np.array_equal(step.final_obs[0], channels_first(*shown[-3:-1]))


def test_vectors_stack_too():
    envs = make_envs(Config(env_id="CartPole-v1", frame_stack=2), 1)
    first = envs.reset(3).clone()
    assert first.shape == (1, 8) and torch.equal(first[:, :4], first[:, 4:])
    second = envs.step(ACTION).obs
    assert torch.equal(second[:, :4], first[:, 4:]) and not torch.equal(second[:, 4:], first[:, 4:])


def test_images_beside_numbers():
    envs, _ = camera(named=True, grayscale_obs=True, resize_obs=(3, 4))
    assert envs.observation_space["eye"].shape == (1, 3, 4) and envs.observation_space["level"].shape == (1,)
    assert envs.step(ACTION).obs["eye"].dtype == torch.uint8
    assert env_info(Config(env_id=CAMERA, env_kwargs={"named": True})).is_image


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"grayscale_obs": True}, "GrayscaleObservation needs an image"),
        ({"resize_obs": True}, "ResizeObservation needs an image"),
        ({"env_id": "Acrobot-v1", "obs": "pixels"}, "Acrobot-v1 cannot be drawn as pixels; CartPole-v1 can"),
        ({"env_wrappers": ({"id": "PixelObservation", "size": [1, 2, 3]},)}, "a number of pixels or [height, width]"),
        ({"obs": "pixels", "env_wrappers": ({"id": "PixelObservation", "size": 0},)}, "size takes a number of pixels"),
        ({"env_id": CAMERA, "env_kwargs": {"shape": [5, 6, 8]}, "grayscale_obs": True},
         "needs red, green and blue, not [5, 6, 8]"),
    ],
)  # fmt: skip
def test_what_cannot_be_an_image_is_refused(keys, problem):
    assert problem in refused(**keys)


# CartPole drawn


def picture(position, angle=0.0, size=(84, 84)):
    wrappers = ({"id": "PixelObservation", "size": list(size)},)
    envs = make_envs(Config(env_id="CartPole-v1", env_wrappers=wrappers), 1)
    envs.reset(0)
    world = envs.envs[0]
    world.unwrapped.state = np.array([position, 0, angle, 0])
    return world._draw(world.unwrapped)[0].astype(int)


def middle(row):
    """Of what is bright in a row of 84 pixels, in the world's units."""
    return ((row * np.arange(84)).sum() / row.sum() + 0.5) * 5.2 / 84 - 2.6


@pytest.mark.parametrize("position", [-2.0, 0.0, 1.5])
def test_the_cart_stands_where_it_stands(position):
    bottom = picture(position)[-1]
    assert middle(bottom) == pytest.approx(position, abs=0.0012)
    assert bottom.sum() / 150 == pytest.approx(0.8 / 5.2 * 84, rel=0.02)  # its width


def test_the_pole_leans_as_it_leans():
    upright, right = picture(0), picture(0, 0.2)
    assert np.array_equal(upright, upright[:, ::-1])
    assert np.array_equal(picture(0.5, -0.2), picture(-0.5, 0.2)[:, ::-1])
    row = int((1.5 - (0.16 + 0.8)) / 1.5 * 84)  # 0.8 above the foot
    height = 1.5 - (row + 0.5) * 1.5 / 84 - 0.16
    assert middle(right[row]) == pytest.approx(np.tan(0.2) * height, abs=0.006)


def test_a_fraction_of_a_pixel_is_seen():
    pictures = [picture(0.01 * step, size=(42, 42)) for step in range(4)]  # 0.08 pixels each
    assert all((before != after).any() for before, after in pairwise(pictures))


def test_pixels_are_the_same_worlds_and_the_same_returns():
    pixels = Config(env_id="CartPole-v1", obs="pixels", resize_obs=(42,))
    plain, drawn = make_envs(Config(env_id="CartPole-v1", env_backend="gym"), 2), make_envs(pixels, 2)
    plain.reset(5), drawn.reset(5)
    assert drawn.observation_space.shape == (1, 42, 42) and env_info(pixels).is_image
    for _ in range(60):
        one, other = (envs.step(torch.ones(2, dtype=torch.int64)) for envs in (plain, drawn))
        for name in ("reward", "terminated", "truncated", "episode_return", "episode_length"):
            assert torch.equal(getattr(one, name), getattr(other, name))
