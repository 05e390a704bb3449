"""States that worlds can be in, and actions: compiled worlds are compared there with Gymnasium's and their twins.

And those twins: worlds for a GPU, whose kernels are compiled for this processor.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from host_kernels import compile_host

from lab.minatar_states import random_states
from stride.envs_fast.cuda_env import CudaEnv
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.vec_env import CPU

N, FEWER = 100_000, 10_000  # worlds; of those that are seen as a picture, which takes up to 1000 bytes
PI = np.pi
BOXES = {  # of control: the reachable states, low and high, and thresholds of each component
    "CartPole-v1": ([(-2.4, 2.4), (-5, 5), (-0.2095, 0.2095), (-5, 5)], {0: [2.4], 2: [12 * 2 * PI / 360]}),
    "MountainCar-v0": ([(-1.2, 0.6), (-0.07, 0.07)], {0: [-1.2, 0.5, 0.6], 1: [0.07, 0.0]}),
    "MountainCarContinuous-v0": ([(-1.2, 0.6), (-0.07, 0.07)], {0: [-1.2, 0.45, 0.6], 1: [0.07, 0.0]}),
    "Pendulum-v1": ([(-90, 90), (-8, 8)], {0: [PI, 3 * PI, 5 * PI], 1: [8.0]}),
    "Acrobot-v1": ([(-PI, PI), (-PI, PI), (-4 * PI, 4 * PI), (-9 * PI, 9 * PI)], {0: [PI], 1: [PI], 2: [4 * PI]}),
}
WORD, DECK = (-(2**31), 2**31 - 1), [(0, 13)] * 4
WHOLE = {  # how ids begin whose states are whole numbers: each row's lowest and highest
    "Blackjack-v1": [(2, 21), (0, 1), (2, 9), (1, 10), (1, 10)],
    "bsuite/Catch": [(0, 4), (0, 8), (0, 4)],
    "bsuite/MemoryChain": [(0, 10), (0, 1)],
    "bsuite/DiscountingChain": [(0, 99), (0, 4)],
    "bsuite/DeepSea": [(0, 9), (0, 9)],
    "popgym-RepeatPrevious": [*DECK, *[WORD] * 4],
    "popgym-RepeatFirst": [*DECK, (0, 3), (0, 3)],
    "popgym-CountRecall": [*[(0, 0x1A1A1A1A)] * 8, (1, 52), (0, 1), (0, 1)],
    "popgym-Autoencode": [*DECK, (1, 52), (0, 3), *[WORD] * 10],
}
PHYSICS = {"popgym-PositionOnlyCartPole": "CartPole-v1", "popgym-PositionOnlyPendulum": "Pendulum-v1"}  # of others
ALIKE = ("Medium-v0", "Hard-v0")  # levels that differ from the easy ones in numbers alone
IDS = [
    i
    for i in WORLDS
    if not i.endswith(ALIKE) and not (i.startswith("MinAtar/") and i.endswith("-v0")) and not i.startswith("MiniGrid-")
]
"""Of all worlds but for those that are others with other numbers; MinAtar's v0 are v1 with more actions. MiniGrid's,
whose plain ids are those of an installed package, are tested in test_minigrid.py.
"""


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
    if env.env_id.startswith("MinAtar/"):
        return random_states(env.env_id, env.num_envs, np.random.default_rng(7))
    rng, n = np.random.default_rng(7), env.num_envs
    for start, rows in WHOLE.items():
        if env.env_id.startswith(start):
            drawn = np.stack([rng.integers(low, high + 1, n) for low, high in rows])
            low = np.array(rows)[:, :1]
            drawn[:, ::4] = rng.integers(low, low + 2, (len(rows), len(range(0, n, 4))))  # decks that are nearly empty
            return drawn
    if isinstance(env.observation_space, gymnasium.spaces.Box):
        physics = next((theirs for start, theirs in PHYSICS.items() if env.env_id.startswith(start)), env.env_id)
        return states(physics)[:, :n]
    places = env.setting.tables.next_state.shape[0] if env.world.state_size else 1
    return rng.integers(0, places, (env.world.state_size, n))


def many(env_id: str) -> int:
    """As many worlds as a test of single steps takes."""
    return FEWER if WORLDS[env_id].by_world else N


def actions(env, rng: np.random.Generator, *shape: int) -> torch.Tensor:
    if isinstance(env.action_space, gymnasium.spaces.Discrete):
        return torch.from_numpy(rng.integers(0, env.action_space.n, shape))
    return torch.from_numpy(rng.uniform(-1, 1, (*shape, 1)).astype(np.float32))
