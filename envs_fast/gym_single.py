"""One compiled world as a `gymnasium.Env`, for checkers and single episodes: `gymnasium.make("fast/CartPole-v1")`.

It is no faster than Gymnasium's own environment; use `gymnasium.make_vec` for speed.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from stride.envs_fast.gym_face import FastVectorEnv, Observation
from stride.envs_fast.world import NO_LIMIT


class FastEnv(gymnasium.Env[Any, Any]):
    """A FastVectorEnv of one world, without a time limit: Gymnasium puts its TimeLimit around it."""

    def __init__(self, env_id: str, render_mode: str | None = None, **env_kwargs: Any) -> None:
        mode = AutoresetMode.DISABLED
        self.vector = FastVectorEnv(env_id, 1, NO_LIMIT, mode, render_mode=render_mode, **env_kwargs)
        self.metadata = self.vector.metadata
        self.render_mode = render_mode
        self.observation_space = self.vector.single_observation_space
        self.action_space = self.vector.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; without a seed it is the next one of the last seed."""
        super().reset(seed=seed)
        obs, infos = self.vector.reset(seed=seed)
        return self._one(obs), _info(infos)

    def step(self, action: ArrayLike) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Advance by one action."""
        obs, reward, terminated, truncated, infos = self.vector.step(np.asarray(action)[None])
        return self._one(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), _info(infos)

    def _one(self, obs: Observation) -> Any:
        if isinstance(self.observation_space, spaces.Tuple):
            return tuple(int(column[0]) for column in obs)
        return int(obs[0]) if isinstance(self.observation_space, spaces.Discrete) else obs[0]

    def render(self) -> Any:
        """A frame, drawn by Gymnasium's environment."""
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the window."""
        self.vector.close()


def _info(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of the only world: the first entry of each, without Gymnasium's masks `_name`."""
    return {name: value[0] for name, value in infos.items() if not name.startswith("_")}


def single_env(env_id: str, **kwargs: Any) -> FastEnv:
    """Make a FastEnv; Gymnasium's entry point. A class would need its render modes before the id is known."""
    return FastEnv(env_id, **kwargs)
