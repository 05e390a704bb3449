"""The worlds by their id, and how to make some of one: `make("CartPole-v1", num_envs=4096, seed=0)`.

A new world is one file and one row of this table; the tests pick it up from here.
"""

from envs_fast import (
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
from envs_fast.numba_env import NumbaEnv
from envs_fast.world import World
from utils.user_error import UserError, nearest

WORLDS: dict[str, World] = {
    world.env_id: world
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
}


def make(
    env_id: str,
    num_envs: int = 1,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    workers: int = 1,
    **env_kwargs: object,
) -> NumbaEnv:
    """`num_envs` worlds of an id; with a seed they are already reset."""
    if env_id not in WORLDS:
        raise UserError(f"no fast environment {env_id!r}{nearest(env_id, WORLDS)}; known: {', '.join(WORLDS)}")
    env = NumbaEnv(WORLDS[env_id], num_envs, max_episode_steps, workers, **env_kwargs)
    if seed is not None:
        env.reset(seed)
    return env
