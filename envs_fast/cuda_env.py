"""N compiled worlds on a GPU behind the VecEnv contract: owns their memory there, starts kernels, waits for nothing.

Bit for bit the worlds of NumbaEnv: a snapshot of one goes on in the other. What both share is in compiled_env.py.
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

Arrays = tuple[Tensor, ...]  # the fields of `Told`


class CudaEnv(CompiledEnv[Arrays]):
    """N worlds of one id. `state`, `ages`, `episodes` and `returns` are theirs to read, column i for world i;
    `simulation` is what their kernels take first, for the present seed, and `compile` makes kernels for where they are.

    No memory moves while the object lives, but the seed is handed to kernels by value: who has captured `step` in a
    graph captures it again after `reset` and `load_state_dict`.
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
        """As world.cuh takes them."""
        seed = self.seed or 0
        words = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)
        worlds = self.state, self.ages, self.episodes, self.returns, np.int32(self.num_envs), np.int32(0)
        return *worlds, *words, self._numbers, self._table_addresses

    def _begin(self, mask: Tensor) -> None:
        self._kernels.launch(
            f"{self._name}_restart", self.num_envs, *self.simulation, mask.to(self.device), self._snapshot["obs"]
        )

    def reset(self, seed: int) -> Obs:
        """Start every world at its episode 0; world i plays the same whatever the number of worlds."""
        self._look()
        return super().reset(seed)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action; the tensors returned are overwritten by the next step."""
        try:
            fits = action.shape == self._action_shape and action.dtype == self._action_dtype
            fits = fits and action.device == self.device
        except AttributeError:  # a list, say; where a tensor comes, this costs nothing
            fits = False
        if not fits:
            raise ValueError(self._expected(self._action_shape, action))
        self._demand_reset()
        self._play(1, action, self.last)
        return self._step

    def advance(self, actions: Tensor, out: Trajectory[Arrays] | None = None) -> Trajectory[Arrays]:
        """Play actions [T, N, ...] in one launch; `out` from `trajectory(T)`."""
        result = self._room_for(actions, out)
        self._play(len(actions), actions, result)
        self._snapshot["obs"].copy_(result.arrays[0][-1])  # what a snapshot holds as the present observation
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

    def _look(self) -> None:
        """Refuse what was wrong with the actions since somebody looked; waits for the device."""
        if self.wrong.item():
            raise wrong_action(self)

    def state_dict(self) -> dict[str, Any]:
        """Everything the future depends on, copied to the CPU: 20 to 60 bytes for each world."""
        self._look()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode where `state_dict` was taken."""
        super().load_state_dict(state)
        self.wrong.zero_()  # of worlds that are no more

    def close(self) -> None:
        """The memory goes with the environment."""
        self._look()
