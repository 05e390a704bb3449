"""Compiled environments on the CPU: checks actions, then calls Numba kernels. Has the interface of VecEnv.

compiled_env.py has what CPU and GPU share.
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
from stride.envs_fast.world import KERNEL, NUMBA, Kernel, Simulation, StepResults, Stream, World, Worlds, bind
from stride.utils.kernel_cache import njit
from stride.utils.user_error import NumbersError

logger = logging.getLogger("stride")


class NumbaEnv(CompiledEnv[StepResults]):
    """N worlds of one environment id on the CPU.

    `state` [state_size, N], `ages`, `episodes` and `returns` [N] are for reading; column i belongs to world i.
    """

    wrong = None  # invalid actions are refused before the step

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None = None, workers: int = 1, **env_kwargs: object
    ) -> None:
        super().__init__(world, num_envs, max_episode_steps, CPU, env_kwargs)
        demand_counts(self.env_id, workers=workers)
        self.workers = workers
        self.first_world = 0  # which number world 0 has in random draws; a new value counts from the next reset on
        if world.by_world:
            memory = np.zeros((num_envs, self.state_size), world.state_dtype)
            # seen as [state_size, N] by all code except the kernels, which get the transposed array below
            self._snapshot["state"] = torch.from_numpy(memory).T
        self.state, *others = (self._snapshot[name].numpy() for name in Worlds._fields)
        self.ages, self.episodes, self.returns = others
        self.worlds = Worlds(self.state.T if world.by_world else self.state, *others)
        self.simulation = self._simulation()
        # [lo, hi) of each worker's worlds; fewer worlds than workers are not divided
        self._shards = [
            (num_envs * k // workers, num_envs * (k + 1) // workers) for k in range(workers) if num_envs >= workers
        ] or [(0, num_envs)]
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None
        self._shares_steps = self._threads is not None and world.heavy  # a cheap step ends before a thread wakes up

    def _as_arrays(self, results: list[Tensor]) -> StepResults:
        obs, reward, terminated, truncated, *last = (tensor.numpy() for tensor in results)
        return StepResults(obs, reward, terminated.view(np.uint8), truncated.view(np.uint8), *last)

    def _renew(self) -> None:
        self.simulation = self._simulation()

    def _begin(self, mask: Tensor) -> None:
        self._restart(self.simulation, 0, self.num_envs, mask.numpy(), self.last.arrays.obs[0])

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        try:
            fits = action.shape == self._action_shape and action.dtype == self._action_dtype
        except AttributeError:  # not a tensor but a list, for example; this costs nothing if it is a tensor
            fits = False
        if not fits:
            raise ValueError(self._expected(self._action_shape, action))
        self.play(action.contiguous().numpy()[None], self.last.arrays)
        return self._step

    def play(self, actions: np.ndarray, results: StepResults) -> None:
        """Play C-contiguous actions [T, N, ...], int64 or float32, and write into buffers like `Trajectory.arrays`.

        The caller has checked shapes and types; values are checked here. `env.obs` is updated only if the buffers are
        those of `self.last`.
        """
        if self.seed is None:
            self._demand_reset()
        self._check(actions)
        if self._shares_steps:
            self._share_out(actions, results)
        else:
            self._advance(self.simulation, 0, self.num_envs, actions, results)

    def advance(self, actions: Tensor, out: Trajectory[StepResults] | None = None) -> Trajectory[StepResults]:
        """Play actions [T, N, ...] in one call and return the results, in `out` if given (from `trajectory(T)`).

        Each worker thread plays all T steps of its part of the worlds, without the GIL. The results are the same for
        any number of workers.
        """
        result = self._room_for(actions, out)
        raw = actions.contiguous().numpy()
        self._check(raw)
        self._share_out(raw, result.arrays)
        # self.last holds the current observation, which a checkpoint contains
        np.copyto(self.last.arrays.obs[0], result.arrays.obs[-1])
        return result

    def _share_out(self, actions: np.ndarray, results: StepResults) -> None:
        """Let each thread play its part of the worlds; a single step is divided only if the world is `heavy`."""
        if self._threads is None or (len(actions) == 1 and not self._shares_steps):
            self._advance(self.simulation, 0, self.num_envs, actions, results)
            return
        jobs = [
            self._threads.submit(self._advance, self.simulation, lo, hi, actions, results) for lo, hi in self._shards
        ]
        for job in jobs:
            job.result()

    def observe(self, world: int) -> np.ndarray:
        """Return the observation of a world's current state, computed anew: its last step may be in other buffers."""
        seen = np.zeros_like(self.last.arrays.obs[0])
        self._restart(self.simulation, world, world + 1, np.zeros(self.num_envs, np.bool_), seen)
        row: np.ndarray = seen[world]
        return row

    def _simulation(self) -> Simulation:
        """Return the first argument of the kernels for the current seed and time limit; the arrays are not copied."""
        seed = self.seed or 0
        stream = Stream(self.first_world, seed & 0xFFFFFFFF, seed >> 32)
        return Simulation(self.worlds, stream, self._limited(), self.setting.tables)

    @cached_property
    def _advance(self) -> Callable[..., None]:
        """The machine code of the kernel `advance`, compiled or loaded when it is first used."""
        action = np.zeros(self._steps_shape, np.int64 if self._choices else np.float32)
        return bind(self.world.kernels[NUMBA].advance, self.simulation, 0, 0, action, self.last.arrays)

    @cached_property
    def _restart(self) -> Callable[..., None]:
        """The machine code of the kernel `restart`, compiled or loaded when it is first used."""
        _announce(self.world)
        mask = np.zeros(self.num_envs, np.bool_)
        return bind(self.world.kernels[NUMBA].restart, self.simulation, 0, 0, mask, self.last.arrays.obs[0])

    def _check(self, actions: np.ndarray) -> None:
        """Raise an error for the first action that is out of range or NaN; the message names its world and step."""
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
        """Stop the worker threads; the memory is freed with the environment object."""
        if self._threads is not None:
            self._threads.shutdown()


def _announce(world: World) -> None:
    """Log that the kernels are about to be compiled, unless an earlier process has stored them on disk."""
    if not all(_is_ready(kernel) for kernel in world.kernels[NUMBA]):
        logger.info("compiling %s (once, about %d s)", world.env_id, world.compile_seconds)


def _is_ready(kernel: Kernel) -> bool:
    """Say whether a kernel is compiled in this process, or Numba's index on disk is newer than its source file."""
    if kernel.signatures:
        return True
    code = kernel.py_func.__code__
    source = Path(code.co_filename)
    folder = Path(kernel.stats.cache_path)
    names = folder.glob(f"{source.stem}.{kernel.py_func.__qualname__}-{code.co_firstlineno}.*.nbi")
    return any(path.stat().st_mtime >= source.stat().st_mtime for path in names)


@njit(**KERNEL)
def _all_below(actions: np.ndarray, n: int) -> bool:
    """Say whether every action is in [0, n). Without a branch, so that LLVM makes vector code."""
    wrong = np.int64(0)
    for i in range(actions.size):
        wrong |= np.int64(actions[i] < 0) | np.int64(actions[i] >= n)
    return wrong == 0


@njit(**KERNEL)
def _all_numbers(actions: np.ndarray) -> bool:
    """Say whether no action is NaN. Without a branch, so that LLVM makes vector code."""
    wrong = np.int64(0)
    for i in range(actions.size):
        wrong |= np.int64(actions[i] != actions[i])
    return wrong == 0
