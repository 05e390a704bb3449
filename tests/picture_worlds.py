"""Worlds that are seen as small pictures: a compiled game, and films of random pictures."""

from typing import NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numba.cpython.unsafe.tuple import tuple_setitem
from worlds import Scripted, limited_tables

from stride.config import loader
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, WORLDS, Setting, World, draw, draw_now
from stride.envs_gym.spaces import is_image, step_buffers
from stride.utils.kernel_cache import njit

HEIGHT, ACROSS, CHANNELS = 5, 6, 2
ROWS, WIDTH = 3, HEIGHT * ACROSS * CHANNELS
DARK = (0.0,) * WIDTH
ENV_ID = "Catch-v0"


class Parameters(NamedTuple):
    """Nothing can be chosen."""

    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(state, action, moment, parameters, tables):
    """The paddle moves; the ball falls with a chance of 1/2, and is caught at the bottom or not."""
    row, column, paddle = state
    paddle = min(max(np.int32(paddle + action - 1), np.int32(0)), np.int32(ACROSS - 1))
    row = np.int32(row + np.int32(draw_now(moment)[0] & 1))
    at_bottom = row >= HEIGHT - 1
    caught = 1.0 if column == paddle else -1.0
    return (row, column, paddle), caught if at_bottom else 0.0, at_bottom


@njit(inline="always")
def reset(episode, parameters, tables):
    """A ball on top, a paddle at the bottom, anywhere."""
    words = draw(0, episode)
    return np.int32(0), np.int32(words[0] % ACROSS), np.int32(words[1] % ACROSS)


@njit(inline="always")
def observe(state, parameters):
    """[HEIGHT, ACROSS, CHANNELS]: the ball in one channel, the paddle in the other."""
    row, column, paddle = state
    picture = tuple_setitem(DARK, CHANNELS * (ACROSS * row + column), 1.0)
    return tuple_setitem(picture, CHANNELS * (ACROSS * (HEIGHT - 1) + paddle) + 1, 1.0)


def setting():
    space = Box(0.0, 1.0, (HEIGHT, ACROSS, CHANNELS), np.float32)
    return Setting(space, Discrete(3), parameters=Parameters())


WORLD = World(
    env_id=ENV_ID,
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
    time_limit=20,
)


def register(monkeypatch, folder):
    """Have configs and backends know the game: `Catch-v0:ppo`."""
    (folder / f"{ENV_ID}.yaml").write_text(f"env_id: {ENV_ID}\nppo: {{max_timesteps: 1e6}}\n")
    monkeypatch.setattr(loader, "config_folders", lambda: [folder])
    monkeypatch.setitem(WORLDS, ENV_ID, WORLD)


class Film(Scripted):
    """Rewards and ends from tables; every instant of a world is one of some random pictures of a space."""

    def __init__(self, space, num_envs):
        generator = torch.Generator().manual_seed(5)
        shape = (97, *space.shape)
        self.pictures = torch.rand(shape, generator=generator)
        if is_image(space):
            self.pictures = torch.randint(0, int(space.high.max()) + 1, shape, dtype=torch.uint8, generator=generator)
        self.pictured = False
        super().__init__(*limited_tables(64, num_envs, 9, 3), time_limit=9)
        self.pictured, self.observation_space = True, space
        self.out = step_buffers(space, num_envs)
        self.reset(0)

    def _view(self, instant):
        if not self.pictured:
            return super()._view(instant)
        number = instant.nan_to_num(0).long() * 7 + torch.arange(self.num_envs)
        return self.pictures[number % len(self.pictures)]
