"""What a step looks like when the next episode begins later than in the kernels, which begin it in the same step.

The first instant of that episode is set aside when it has been drawn, and put back once a step has run over it.
"""

from typing import Any

import numpy as np

from envs_fast.ended import list_ended
from envs_fast.world import KERNEL
from utils.kernel_cache import njit


@njit(**KERNEL)
def present(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_length: np.ndarray,
    ended: np.ndarray,
    kept_state: np.ndarray,
    kept_obs: np.ndarray,
    out_reward: np.ndarray,
    begin: int,
    hold: bool,
    limit: int,
) -> Any:
    """Turn a kernel's step into Gymnasium's, in place; how many episodes ended in it, listed in front of `ended`.

    `begin`: as many worlds, listed by the call before, only begin their episode in this step, whatever the kernel did.
    `hold`: an ended world shows its final observation and keeps its first one; else the other way round.
    `kept_state` and `kept_obs` have a column for each of these. As in a TimeLimit, truncated may come with terminated.
    """
    seen, final, width = obs.reshape(-1), final_obs.reshape(-1), kept_obs.shape[0]
    reward, terminated, truncated = reward.reshape(-1), terminated.reshape(-1), truncated.reshape(-1)
    episode_length = episode_length.reshape(-1)
    for k in range(begin):
        i = ended[k]
        ages[i], episodes[i], returns[i] = 0, episodes[i] - (terminated[i] | truncated[i]), 0.0
        reward[i], terminated[i], truncated[i] = 0.0, 0, 0
    for j in range(state.shape[0]):
        for k in range(begin):
            state[j, ended[k]] = kept_state[j, k]
    for j in range(width):
        for k in range(begin):
            seen[ended[k] * width + j] = kept_obs[j, k]
    for i in range(reward.size):
        out_reward[i] = reward[i]
    count = list_ended(terminated, truncated, ended)
    for k in range(count):
        if episode_length[ended[k]] >= limit:
            truncated[ended[k]] = 1
    if not hold:
        return count
    for j in range(state.shape[0]):
        for k in range(count):
            kept_state[j, k] = state[j, ended[k]]
    for j in range(width):
        for k in range(count):
            i = ended[k] * width + j
            kept_obs[j, k], seen[i] = seen[i], final[i]
    return count
