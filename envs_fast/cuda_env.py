"""Compiled environments on a GPU: owns their memory there and launches kernels without waiting. Has VecEnv's interface.

Results equal those of NumbaEnv bit for bit, and a snapshot of one loads into the other. compiled_env.py has what both
share.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stride.envs_fast.buffers import Trajectory
from stride.envs_fast.compiled_env import CompiledEnv
from stride.envs_fast.device_code import source_of
from stride.envs_fast.vec_env import Obs, Step, wrong_action
from stride.envs_fast.world import World, Worlds
from stride.utils.cuda_kernels import Compile, compile_cuda

Arrays = tuple[Tensor, ...]  # the fields of `StepResults`


class CudaEnv(CompiledEnv[Arrays]):
    """N worlds of one environment id on a GPU.

    `state` [state_size, N], `ages`, `episodes` and `returns` [N] are for reading; column i belongs to world i.
    `simulation` are the first arguments of the kernels for the current seed; `compile` compiles a CUDA source.

    All memory keeps its address, but kernels get the seed by value: a CUDA graph that captured `step` must be captured
    again after `reset` and `load_state_dict`.
    """

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None, device: torch.device,
        compile: Compile = compile_cuda, **env_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(world, num_envs, max_episode_steps, device, env_kwargs)
        source = source_of(world)
        self.compile, self._kernels, self._name = compile, compile(source, self.device), source.name
        self.state, self.ages, self.episodes, self.returns = (self._snapshot[name] for name in Worlds._fields)
        self.wrong = torch.zeros(1, dtype=torch.int32, device=self.device)
        # what kernels read: the parameters as float64, and (address, number of elements) of each table
        self._numbers = torch.tensor([*self._limited()], dtype=torch.float64, device=self.device)
        self._tables = [torch.from_numpy(table).to(self.device) for table in self.setting.tables]
        tables = [[table.data_ptr(), table.numel()] for table in self._tables]
        self._table_addresses = torch.tensor(tables, dtype=torch.int64).reshape(-1, 2).to(self.device)
        self.simulation = self._arguments()

    def _as_arrays(self, results: list[Tensor]) -> Arrays:
        return tuple(results)

    def _renew(self) -> None:
        self._numbers.copy_(torch.tensor([*self._limited()], dtype=torch.float64))
        self.simulation = self._arguments()

    def _arguments(self) -> tuple[Tensor | np.generic, ...]:
        """Return the first arguments of the kernels, in the order of world.cuh."""
        seed = self.seed or 0
        words = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
        worlds = self.state, self.ages, self.episodes, self.returns, np.int32(self.num_envs), np.int32(0)
        return *worlds, *words, self._numbers, self._table_addresses

    def _begin(self, mask: Tensor) -> None:
        self._kernels.launch(
            f"{self._name}_restart", self.num_envs, *self.simulation, mask.to(self.device), self._snapshot["obs"]
        )

    def reset(self, seed: int) -> Obs:
        """Begin episode 0 in every world; world i plays the same for any number of worlds."""
        self._check_actions()
        return super().reset(seed)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        try:
            fits = action.shape == self._action_shape and action.dtype == self._action_dtype
            fits = fits and action.device == self.device
        except AttributeError:  # not a tensor but a list, for example; this costs nothing if it is a tensor
            fits = False
        if not fits:
            raise ValueError(self._expected(self._action_shape, action))
        self._demand_reset()
        self._play(1, action, self.last)
        return self._step

    def advance(self, actions: Tensor, out: Trajectory[Arrays] | None = None) -> Trajectory[Arrays]:
        """Play actions [T, N, ...] in one launch and return the results, in `out` if given (from `trajectory(T)`)."""
        result = self._room_for(actions, out)
        self._play(len(actions), actions, result)
        self._snapshot["obs"].copy_(result.arrays[0][-1])  # the current observation, for snapshots
        return result

    def _play(self, steps: int, actions: Tensor, out: Trajectory[Arrays]) -> None:
        self._kernels.launch(
            f"{self._name}_advance",
            self.num_envs,
            *self.simulation,
            np.int32(steps),
            actions.contiguous(),
            *out.arrays,
            self.wrong,
        )

    def _check_actions(self) -> None:
        """Raise an error if an action has been invalid since the last check. Waits for the device."""
        if self.wrong.item():
            raise wrong_action(self)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that future steps depend on, copied to the CPU: 20 to 60 bytes for each world."""
        self._check_actions()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode from a `state_dict`; UserError if it belongs to other worlds or other arguments."""
        super().load_state_dict(state)
        self.wrong.zero_()  # it was about the episodes that are now replaced

    def close(self) -> None:
        """Raise an error if an action was invalid; the memory is freed with the environment object."""
        self._check_actions()
