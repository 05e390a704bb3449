"""One world of a vector environment as a `gymnasium.Env`, for who plays what Gymnasium has no single world of.

Its spaces are the policy's, and it cannot be drawn. It is world 0 of a batch of one: what is played here is no
episode of those that many worlds play side by side.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from torch import Tensor

from stride.envs_fast.vec_env import Obs, VecEnv


class Alone(gymnasium.Env[Any, Any]):
    """`envs` of one world; a step behind an episode's end plays in the next one."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, env_id: str, envs: VecEnv) -> None:
        self.envs = envs
        self.spec = EnvSpec(env_id.rpartition(":")[2])
        self.observation_space, self.action_space = envs.observation_space, envs.action_space
        self._dtype = torch.float32 if isinstance(envs.action_space, gymnasium.spaces.Box) else torch.int64

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the first episode of a seed, the next of our own stream without one."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1 << 31)) if seed is None else seed
        return self._shown(self.envs.reset(drawn)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As the policy acts; at the end of an episode what is seen is its last observation."""
        step = self.envs.step(torch.as_tensor(np.asarray(action), dtype=self._dtype, device=self.envs.device)[None])
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        obs = step.final_obs if terminated or truncated else step.obs
        return self._shown(obs), float(step.reward), terminated, truncated, {}

    def _shown(self, obs: Obs) -> Any:
        """The only world's observation as Gymnasium has it, in memory of its own."""
        if isinstance(obs, dict):
            return {name: _value(leaf, self.observation_space[name]) for name, leaf in obs.items()}  # type: ignore[index]
        return _value(obs, self.observation_space)

    def close(self) -> None:
        """Release the worlds."""
        self.envs.close()


def _value(leaf: Tensor, space: gymnasium.Space[Any]) -> Any:
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(leaf[0])
    return leaf[0].cpu().numpy().astype(space.dtype, copy=True)
