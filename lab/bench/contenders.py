"""What lab.bench.envs times: ours, Gymnasium's and envpool's, each stepping N worlds of an environment."""

import itertools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

import envs_fast

STEPS = 64  # steps of a kernel call, and different actions of every contender
SLOW, SLOWER = 4096, 256  # peers that keep an object for each world are not made wider; those whose objects hold tables
OURS = ("ours, T steps", "ours, 1 step", "ours, Gymnasium")
PEERS = ("gymnasium native", "envpool", "gymnasium sync")
T = TypeVar("T")


class Contender(NamedTuple):
    """Something that steps N worlds; `run` makes `steps` steps of all of them."""

    run: Callable[[], object]
    steps: int
    close: Callable[[], object]


def in_turn(step: Callable[[T], object], actions: list[T]) -> Callable[[], object]:
    """A call makes one step with each of the actions."""

    def run() -> None:
        for action in actions:
            step(action)

    return run


def native_actions(env_id: str, size: int) -> np.ndarray:
    """Random actions [STEPS, N, ...] in the units of Gymnasium."""
    env, rng = envs_fast.make(env_id, 1), np.random.default_rng(0)
    space = env.setting.gym_action_space or env.action_space
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high, (STEPS, size, *space.shape)).astype(np.float32)
    assert isinstance(space, spaces.Discrete)  # the worlds know these two
    return rng.integers(0, int(space.n), (STEPS, size))


def unit_actions(env_id: str, size: int) -> torch.Tensor:
    """The same for the contract, whose boxes are [-1, 1]."""
    env = envs_fast.make(env_id, 1)
    actions = native_actions(env_id, size)
    box = env.setting.gym_action_space
    return torch.from_numpy(actions / box.high if isinstance(box, spaces.Box) else actions)


def kernel(env_id: str, size: int) -> Contender:
    """Ours, STEPS steps in one call into the same buffers."""
    env, actions = envs_fast.make(env_id, size, seed=0), unit_actions(env_id, size)
    buffers = env.trajectory(STEPS)
    return Contender(lambda: env.advance(actions, buffers), STEPS, env.close)


def single(env_id: str, size: int) -> Contender:
    """Ours, a call for each step."""
    env = envs_fast.make(env_id, size, seed=0)
    return Contender(in_turn(env.step, [*unit_actions(env_id, size)]), STEPS, env.close)


def face(env_id: str, size: int) -> Contender:
    """Ours as Gymnasium's VectorEnv."""
    env = gymnasium.make_vec(f"fast/{env_id}", num_envs=size)
    env.reset(seed=0)
    return Contender(in_turn(env.step, [*native_actions(env_id, size)]), STEPS, env.close)


def sync(env_id: str, size: int) -> Contender | None:
    """Gymnasium's loop over Python objects; a call is one step."""
    control = "classic_control" in str(gymnasium.spec(env_id).entry_point)
    if size > (SLOW if control else SLOWER):
        return None
    make = lambda: gymnasium.make(env_id, disable_env_checker=True)  # noqa: E731
    env = gymnasium.vector.SyncVectorEnv([make] * size)
    env.reset(seed=0)
    actions = itertools.cycle(native_actions(env_id, size))
    return Contender(lambda: env.step(next(actions)), 1, env.close)


def native(env_id: str, size: int) -> Contender | None:
    """Gymnasium's own vectorized environment, which it has for a few ids."""
    if gymnasium.spec(env_id).vector_entry_point is None:
        return None
    env = gymnasium.make_vec(env_id, num_envs=size, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    return Contender(in_turn(env.step, [*native_actions(env_id, size)]), STEPS, env.close)


def pooled(env_id: str, size: int) -> Contender | None:
    """envpool on one thread, where it is installed and knows the id."""
    if size > SLOW or find_spec("envpool") is None:
        return None
    envpool = import_module("envpool")
    if env_id not in envpool.list_all_envs():
        return None
    env = envpool.make_gymnasium(env_id, num_envs=size, num_threads=1, seed=0)
    env.reset()
    return Contender(in_turn(env.step, [*native_actions(env_id, size)[:8]]), 8, env.close)


MAKERS: dict[str, Callable[[str, int], Contender | None]] = dict(
    zip((*OURS, *PEERS), (kernel, single, face, native, pooled, sync), strict=True)
)


def copying(env_id: str, size: int) -> Callable[[], object]:
    """Moves as many bytes as STEPS steps must at least: actions in, results out, state read and written once a step."""
    env, actions = envs_fast.make(env_id, size), native_actions(env_id, size)
    obs, reward, terminated, truncated, *_ = env.trajectory(1).arrays
    inside = sum(array.nbytes for array in (env.state, env.ages, env.returns))
    across = actions[0].nbytes + sum(array.nbytes for array in (obs, reward, terminated, truncated))
    half = max((2 * inside + across) // 2, 1)  # a copied byte is read once and written once
    source, target = (np.ones((STEPS, half), np.uint8) for _ in range(2))
    return lambda: np.copyto(target, source)
