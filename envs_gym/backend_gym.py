"""The backend `gym`: any Gymnasium environment, its worlds stepped by Python, here or in worker processes."""

from collections.abc import Callable

import gymnasium

from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.given import is_given
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import env_errors
from stride.envs_gym.workers import choose_workers, origin
from stride.envs_gym.wrappers.registry import world_kwargs, wrappers_of
from stride.utils.wings import load_wing

NAME = "gym"
LIMIT = 60.0  # seconds that a step in a worker may take, where step_timeout says nothing


def why_not(config: Config) -> str:
    """Of ids that Gymnasium does not know, or of which it has no single world."""
    name = config.env_id.rpartition(":")[2]
    if name in gymnasium.registry and gymnasium.registry[name].entry_point is None:
        return f"{config.env_id} has no single worlds"
    return "" if name in gymnasium.registry or is_given(name) else f"Gymnasium knows no {config.env_id}"


def make(config: Config, num_envs: int) -> VecEnv:
    """One world is made here; UserError or EnvError, one line, for what keeps worlds from being made."""
    with env_errors(config):
        env_id, asked, wrappers = config.env_id, (world_kwargs(config), config.max_episode_steps), wrappers_of(config)
        workers = choose_workers(config).number if num_envs > 1 else 0
        if not workers:
            return GymEnv(env_id, num_envs, *asked, wrappers, step_timeout=config.step_timeout)
        limit, death = config.step_timeout or LIMIT, config.on_worker_death
        side_by_side: Callable[..., VecEnv] = load_wing("workers").AsyncEnv
        return side_by_side(env_id, num_envs, *asked, workers, limit, wrappers, death, origin(config))
