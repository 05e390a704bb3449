"""The backend `torch`: one simulation of all worlds, which returns tensors on the policy's device.

It plays an id that is registered in Gymnasium with a `vector_entry_point` and without an `entry_point` for a single
world; where an id has both, only `env_backend: torch` chooses this backend. The entry point is called with `num_envs`,
`env_kwargs` and, if it has these parameters, `device` and `max_episode_steps`.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.blame import ARGUMENT_ERRORS, EnvError, creator_of, registered
from stride.envs_gym.tensor_env import BatchBlame, TensorEnv, checked
from stride.envs_gym.wrappers.registry import wrappers_of
from stride.utils.user_error import UserError, nearest, one_line

NAME = "torch"
OWN_ARGUMENTS = ("num_envs", "device", "max_episode_steps")  # set by us, not through env_kwargs


def why_not(config: Config) -> str:
    """Return why this backend cannot play the config, "" where it can: see the module's docstring; no wrappers."""
    env_spec = registered(config.env_id)
    if env_spec is None or env_spec.vector_entry_point is None:
        return f"{config.env_id} is not registered with a vector_entry_point"
    if env_spec.entry_point is not None and config.env_backend != NAME:
        return f"{config.env_id} also has a single version"
    wrappers = wrappers_of(config)
    return f"tensor environments do not support {wrappers[0]['id']}" if wrappers else ""


def make(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """Make the simulation of `num_envs` worlds; it is on `device` only if its entry point takes a device."""
    env_spec = registered(config.env_id)
    assert env_spec is not None  # `why_not` has looked
    limit = config.max_episode_steps or env_spec.max_episode_steps
    try:
        with BatchBlame(config.env_id, doing="__init__"):
            create = creator_of(env_spec.vector_entry_point)
            arguments = {**env_spec.kwargs, **config.env_kwargs, **_own_arguments(config, create, device, limit)}
            simulation = create(num_envs=num_envs, **arguments)
    except EnvError as error:
        if config.env_kwargs and isinstance(error.__cause__, ARGUMENT_ERRORS):
            env_kwargs = one_line(str(dict(config.env_kwargs)))
            raise UserError(f"{config.env_id} refuses env_kwargs {env_kwargs}: {error.reason}") from error
        raise
    worlds = checked(config.env_id, simulation)
    if worlds.num_envs != num_envs:
        raise UserError(f"{config.env_id} made {worlds.num_envs} environments, not {num_envs}")
    return TensorEnv(config.env_id, worlds, limit, env_spec.reward_threshold, config.step_timeout)


def _own_arguments(
    config: Config, create: Callable[..., Any], device: torch.device, limit: int | None
) -> dict[str, Any]:
    """Return `device` and `max_episode_steps`, if the entry point has them; UserError for unknown `env_kwargs`."""
    parameters = inspect.signature(create).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in config.env_kwargs:
        if name in OWN_ARGUMENTS:
            raise UserError(f"{config.env_id}: env_kwargs cannot set {name!r}: it is a separate key")
        if name not in parameters and not open_ended:
            raise UserError(f"{config.env_id}: env_kwargs has no {name!r}{nearest(name, parameters)}")
    if config.max_episode_steps is not None and "max_episode_steps" not in parameters:
        raise UserError(f"{config.env_id} has its own time limit and does not support max_episode_steps")
    arguments = {"device": device, "max_episode_steps": limit}
    return {name: value for name, value in arguments.items() if name in parameters}
