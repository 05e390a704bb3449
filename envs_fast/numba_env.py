"""N compiled worlds behind the VecEnv contract: owns their arrays, checks what comes in, calls the kernels.

Physics and rules live in the worlds' own files, the shapes of everything in world.py.
"""

import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envs_fast.vec_env import Step, Tree
from envs_fast.world import KERNEL, NO_LIMIT, Setting, World
from utils.kernel_cache import njit
from utils.user_error import UserError, nearest

logger = logging.getLogger("stride")
Arrays = tuple[np.ndarray, ...]


class Trajectory(NamedTuple):
    """T steps of N worlds: the fields of `Step`, each with a time axis in front, and the kernels' view of them."""

    obs: Tree  # [T, N, ...] after each action
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tree
    episode_return: Tensor
    episode_length: Tensor
    arrays: Arrays  # the same memory, in the order the kernels take it


class NumbaEnv:
    """N worlds of one id. `state`, `ages`, `episodes` and `returns` are theirs to read, column i for world i."""

    resume = "exact"  # a checkpoint continues every episode bit for bit

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None = None, workers: int = 1, **env_kwargs: Any
    ) -> None:
        self.world, self.env_id, self.num_envs, self.workers = world, world.env_id, num_envs, workers
        for name, value in (("num_envs", num_envs), ("workers", workers), ("max_episode_steps", max_episode_steps)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UserError(f"{self.env_id}: {name} must be a whole number of at least 1, got {value!r}")
        self.setting = _setting(world, env_kwargs)
        self.observation_space, self.action_space = self.setting.observation_space, self.setting.action_space
        self.time_limit = world.time_limit if max_episode_steps is None else max_episode_steps
        self.reward_threshold = world.reward_threshold
        limit = NO_LIMIT if self.time_limit is None else min(self.time_limit, NO_LIMIT)
        self.parameters = np.array([limit, *self.setting.parameters], np.float64)

        self.state = np.zeros((world.state_size, num_envs), world.state_dtype)
        self.ages, self.episodes = np.zeros(num_envs, np.int32), np.zeros(num_envs, np.int32)
        self.returns = np.zeros(num_envs)
        self.seed: int | None = None  # of the last reset
        self._last = self.trajectory(1)
        self.obs = _first(self._last.obs)
        self._step = Step(*(_first(field) for field in self._last[:-1]))  # type: ignore[arg-type]
        action = (num_envs, *(self.action_space.shape or ()))
        self._action_shape, self._steps_shape = torch.Size(action), torch.Size((1, *action))
        self._action_dtype = torch.int64 if isinstance(self.action_space, spaces.Discrete) else torch.float32
        self._shards = [
            (num_envs * k // workers, num_envs * (k + 1) // workers) for k in range(workers) if num_envs >= workers
        ] or [(0, num_envs)]
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None

    def trajectory(self, steps: int) -> Trajectory:
        """Buffers for `steps` steps, zero; `advance` writes them in place, as often as it is given them."""
        shape = (steps, self.num_envs)
        obs, final_obs = (_observations(self.observation_space, shape) for _ in range(2))
        flags = [np.zeros(shape, np.bool_) for _ in range(2)]
        reward, episode_return, episode_length = (np.zeros(shape, np.float32) for _ in range(3))
        terminated, truncated = (flag.view(np.uint8) for flag in flags)
        arrays = (obs, reward, terminated, truncated, final_obs, episode_return, episode_length)
        return Trajectory(
            _tree(self.observation_space, obs),
            torch.from_numpy(reward),
            torch.from_numpy(flags[0]),
            torch.from_numpy(flags[1]),
            _tree(self.observation_space, final_obs),
            torch.from_numpy(episode_return),
            torch.from_numpy(episode_length),
            arrays,
        )

    def reset(self, seed: int) -> Tree:
        """Start every world at its episode 0; world i plays the same whatever the number of worlds."""
        if not 0 <= seed < 1 << 63:
            raise UserError(f"{self.env_id}: the seed must be in [0, 2**63), got {seed}")
        _announce(self.world)
        self.seed = seed
        self.episodes[:] = 0
        self._head = self._arguments()
        return self._restart(np.ones(self.num_envs, np.bool_))

    def restart(self, mask: np.ndarray) -> Tree:
        """Break off the episodes of the masked worlds (bool [N]) and begin their next ones."""
        self._demand_reset()
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"{self.env_id}: the mask must be bool[{self.num_envs}], got {mask.dtype}{mask.shape}")
        self.episodes += mask
        return self._restart(mask)

    def _restart(self, mask: np.ndarray) -> Tree:
        self.world.restart(*self._head, mask, self._last.arrays[0][0])
        return self.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        if action.shape != self._action_shape or action.dtype != self._action_dtype:
            raise ValueError(self._expected(self._action_shape, action))
        self._demand_reset()
        actions = action.contiguous().numpy()[None]
        self._check(actions)
        self.world.advance(*self._head, actions, *self._last.arrays)
        return self._step

    def advance(self, actions: Tensor, out: Trajectory | None = None) -> Trajectory:
        """Play actions [T, N, ...] in one call, each worker its share of the worlds; `out` from `trajectory(T)`."""
        steps = actions.shape[0] if actions.ndim else 0
        shape = torch.Size((steps, *self._action_shape))
        if steps < 1 or actions.shape != shape or actions.dtype != self._action_dtype:
            raise ValueError(self._expected(("T", *self._action_shape), actions))
        self._demand_reset()
        result = self.trajectory(steps) if out is None else out
        if tuple(result.reward.shape) != (steps, self.num_envs):
            raise ValueError(f"{self.env_id}: out holds {tuple(result.reward.shape)} steps, not {shape[:2]}")
        raw = actions.contiguous().numpy()
        self._check(raw)
        if self._threads is None or steps == 1:
            self.world.advance(*self._head, raw, *result.arrays)
        else:
            jobs = [
                self._threads.submit(self.world.advance, *self._arguments(lo, hi), raw, *result.arrays)
                for lo, hi in self._shards
            ]
            for job in jobs:
                job.result()
        np.copyto(self._last.arrays[0][0], result.arrays[0][-1])
        return result

    def _arguments(self, lo: int = 0, hi: int | None = None) -> tuple[Any, ...]:
        """What both kernels take first, for the worlds [lo, hi)."""
        seed = self.seed or 0
        words = (0, seed & 0xFFFFFFFF, seed >> 32)  # the first world's number, and the seed's halves
        arrays = (self.state, self.ages, self.episodes, self.returns)
        last = self.num_envs if hi is None else hi
        return (*arrays, lo, last, *words, self.parameters, *self.setting.tables)

    def _demand_reset(self) -> None:
        if self.seed is None:
            raise UserError(f"{self.env_id}: reset(seed) comes before the first step")

    def _expected(self, shape: tuple[Any, ...], action: Tensor) -> str:
        wanted, given = ", ".join(map(str, shape)), ", ".join(map(str, action.shape))
        return f"{self.env_id} takes actions {self._action_dtype}[{wanted}], got {action.dtype}[{given}]"

    def _check(self, actions: np.ndarray) -> None:
        """Refuse the first action that is out of range or not a number, by its world."""
        if isinstance(self.action_space, spaces.Discrete):
            if _all_below(actions.reshape(-1), self.action_space.n):
                return
            wrong, rule = (actions < 0) | (actions >= self.action_space.n), f"0 to {self.action_space.n - 1}"
        else:
            if _all_numbers(actions.reshape(-1)):
                return
            wrong, rule = np.isnan(actions), "numbers, of which -1 to 1 spans the bounds"
        first = tuple(np.argwhere(wrong)[0])
        step = f" of step {first[0]}" if len(actions) > 1 else ""
        raise ValueError(f"{self.env_id}, world {first[1]}{step}: action {actions[first]}; actions are {rule}")

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, copied: 20 to 60 bytes for each world."""
        self._demand_reset()
        arrays = {"state": self.state, "ages": self.ages, "episodes": self.episodes, "returns": self.returns}
        copies = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        obs = torch.from_numpy(self._last.arrays[0][0].copy())
        return {"env_id": self.env_id, "num_envs": self.num_envs, "seed": self.seed, "obs": obs, **copies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode where `state_dict` was taken."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        self.seed = state["seed"]
        self._head = self._arguments()
        arrays = {"state": self.state, "ages": self.ages, "episodes": self.episodes, "returns": self.returns}
        for name, array in {**arrays, "obs": self._last.arrays[0][0]}.items():
            torch.from_numpy(array).copy_(state[name])

    def close(self) -> None:
        """Let the worker threads go; the memory goes with the environment."""
        if self._threads is not None:
            self._threads.shutdown()


def _setting(world: World, env_kwargs: dict[str, Any]) -> Setting:
    """The world as its keyword arguments ask for it; unknown ones are refused by name."""
    accepted = list(inspect.signature(world.setting).parameters)
    for name in env_kwargs:
        if name not in accepted:
            known = ", ".join(accepted) or "none"
            raise UserError(f"{world.env_id} has no argument {name!r}{nearest(name, accepted)}; accepted: {known}")
    return world.setting(**{**world.default_kwargs, **env_kwargs})


def _observations(space: Space[Any], leading: tuple[int, ...]) -> np.ndarray:
    """A zero buffer for observations as the kernels write them."""
    if isinstance(space, spaces.Dict):
        return np.zeros((*leading, len(space.spaces)), np.int64)
    if isinstance(space, spaces.Discrete):
        return np.zeros(leading, np.int64)
    return np.zeros((*leading, *(space.shape or ())), np.float32)


def _tree(space: Space[Any], array: np.ndarray) -> Tree:
    """The buffer as the policy sees it: itself, or one view for each name."""
    tensor = torch.from_numpy(array)
    if isinstance(space, spaces.Dict):
        return {name: tensor[..., k] for k, name in enumerate(space.spaces)}
    return tensor


def _first(tree: Tree) -> Tree:
    return {name: leaf[0] for name, leaf in tree.items()} if isinstance(tree, dict) else tree[0]


def _announce(world: World) -> None:
    """Tell whoever waits that the kernels are about to be compiled, where no earlier process has done it."""
    if not (_is_ready(world.advance) and _is_ready(world.restart)):
        logger.info("compiling %s (once, about %d s)", world.env_id, world.compile_seconds)


def _is_ready(kernel: Any) -> bool:
    """Whether a kernel is compiled in this process, or its index on disk is as new as its source."""
    if kernel.signatures:
        return True
    code = kernel.py_func.__code__
    source = Path(code.co_filename)
    folder = Path(kernel.stats.cache_path)
    names = folder.glob(f"{source.stem}.{kernel.py_func.__qualname__}-{code.co_firstlineno}.*.nbi")
    return any(path.stat().st_mtime >= source.stat().st_mtime for path in names)


@njit(**KERNEL)
def _all_below(actions: np.ndarray, n: int) -> bool:
    """Whether every action is in [0, n), without a branch."""
    wrong = np.int64(0)
    for i in range(actions.size):
        wrong |= np.int64(actions[i] < 0) | np.int64(actions[i] >= n)
    return wrong == 0


@njit(**KERNEL)
def _all_numbers(actions: np.ndarray) -> bool:
    """Whether no action is NaN, without a branch."""
    wrong = np.int64(0)
    for i in range(actions.size):
        wrong |= np.int64(actions[i] != actions[i])
    return wrong == 0
