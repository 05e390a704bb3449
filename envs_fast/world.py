"""What a compiled world is: its facts, its two batched kernels, and the few pieces every kernel is made of.

Both kernels begin with `state, ages, episodes, returns, lo, hi, first_world, seed_lo, seed_hi, parameters, *tables` and
work on the worlds [lo, hi) of whole, C-contiguous arrays. They go on with
    advance(..., actions, obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
    restart(..., mask, obs)
`advance` plays actions.shape[0] steps, every other array likewise [T, n, ...]: obs and reward of each world, flags as
uint8 (truncated excludes terminated), and only where an episode ended final_obs, episode_return, episode_length.
`restart` begins the episode `episodes[i]` wherever mask[i] and writes obs [n, ...] of all worlds.
Arrays: state [state_size, n], ages int32 [n], episodes int32 [n], returns float64 [n]; parameters float64, its first
entry the time limit. World i of these arrays is number first_world + i in every draw.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space

from utils.counter_rng import WORLD, philox
from utils.kernel_cache import njit

KERNEL: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"nsz", "arcp"},  # "contract" would round otherwise than NumPy; "reassoc" breaks utils.simd_math
}
TILE = 512  # worlds that play all T steps before the next tile begins: their state stays in the innermost cache
NO_LIMIT = 2**31 - 1  # parameters[0] of a world without a time limit
WORLDS_OWN = WORLD << 24  # last counter word of every draw here; a Key has a process's rank there, which is small
IN_EPISODE = 16  # draws of a step use the blocks from IN_EPISODE * (age + 1) on, those of a reset the blocks below


@dataclass(frozen=True)
class Setting:
    """What the keyword arguments of an environment decide."""

    observation_space: Space[Any]  # Box float32, Discrete, or a Dict of Discrete: then obs is int64 [n, entries]
    action_space: Space[Any]  # as the policy sees it: Discrete, or Box(-1, 1)
    gym_action_space: Space[Any] | None = None  # Gymnasium's own, where it is another
    parameters: tuple[float, ...] = ()  # parameters[1:] of the kernels
    gym_parameters: tuple[float, ...] | None = None  # the same behind Gymnasium's face, where they are others
    tables: tuple[np.ndarray, ...] = ()
    odds: np.ndarray | None = None  # float64 [actions, outcomes]: "prob" in Gymnasium's infos
    action_masks: np.ndarray | None = None  # int8 [observations, actions]: "action_mask" there


@dataclass(frozen=True)
class World:
    """One environment id: everything NumbaEnv needs to run it."""

    env_id: str
    setting: Callable[..., Setting]  # its keyword arguments, with their defaults, are those of the environment
    advance: Callable[..., None]
    restart: Callable[..., None]
    state_size: int
    gym_state: Callable[[np.ndarray], dict[str, Any]]  # a column of the state -> attributes of the Gymnasium env
    recall: Callable[[np.ndarray], np.ndarray] = np.asarray  # an observation -> a column of the state that looks so
    time_limit: int | None = None
    reward_threshold: float | None = None
    state_dtype: type[np.generic] = np.float64
    compile_seconds: int = 5  # roughly, for the line that explains the wait
    default_kwargs: dict[str, Any] = field(default_factory=dict)  # that come with the id


@njit(inline="always")
def draw(
    block: int, episode: int, world: int, seed_lo: int, seed_hi: int
) -> tuple[np.uint32, np.uint32, np.uint32, np.uint32]:
    """Four random words that depend on nothing but these five numbers."""
    return philox(block, episode, world, WORLDS_OWN, seed_lo, seed_hi)


@njit(inline="always")
def between(word: np.uint32, low: float, high: float) -> float:
    """A float64 uniform in [low, high) from all 32 bits of a word."""
    return low + (high - low) * (np.float64(word) * 2.0**-32)
