"""A step as it looks when the next episode begins later than in the kernels, which begin it in the same step.

The first instant of that episode is set aside when it has been drawn, and put back once a step has run over it.
"""

from typing import NamedTuple

import numpy as np

from stride.envs_fast.ended import list_ended
from stride.envs_fast.world import KERNEL, Told, Worlds
from stride.utils.kernel_cache import njit


class Aside(NamedTuple):
    """The worlds whose episode ended, and the first instant of their next one, a row for each of them."""

    ended: np.ndarray  # uint32 [N]: as many of them as `present` returned are listed in front
    state: np.ndarray  # [N, state_size]
    obs: np.ndarray  # [N, width]


@njit(**KERNEL)
def present(
    worlds: Worlds, told: Told, aside: Aside, out_reward: np.ndarray, begin: int, hold: bool, limit: int
) -> np.int64:
    """Turn a kernel's step into Gymnasium's, in place; how many episodes ended in it, listed in front of `ended`.

    `worlds.state` is [state_size, N], however it lies in memory.
    `begin`: as many worlds, listed by the call before, only begin their episode in this step, whatever the kernel did.
    `hold`: an ended world shows its final observation and keeps its first one; else the other way round.
    `out_reward` is float64. As in a TimeLimit, truncated may come with terminated.
    """
    (state, ages, episodes, returns), (ended, kept_state, kept_obs) = worlds, aside
    obs, final = told.obs.reshape(-1), told.final_obs.reshape(-1)
    reward, terminated, truncated = told.reward.reshape(-1), told.terminated.reshape(-1), told.truncated.reshape(-1)
    lengths, first, shown = told.episode_length.reshape(-1), kept_state.reshape(-1), kept_obs.reshape(-1)
    rows, width = np.uint64(kept_state.shape[1]), np.uint64(kept_obs.shape[1])
    for k in range(np.uint64(begin)):  # unsigned: no index could count from the end
        i = np.uint64(ended[k])
        ages[i], episodes[i], returns[i] = 0, episodes[i] - (terminated[i] | truncated[i]), 0.0
        reward[i], terminated[i], truncated[i] = 0.0, 0, 0
        for j in range(rows):
            state[j, i] = first[k * rows + j]
        for j in range(width):
            obs[i * width + j] = shown[k * width + j]
    for world in range(reward.size):
        out_reward[world] = reward[world]
    count = np.uint64(list_ended(terminated, truncated, ended))
    for k in range(count):
        i = np.uint64(ended[k])
        truncated[i] |= np.uint8(lengths[i] >= limit)
        if hold:
            for j in range(rows):
                first[k * rows + j] = state[j, i]
            for j in range(i * width, i * width + width):
                shown[k * width + j - i * width], obs[j] = obs[j], final[j]
    return np.int64(count)
