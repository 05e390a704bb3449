"""The backend `gym`: any Gymnasium environment, stepped by Python in this process or in worker processes."""

from collections.abc import Callable
from typing import Any

import gymnasium

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import env_errors, is_given
from stride.envs_gym.workers import choose_workers, world_origin
from stride.envs_gym.wrappers.registry import world_kwargs, wrappers_of
from stride.utils.wings import load_wing

NAME = "gym"
WORKER_TIMEOUT = 60.0  # seconds that a step in a worker may take, where step_timeout is not set


def why_not(config: Config) -> str:
    """Return why this backend cannot play the config, "" where it can: Gymnasium must have a single world of the id."""
    name = config.env_id.rpartition(":")[2]
    if name in gymnasium.registry and gymnasium.registry[name].entry_point is None:
        return f"{config.env_id} has only a vector version"
    return "" if name in gymnasium.registry or is_given(name) else f"Gymnasium has no {config.env_id}"


def make(config: Config, num_envs: int) -> VecEnv:
    """Make worlds in this process, or in worker processes; UserError or EnvError where that fails."""
    with env_errors(config):
        arguments: dict[str, Any] = {
            "env_id": config.env_id,
            "num_envs": num_envs,
            "env_kwargs": world_kwargs(config),
            "max_episode_steps": config.max_episode_steps,
            "wrappers": wrappers_of(config),
        }
        workers = choose_workers(config).number if num_envs > 1 else 0
        if not workers:
            return GymEnv(**arguments, step_timeout=config.step_timeout)
        async_env: Callable[..., VecEnv] = load_wing("workers").AsyncEnv
        timeout = config.step_timeout or WORKER_TIMEOUT
        on_death = config.on_worker_death
        return async_env(**arguments, workers=workers, timeout=timeout, on_death=on_death, origin=world_origin(config))
