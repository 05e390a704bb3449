"""Draws compiled worlds, with Gymnasium's own environment where there is one, which also answers for attributes.

One Gymnasium environment is made when it is first needed; it gets the state of one world after the other. Worlds with a
`picture` (drawn from the observation) or a `scene` (drawn from the state, too) need none (world.py).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator

from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import BODIES, World
from stride.utils.screen import offer_egl
from stride.utils.user_error import UserError

REFUSED = ("reset", "step", "close")  # methods that would change the Gymnasium environment but not the worlds


class Drawing:
    """Draws the worlds of one NumbaEnv and reads Gymnasium's attributes in their states."""

    def __init__(self, env: NumbaEnv, env_kwargs: Mapping[str, Any], render_mode: str | None) -> None:
        self._env = env
        self._env_kwargs = dict(env_kwargs)
        self.render_mode = render_mode
        self.last_seen: dict[int, np.ndarray] = {}  # final observations of worlds that have ended
        self._before: tuple[np.ndarray, np.ndarray] | None = None  # states and actions of the last step
        self._model: gymnasium.Env[Any, Any] | None = None
        self.metadata = _metadata(env.world)
        modes = self.metadata.get("render_modes", [])
        if render_mode is not None and render_mode not in modes:
            available = ", ".join(modes) or "none"
            raise UserError(f"{env.env_id} has no render_mode {render_mode!r}; it has {available}")

    def call(self, name: str, worlds: Iterable[int], *args: object, **kwargs: object) -> list[Any]:
        """Call a method of the Gymnasium environment (or read an attribute) in the state of each world."""
        if name in REFUSED:
            raise UserError(f"{self._env.env_id}: {name} cannot be called on a single environment")
        if self._env.world.draws_itself and name == "render":
            return [self._picture(world) for world in worlds]
        results = []
        for world in worlds:
            value = self.pose(world).get_wrapper_attr(name)
            results.append(value(*args, **kwargs) if callable(value) else value)
        return results

    def read(self, name: str, worlds: Iterable[int]) -> list[Any]:
        """Read an attribute of the Gymnasium environment in the state of each world."""
        return [self.pose(world).get_wrapper_attr(name) for world in worlds]

    def knows(self, name: str) -> bool:
        """Say whether the Gymnasium environment has this attribute."""
        return self._env.world.gym_state is not None and self.pose(0).has_wrapper_attr(name)

    def pose(self, world: int) -> gymnasium.Env[Any, Any]:
        """Return the Gymnasium environment, set to the state of a world; UserError if Gymnasium has none."""
        compiled_world = self._env.world
        final_obs = self.last_seen.get(world)
        if compiled_world.gym_state is None:
            raise UserError(f"{compiled_world.env_id} is not in Gymnasium, so it cannot be drawn")
        if self._model is None:
            if self.render_mode and compiled_world.env_id in BODIES and (lacking := offer_egl()):
                raise UserError(f"{compiled_world.env_id} cannot be drawn: {lacking}")
            self._model = gymnasium.make(
                self._env.env_id, render_mode=self.render_mode, disable_env_checker=True, **self._env_kwargs
            )
            self._model.reset(seed=0)
        target = self._model.unwrapped
        if compiled_world.pose is not None:  # for an ended world this is the first state of its next episode
            compiled_world.pose(target, self._env.state[:, world])
            return self._model
        column = self._env.state[:, world] if final_obs is None else compiled_world.recall(final_obs)
        for name, value in compiled_world.gym_state(column).items():
            setattr(target, name, value)
        return self._model

    def remember(self, action: np.ndarray) -> None:
        """Copy the states before a step and its actions: a `scene` needs them to draw the state in which it ended."""
        if self._env.world.scene is not None and self.render_mode is not None:
            self._before = self._env.state.copy(), action.copy()

    def _picture(self, world: int) -> np.ndarray:
        """Draw a world that has a `picture` or a `scene`: uint8 [height, width, 3]."""
        env, obs = self._env, self._observation(world)
        if env.world.scene is None:
            assert env.world.picture is not None
            return env.world.picture(obs)
        column = env.state[:, world]
        if world in self.last_seen:
            assert self._before is not None  # `remember` ran before the step that ended the episode
            states, actions = self._before
            column = states[:, world].copy()
            env.world.scene.play(column, int(actions[world]), env.setting.parameters)
        return env.world.scene.draw(column, obs, env.setting.parameters)

    def _observation(self, world: int) -> np.ndarray:
        """Return a world's observation: the final one if its episode has ended."""
        obs = self.last_seen.get(world)
        if obs is None:
            obs = self._env.observe(world)
        shape = self._env.observation_space.shape  # None for a Dict
        return obs if shape is None else obs.reshape(shape)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._model is not None:
            self._model.close()
            self._model = None


def _metadata(world: World) -> dict[str, Any]:
    """Return the metadata of Gymnasium's environment, or the render modes of a world that Gymnasium does not have."""
    if world.gym_state is None:
        return {"render_modes": ["rgb_array"] if world.draws_itself else []}
    spec = gymnasium.spec(world.env_id)
    assert spec.entry_point is not None  # Gymnasium's versions of our worlds all have one
    creator: Any = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
    return dict(creator.metadata)
