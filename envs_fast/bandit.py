"""Bandit-v0: pull one of several arms, each pays a Gaussian reward; nothing to see and nothing to remember.

Our own: the observation is always 0 and an episode terminates after `episode_length` pulls. Means are drawn from the
standard normal by `arms_seed` unless given, and are the same in every world. Registered with Gymnasium on import.
"""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from envs_fast.arguments import count, is_number, numbers
from envs_fast.ended import list_ended
from envs_fast.world import IN_EPISODE, KERNEL, TILE, Setting, World, between, draw
from utils.counter_rng import WORLD as PURPOSE
from utils.counter_rng import Key, normal, uniforms
from utils.kernel_cache import njit
from utils.simd_math import cos, log
from utils.user_error import UserError


@njit(inline="always")
def gaussian(episode: int, age: int, world: int, seed_lo: int, seed_hi: int) -> float:
    """A standard normal by Box and Muller from two 32-bit uniforms; none lies beyond 6.7."""
    a, b, _, _ = draw(IN_EPISODE * (age + 1), episode, world, seed_lo, seed_hi)
    radius = math.sqrt(-2.0 * log(1.0 - between(a, 0.0, 1.0)))
    return radius * cos(between(b, 0.0, 2.0 * math.pi))


@njit(inline="always")
def step(action: int, gaussian: float, means: np.ndarray, stds: np.ndarray) -> float:
    """What an arm pays."""
    return means[action] + stds[action] * gaussian


@njit(**KERNEL)
def advance(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    means: np.ndarray,
    stds: np.ndarray,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """The batched kernel; world.py says what the arrays are. parameters: time limit, episode length."""
    limit, pulls = np.int32(parameters[0]), np.int32(parameters[1])
    ended, noise = np.empty(TILE, np.int32), np.empty(TILE)
    for start in range(lo, hi, TILE):
        stop = min(start + TILE, hi)
        age, total, episode = ages[start:stop], returns[start:stop], episodes[start:stop]
        for t in range(actions.shape[0]):
            action, out = actions[t, start:stop], obs[t, start:stop]
            r, done, cut = reward[t, start:stop], terminated[t, start:stop], truncated[t, start:stop]
            for i in range(stop - start):  # a loop of its own: this one becomes vector code
                noise[i] = gaussian(episode[i], age[i], first_world + start + i, seed_lo, seed_hi)
            for i in range(stop - start):
                gain = step(action[i], noise[i], means, stds)
                age[i] += np.int32(1)
                total[i] += gain
                r[i], out[i] = gain, 0
                done[i] = age[i] >= pulls
                cut[i] = (age[i] >= limit) & (age[i] < pulls)
            for k in range(list_ended(done, cut, ended)):
                i = ended[k]
                world = start + i
                episode_return[t, world], episode_length[t, world], final_obs[t, world] = total[i], age[i], 0
                age[i], total[i], episode[i] = 0, 0.0, episode[i] + 1


@njit(**KERNEL)
def restart(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    means: np.ndarray,
    stds: np.ndarray,
    mask: np.ndarray,
    obs: np.ndarray,
) -> None:
    """Begin the episode `episodes[i]` in every masked world; what is seen of all."""
    for i in range(lo, hi):
        obs[i] = 0
        if mask[i]:
            ages[i], returns[i] = 0, 0.0


def arms(n_arms: int, means: Any, stds: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every arm, float64 [n_arms]."""
    drawn = normal(uniforms(Key(seed, PURPOSE), (n_arms,))).tolist()
    spread = numbers("stds", [stds] * n_arms if is_number(stds) else stds, n_arms)
    if min(spread) < 0.0:
        raise UserError(f"stds must not be negative, got {min(spread)}")
    return np.array(drawn if means is None else numbers("means", means, n_arms)), np.array(spread)


def setting(
    n_arms: int = 10,
    means: Sequence[float] | None = None,
    stds: float | Sequence[float] = 1.0,
    episode_length: int = 1,
    arms_seed: int = 0,
) -> Setting:
    """`means` and `stds`: one for each arm, or one std for all. `arms_seed`: draws the means where none are given."""
    return Setting(
        observation_space=Discrete(1),
        action_space=Discrete(count("n_arms", n_arms, 1)),
        parameters=(count("episode_length", episode_length, 1),),
        tables=arms(n_arms, means, stds, count("arms_seed", arms_seed, 0, 2**63 - 1)),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """A bandit looks the same at all times."""
    return {}


class Bandit(gymnasium.Env[int, int]):
    """The same bandit as a plain Gymnasium environment."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        n_arms: int = 10,
        means: Sequence[float] | None = None,
        stds: float | Sequence[float] = 1.0,
        episode_length: int = 1,
        arms_seed: int = 0,
        render_mode: str | None = None,
    ) -> None:
        chosen = setting(n_arms, means, stds, episode_length, arms_seed)
        self.observation_space, self.action_space = chosen.observation_space, chosen.action_space
        self.means, self.stds = chosen.tables
        self.episode_length, self.age, self.render_mode = episode_length, 0, render_mode

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
    advance=advance,
    restart=restart,
    state_size=0,
    gym_state=gym_state,
)
gymnasium.register("Bandit-v0", "envs_fast.bandit:Bandit")
