"""A world's kernels for a GPU, compiled for this processor, against its Numba kernels: no bit differs."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from host_kernels import compile_host
from reachable import N, actions, states_of
from torch import Tensor

from stride.envs_fast.device_code import source_of, twin_of
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_fast.registry import WORLDS, make

SEED = (5 << 33) + 12345  # both halves of it count
TWINS = [(env_id, {}) for env_id, world in WORLDS.items() if twin_of(world).exists()]
VARIED = [
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {"goal_velocity": 0.03}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
    ("Pendulum-v1", {"g": 3.7}),
    ("FrozenLake-v1", {"desc": ["SFF", "FSF", "HFG"]}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.9, "reward_schedule": [3.0, -2.5, 0.1]}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    ("Taxi-v4", {"fickle_passenger": True, "fickle_probability": 0.5}),
    ("Blackjack-v1", {"natural": True, "sab": False}),
    ("Blackjack-v1", {"sab": False}),
    ("Bandit-v0", {"n_arms": 3, "stds": [0.5, 0.0, 2.0], "episode_length": 3}),
    ("Bandit-v0", {"n_arms": 1, "means": [0.0], "stds": 0.0, "episode_length": 2}),
]
CASES = [*TWINS, *(pytest.param(*case, marks=pytest.mark.slow) for case in VARIED if twin_of(WORLDS[case[0]]).exists())]
BOXES = [env_id for env_id, _ in TWINS if isinstance(WORLDS[env_id].setting().action_space, Box)]
LIMIT = 20  # steps of an episode here, so that many are truncated
NEVER_ENDS = ("Pendulum-v1",)
GUARD = 64  # elements before and behind an array that nobody may touch


class Guarded(NamedTuple):
    """An array with ground on both sides of it that nobody may touch."""

    ground: Tensor
    array: Tensor

    def is_untouched(self) -> bool:
        return bool((self.ground[:GUARD] == 77).all() and (self.ground[-GUARD:] == 77).all())


def guarded(like: np.ndarray) -> Guarded:
    """A copy of an array on such ground."""
    ground = torch.full((like.size + 2 * GUARD,), 77, dtype=torch.from_numpy(like).dtype)
    array = ground[GUARD:-GUARD].view(like.shape)
    array.copy_(torch.from_numpy(like))
    return Guarded(ground, array)


class Twin:
    """The twin of the worlds [first, N) of an environment, from where these are now."""

    def __init__(self, env: NumbaEnv, first: int = 0, order: int = 0) -> None:
        source = source_of(env.world)
        self.env, self.name, self.n = env, source.name, env.num_envs - first
        self.kernels = compile_host(source, torch.device("cpu"))
        self.kernels.order = order
        self.worlds = [guarded(np.ascontiguousarray(each[..., first:])) for each in env.worlds]
        self.guards = list(self.worlds)
        _, stream, parameters, self.tables = env.simulation
        self.head = (
            *(world.array for world in self.worlds),
            np.int32(self.n),
            np.int32(first),
            np.uint32(stream.seed_lo),
            np.uint32(stream.seed_hi),
            torch.tensor([float(number) for number in parameters], dtype=torch.float64),
            torch.tensor([[table.ctypes.data, table.size] for table in self.tables], dtype=torch.int64),
        )

    def state(self) -> list[np.ndarray]:
        """State, ages, episodes, returns."""
        return [world.array.numpy() for world in self.worlds]

    def restart(self, mask: np.ndarray) -> np.ndarray:
        obs = self._guard(np.zeros_like(self.env.last.arrays.obs[0, : self.n]))
        self.kernels.launch(f"{self.name}_restart", self.n, *self.head, torch.from_numpy(mask), obs)
        return obs.numpy()

    def advance(self, given: Tensor) -> tuple[list[np.ndarray], bool]:
        """The arrays of `Told`, zero where nothing is written, and whether an action was wrong."""
        shape = len(given), self.n
        empty = (np.zeros((*shape, *array.shape[2:]), array.dtype) for array in self.env.last.arrays)
        told, wrong = [self._guard(array) for array in empty], self._guard(np.zeros(1, np.int32))
        self.kernels.launch(f"{self.name}_advance", self.n, *self.head, np.int32(len(given)), given, *told, wrong)
        return [array.numpy() for array in told], bool(wrong)

    def _guard(self, like: np.ndarray) -> Tensor:
        self.guards.append(guarded(like))
        return self.guards[-1].array


def different_bits(these, those) -> dict[int, int]:
    """How many elements differ, by the number of the array."""
    counts = {}
    for k, (this, that) in enumerate(zip(these, those, strict=True)):
        assert (this.shape, this.dtype) == (that.shape, that.dtype)
        kind = f"u{this.itemsize}"
        if unequal := int((np.ascontiguousarray(this).view(kind) != np.ascontiguousarray(that).view(kind)).sum()):
            counts[k] = unequal
    return counts


def scatter(env: NumbaEnv, rng: np.random.Generator) -> None:
    """Put each world into some state it can be in, at some age of some episode."""
    env.state[:] = states_of(env)
    env.ages[:] = rng.integers(0, env.time_limit or 3, env.num_envs)
    env.episodes[:] = rng.integers(0, 2**31 - 2, env.num_envs)
    env.returns[:] = rng.normal(0.0, 30.0, env.num_envs)


def test_every_world_has_a_twin():
    assert [world.env_id for world in WORLDS.values() if not twin_of(world).exists()] == []


def compared(twin: Twin, env: NumbaEnv, given: Tensor, legal: Tensor | None = None, wrong: bool = False):
    """The results of both for these actions, or for the legal ones nearest to them: no bit differs."""
    mine, found = twin.advance(given)
    assert found is wrong
    assert different_bits(mine, env.advance(given if legal is None else legal).arrays) == {}
    assert different_bits(twin.state(), env.worlds) == {}
    assert all(guard.is_untouched() for guard in twin.guards)
    return mine


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_one_step_from_anywhere(env_id, kwargs):
    env, rng = make(env_id, N, SEED, **kwargs), np.random.default_rng(1)
    scatter(env, rng)
    env.ages[::4] = 0
    mine = compared(Twin(env, order=1), env, actions(env, rng, 1, N))
    assert env_id in NEVER_ENDS or mine[2].sum() > 100


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_resets(env_id, kwargs):
    """Of all worlds; then of some of them, in the midst of episodes, for the worlds from the thousandth on."""
    env, rng = make(env_id, N, SEED, **kwargs), np.random.default_rng(2)
    twin = Twin(env)
    twin.worlds[0].array.fill_(0)
    twin.worlds[1].array.fill_(5)
    assert different_bits([twin.restart(np.ones(N, np.bool_))], env.last.arrays.obs) == {}
    assert different_bits(twin.state(), env.worlds) == {}

    scatter(env, rng)
    part, mask = Twin(env, first=1000), rng.random(N) < 0.3
    part.worlds[2].array.add_(torch.from_numpy(mask[1000:]))
    env.restart(mask)
    assert different_bits([part.restart(mask[1000:])], [env.last.arrays.obs[0, 1000:]]) == {}
    assert different_bits(part.state(), [array[..., 1000:] for array in env.worlds]) == {}
    assert all(guard.is_untouched() for guard in [*twin.guards, *part.guards])


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_free_steps(env_id, kwargs):
    """With autoreset, and nothing that brings the two together again."""
    env, rng = make(env_id, 500, SEED, LIMIT, **kwargs), np.random.default_rng(3)
    scatter(env, rng)
    mine = compared(Twin(env, order=2), env, actions(env, rng, 200, 500))
    assert env_id in NEVER_ENDS or mine[2].any()
    assert WORLDS[env_id].time_limit is None or mine[3].any()


@pytest.mark.parametrize("gymnasiums", [False, True])
@pytest.mark.parametrize("env_id", BOXES)
def test_actions_beyond_the_bounds(env_id, gymnasiums):
    """They are legal, infinities too, and cost more where Gymnasium charges for all of them; zeros have both signs."""
    env, rng = make(env_id, N, SEED), np.random.default_rng(7)
    if gymnasiums:
        env.charge_as_gymnasium()
    scatter(env, rng)
    env.state[:, ::7] = 0.0
    action = 3.0 * actions(env, rng, 1, N)
    action[0, ::5] = -0.0
    action[0, :6, 0] = torch.tensor([1.0, -1.0, 0.0, -0.0, torch.inf, -torch.inf])
    compared(Twin(env), env, action)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_a_wrong_action_is_told_and_the_nearest_legal_one_is_played(env_id, kwargs):
    """One action in ten, or one alone; a choice far out of range would be read far beyond a table."""
    env, rng = make(env_id, 130, SEED, LIMIT, **kwargs), np.random.default_rng(5)
    tape = actions(env, rng, 30, 130)
    where = rng.random(tape.shape) < 0.1
    odd, near = np.float32(np.nan), np.float32(0.0)
    if tape.dtype == torch.int64:
        highest = int(env.action_space.n) - 1
        odd = rng.choice([-(2**63), -(2**40), -1, highest + 1, 2**31, 2**63 - 1], tape.shape)
        near = np.clip(odd, 0, highest)
    twin = Twin(env)
    compared(
        twin, env, torch.from_numpy(np.where(where, odd, tape)), torch.from_numpy(np.where(where, near, tape)), True
    )
    compared(twin, env, tape[:1])
    tape[1, 129] = -1 if tape.dtype == torch.int64 else float("nan")
    assert twin.advance(tape[:2])[1]
