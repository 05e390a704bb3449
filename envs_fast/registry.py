"""The list of compiled environments, and `make("CartPole-v1", num_envs=4096, seed=0)`, which makes worlds of one id.

A new environment is one file and one row here; the tests find it in WORLDS. BODIES are Gymnasium's MuJoCo tasks, which
need MuJoCo and have no GPU version.
"""

from typing import Any, overload

import torch

from stride.envs_fast import (
    acrobot,
    bandit,
    blackjack,
    bsuite_catch,
    bsuite_deep_sea,
    bsuite_discounting_chain,
    bsuite_memory_chain,
    cartpole,
    cliff_walking,
    frozen_lake,
    mountain_car,
    mountain_car_continuous,
    pendulum,
    popgym_autoencode,
    popgym_cartpole,
    popgym_count_recall,
    popgym_pendulum,
    popgym_repeat_first,
    popgym_repeat_previous,
    taxi,
)
from stride.envs_fast.bodies import registry as bodies
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.minatar import asterix, breakout, freeway, seaquest, space_invaders
from stride.envs_fast.minigrid import door_key, empty, four_rooms, key_corridor, lava_gap, multi_room, unlock
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.world import BODIES, COMPILED, WORLDS
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
        *asterix.WORLDS,
        *breakout.WORLDS,
        *freeway.WORLDS,
        *seaquest.WORLDS,
        *space_invaders.WORLDS,
        bsuite_memory_chain.WORLD,
        bsuite_catch.WORLD,
        bsuite_discounting_chain.WORLD,
        bsuite_deep_sea.WORLD,
        *popgym_repeat_previous.WORLDS,
        *popgym_repeat_first.WORLDS,
        *popgym_count_recall.WORLDS,
        *popgym_autoencode.WORLDS,
        *popgym_cartpole.WORLDS,
        *popgym_pendulum.WORLDS,
        *empty.WORLDS,
        *door_key.WORLDS,
        *unlock.WORLDS,
        *key_corridor.WORLDS,
        *four_rooms.WORLDS,
        *lava_gap.WORLDS,
        *multi_room.WORLDS,
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
    """Make `num_envs` worlds of an id. With a seed they are already reset; `device=None` is the CPU.

    `workers`: CPU threads. `env_kwargs`: arguments of the environment. UserError for an unknown id or wrong arguments.
    """
    if env_id not in COMPILED:
        known = ", ".join(COMPILED)
        raise UserError(f"no fast environment {env_id!r}{nearest(str(env_id), COMPILED)}; known: {known}")
    world = COMPILED[env_id]
    env: NumbaEnv | CudaEnv
    if str(device).startswith("cuda") and workers != 1:
        raise UserError(f"{env_id}: workers are CPU threads; on {device}, workers must be 1, got {workers!r}")
    target = CPU if device is None else training_device(str(device))
    if env_id in BODIES:
        if target.type == "cuda":
            raise UserError(f"{env_id} is stepped on the CPU; leave device out")
        refusal = bodies.why_not(env_id, env_kwargs)
        if refusal:
            raise UserError(refusal)
    if target.type == "cuda":
        env = CudaEnv(world, num_envs, max_episode_steps, target, **env_kwargs)
    else:
        env = NumbaEnv(world, num_envs, max_episode_steps, workers, **env_kwargs)
    if seed is not None:
        env.reset(seed)
    return env
