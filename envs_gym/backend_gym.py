"""The backend `gym`: any Gymnasium environment, its worlds stepped by Python."""

import gymnasium

from config.schema import Config
from envs_fast.vec_env import VecEnv
from envs_gym.given import is_given
from envs_gym.gym_env import GymEnv
from envs_gym.make import env_errors
from envs_gym.wrappers.registry import wrappers_of

NAME = "gym"


def why_not(config: Config) -> str:
    """Of ids that Gymnasium does not know, or of which it has no single world."""
    name = config.env_id.rpartition(":")[2]
    if name in gymnasium.registry and gymnasium.registry[name].entry_point is None:
        return f"{config.env_id} has no single worlds"
    return "" if name in gymnasium.registry or is_given(name) else f"Gymnasium knows no {config.env_id}"


def make(config: Config, num_envs: int) -> VecEnv:
    """Worlds in this process; UserError or EnvError, one line, for what keeps them from being made."""
    with env_errors(config):
        asked = config.env_kwargs, config.max_episode_steps, wrappers_of(config)
        return GymEnv(config.env_id, num_envs, *asked, step_timeout=config.step_timeout)
