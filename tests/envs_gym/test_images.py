"""Images on their way to the network: layout, grey, size, stack, and CartPole drawn; bytes up to the memory."""

from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stride.agents.experience.collector import Collector, Policy
from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act
from stride.config.schema import Config
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.wrappers.images import area_weights, gray
from stride.utils.user_error import UserError


class Camera(gymnasium.Env):
    """Random pictures of a shape, alone or beside a number; the frames shown are kept."""

    def __init__(self, shape=(6, 8, 3), named=False):
        self.named = named
        picture = gymnasium.spaces.Box(0, 255, tuple(shape), np.uint8)
        level = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({"eye": picture, "level": level}) if named else picture
        self.shape, self.action_space, self.shown = tuple(shape), gymnasium.spaces.Discrete(2), []
        self.buffer = np.zeros(self.shape, np.uint8)

    def look(self):
        self.buffer[:] = self.np_random.integers(0, 256, self.shape)  # one buffer for ever
        self.shown.append(self.buffer.copy())
        return {"eye": self.buffer, "level": np.zeros(1, np.float32)} if self.named else self.buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action):
        return self.look(), 0.0, False, False, {}


gymnasium.register("stride-test/Camera-v0", Camera)
ACTION = torch.zeros(1, dtype=torch.int64)


def camera(shape=(6, 8, 3), named=False, **keys):
    config = Config(env_id="stride-test/Camera-v0", env_kwargs={"shape": list(shape), "named": named}, **keys)
    envs = make_envs(config, 1)
    envs.reset(1)
    return envs, envs.envs[0].unwrapped.shown


@pytest.mark.parametrize(
    ("shape", "seen"), [((6, 8, 3), (3, 6, 8)), ((6, 8), (1, 6, 8)), ((3, 6, 8), (3, 6, 8)), ((6, 8, 1), (1, 6, 8))]
)
def test_channels_come_first(shape, seen):
    envs, shown = camera(shape)
    assert envs.observation_space.shape == seen and envs.observation_space.dtype == np.uint8
    obs = envs.step(ACTION).obs
    assert obs.dtype == torch.uint8
    frame = shown[-1] if len(shape) == 3 else shown[-1][..., None]
    assert np.array_equal(obs[0], frame if shape == seen else frame.transpose(2, 0, 1))


def test_gray_by_hand():
    colours = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [0, 0, 0], [10, 20, 30]], np.uint8)
    assert gray(colours.T[:, None]).tolist() == [[[77, 149, 29, 255, 0, 18]]]
    envs, shown = camera(grayscale_obs=True)
    obs = envs.step(ACTION).obs[0]
    exact = shown[-1].astype(float) @ [0.299, 0.587, 0.114]
    assert obs.shape == (1, 6, 8) and np.abs(obs[0].numpy() - exact).max() <= 1


def test_area_weights_by_hand():
    assert area_weights(4, 2).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert area_weights(3, 2) == pytest.approx(np.array([[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]]))
    assert area_weights(2, 4).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    for old, new in ((96, 84), (210, 84), (42, 96), (7, 7)):
        weights = area_weights(old, new)
        assert weights.sum(1) == pytest.approx(np.ones(new), abs=1e-5)
        assert weights.sum(0) == pytest.approx(np.full(old, new / old), abs=1e-5)  # no pixel is favoured


def test_a_whole_factor_is_the_mean_of_patches():
    envs, shown = camera(shape=(12, 8, 3), resize_obs=(4, 2))
    obs = envs.step(ACTION).obs
    assert obs.shape == (1, 3, 4, 2)
    frame = torch.from_numpy(shown[-1]).permute(2, 0, 1).double()
    assert (obs[0] - F.avg_pool2d(frame, (3, 4))).abs().max() <= 0.5 + 1e-4


def test_any_factor_is_the_mean_of_a_finer_grid():
    envs, shown = camera(shape=(5, 7, 3), resize_obs=(3,))
    obs = envs.step(ACTION).obs
    fine = torch.from_numpy(shown[-1]).permute(2, 0, 1).double().repeat_interleave(3, 1).repeat_interleave(3, 2)
    assert (obs[0] - F.avg_pool2d(fine, (5, 7))).abs().max() <= 0.5 + 1e-4


@pytest.mark.parametrize(
    ("resize", "shape"), [(True, (3, 84, 84)), ((20,), (3, 20, 20)), ((20, 30), (3, 20, 30)), (False, (3, 6, 8))]
)
def test_sizes(resize, shape):
    envs, _ = camera(resize_obs=resize)
    assert envs.observation_space.shape == shape == tuple(envs.reset(0).shape[1:])


def test_frames_are_stacked_along_channels_oldest_first():
    envs, shown = camera(frame_stack=3)
    first = shown[-1].transpose(2, 0, 1)
    assert np.array_equal(envs._step.obs[0], np.concatenate([first] * 3))
    obs = envs.step(ACTION).obs
    assert obs.shape == (1, 9, 6, 8)
    assert np.array_equal(obs[0], np.concatenate([first, first, shown[-1].transpose(2, 0, 1)]))
    envs.step(ACTION), envs.step(ACTION)
    assert np.array_equal(obs[0], np.concatenate([frame.transpose(2, 0, 1) for frame in shown[-3:]]))


def test_frames_of_an_episode_do_not_leak_into_the_next():
    envs, shown = camera(frame_stack=2, max_episode_steps=2)
    step = envs.step(ACTION), envs.step(ACTION)
    last = shown[-1].transpose(2, 0, 1)  # the reset's frame
    assert step[1].truncated.all() and np.array_equal(step[1].obs[0], np.concatenate([last, last]))
    ended = np.concatenate([frame.transpose(2, 0, 1) for frame in shown[-3:-1]])
    assert np.array_equal(step[1].final_obs[0], ended)


def test_small_stacked_images_stay_channels_first():
    envs, _ = camera(shape=(4, 4, 3), frame_stack=4)
    assert envs.observation_space.shape == (12, 4, 4)


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
    assert env_info(Config(env_id="stride-test/Camera-v0", env_kwargs={"named": True})).is_image


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"grayscale_obs": True}, "GrayscaleObservation needs an image"),
        ({"resize_obs": True}, "ResizeObservation needs an image"),
        ({"env_id": "Acrobot-v1", "obs": "pixels"}, "Acrobot-v1 cannot be drawn as pixels; CartPole-v1 can"),
        ({"env_wrappers": ({"id": "PixelObservation", "size": [1, 2, 3]},)}, "a number of pixels or [height, width]"),
        ({"obs": "pixels", "env_wrappers": ({"id": "PixelObservation", "size": 0},)}, "size takes a number of pixels"),
    ],
)
def test_what_cannot_be_an_image_is_refused(keys, problem):
    with pytest.raises(UserError) as caught:
        make_envs(Config(**{"env_id": "CartPole-v1", **keys}), 1)
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_five_channels_are_not_red_green_and_blue():
    with pytest.raises(UserError, match=r"needs red, green and blue, not \[5, 6, 8\]"):
        camera(shape=(5, 6, 8), grayscale_obs=True)


# CartPole drawn


def picture(state, size=(84, 84)):
    wrappers = ({"id": "PixelObservation", "size": list(size)},)
    envs = make_envs(Config(env_id="CartPole-v1", env_wrappers=wrappers), 1)
    envs.reset(0)
    world = envs.envs[0]
    world.unwrapped.state = np.array(state)
    return world._draw(world.unwrapped)[0].astype(int)


def test_the_cart_stands_where_it_stands():
    for position in (-2.0, 0.0, 1.5):
        bottom = picture((position, 0, 0, 0))[-1]
        centre = (bottom * np.arange(84)).sum() / bottom.sum()
        assert centre == pytest.approx((position + 2.6) / 5.2 * 84 - 0.5, abs=0.02)
        assert bottom.sum() / 150 == pytest.approx(0.8 / 5.2 * 84, rel=0.02)  # its width


def test_the_pole_leans_as_it_leans():
    upright, right = picture((0, 0, 0, 0)), picture((0, 0, 0.2, 0))
    assert np.array_equal(upright, upright[:, ::-1])
    assert np.array_equal(picture((0.5, 0, -0.2, 0)), picture((-0.5, 0, 0.2, 0))[:, ::-1])
    row = int((1.5 - (0.16 + 0.8)) / 1.5 * 84)  # 0.8 above the foot
    centre = (right[row] * np.arange(84)).sum() / right[row].sum()
    height = 1.5 - (row + 0.5) * 1.5 / 84 - 0.16
    assert centre == pytest.approx((np.tan(0.2) * height + 2.6) / 5.2 * 84 - 0.5, abs=0.1)


def test_a_fraction_of_a_pixel_is_seen():
    pictures = [picture((0.01 * step, 0, 0, 0), (42, 42)) for step in range(4)]  # 0.08 pixels each
    assert all((before != after).any() for before, after in pairwise(pictures))


def test_pixels_are_the_same_worlds_and_the_same_returns():
    seen, drawn = (
        Config(env_id="CartPole-v1", env_backend="gym"),
        Config(env_id="CartPole-v1", obs="pixels", resize_obs=(42,)),
    )
    seen, drawn = make_envs(seen, 2), make_envs(drawn, 2)
    seen.reset(5), drawn.reset(5)
    assert (
        drawn.observation_space.shape == (1, 42, 42) and env_info(Config(env_id="CartPole-v1", obs="pixels")).is_image
    )
    for _ in range(60):
        one, other = (envs.step(torch.ones(2, dtype=torch.int64)) for envs in (seen, drawn))
        for name in ("reward", "terminated", "truncated", "episode_return", "episode_length"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_memory_keeps_bytes():
    class Still(Policy):
        draws = 1

        def initial(self, num_envs):
            return ()

        def act(self, obs, carry, is_first, noise, greedy):
            return Act(torch.zeros(len(is_first), dtype=torch.int64))

    config = Config(env_id="CartPole-v1", obs="pixels", resize_obs=(42,), frame_stack=2)
    collector = Collector(make_envs(config, 2), Still(), seed=1)
    memory = Memory(collector.example(), collector.carry, 16, 2, 1)
    collector.collect(16, memory)
    assert memory.table.obs.dtype == memory.final.obs.dtype == torch.uint8
    assert memory.table.obs.shape == (16, 2, 2, 42, 42) and memory.table.obs.amax() > 200
    running = ~memory.table.is_first[1:]
    older, newer = memory.table.obs[1:, :, 0], memory.table.obs[:-1, :, 1]
    assert torch.equal(older[running], newer[running])
