"""Worlds that are seen as small pictures: a compiled game, and films of random pictures."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from worlds import Scripted, limited_tables

from stride.config import loader
from stride.envs_fast.world import KERNEL, NUMBA, WORLDS, WORLDS_OWN, Kernels, Setting, World
from stride.envs_gym.spaces import is_image, step_buffers
from stride.utils.counter_rng import philox
from stride.utils.kernel_cache import njit

HEIGHT, ACROSS, CHANNELS = 5, 6, 2
ROWS = 3  # of the state: row and column of the ball, column of the paddle
ENV_ID = "Catch-v0"


@njit(inline="always")
def words(block, world, worlds, stream):
    """Four random words of this episode."""
    episode = worlds.episodes[world]
    return philox(block, episode, stream.first_world + world, WORLDS_OWN, stream.seed_lo, stream.seed_hi)


@njit(inline="always")
def begin(i, worlds, stream):
    """A ball on top, a paddle at the bottom, anywhere."""
    drawn = words(0, i, worlds, stream)
    worlds.ages[i], worlds.returns[i] = 0, 0.0
    worlds.state[0, i], worlds.state[1, i], worlds.state[2, i] = 0, drawn[0] % ACROSS, drawn[1] % ACROSS


@njit(inline="always")
def show(i, state, picture):
    """picture [HEIGHT, ACROSS, CHANNELS]: the ball in one channel, the paddle in the other."""
    picture[:] = 0.0
    picture[state[0, i], state[1, i], 0] = 1.0
    picture[HEIGHT - 1, state[2, i], 1] = 1.0


@njit(**KERNEL)
def advance(simulation, lo, hi, actions, told):
    """The paddle moves; the ball falls with a chance of 1/2, and is caught at the bottom or not."""
    worlds, stream, parameters, _ = simulation
    state = worlds.state
    for t in range(actions.shape[0]):
        for i in range(lo, hi):
            state[2, i] = min(max(state[2, i] + actions[t, i] - 1, 0), ACROSS - 1)
            state[0, i] += words(16 * (worlds.ages[i] + 1), i, worlds, stream)[0] & 1
            at_bottom = state[0, i] == HEIGHT - 1
            told.reward[t, i] = 0.0
            if at_bottom:
                told.reward[t, i] = 1.0 if state[1, i] == state[2, i] else -1.0
            worlds.ages[i] += 1
            worlds.returns[i] += told.reward[t, i]
            told.terminated[t, i] = at_bottom
            told.truncated[t, i] = worlds.ages[i] >= parameters.time_limit and not at_bottom
            if told.terminated[t, i] or told.truncated[t, i]:
                show(i, state, told.final_obs[t, i])
                told.episode_return[t, i], told.episode_length[t, i] = worlds.returns[i], worlds.ages[i]
                worlds.episodes[i] += 1
                begin(i, worlds, stream)
            show(i, state, told.obs[t, i])


@njit(**KERNEL)
def restart(simulation, lo, hi, mask, obs):
    """Begin the masked worlds' episodes; what is seen of all."""
    worlds, stream, _, _ = simulation
    for i in range(lo, hi):
        if mask[i]:
            begin(i, worlds, stream)
        show(i, worlds.state, obs[i])


def setting():
    space = Box(0.0, 1.0, (HEIGHT, ACROSS, CHANNELS), np.float32)
    return Setting(space, Discrete(3))


WORLD = World(
    env_id=ENV_ID,
    setting=setting,
    kernels={NUMBA: Kernels(advance, restart)},
    state_size=ROWS,
    state_dtype=np.int32,
    time_limit=20,
)


def register(monkeypatch, folder):
    """Have configs and backends know the game: `Catch-v0:ppo`, `Catch-v0:pqn` and `Catch-v0:dqn`."""
    variants = "".join(f"{algo_id}: {{max_timesteps: 1e6}}\n" for algo_id in ("ppo", "pqn", "dqn"))
    (folder / f"{ENV_ID}.yaml").write_text(f"env_id: {ENV_ID}\n{variants}")
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
