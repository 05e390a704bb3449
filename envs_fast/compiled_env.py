"""N compiled worlds, wherever they are computed: arguments, buffers, how episodes begin, snapshots.

Physics and rules live in the worlds' own files, the shapes of everything in world.py, how the worlds are stepped in
numba_env.py (the CPU) and cuda_env.py (a GPU). A snapshot says nothing of where it was taken.
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
    """N worlds of one id; `seed` is that of the last reset, `last` the results of the last step or beginning."""

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
        number = torch.from_numpy(np.zeros(0, world.state_dtype)).dtype
        self.state_size = self.setting.state_size or world.state_size
        state = (self.state_size, num_envs), number
        worlds = buffers.zeros((state, (one, torch.int32), (one, torch.int32), (one, torch.float64)), device)
        self.device = worlds[0].device  # with its number
        results = buffers.step_buffers(self.observation_space, 1, num_envs, device)
        self._snapshot = {"obs": results[0][0], **dict(zip(Worlds._fields, worlds, strict=True))}  # in a snapshot
        self.last = self._trajectory(results)  # what step and restart write
        self.obs = buffers.first(self.last.obs)
        self._step = Step(*(buffers.first(field) for field in self.last[:-1]))  # type: ignore[arg-type]
        action = (num_envs, *(self.action_space.shape or ()))
        self._action_shape = torch.Size(action)
        self._steps_shape = torch.Size((1, *action))
        self._choices = int(self.action_space.n) if isinstance(self.action_space, spaces.Discrete) else 0
        self._action_dtype = torch.int64 if self._choices else torch.float32

    def trajectory(self, steps: int) -> Trajectory[Arrays]:
        """Buffers for `steps` steps, zero; `advance` writes them in place, as often as it is given them."""
        demand_counts(self.env_id, steps=steps)
        return self._trajectory(buffers.step_buffers(self.observation_space, steps, self.num_envs, self.device))

    def _trajectory(self, results: list[Tensor]) -> Trajectory[Arrays]:
        return buffers.trajectory(self.observation_space, results, self._as_arrays(results))

    def _as_arrays(self, results: list[Tensor]) -> Arrays:
        """The memory of a trajectory, the fields of `Told`, as the kernels take it."""
        raise NotImplementedError

    def _renew(self) -> None:
        """Take over the present seed and parameters; the memory stays where it is."""
        raise NotImplementedError

    def _begin(self, mask: Tensor) -> None:
        """Begin the episodes of the masked worlds, bool [N] of the CPU, and observe all."""
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
        """Break off the episodes of the masked worlds (bool [N]) and begin their next ones; what is seen of all."""
        self._demand_reset()
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"{self.env_id}: the mask must be bool[{self.num_envs}], got {mask.dtype}{mask.shape}")
        chosen = torch.tensor(mask)
        self._snapshot["episodes"] += chosen.to(self.device)
        self._begin(chosen)
        return self.obs

    def charge_as_gymnasium(self) -> None:
        """From now on an action beyond a box's bounds costs what it costs in Gymnasium; to a policy it is the bound."""
        if self.setting.gym_parameters is not None:
            self._parameters = self.setting.gym_parameters
            self._renew()

    def _limited(self) -> Parameters:
        """The parameters, with the time limit that was asked for."""
        limit = NO_LIMIT if self.time_limit is None else min(self.time_limit, NO_LIMIT)
        return self._parameters._replace(time_limit=limit)

    def _demand_reset(self) -> None:
        if self.seed is None:
            raise UserError(f"{self.env_id}: call reset(seed) before the first step")

    def _room_for(self, actions: Tensor, out: Trajectory[Arrays] | None) -> Trajectory[Arrays]:
        """Buffers for what actions [T, N, ...] lead to: `out` where there is one, and it and they fit."""
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
        """Everything the future depends on, copied to the CPU: 20 to 60 bytes for each world."""
        self._demand_reset()
        copies = {name: tensor.to("cpu", copy=True) for name, tensor in self._snapshot.items()}
        return {"env_id": self.env_id, "num_envs": self.num_envs, **self._rules(), "seed": self.seed, **copies}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every episode where `state_dict` was taken."""
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
        """The arguments and the time limit as text: they, too, decide how an episode goes on."""
        arguments = {f"argument {name}": repr(_plain(value)) for name, value in self.env_kwargs.items()}
        return {**arguments, "time limit": repr(self.time_limit)}


def demand_counts(env_id: str, **counts: int | None) -> None:
    """Refuse by its name what is neither None nor a whole number of at least 1."""
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise UserError(f"{env_id}: {name} must be a whole number of at least 1, got {value!r}")


def _setting(world: World, env_kwargs: dict[str, Any]) -> tuple[Setting, dict[str, Any]]:
    """The world as its keyword arguments ask for it, and all of these; unknown ones are refused by name."""
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
    """Numbers, text and lists of them, whatever kind of sequence or array they came in."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode()
    return [_plain(element) for element in value] if isinstance(value, list | tuple) else value
