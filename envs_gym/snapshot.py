"""How the worlds of a Gymnasium environment survive in a checkpoint: by replaying the current episode's actions.

Pickling an environment asserts (Box2D) or is silently wrong (MuJoCo, ALE). Putting the physics back alone (mj_setState)
is exact for HalfCheetah and Hopper, not for Ant and Humanoid, which pay by what the last step left beside its state.
Replaying from the generator's state at the last reset is exact wherever randomness comes from `np_random` and a reset
forgets the past; ALE draws from a generator inside its emulator, whose state at that reset is put back, too. Wrappers
that do remember across episodes are given back the memory they had before that reset.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import Env

from stride.envs_gym.answers import State, StepFunction
from stride.envs_gym.spaces import Batch
from stride.envs_gym.wrappers.base import MemoryWrapper
from stride.utils.user_error import UserError

SEAM = ("BipedalWalker-", "BipedalWalkerHardcore-")  # whose reset depends on the history of the Box2D world
ARCADE = "ale_py."  # entry points of worlds with more inside than `np_random`
MUJOCO = "gymnasium.envs.mujoco."  # entry points of Gymnasium's own worlds with MuJoCo
MUJOCO_CLASSES: list[type[Env]] = []  # others whose `data` is MuJoCo's; dmc.py adds its worlds
logger = logging.getLogger("stride")


def strategy(env: Env) -> Literal["exact", "seam"]:
    """`exact`: replay, verified when loading; `seam`: the current episodes are cut when loading."""
    env_spec = env.spec
    if env_spec is None or env_spec.nondeterministic or env_spec.id.startswith(SEAM) or not rng_state(env.unwrapped):
        return "seam"
    return "exact"


def rng_state(env: Env) -> State:
    """An unwrapped environment's generator as plain data, and what else decides its future unseen; {} if unknown.

    `emulator` is ALE's state; `physics` a hash of MuJoCo's, which a reset clears: to be compared, not put back.
    """
    generator = env.np_random
    if not isinstance(generator, np.random.Generator) or not isinstance(generator.bit_generator, np.random.PCG64):
        return {}
    state = dict(generator.bit_generator.state)
    world: Any = env  # with ALE's or MuJoCo's own attributes
    entry_point = "" if env.spec is None else str(env.spec.entry_point)
    if entry_point.startswith(ARCADE):
        state["emulator"] = world.ale.cloneState(include_rng=True).serialize().hex()
    elif entry_point.startswith(MUJOCO) or isinstance(env, tuple(MUJOCO_CLASSES)):
        data = world.data
        arrays = (np.float64(data.time), data.qpos, data.qvel, data.act, data.ctrl, data.qacc_warmstart)
        state["physics"] = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return state


def set_rng_state(env: Env, state: State) -> None:
    """Put a state of `rng_state` back, before a reset."""
    world: Any = env
    world.np_random.bit_generator.state = state
    if "emulator" in state:
        ale_state = type(world.ale.cloneState())
        world.ale.restoreState(ale_state(bytes.fromhex(str(state["emulator"]))))


def memories(wrappers: Sequence[MemoryWrapper]) -> list[State]:
    """The memories of a world's wrappers across episodes; taken before a reset, and given back to `replay`."""
    return [wrapper.state_dict() for wrapper in wrappers]


class EpisodeStart(NamedTuple):
    """From what an episode began: the world's seed, and its generator and its wrappers' memories before the reset."""

    seed: int
    rng: State  # empty in a world's first episode, which the seed itself began
    memories: Sequence[State]


class Replayed(NamedTuple):
    """Where a replayed episode arrived."""

    obs: Any
    rewards: float  # their sum as the policy got them
    ended: bool  # an episode that ended on the way is not the one that was saved


def replay(
    env: Env,
    step: StepFunction,
    remembering: Sequence[MemoryWrapper],
    start: EpisodeStart,
    actions: np.ndarray,
    convert: Callable[[np.ndarray], Batch],
) -> Replayed:
    """Play the saved episode again, by the world's own `step`.

    Seeding comes first in any case, for what an environment derives from its seed once.
    """
    observation, _ = env.reset(seed=start.seed)
    if start.rng:
        set_rng_state(env.unwrapped, start.rng)
        for wrapper, memory in zip(remembering, start.memories, strict=True):
            wrapper.load_state_dict(memory)
        observation, _ = env.reset()
    rewards = 0.0
    for action in convert(actions):
        observation, reward, terminated, truncated, _ = step(action)
        rewards += float(reward)
        if terminated or truncated:
            return Replayed(observation, rewards, True)
    return Replayed(observation, rewards, False)


def check_saved(state: State, env_id: str, num_envs: int) -> None:
    """UserError for a state of other worlds."""
    saved_id, saved_envs = state["env_id"], state["num_envs"]
    if (saved_id, saved_envs) != (env_id, num_envs):
        raise UserError(f"the checkpoint has {saved_envs} environments of {saved_id}, not {num_envs} of {env_id}")


def warn_of_cuts(env_id: str, cuts: int, num_envs: int) -> None:
    """Log that the episodes of so many worlds did not come back, if any."""
    if cuts:
        count = f"{cuts} of {num_envs}"
        logger.warning("%s cannot be restored exactly: %s environments start a new episode", env_id, count)
