"""The worlds by their id, and how to make some of one: `make("CartPole-v1", num_envs=4096, seed=0)`.

A new world is one file and one row here; the tests pick it up from WORLDS.
"""

from typing import Any, overload

import torch

from stride.envs_fast import (
    acrobot,
    bandit,
    blackjack,
    cartpole,
    cliff_walking,
    frozen_lake,
    mountain_car,
    mountain_car_continuous,
    pendulum,
    taxi,
)
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import WORLDS
from stride.utils.devices import CPU, training_device
from stride.utils.user_error import UserError, nearest

WORLDS.update(
    (world.env_id, world)
    for world in (
        cartpole.WORLD,
        mountain_car.WORLD,
        mountain_car_continuous.WORLD,
        pendulum.WORLD,
        acrobot.WORLD,
        frozen_lake.WORLD,
        frozen_lake.WORLD_8X8,
        taxi.WORLD,
        cliff_walking.WORLD,
        cliff_walking.WORLD_SLIPPERY,
        blackjack.WORLD,
        bandit.WORLD,
    )
)


@overload
def make(
    env_id: str, num_envs: int = 1, seed: int | None = None, max_episode_steps: int | None = None, workers: int = 1,
    device: None = None, **env_kwargs: object,
) -> NumbaEnv: ...  # fmt: skip


@overload
def make(
    env_id: str, num_envs: int = 1, seed: int | None = None, max_episode_steps: int | None = None, workers: int = 1,
    *, device: str | torch.device, **env_kwargs: object,
) -> NumbaEnv | CudaEnv: ...  # fmt: skip


def make(
    env_id: str, num_envs: int = 1, seed: int | None = None, max_episode_steps: int | None = None, workers: int = 1,
    device: str | torch.device | None = None, **env_kwargs: Any,
) -> NumbaEnv | CudaEnv:  # fmt: skip
    """`num_envs` worlds of an id, on the CPU where no device is named; with a seed they are already reset."""
    if env_id not in WORLDS:
        raise UserError(f"no fast environment {env_id!r}{nearest(str(env_id), WORLDS)}; known: {', '.join(WORLDS)}")
    env: NumbaEnv | CudaEnv
    if str(device).startswith("cuda") and workers != 1:
        raise UserError(f"{env_id}: workers are CPU threads; on {device}, workers must be 1, got {workers!r}")
    place = CPU if device is None else training_device(str(device))
    if place.type == "cuda":
        env = CudaEnv(WORLDS[env_id], num_envs, max_episode_steps, place, **env_kwargs)
    else:
        env = NumbaEnv(WORLDS[env_id], num_envs, max_episode_steps, workers, **env_kwargs)
    if seed is not None:
        env.reset(seed)
    return env
