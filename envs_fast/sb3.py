"""Compiled environments as a Stable-Baselines3 `VecEnv`: `stride.envs_fast.sb3.make("CartPole-v1", n_envs=8)`.

The infos have what SB3's own vector environments and its Monitor write there, and are empty until an episode ends.
"""

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from gymnasium import Wrapper, spaces

from stride.envs_fast import registry
from stride.envs_fast.drawing import Drawing
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.scale import Scale
from stride.envs_fast.vec_env import Obs
from stride.utils.user_error import UserError

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("stride.envs_fast.sb3 needs Stable-Baselines3: pip install 'stride-rl[sb3]'") from error

Indices = None | int | Iterable[int]
Observation = np.ndarray | dict[str, np.ndarray]


def make(
    env_id: str, n_envs: int = 1, seed: int | None = None, max_episode_steps: int | None = None,
    render_mode: str | None = None, **env_kwargs: Any,
) -> "FastSB3":  # fmt: skip
    """Make `n_envs` worlds of an id; `seed` is for the first reset, None: a random seed."""
    env = registry.make(env_id, n_envs, max_episode_steps=max_episode_steps, **env_kwargs)
    vector = FastSB3(env, Drawing(env, env_kwargs, render_mode))
    if seed is not None:
        vector.seed(seed)
    return vector


class FastSB3(VecEnv):
    """N compiled worlds with SB3's interface. Returned arrays are copies, which the caller may keep.

    Actions are in the units of Gymnasium's Box. A Tuple observation becomes a Dict with the names "0", "1", ...
    """

    def __init__(self, env: NumbaEnv, drawing: Drawing) -> None:
        self.env = env
        self._drawing = drawing
        self._attributes: dict[str, list[Any]] = {"render_mode": [drawing.render_mode] * env.num_envs}
        action_space = env.setting.gym_action_space or env.action_space
        super().__init__(env.num_envs, env.observation_space, action_space)
        self.metadata = drawing.metadata
        env.charge_as_gymnasium()
        self._scale = Scale(action_space) if isinstance(action_space, spaces.Box) else None
        self._began = time.time()

    def reset(self) -> Observation:
        """Reset every world: with the seed given since the last reset, else to its next episode."""
        seed = self._seeds[0]
        if seed is not None or self.env.seed is None:
            self.env.reset(int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed))
        else:
            self.env.restart(np.ones(self.num_envs, np.bool_))
        self._reset_seeds()
        self._reset_options()
        return _copy(self.env.obs)

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions for `step_wait`; nothing runs in the background."""
        array = np.asarray(actions)
        kinds = "iu" if self._scale is None else "fiu"
        shape = (self.num_envs, *(self.action_space.shape or ()))
        if array.dtype.kind not in kinds or array.shape != shape:
            wanted = f"{self.num_envs} actions of {self.action_space}"
            raise ValueError(f"{self.env.env_id} takes {wanted}, got {array.dtype}{list(array.shape)}")
        self._action = np.ascontiguousarray(array, np.int64) if self._scale is None else self._scale.to_unit(array)

    def step_wait(self) -> tuple[Observation, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Advance every world; where an episode ended, the observation is the first one of the next episode."""
        step = self.env.step(torch.from_numpy(self._action))
        dones = (step.terminated | step.truncated).numpy()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        elapsed = round(time.time() - self._began, 6)
        worlds = np.flatnonzero(dones)
        if len(worlds):
            final = _copy(step.final_obs)
            at = torch.from_numpy(worlds)
            cut, total, length = (
                column[at].tolist() for column in (step.truncated, step.episode_return, step.episode_length)
            )
            for k, world in enumerate(worlds.tolist()):
                last = {name: leaf[world] for name, leaf in final.items()} if isinstance(final, dict) else final[world]
                infos[world] = {
                    "terminal_observation": last,
                    "TimeLimit.truncated": cut[k],
                    "episode": {"r": total[k], "l": int(length[k]), "t": elapsed},
                }
        return _copy(step.obs), step.reward.numpy().copy(), dones, infos

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return what `set_attr` stored, else an attribute of Gymnasium's environment in each world's state."""
        worlds = self._get_indices(indices)
        if attr_name in self._attributes:
            return [self._attributes[attr_name][world] for world in worlds]
        return self._drawing.read(attr_name, worlds)

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Store a new attribute for worlds; UserError for one that the environment has, because it is compiled."""
        if attr_name not in self._attributes:
            if self._drawing.knows(attr_name):
                raise UserError(
                    f"{self.env.env_id}: {attr_name!r} cannot be set in compiled environments; give arguments to make"
                )
            self._attributes[attr_name] = [None] * self.num_envs
        for world in self._get_indices(indices):
            self._attributes[attr_name][world] = value

    def env_method(
        self, method_name: str, *method_args: object, indices: Indices = None, **method_kwargs: object
    ) -> list[Any]:
        """Call a method of Gymnasium's environment in each world's state, and return the results."""
        return self._drawing.call(method_name, self._get_indices(indices), *method_args, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[Wrapper], indices: Indices = None) -> list[bool]:
        """Say True for Monitor only: its infos are there, so SB3 need not wrap the worlds with it."""
        return [wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> list[np.ndarray | None]:
        """Return a frame of every world."""
        return self._drawing.call("render", range(self.num_envs))

    def close(self) -> None:
        """Close the window and stop the threads."""
        self._drawing.close()
        self.env.close()


def _copy(tree: Obs) -> Observation:
    return {name: leaf.numpy().copy() for name, leaf in tree.items()} if isinstance(tree, dict) else tree.numpy().copy()
