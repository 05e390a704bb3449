"""bsuite/MemoryChain-v0: remember a bit that is shown at the start, and name it many steps later.

The rules are those of bsuite 0.3 (memory_len). As there, the observation is one step late: the first two observations
show the bit, and the action after `memory_length` steps is the answer, which ends the episode.
"""

from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast import bsuite_pictures
from stride.envs_fast.arguments import count
from stride.envs_fast.kernels import kernels_of
from stride.envs_fast.world import NO_LIMIT, NUMBA, Episode, Moment, Setting, Tables, World, draw
from stride.utils.kernel_cache import njit

MAX_MEMORY_LENGTH = 100_000  # steps between the bit and the question; bsuite's experiments use at most 100
ROWS, WIDTH = 2, 3  # numbers in a state; numbers in an observation

State = tuple[int, int]  # steps played in the episode; the bit


class Parameters(NamedTuple):
    """The numbers that the keyword argument decides."""

    memory_length: int
    share: float  # 1 / memory_length: what one step takes off the time in the observation
    time_limit: int = NO_LIMIT


@njit(inline="always")
def step(
    state: State, action: int, moment: Moment, parameters: Parameters, tables: Tables
) -> tuple[State, float, bool]:
    """Play one step: the last action is the answer, which pays 1 if it is the bit, else -1. Others do nothing."""
    timestep, bit = state
    asked = timestep >= parameters.memory_length
    answer = 1.0 if action == bit else -1.0
    return (timestep + 1, bit), answer if asked else 0.0, asked


@njit(inline="always")
def reset(episode: Episode, parameters: Parameters, tables: Tables) -> State:
    """Draw the bit, 0 or 1 with the same probability."""
    return 0, int(draw(0, episode)[0] >> np.uint32(31))


@njit(inline="always")
def observe(state: State, parameters: Parameters) -> tuple[float, float, float]:
    """Return three numbers: the time left, from 1 to 0; 0; and the bit as -1 or 1 while the time is 1, afterwards 0.

    The second number says in bsuite which of several bits is asked for; here there is only one.
    """
    timestep, bit = state
    shown = max(timestep - 1, 0)
    time = (parameters.memory_length - shown) * parameters.share
    return time, 0.0, 2.0 * bit - 1.0 if shown == 0 else 0.0


def setting(memory_length: int = 10) -> Setting:
    """`memory_length`: steps from the bit to the question, 1 to 100,000."""
    length = count("memory_length", memory_length, 1, MAX_MEMORY_LENGTH)
    low = np.array([[0.0, 0.0, -1.0]], np.float32)
    return Setting(
        observation_space=Box(low, np.ones((1, 3), np.float32)),
        action_space=Discrete(2),
        parameters=Parameters(length, 1.0 / length),
    )


WORLD = World(
    env_id="bsuite/MemoryChain-v0",
    setting=setting,
    kernels={NUMBA: kernels_of(step, reset, observe, ROWS, WIDTH)},
    state_size=ROWS,
    state_dtype=np.int32,
    picture=bsuite_pictures.memory,
)
