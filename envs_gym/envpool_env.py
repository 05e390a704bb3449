"""Worlds of EnvPool behind the VecEnv contract: stepped by its threads, copied once into the buffers of a Step.

EnvPool resets an ended world with the action after; here it is reset at once, by itself, and its true last observation
kept. It has no snapshots: a resume is a seam.
"""

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from envs_fast.vec_env import CPU, Obs, Step
from envs_gym.batches import Acting, Counts, observations, seen_space
from envs_gym.gym_env import SEEDS
from envs_gym.spaces import step_buffers
from envs_gym.step_watch import WatchedBlame
from envs_gym.tensor_env import together
from utils.counter_rng import WORLD, Key, integers
from utils.user_error import UserError

Make = Callable[..., Any]  # envpool.make_gymnasium
ENDLESS = 2**31 - 1  # EnvPool's limit of tasks that have none
logger = logging.getLogger("stride")


class EnvPoolEnv:
    """N worlds of one task; the pool is made by `reset`, since its seeds are given when it is made."""

    device, resume = CPU, "seam"
    wrong = None  # choices are checked by EnvPool, numbers are clipped

    def __init__(
        self,
        env_id: str,
        task: str,
        num_envs: int,
        arguments: Mapping[str, Any],
        spec: Any,
        make: Make,
        step_timeout: float | None = None,
    ) -> None:
        """`task`: EnvPool's name of `env_id`; `spec`: what envpool.make_spec says of it."""
        self.env_id, self.task, self.num_envs = env_id, task, num_envs
        self._make, self._arguments = make, dict(arguments)
        limit = int(spec.config.max_episode_steps)
        self.time_limit = limit if limit < ENDLESS else None
        self.reward_threshold = None if spec.reward_threshold is None else float(spec.reward_threshold)
        space = honest(spec.gymnasium_observation_space)
        self.observation_space, self._seen = seen_space(space), observations(space)
        acted = honest(spec.gymnasium_action_space)
        self._acting = Acting(acted, num_envs, CPU)
        self.action_space, self._action_dtype = self._acting.space, acted.dtype
        self._step = step_buffers(self.observation_space, num_envs)
        self._counts = Counts(num_envs, CPU)
        self._pool: Any = None
        self._blame = together(env_id, step_timeout)
        self._seed = self._resets = 0
        self._cut = False

    def reset(self, seed: int) -> Obs:
        """A pool of these seeds; world i has the same one whatever the number of worlds."""
        self._seed, self._resets, self._cut = seed, 0, False
        self._counts.zero_()
        self._begin()
        return self._step.obs

    def _begin(self) -> None:
        key = Key(self._seed, WORLD, iteration=self._resets)
        self._resets += 1
        with self._blame as blame:
            blame.doing = "reset"
            self._close_pool()
            seeds = integers(key, self.num_envs, SEEDS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Gymnasium's, of bounds that EnvPool writes in more digits
                self._pool = self._make(self.task, num_envs=self.num_envs, seed=seeds, **self._arguments)
            obs, _ = self._pool.reset()
            _write(self._step.obs, self._seen(_tensors(obs)))

    def step(self, action: Tensor) -> Step:
        """Advance every world; the answer's buffers are overwritten by the next step."""
        self._acting.check(action, self.env_id)
        if self._pool is None and not self._cut:
            raise RuntimeError(f"{self.env_id}: reset(seed) comes before the first step")
        if self._cut:
            return self._seam()
        given = self._acting.given(action).numpy().astype(self._action_dtype)
        with self._blame as blame:
            blame.doing = "step"
            obs, reward, terminated, truncated, _ = self._pool.step(given)
            now = self._seen(_tensors(obs))
            _write(self._step.obs, now)
            if self.time_limit is not None:  # which Jumanji's tasks do not keep themselves
                truncated = truncated | (self._counts.lengths.numpy() + 1 >= self.time_limit)
            ended = np.flatnonzero(terminated | truncated).astype(np.int32)
            if len(ended):
                _write(self._step.final_obs, now)
                self._restart(ended)
        flags = torch.from_numpy(terminated), torch.from_numpy(truncated)
        return self._counts.step(self._step.obs, torch.from_numpy(reward), *flags, self._step.final_obs)

    def _restart(self, ended: np.ndarray) -> None:
        """Begin the next episodes of these worlds; EnvPool answers for them alone, in an order that it tells."""
        obs, info = self._pool.reset(ended)
        _write(self._step.obs, self._seen(_tensors(obs)), torch.from_numpy(info["env_id"]).long())

    def _seam(self) -> Step:
        """The first step behind a checkpoint: every episode ends where it stood, and another pool begins."""
        self._cut = False
        _write(self._step.final_obs, self._step.obs)
        self._begin()
        return self._counts.cut(self._step.obs, self._step.final_obs)

    def state_dict(self) -> dict[str, Any]:
        """Plain data; the worlds themselves are not in it."""
        if self._pool is None:
            raise RuntimeError(f"{self.env_id} has no state before its first reset")
        obs = self._step.obs
        kept = {name: leaf.clone() for name, leaf in obs.items()} if isinstance(obs, dict) else obs.clone()
        state = {"env_id": self.env_id, "num_envs": self.num_envs, "seed": self._seed, "resets": self._resets}
        return {**state, "obs": kept, **self._counts.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """All running episodes end as truncated by the next step; then the worlds go on with seeds of their own."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        self._seed, self._resets, self._cut = state["seed"], state["resets"], True
        _write(self._step.obs, state["obs"])
        self._counts.load_state_dict(state)
        logger.warning("%s cannot be restored: %s worlds begin a new episode", self.env_id, self.num_envs)

    def close(self) -> None:
        """End the pool's threads."""
        with self._blame as blame:
            blame.doing = "close"
            self._close_pool()
        if isinstance(self._blame, WatchedBlame):
            self._blame.close()

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def honest(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """The same where EnvPool writes C++'s smallest and largest double for a number that has no bounds."""
    if isinstance(space, gymnasium.spaces.Dict):
        return gymnasium.spaces.Dict({name: honest(part) for name, part in space.items()})
    if not isinstance(space, gymnasium.spaces.Box) or space.dtype != np.float64:
        return space
    free = space.high == np.finfo(np.float64).max
    low, high = np.where(free, -np.inf, space.low), np.where(free, np.inf, space.high)
    return gymnasium.spaces.Box(low, high, space.shape, np.float64)


def _tensors(value: Any) -> Any:
    """The arrays of an answer as tensors of the same memory."""
    if isinstance(value, dict):
        return {name: _tensors(part) for name, part in value.items()}
    return torch.from_numpy(value)


def _write(target: Obs, source: Obs, worlds: Tensor | slice = slice(None)) -> None:
    """Into the buffers' rows of `worlds`, in their order."""
    if isinstance(target, dict):
        assert isinstance(source, dict)  # of one space
        for name, leaf in target.items():
            leaf[worlds] = source[name]
    else:
        assert isinstance(source, Tensor)
        target[worlds] = source
