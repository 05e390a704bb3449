"""The infos of Gymnasium's toy-text environments, for gym_face.py: "prob", and Taxi's "action_mask".

"prob" is the probability of the outcome of an action, and 1 where an episode begins. It is always float64.
SyncVectorEnv makes an integer array if its first world gives the integer 1, and then 1/3 becomes 0.
"""

from typing import Any

import numpy as np

from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.tabular import Tables, chances
from stride.envs_fast.world import bind


class ToyInfos:
    """The infos of one NumbaEnv whose world is a table (`setting.odds`)."""

    def __init__(self, env: NumbaEnv, odds: np.ndarray) -> None:
        self._env = env
        self._odds = odds
        self._masks = env.setting.action_masks
        assert isinstance(env.setting.tables, Tables)
        worlds = env.worlds
        stream = env.simulation.stream
        self._thresholds = env.setting.tables.thresholds
        action = np.zeros(env.num_envs, np.int64)
        out = np.zeros(env.num_envs)
        self._chances = bind(chances, worlds, stream, self._thresholds, action, odds, out)

    def ahead(self, actions: np.ndarray) -> np.ndarray:
        """Return float64 [N]: the probability of the outcome that each action [N] will have in the next step."""
        out = np.empty(self._env.num_envs)
        (worlds, stream, _, _) = self._env.simulation
        self._chances(worlds, stream, self._thresholds, actions, self._odds, out)
        return out

    def infos(self, prob: np.ndarray, obs: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
        """The infos of the worlds in the mask, zero elsewhere; `obs` [N] is what they are seen to be in."""
        infos = {"prob": np.where(mask, prob, 0.0), "_prob": mask.copy()}
        if self._masks is not None:
            infos |= {"action_mask": self._masks[obs] * mask[:, None], "_action_mask": mask.copy()}
        return infos
