"""N compiled worlds on the CPU behind the VecEnv contract: checks what comes in, calls Numba's kernels.

What they share with worlds on a GPU is in compiled_env.py.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from stride.envs_fast.buffers import Trajectory
from stride.envs_fast.compiled_env import CompiledEnv, demand_counts
from stride.envs_fast.vec_env import CPU, Step, legal_actions
from stride.envs_fast.world import KERNEL, NUMBA, Kernel, Simulation, Stream, Told, World, Worlds, bind
from stride.utils.kernel_cache import njit
from stride.utils.user_error import NumbersError

logger = logging.getLogger("stride")


class NumbaEnv(CompiledEnv[Told]):
    """N worlds of one id. `state`, `ages`, `episodes` and `returns` are theirs to read, column i for world i."""

    wrong = None  # actions are looked at before they are played

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None = None, workers: int = 1, **env_kwargs: object
    ) -> None:
        super().__init__(world, num_envs, max_episode_steps, CPU, env_kwargs)
        demand_counts(self.env_id, workers=workers)
        self.workers = workers
        self.first_world = 0  # the number of world 0 in all draws, from the next reset on
        if world.by_world:
            memory = np.zeros((num_envs, self.state_size), world.state_dtype)
            self._snapshot["state"] = torch.from_numpy(memory).T  # [state_size, N] to everybody but the kernels
        self.state, *others = (self._snapshot[name].numpy() for name in Worlds._fields)
        self.ages, self.episodes, self.returns = others
        self.worlds = Worlds(self.state.T if world.by_world else self.state, *others)
        self.simulation = self._simulation()
        # fewer worlds than workers are not shared out at all
        self._shards = [
            (num_envs * k // workers, num_envs * (k + 1) // workers) for k in range(workers) if num_envs >= workers
        ] or [(0, num_envs)]
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None
        self._shares_steps = self._threads is not None and world.heavy  # a light step is over before a thread wakes

    def _as_arrays(self, results: list[Tensor]) -> Told:
        obs, reward, terminated, truncated, *last = (tensor.numpy() for tensor in results)
        return Told(obs, reward, terminated.view(np.uint8), truncated.view(np.uint8), *last)

    def _renew(self) -> None:
        self.simulation = self._simulation()

    def _begin(self, mask: Tensor) -> None:
        self._restart(self.simulation, 0, self.num_envs, mask.numpy(), self.last.arrays.obs[0])

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        try:
            fits = action.shape == self._action_shape and action.dtype == self._action_dtype
        except AttributeError:  # a list, say; where a tensor comes, this costs nothing
            fits = False
        if not fits:
            raise ValueError(self._expected(self._action_shape, action))
        self.play(action.contiguous().numpy()[None], self.last.arrays)
        return self._step

    def play(self, actions: np.ndarray, told: Told) -> None:
        """Play C-contiguous actions [T, N, ...] of the kernels' type into buffers like `Trajectory.arrays`.

        For those that have checked shapes and types themselves. `env.obs` is not brought up to date by other buffers.
        """
        if self.seed is None:
            self._demand_reset()
        self._check(actions)
        if self._shares_steps:
            self._share_out(actions, told)
        else:
            self._advance(self.simulation, 0, self.num_envs, actions, told)

    def advance(self, actions: Tensor, out: Trajectory[Told] | None = None) -> Trajectory[Told]:
        """Play actions [T, N, ...] in one call, each worker its share of the worlds; `out` from `trajectory(T)`.

        Threads take worlds, never steps, and kernels hold no GIL: results are the same for any number of workers.
        """
        result = self._room_for(actions, out)
        raw = actions.contiguous().numpy()
        self._check(raw)
        self._share_out(raw, result.arrays)
        # what a checkpoint holds as the present observation
        np.copyto(self.last.arrays.obs[0], result.arrays.obs[-1])
        return result

    def _share_out(self, actions: np.ndarray, told: Told) -> None:
        """Have each thread play its share of the worlds; a single step only where the worlds are heavy."""
        if self._threads is None or (len(actions) == 1 and not self._shares_steps):
            self._advance(self.simulation, 0, self.num_envs, actions, told)
            return
        jobs = [self._threads.submit(self._advance, self.simulation, lo, hi, actions, told) for lo, hi in self._shards]
        for job in jobs:
            job.result()

    def observe(self, world: int) -> np.ndarray:
        """What is seen of the present state of a world, whatever buffers its last steps were written to."""
        seen = np.zeros_like(self.last.arrays.obs[0])
        self._restart(self.simulation, world, world + 1, np.zeros(self.num_envs, np.bool_), seen)
        row: np.ndarray = seen[world]
        return row

    def _simulation(self) -> Simulation:
        """The first argument of kernels, for the present seed; the memory stays where it is."""
        seed = self.seed or 0
        stream = Stream(self.first_world, seed & 0xFFFFFFFF, seed >> 32)
        return Simulation(self.worlds, stream, self._limited(), self.setting.tables)

    @cached_property
    def _advance(self) -> Callable[..., None]:
        """The compiled kernel, made or loaded when it is first needed."""
        action = np.zeros(self._steps_shape, np.int64 if self._choices else np.float32)
        return bind(self.world.kernels[NUMBA].advance, self.simulation, 0, 0, action, self.last.arrays)

    @cached_property
    def _restart(self) -> Callable[..., None]:
        _announce(self.world)
        mask = np.zeros(self.num_envs, np.bool_)
        return bind(self.world.kernels[NUMBA].restart, self.simulation, 0, 0, mask, self.last.arrays.obs[0])

    def _check(self, actions: np.ndarray) -> None:
        """Refuse the first action that is out of range or not a number, by its world."""
        if self._choices:
            if _all_below(actions.reshape(-1), self._choices):
                return
            wrong = (actions < 0) | (actions >= self._choices)
        else:
            if _all_numbers(actions.reshape(-1)):
                return
            wrong = np.isnan(actions)
        first = tuple(np.argwhere(wrong)[0])
        step = f" of step {first[0]}" if len(actions) > 1 else ""
        kind = NumbersError if isinstance(self.action_space, spaces.Box) else ValueError
        rule = legal_actions(self.action_space)
        raise kind(f"{self.env_id}, environment {first[1]}{step}: action {actions[first]}; {rule}")

    def close(self) -> None:
        """Let the worker threads go; the memory goes with the environment."""
        if self._threads is not None:
            self._threads.shutdown()


def _announce(world: World) -> None:
    """Log that the kernels are about to be compiled, where no earlier process has done it."""
    if not all(_is_ready(kernel) for kernel in world.kernels[NUMBA]):
        logger.info("compiling %s (once, about %d s)", world.env_id, world.compile_seconds)


def _is_ready(kernel: Kernel) -> bool:
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
