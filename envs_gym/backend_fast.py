"""The backend `fast`: Stride's own compiled worlds (envs_fast/), on the CPU by Numba or on a GPU by CUDA."""

import inspect

import torch

from stride.config.extras import missing
from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.bodies import registry as bodies
from stride.envs_fast.vec_env import VecEnv
from stride.envs_fast.world import BODIES, COMPILED
from stride.envs_gym.wrappers.registry import wrappers_of
from stride.utils.resources import cores

NAME = "fast"
WORLDS_PER_THREAD = 4  # of worlds with a body (MuJoCo's tasks); with fewer, another thread does not pay


def why_not(config: Config) -> str:
    """Return why this backend cannot play the config, "" where it can: no wrappers, only arguments that it knows."""
    wrappers = wrappers_of(config)
    if wrappers:
        return f"only gym supports {wrappers[0]['id']}"
    world = COMPILED.get(config.env_id)
    if world is None:
        return f"{config.env_id} has no compiled version"
    extra = missing(config.env_id)
    if extra is not None:
        return extra.need(config.env_id)
    accepted = inspect.signature(world.setting).parameters
    foreign = [name for name in config.env_kwargs if name not in accepted]
    if foreign:
        return f"only gym supports env_kwargs.{foreign[0]}"
    return bodies.why_not(config.env_id, dict(config.env_kwargs)) if config.env_id in BODIES else ""


def make(config: Config, num_envs: int, device: torch.device) -> VecEnv:
    """Make worlds on `device`; worlds with a body are always on the CPU, divided among threads."""
    if config.env_id in BODIES:
        processors = cores() if config.threads == "auto" else config.threads
        workers = max(1, min(processors, num_envs // WORLDS_PER_THREAD))
        return registry.make(config.env_id, num_envs, None, config.max_episode_steps, workers, **config.env_kwargs)
    return registry.make(config.env_id, num_envs, None, config.max_episode_steps, device=device, **config.env_kwargs)
