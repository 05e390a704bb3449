"""N compiled worlds behind the VecEnv contract: owns their arrays, checks what comes in, calls the kernels.

Physics and rules live in the worlds' own files, the shapes of everything in world.py.
"""

import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from envs_fast import buffers
from envs_fast.buffers import Trajectory
from envs_fast.vec_env import Obs, Step
from envs_fast.world import KERNEL, NO_LIMIT, NUMBA, Kernel, Setting, Simulation, Stream, Told, World, Worlds, bind
from utils.kernel_cache import njit
from utils.user_error import NumbersError, UserError, nearest

logger = logging.getLogger("stride")


class NumbaEnv:
    """N worlds of one id. `state`, `ages`, `episodes` and `returns` are theirs to read, column i for world i."""

    device = torch.device("cpu")
    resume = "exact"  # a checkpoint continues every episode bit for bit

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None = None, workers: int = 1, **env_kwargs: object
    ) -> None:
        self.world, self.env_id, self.num_envs, self.workers = world, world.env_id, num_envs, workers
        for name, value in (("num_envs", num_envs), ("workers", workers), ("max_episode_steps", max_episode_steps)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise UserError(f"{self.env_id}: {name} must be a whole number of at least 1, got {value!r}")
        self.setting, self.env_kwargs = _setting(world, env_kwargs)
        self.observation_space, self.action_space = self.setting.observation_space, self.setting.action_space
        self.time_limit = world.time_limit if max_episode_steps is None else max_episode_steps
        self.reward_threshold = world.reward_threshold
        self._parameters = self.setting.parameters

        one, state = (num_envs,), ((world.state_size, num_envs), world.state_dtype)
        arrays = buffers.zeros(state, (one, np.int32), (one, np.int32), (one, np.float64))
        self.worlds = Worlds(*arrays)
        self.state, self.ages, self.episodes, self.returns = arrays
        self.seed: int | None = None  # of the last reset
        self.simulation = self._simulation()
        self.last = self.trajectory(1)  # what step and restart write
        self.obs = buffers.first(self.last.obs)
        self._step = Step(*(buffers.first(field) for field in self.last[:-1]))  # type: ignore[arg-type]
        action = (num_envs, *(self.action_space.shape or ()))
        self._action_shape, self._steps_shape = torch.Size(action), torch.Size((1, *action))
        self._choices = int(self.action_space.n) if isinstance(self.action_space, spaces.Discrete) else 0
        self._action_dtype = torch.int64 if self._choices else torch.float32
        # fewer worlds than workers are not shared out at all
        self._shards = [
            (num_envs * k // workers, num_envs * (k + 1) // workers) for k in range(workers) if num_envs >= workers
        ] or [(0, num_envs)]
        self._threads = ThreadPoolExecutor(workers) if workers > 1 else None

    def trajectory(self, steps: int) -> Trajectory:
        """Buffers for `steps` steps, zero; `advance` writes them in place, as often as it is given them."""
        return buffers.trajectory(self.observation_space, steps, self.num_envs)

    def reset(self, seed: int) -> Obs:
        """Start every world at its episode 0; world i plays the same whatever the number of worlds."""
        if not 0 <= seed < 1 << 63:
            raise UserError(f"{self.env_id}: the seed must be in [0, 2**63), got {seed}")
        _announce(self.world)
        self.seed = seed
        self.episodes[:] = 0
        self.simulation = self._simulation()
        return self._begin(np.ones(self.num_envs, np.bool_))

    def restart(self, mask: np.ndarray) -> Obs:
        """Break off the episodes of the masked worlds (bool [N]) and begin their next ones; what is seen of all."""
        self._demand_reset()
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"{self.env_id}: the mask must be bool[{self.num_envs}], got {mask.dtype}{mask.shape}")
        self.episodes += mask
        return self._begin(mask)

    def _begin(self, mask: np.ndarray) -> Obs:
        self._restart(self.simulation, 0, self.num_envs, mask, self.last.arrays.obs[0])
        return self.obs

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        if action.shape != self._action_shape or action.dtype != self._action_dtype:
            raise ValueError(self._expected(self._action_shape, action))
        self.play(action.contiguous().numpy()[None], self.last.arrays)
        return self._step

    def charge_as_gymnasium(self) -> None:
        """From now on an action beyond a box's bounds costs what it costs in Gymnasium; to a policy it is the bound."""
        if self.setting.gym_parameters is not None:
            self._parameters = self.setting.gym_parameters
            self.simulation = self._simulation()

    def play(self, actions: np.ndarray, told: Told) -> None:
        """Play C-contiguous actions [T, N, ...] of the kernels' type into buffers like `Trajectory.arrays`.

        For those that have checked shapes and types themselves. `env.obs` is not brought up to date by other buffers.
        """
        self._demand_reset()
        self._check(actions)
        self._advance(self.simulation, 0, self.num_envs, actions, told)

    def advance(self, actions: Tensor, out: Trajectory | None = None) -> Trajectory:
        """Play actions [T, N, ...] in one call, each worker its share of the worlds; `out` from `trajectory(T)`.

        Threads take worlds, never steps, and kernels hold no GIL: results are the same for any number of workers.
        """
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
            self._advance(self.simulation, 0, self.num_envs, raw, result.arrays)
        else:
            jobs = [
                self._threads.submit(self._advance, self.simulation, lo, hi, raw, result.arrays)
                for lo, hi in self._shards
            ]
            for job in jobs:
                job.result()
        # what a checkpoint holds as the present observation
        np.copyto(self.last.arrays.obs[0], result.arrays.obs[-1])
        return result

    def _simulation(self) -> Simulation:
        """What the kernels play with, for the present seed; the memory stays where it is."""
        seed = self.seed or 0
        limit = NO_LIMIT if self.time_limit is None else min(self.time_limit, NO_LIMIT)
        parameters = self._parameters._replace(time_limit=limit)
        return Simulation(self.worlds, Stream(0, seed & 0xFFFFFFFF, seed >> 32), parameters, self.setting.tables)

    @cached_property
    def _advance(self) -> Callable[..., None]:
        """The compiled kernel, made or loaded when it is first needed."""
        action = np.zeros(self._steps_shape, np.int64 if self._choices else np.float32)
        return bind(self.world.kernels[NUMBA].advance, self.simulation, 0, 0, action, self.last.arrays)

    @cached_property
    def _restart(self) -> Callable[..., None]:
        mask = np.zeros(self.num_envs, np.bool_)
        return bind(self.world.kernels[NUMBA].restart, self.simulation, 0, 0, mask, self.last.arrays.obs[0])

    def _demand_reset(self) -> None:
        if self.seed is None:
            raise UserError(f"{self.env_id}: reset(seed) comes before the first step")

    def _expected(self, shape: tuple[object, ...], action: Tensor) -> str:
        wanted, given = ", ".join(map(str, shape)), ", ".join(map(str, action.shape))
        return f"{self.env_id} takes actions {self._action_dtype}[{wanted}], got {action.dtype}[{given}]"

    def _check(self, actions: np.ndarray) -> None:
        """Refuse the first action that is out of range or not a number, by its world."""
        if self._choices:
            if _all_below(actions.reshape(-1), self._choices):
                return
            wrong, rule = (actions < 0) | (actions >= self._choices), f"0 to {self._choices - 1}"
        else:
            if _all_numbers(actions.reshape(-1)):
                return
            wrong, rule = np.isnan(actions), "numbers, of which -1 to 1 spans the bounds"
        first = tuple(np.argwhere(wrong)[0])
        step = f" of step {first[0]}" if len(actions) > 1 else ""
        kind = NumbersError if isinstance(self.action_space, spaces.Box) else ValueError
        raise kind(f"{self.env_id}, world {first[1]}{step}: action {actions[first]}; actions are {rule}")

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, copied: 20 to 60 bytes for each world."""
        self._demand_reset()
        copies = {name: torch.from_numpy(array.copy()) for name, array in self.worlds._asdict().items()}
        obs = torch.from_numpy(self.last.arrays.obs[0].copy())
        kind = {"env_id": self.env_id, "num_envs": self.num_envs, **self._rules()}
        return {**kind, "seed": self.seed, "obs": obs, **copies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode where `state_dict` was taken."""
        saved, mine = (state["env_id"], state["num_envs"]), (self.env_id, self.num_envs)
        if saved != mine:
            raise UserError(f"the checkpoint holds {saved[1]} worlds of {saved[0]}, not {mine[1]} of {mine[0]}")
        for name, value in self._rules().items():
            if state[name] != value:
                raise UserError(f"the checkpoint's {self.env_id} has {name} {state[name]}, this one {value}")
        self.seed = state["seed"]
        self.simulation = self._simulation()
        for name, array in {**self.worlds._asdict(), "obs": self.last.arrays.obs[0]}.items():
            torch.from_numpy(array).copy_(state[name])

    def _rules(self) -> dict[str, str]:
        """What else decides how an episode goes on, as text: the arguments and the time limit."""
        arguments = {f"argument {name}": repr(_plain(value)) for name, value in self.env_kwargs.items()}
        return {**arguments, "time limit": repr(self.time_limit)}

    def close(self) -> None:
        """Let the worker threads go; the memory goes with the environment."""
        if self._threads is not None:
            self._threads.shutdown()


def _setting(world: World, env_kwargs: dict[str, Any]) -> tuple[Setting, dict[str, Any]]:
    """The world as its keyword arguments ask for it, and all of these; unknown ones are refused by name."""
    defaults = {name: each.default for name, each in inspect.signature(world.setting).parameters.items()}
    accepted = list(defaults)
    for name in env_kwargs:
        if name not in accepted:
            known = ", ".join(accepted) or "none"
            raise UserError(f"{world.env_id} has no argument {name!r}{nearest(name, accepted)}; accepted: {known}")
    chosen = {**defaults, **world.default_kwargs, **env_kwargs}
    try:
        return world.setting(**chosen), chosen
    except UserError as error:
        raise UserError(f"{world.env_id}: {error}") from None


def _plain(value: object) -> object:
    """Numbers, text and lists of them, whatever kind of sequence or array they came in."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _announce(world: World) -> None:
    """Tell whoever waits that the kernels are about to be compiled, where no earlier process has done it."""
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
