"""Compares a compiled MuJoCo task with Gymnasium's environment, step by step: is every number the same?

registry.py does this when a task is first used in a process, and refuses the task if a number differs.
"""

from typing import Any

import gymnasium
import numpy as np
import torch

from stride.envs_fast.bodies.library import package
from stride.envs_fast.bodies.physics import CENTRE, HALF, HIGH, LOW
from stride.envs_fast.bodies.task import mujoco_numbers
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import World

SEED, STEPS = 20, 100  # of the trial at a task's first use
BEYOND = 1.2  # actions are drawn up to here, so that some are clipped


class Beside:
    """One compiled world and Gymnasium's environment, which begins each episode in the compiled world's state."""

    def __init__(self, world: World, env_kwargs: dict[str, Any], seed: int = SEED) -> None:
        self.ours = NumbaEnv(world, 1, **env_kwargs)
        self.theirs: Any = gymnasium.make(world.env_id, disable_env_checker=True, **env_kwargs).unwrapped
        self.ours.reset(seed)
        self._total = 0.0
        self._rng = np.random.default_rng(seed)

    def begin(self) -> bool:
        """Set Gymnasium's environment to our first state; return whether the observations differ."""
        env, mujoco = self.theirs, package()
        numbers = np.ascontiguousarray(self.ours.state[-mujoco_numbers(env.model) :, 0])
        mujoco.mj_setState(env.model, env.data, numbers, mujoco.mjtState.mjSTATE_INTEGRATION)
        positions, velocities = env.data.qpos.copy(), env.data.qvel.copy()
        mujoco.mj_resetData(env.model, env.data)
        env.set_state(positions, velocities)
        self._total = 0.0
        return not _same(env._get_obs(), self.ours.last.arrays.obs[0, 0])

    def step(self) -> bool:
        """Play a random action in both; return whether any number differs, also of a next first observation."""
        action = self._rng.uniform(-BEYOND, BEYOND, self.ours.action_space.shape or ()).astype(np.float32)
        scale = self.ours.setting.tables[-3]
        in_units = np.clip(scale[CENTRE] + scale[HALF] * action, scale[LOW], scale[HIGH]).astype(np.float32)
        self.ours.step(torch.from_numpy(action[None]))
        seen, reward, terminated, _, _ = self.theirs.step(in_units)
        self._total += float(reward)
        results = self.ours.last.arrays
        ended = bool(results.terminated[0, 0] | results.truncated[0, 0])
        differs = bool(results.terminated[0, 0]) != bool(terminated)
        differs |= not _same(np.float64(reward), results.reward[0, 0])
        differs |= not _same(seen, (results.final_obs if ended else results.obs)[0, 0])
        if ended:
            differs |= not _same(np.float64(self._total), results.episode_return[0, 0])
            return self.begin() or differs
        return differs or float(self.ours.returns[0]) != self._total

    def first_difference(self, steps: int = STEPS) -> int | None:
        """Return the first of `steps` steps that differs, 0 for the first observation, None if all are equal."""
        if self.begin():
            return 0
        return next((number for number in range(1, steps + 1) if self.step()), None)

    def close(self) -> None:
        """Close both."""
        self.ours.close()
        self.theirs.close()


def _same(theirs: np.ndarray | np.float64, ours: np.ndarray) -> bool:
    """Say whether Gymnasium's float64 numbers, rounded to float32, equal ours bit for bit."""
    return theirs.astype(np.float32).tobytes() == ours.tobytes()
