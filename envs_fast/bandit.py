"""Bandit-v0: pull one of several arms, each gives a Gaussian reward.

Stride's own environment: the observation is always 0, there is no state, and an episode terminates after
`episode_length` pulls. The arms' means are standard normal numbers drawn with `arms_seed`, unless they are given; they
are the same in every world. Importing this registers it with Gymnasium.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import count, is_number, numbers
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.tiles import MOVE, Tile, draw_each, move_each
from stride.envs_fast.world import IN_EPISODE, NO_LIMIT, NUMBA, Episode, Moment, Setting, Stream, World, between, draw
from stride.utils.counter_rng import WORLD as PURPOSE
from stride.utils.counter_rng import Key, normal, uniforms
from stride.utils.kernel_cache import njit
from stride.utils.simd_math import cos, log
from stride.utils.user_error import UserError

ROWS, WIDTH = 0, 1  # numbers in a state; numbers in an observation

Nothing = tuple[()]


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    episode_length: int
    time_limit: int = NO_LIMIT


class Arms(NamedTuple):
    """Mean and standard deviation of each arm's rewards: float64 [n_arms]."""

    means: np.ndarray
    stds: np.ndarray


@njit(inline="always")
def gaussian(age: int, episode: Episode) -> float:
    """Return a standard normal number for the step after `age` others: Box and Muller, two 32-bit uniforms, <= 6.7."""
    a, b, _, _ = draw(IN_EPISODE * (age + 1), episode)
    radius = math.sqrt(-2.0 * log(1.0 - between(a, 0.0, 1.0)))
    return radius * cos(between(b, 0.0, 2.0 * math.pi))


@njit(inline="always")
def step(
    state: Nothing, action: int, moment: Moment, parameters: Parameters, tables: Arms
) -> tuple[Nothing, float, bool]:
    """Pull an arm and return its reward."""
    gain = tables.means[action] + tables.stds[action] * moment.noise
    return state, gain, moment.age + 1 >= parameters.episode_length


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Arms) -> Nothing:
    """Return the empty state."""
    return ()


@njit(inline="always")
def observe(state: Nothing, parameters: Parameters) -> tuple[int]:
    """Return the observation, always 0."""
    return (0,)


@njit(**MOVE)
def move(tile: Tile, stream: Stream, parameters: Parameters, tables: Arms) -> None:
    """Play one step of a tile of worlds: first all random numbers, then the steps."""
    draw_each(gaussian, tile, stream)
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def arms(n_arms: int, means: Sequence[float] | None, stds: float | Sequence[float], seed: int) -> Arms:
    """Return mean and standard deviation of every arm; UserError for a wrong length or a negative deviation."""
    drawn = normal(uniforms(Key(seed, PURPOSE), (n_arms,))).tolist()
    spread = numbers("stds", [stds] * n_arms if is_number(stds) else stds, n_arms)
    if min(spread) < 0.0:
        raise UserError(f"stds must not be negative, got {min(spread)}")
    return Arms(np.array(drawn if means is None else numbers("means", means, n_arms)), np.array(spread))


def setting(
    n_arms: int = 10, means: Sequence[float] | None = None, stds: float | Sequence[float] = 1.0,
    episode_length: int = 1, arms_seed: int = 0,
) -> Setting:  # fmt: skip
    """`means` and `stds`: one for each arm, or one std for all. `arms_seed`: draws the means where none are given."""
    return Setting(
        observation_space=Discrete(1),
        action_space=Discrete(count("n_arms", n_arms, 1)),
        parameters=Parameters(count("episode_length", episode_length, 1)),
        tables=arms(n_arms, means, stds, count("arms_seed", arms_seed, 0, 2**63 - 1)),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return no attributes: there is no state."""
    return {}


class Bandit(gymnasium.Env[int, int]):
    """The same bandit as a plain Gymnasium environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, n_arms: int = 10, means: Sequence[float] | None = None, stds: float | Sequence[float] = 1.0,
        episode_length: int = 1, arms_seed: int = 0, render_mode: str | None = None,
    ) -> None:  # fmt: skip
        chosen = setting(n_arms, means, stds, episode_length, arms_seed)
        self.observation_space = chosen.observation_space
        self.action_space = chosen.action_space
        self.means, self.stds = chosen.tables
        self.episode_length = episode_length
        self.age = 0
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.age += 1
        reward = float(self.np_random.normal(self.means[action], self.stds[action]))
        return 0, reward, self.age >= self.episode_length, False, {}


WORLD = World(
    env_id="Bandit-v0",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH, move)},
    state_size=ROWS,
    gym_state=gym_state,
)
gymnasium.register("Bandit-v0", "stride.envs_fast.bandit:Bandit")
