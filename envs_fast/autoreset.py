"""Turns a step of the kernels into a step of Gymnasium's vector environments; gym_face.py uses it.

The kernels begin the next episode in the same step in which one ends. In Gymnasium's other autoreset modes it begins
one step later, or at a reset. So the first state and observation of the next episode are saved when the kernel has
drawn them, and written back after the kernel has made a step too many from them.
"""

from typing import NamedTuple

import numpy as np

from stride.envs_fast.ended import list_ended
from stride.envs_fast.world import KERNEL, StepResults, Worlds
from stride.utils.kernel_cache import njit


class FirstStates(NamedTuple):
    """The worlds whose episode ended, and the first state and observation of the next one, a row for each of them."""

    ended: np.ndarray  # uint32 [N]: worlds; the first entries are valid, as many as `present` returned
    state: np.ndarray  # [N, state_size]
    obs: np.ndarray  # [N, width]


@njit(**KERNEL)
def present(
    worlds: Worlds, results: StepResults, saved: FirstStates, out_reward: np.ndarray, begin: int, hold: bool, limit: int
) -> np.int64:
    """Turn a kernel's step into Gymnasium's, in place. Return how many episodes ended; `saved.ended` lists them.

    `worlds.state` is [state_size, N], in any memory order.
    `begin`: this many worlds, listed by the previous call, only begin their episode in this step: what the kernel did
    with them is undone.
    `hold`: the observation of an ended world is its final one, and the first one of the next episode is saved in
    `saved`; else it is the other way round (SAME_STEP).
    `out_reward` is float64 [N]. `limit`: steps; as in Gymnasium's TimeLimit, truncated may come with terminated.
    """
    (state, ages, episodes, returns), (ended, kept_state, kept_obs) = worlds, saved
    obs, final = results.obs.reshape(-1), results.final_obs.reshape(-1)
    reward, terminated, truncated = (
        results.reward.reshape(-1),
        results.terminated.reshape(-1),
        results.truncated.reshape(-1),
    )
    lengths, first, shown = results.episode_length.reshape(-1), kept_state.reshape(-1), kept_obs.reshape(-1)
    rows, width = np.uint64(kept_state.shape[1]), np.uint64(kept_obs.shape[1])
    # worlds that only begin: first state and observation, no reward. Unsigned: no code for negative indices
    for k in range(np.uint64(begin)):
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
