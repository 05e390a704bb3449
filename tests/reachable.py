"""States that worlds can be in, and actions: compiled worlds are compared there with Gymnasium's and their twins.

And those twins: worlds for a GPU, whose kernels are compiled for this processor.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from host_kernels import compile_host

from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.vec_env import CPU

N = 100_000
PI = np.pi
BOXES = {  # of control: the reachable states, low and high, and thresholds of each component
    "CartPole-v1": ([(-2.4, 2.4), (-5, 5), (-0.2095, 0.2095), (-5, 5)], {0: [2.4], 2: [12 * 2 * PI / 360]}),
    "MountainCar-v0": ([(-1.2, 0.6), (-0.07, 0.07)], {0: [-1.2, 0.5, 0.6], 1: [0.07, 0.0]}),
    "MountainCarContinuous-v0": ([(-1.2, 0.6), (-0.07, 0.07)], {0: [-1.2, 0.45, 0.6], 1: [0.07, 0.0]}),
    "Pendulum-v1": ([(-90, 90), (-8, 8)], {0: [PI, 3 * PI, 5 * PI], 1: [8.0]}),
    "Acrobot-v1": ([(-PI, PI), (-PI, PI), (-4 * PI, 4 * PI), (-9 * PI, 9 * PI)], {0: [PI], 1: [PI], 2: [4 * PI]}),
}
HANDS = [(2, 21), (0, 1), (2, 9), (1, 10), (1, 10)]  # of Blackjack: rows of its state, lowest and highest


def on_host(
    env_id: str,
    num_envs: int = 1,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    workers: int = 1,
    **env_kwargs: Any,
) -> CudaEnv:
    """As registry.make; the threads of a launch are no workers, and so their number says nothing here."""
    env = CudaEnv(WORLDS[env_id], num_envs, max_episode_steps, CPU, compile_host, **env_kwargs)
    if seed is not None:
        env.reset(seed)
    return env


def states(env_id: str) -> np.ndarray:
    """N states [S, N] of control: uniform over the box, a quarter with one component within an ulp of a threshold."""
    assert env_id in BOXES, f"say in BOXES which states of {env_id} are reachable, and where something changes"
    box, thresholds = BOXES[env_id]
    rng = np.random.default_rng(7)
    drawn = np.stack([rng.uniform(low, high, N) for low, high in box])
    for component, values in thresholds.items():
        where = rng.integers(0, N, N // 8)
        value = rng.choice(values, where.size) * rng.choice([-1.0, 1.0], where.size)
        drawn[component, where] = np.nextafter(value, rng.choice([-np.inf, 0.0, np.inf], where.size))
        drawn[component, where[::3]] = value[::3]
        if env_id == "CartPole-v1":
            drawn[component + 1, where[::2]] = 0.0  # without speed it is still there after the step
        low, high = box[component]
        drawn[component] = np.clip(drawn[component], np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
    if env_id == "MountainCarContinuous-v0":
        drawn = drawn.astype(np.float32).astype(np.float64)
    return drawn


def states_of(env) -> np.ndarray:
    """A state for each world of `env`, which has at most N: of any kind of world."""
    if isinstance(env.observation_space, gymnasium.spaces.Box):
        return states(env.env_id)[:, : env.num_envs]
    rng, n = np.random.default_rng(7), env.num_envs
    if env.env_id == "Blackjack-v1":
        return np.stack([rng.integers(low, high + 1, n) for low, high in HANDS])
    places = env.setting.tables.next_state.shape[0] if env.world.state_size else 1
    return rng.integers(0, places, (env.world.state_size, n))


def actions(env, rng: np.random.Generator, *shape: int) -> torch.Tensor:
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return torch.from_numpy(rng.integers(0, env.action_space.n, shape))
    return torch.from_numpy(rng.uniform(-1, 1, (*shape, 1)).astype(np.float32))
