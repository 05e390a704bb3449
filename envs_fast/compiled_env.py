"""The base class of compiled environments on the CPU and on a GPU: arguments, buffers, resets, snapshots.

Physics and rules are in the file of each environment, the types of all arrays in world.py. numba_env.py steps the
worlds on the CPU, cuda_env.py on a GPU. A snapshot (`state_dict`) of one loads into the other.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Generic

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from stride.envs_fast import buffers
from stride.envs_fast.buffers import Arrays, Trajectory
from stride.envs_fast.vec_env import Obs, Step
from stride.envs_fast.world import NO_LIMIT, Parameters, Setting, World, Worlds
from stride.utils.user_error import UserError, nearest


class CompiledEnv(Generic[Arrays]):
    """N worlds of one environment id.

    `seed` is that of the last reset, None before it; `last` holds the results of the last step or reset.
    """

    resume = "exact"  # a checkpoint continues every episode bit for bit

    def __init__(
        self, world: World, num_envs: int, max_episode_steps: int | None, device: torch.device, env_kwargs: dict[str,
        Any],
    ) -> None:  # fmt: skip
        self.world = world
        self.env_id = world.env_id
        self.num_envs = num_envs
        demand_counts(self.env_id, num_envs=num_envs, max_episode_steps=max_episode_steps)
        self.setting, self.env_kwargs = _setting(world, env_kwargs)
        self.observation_space, self.action_space = self.setting.observation_space, self.setting.action_space
        self.time_limit = world.time_limit if max_episode_steps is None else max_episode_steps
        self.reward_threshold = world.reward_threshold
        self._parameters = self.setting.parameters
        self.seed: int | None = None

        one = (num_envs,)
        number = torch.from_numpy(np.zeros(0, world.state_dtype)).dtype  # the torch dtype of the state
        self.state_size = self.setting.state_size or world.state_size
        state = (self.state_size, num_envs), number
        worlds = buffers.zeros((state, (one, torch.int32), (one, torch.int32), (one, torch.float64)), device)
        self.device = worlds[0].device  # with its index: cuda:0, not cuda
        results = buffers.step_buffers(self.observation_space, 1, num_envs, device)
        # the tensors that state_dict() copies: the present observation, and the fields of Worlds
        self._snapshot = {"obs": results[0][0], **dict(zip(Worlds._fields, worlds, strict=True))}
        self.last = self._trajectory(results)  # `step` and `restart` write here; T is 1
        self.obs = buffers.first(self.last.obs)
        self._step = Step(*(buffers.first(field) for field in self.last[:-1]))  # type: ignore[arg-type]
        action = (num_envs, *(self.action_space.shape or ()))
        self._action_shape = torch.Size(action)
        self._steps_shape = torch.Size((1, *action))
        # number of discrete actions, 0 for a Box
        self._choices = int(self.action_space.n) if isinstance(self.action_space, spaces.Discrete) else 0
        self._action_dtype = torch.int64 if self._choices else torch.float32

    def trajectory(self, steps: int) -> Trajectory[Arrays]:
        """Return zeroed buffers for `steps` steps, which `advance` can write into any number of times."""
        demand_counts(self.env_id, steps=steps)
        return self._trajectory(buffers.step_buffers(self.observation_space, steps, self.num_envs, self.device))

    def _trajectory(self, results: list[Tensor]) -> Trajectory[Arrays]:
        return buffers.trajectory(self.observation_space, results, self._as_arrays(results))

    def _as_arrays(self, results: list[Tensor]) -> Arrays:
        """Convert the buffers of a trajectory, the fields of `StepResults`, to what the kernels take."""
        raise NotImplementedError

    def _renew(self) -> None:
        """Pass the current seed and parameters to the kernels; the memory keeps its addresses."""
        raise NotImplementedError

    def _begin(self, mask: Tensor) -> None:
        """Begin an episode in each masked world (bool [N] on the CPU) and write the observations of all worlds."""
        raise NotImplementedError

    def reset(self, seed: int) -> Obs:
        """Start every world at its episode 0; world i plays the same whatever the number of worlds."""
        whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        if not whole or not 0 <= seed < 1 << 63:
            raise UserError(f"{self.env_id}: the seed must be a whole number in [0, 2**63), got {seed!r}")
        self.seed = int(seed)
        self._renew()
        self._snapshot["episodes"].zero_()
        self._begin(torch.ones(self.num_envs, dtype=torch.bool))
        return self.obs

    def restart(self, mask: np.ndarray) -> Obs:
        """Abandon the episodes of the masked worlds (bool [N]), begin their next ones, return all observations.

        Raise ValueError for a mask of another type or shape, UserError before the first reset.
        """
        self._demand_reset()
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"{self.env_id}: the mask must be bool[{self.num_envs}], got {mask.dtype}{mask.shape}")
        chosen = torch.tensor(mask)
        self._snapshot["episodes"] += chosen.to(self.device)
        self._begin(chosen)
        return self.obs

    def charge_as_gymnasium(self) -> None:
        """From now on use the rewards of Gymnasium's environment for actions outside the bounds.

        Else such an action costs as much as the bound (mountain_car_continuous.py).
        """
        if self.setting.gym_parameters is not None:
            self._parameters = self.setting.gym_parameters
            self._renew()

    def _limited(self) -> Parameters:
        """Return the parameters with the time limit of this environment."""
        limit = NO_LIMIT if self.time_limit is None else min(self.time_limit, NO_LIMIT)
        return self._parameters._replace(time_limit=limit)

    def _demand_reset(self) -> None:
        if self.seed is None:
            raise UserError(f"{self.env_id}: call reset(seed) before the first step")

    def _room_for(self, actions: Tensor, out: Trajectory[Arrays] | None) -> Trajectory[Arrays]:
        """Check actions [T, N, ...], and return buffers for their results: `out`, or new ones if it is None.

        Raise ValueError if the actions or `out` do not have the right shape, type or device.
        """
        if not isinstance(actions, Tensor):
            raise ValueError(self._expected(("T", *self._action_shape), actions))
        steps = actions.shape[0] if actions.ndim else 0
        shape = torch.Size((steps, *self._action_shape))
        fits = actions.dtype == self._action_dtype and actions.device == self.device
        if steps < 1 or actions.shape != shape or not fits:
            raise ValueError(self._expected(("T", *self._action_shape), actions))
        self._demand_reset()
        result = self.trajectory(steps) if out is None else out
        if tuple(result.reward.shape) != (steps, self.num_envs):
            raise ValueError(f"{self.env_id}: out has {tuple(result.reward.shape)} steps, not {shape[:2]}")
        return result

    def _expected(self, shape: tuple[object, ...], action: object) -> str:
        expected = f"{self._action_dtype}[{', '.join(map(str, shape))}]"
        if not isinstance(action, Tensor):
            kind = type(action).__name__
            return f"{self.env_id} takes actions {expected}, got {kind}; torch.as_tensor makes a tensor of numbers"
        received = f"{action.dtype}[{', '.join(map(str, action.shape))}]"
        if action.device != self.device:
            expected += f" on {self.device}"
            received += f" on {action.device}"
        return f"{self.env_id} takes actions {expected}, got {received}"

    def state_dict(self) -> dict[str, Any]:
        """Return everything that future steps depend on, copied to the CPU: 20 to 60 bytes for each world."""
        self._demand_reset()
        copies = {name: tensor.to("cpu", copy=True) for name, tensor in self._snapshot.items()}
        return {"env_id": self.env_id, "num_envs": self.num_envs, **self._rules(), "seed": self.seed, **copies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode from a `state_dict`; UserError if it belongs to other worlds or other arguments."""
        names = {"env_id", "num_envs", "seed", *self._rules(), *self._snapshot}
        if not isinstance(state, Mapping) or not names <= state.keys():
            raise UserError(f"{self.env_id}: load_state_dict takes only the result of state_dict()")
        saved = state["num_envs"], state["env_id"]
        current = self.num_envs, self.env_id
        if saved != current:
            raise UserError(f"the checkpoint has {saved[0]} copies of {saved[1]}, not {current[0]} of {current[1]}")
        for name, value in self._rules().items():
            if state[name] != value:
                raise UserError(f"the checkpoint's {self.env_id} has {name} {state[name]}, but this one has {value}")
        self.seed = state["seed"]
        self._renew()
        for name, tensor in self._snapshot.items():
            tensor.copy_(state[name])

    def _rules(self) -> dict[str, str]:
        """Return the arguments and the time limit as text: a snapshot continues only with the same ones."""
        arguments = {f"argument {name}": repr(_plain(value)) for name, value in self.env_kwargs.items()}
        return {**arguments, "time limit": repr(self.time_limit)}


def demand_counts(env_id: str, **counts: int | None) -> None:
    """Raise UserError, with the argument's name, for a value that is neither None nor a whole number from 1 up."""
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UserError(f"{env_id}: {name} must be a whole number of at least 1, got {value!r}")


def _setting(world: World, env_kwargs: dict[str, Any]) -> tuple[Setting, dict[str, Any]]:
    """Return the world's setting and all keyword arguments, defaults included; UserError for an unknown one."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(world.setting).parameters.items()}
    accepted = list(defaults)
    for name in env_kwargs:
        if name not in accepted:
            accepted_names = ", ".join(accepted) or "none"
            raise UserError(
                f"{world.env_id} has no argument {name!r}{nearest(name, accepted)}; accepted: {accepted_names}"
            )
    arguments = {**defaults, **world.default_kwargs, **env_kwargs}
    try:
        return world.setting(**arguments), arguments
    except UserError as error:
        raise UserError(f"{world.env_id}: {error}") from None


def _plain(value: object) -> object:
    """Convert arrays, NumPy scalars, bytes and tuples to plain numbers, text and lists, so that their repr is equal."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode()
    return [_plain(element) for element in value] if isinstance(value, list | tuple) else value
