"""The backend `fast`: compiled worlds of our own, on the CPU by Numba or on a GPU by CUDA."""

import inspect

import torch

from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.wrappers.registry import wrappers_of

NAME = "fast"


def why_not(config: Config) -> str:
    """Refuse a config that asks for something that only Gymnasium's worlds have."""
    wrappers = wrappers_of(config)
    if wrappers:
        return f"only gym supports {wrappers[0]['id']}"
    if config.env_id not in registry.WORLDS:
        return f"{config.env_id} has no compiled version"
    accepted = inspect.signature(registry.WORLDS[config.env_id].setting).parameters
    foreign = [name for name in config.env_kwargs if name not in accepted]
    return f"only gym supports env_kwargs.{foreign[0]}" if foreign else ""


def make(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """Worlds where the policy is."""
    return registry.make(config.env_id, num_envs, None, config.max_episode_steps, device=device, **config.env_kwargs)
