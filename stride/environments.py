"""Use environments from Python without a training: facts about one, many stepped together, or each as it gets ready.

An environment is named as on the command line: `CartPole-v1`, `ALE/Pong-v5`, `my_module:Mine-v0`. Keywords are config
keys about the environment: env_kwargs, env_wrappers, frame_stack, max_episode_steps, workers, ...
"""

import os

from stride.config.checks import check
from stride.config.fields import convert, hints
from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym import make
from stride.envs_gym.async_ready import AsyncPool
from stride.envs_gym.make import EnvInfo, env_errors, import_module
from stride.envs_gym.workers import obstacle_to_workers, world_origin
from stride.envs_gym.wrappers.registry import world_kwargs, wrappers_of
from stride.utils.devices import training_device
from stride.utils.user_error import UserError, nearest

STEP_SECONDS = 60.0  # time limit of a step in a pool, if step_timeout is not set
ANY_BUDGET = 1 << 30  # a config needs a budget, although nothing is trained


def env_info(env_id: str, **keys: object) -> EnvInfo:
    """The goal, the time limit, the spaces, and whether observations are images. Makes one environment to find out."""
    return make.env_info(_config(env_id, keys))


def make_envs(env_id: str, num_envs: int = 1, device: str = "cpu", **keys: object) -> VecEnv:
    """`num_envs` environments, stepped as in a training. Start them with `reset(seed)`; close them with `close()`."""
    return make.make_envs(_config(env_id, {**keys, "n_envs": num_envs}), num_envs, training_device(device))


def async_pool(env_id: str, num_envs: int, workers: int | None = None, **keys: object) -> AsyncPool:
    """Slow environments in worker processes; each gets its action and returns its result separately.

    `workers`: default one per core.
    """
    workers = min(os.cpu_count() or 1, num_envs) if workers is None else workers
    config = _config(env_id, {**keys, "n_envs": num_envs, "workers": workers})
    import_module(config.env_id)
    obstacle = obstacle_to_workers(config)
    if obstacle:
        raise UserError(f"worker processes cannot make {env_id}: {obstacle}")
    with env_errors(config):
        return AsyncPool(
            config.env_id,
            num_envs,
            world_kwargs(config),
            config.max_episode_steps,
            workers,
            config.step_timeout or STEP_SECONDS,
            wrappers_of(config),
            origin=world_origin(config),
        )


def _config(env_id: str, keys: dict[str, object]) -> Config:
    """Return a config that describes only the environments; UserError names a key that is wrong."""
    types = hints(Config)
    for key in keys:
        if key not in types:
            raise UserError(f"unknown key {key!r}{nearest(key, types)}")
    values = {key: convert(key, types[key], value) for key, value in keys.items()}
    config = Config(**{"env_id": convert("env_id", str, env_id), "max_timesteps": ANY_BUDGET, **values})
    check(config, config.env_id)
    return config
