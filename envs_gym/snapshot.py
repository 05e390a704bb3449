"""Saves and restores worlds of Gymnasium environments: a resume replays the actions of the running episode.

Other ways are not exact. Pickling an environment fails (Box2D) or is silently wrong (MuJoCo, ALE). Restoring only the
physics (mj_setState) is exact for HalfCheetah and Hopper, but not for Ant and Humanoid, whose rewards depend on results
of the last step that are not part of that state. A replay starts from the random generator's state at the last reset.
It is exact where all randomness comes from `np_random` and a reset forgets the past. ALE has a random generator in its
emulator, so the emulator's state at that reset is restored, too. A wrapper that remembers something across episodes
gets back its memory from before that reset.
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

SEAM_IDS = ("BipedalWalker-", "BipedalWalkerHardcore-")  # their reset depends on the history of the Box2D world
ALE_ENTRY = "ale_py."  # start of the entry points of ALE's games
MUJOCO_ENTRY = "gymnasium.envs.mujoco."  # start of the entry points of Gymnasium's MuJoCo tasks
MUJOCO_CLASSES: list[type[Env]] = []  # further classes whose `data` is MuJoCo's; dmc.py adds its own
logger = logging.getLogger("stride")


def strategy(env: Env) -> Literal["exact", "seam"]:
    """Return how an environment is restored.

    `exact`: the running episode is replayed and compared when loading. `seam`: it is cut when loading, and a new one
    begins.
    """
    env_spec = env.spec
    if (
        env_spec is None
        or env_spec.nondeterministic
        or env_spec.id.startswith(SEAM_IDS)
        or not rng_state(env.unwrapped)
    ):
        return "seam"
    return "exact"


def rng_state(env: Env) -> State:
    """Return the state of an unwrapped environment's random generator as plain data; {} for an unknown generator.

    For ALE `emulator` is added, the emulator's state. For MuJoCo `physics` is added, a hash of its state, which is
    only compared after a replay and not restored.
    """
    generator = env.np_random
    if not isinstance(generator, np.random.Generator) or not isinstance(generator.bit_generator, np.random.PCG64):
        return {}
    state = dict(generator.bit_generator.state)
    world: Any = env  # has ALE's or MuJoCo's own attributes
    entry_point = "" if env.spec is None else str(env.spec.entry_point)
    if entry_point.startswith(ALE_ENTRY):
        state["emulator"] = world.ale.cloneState(include_rng=True).serialize().hex()
    elif entry_point.startswith(MUJOCO_ENTRY) or isinstance(env, tuple(MUJOCO_CLASSES)):
        data = world.data
        arrays = (np.float64(data.time), data.qpos, data.qvel, data.act, data.ctrl, data.qacc_warmstart)
        state["physics"] = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    return state


def set_rng_state(env: Env, state: State) -> None:
    """Restore a state of `rng_state`; a reset must follow."""
    world: Any = env
    world.np_random.bit_generator.state = state
    if "emulator" in state:
        ale_state = type(world.ale.cloneState())
        world.ale.restoreState(ale_state(bytes.fromhex(str(state["emulator"]))))


def memories(wrappers: Sequence[MemoryWrapper]) -> list[State]:
    """Return the memories of a world's wrappers; they are read before a reset, and `replay` restores them."""
    return [wrapper.state_dict() for wrapper in wrappers]


class EpisodeStart(NamedTuple):
    """Everything that an episode began from: the world's seed, and the states from right before its reset."""

    seed: int
    rng: State  # of its random generator; {} for the episode that began with the seed
    memories: Sequence[State]  # of its wrappers


class Replayed(NamedTuple):
    """The end of a replay, to be compared with the saved state."""

    obs: Any
    rewards: float  # their sum, with the changes of wrappers
    ended: bool  # whether the episode ended during the replay; then it is not the saved one


def replay(
    env: Env,
    step: StepFunction,
    memory_wrappers: Sequence[MemoryWrapper],
    start: EpisodeStart,
    actions: np.ndarray,
    convert: Callable[[np.ndarray], Batch],
) -> Replayed:
    """Play the saved episode again with its actions [T, ...]; `convert` turns them into the environment's actions.

    The world always gets its seed first, because an environment may derive something from it once.
    """
    observation, _ = env.reset(seed=start.seed)
    if start.rng:
        set_rng_state(env.unwrapped, start.rng)
        for wrapper, memory in zip(memory_wrappers, start.memories, strict=True):
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
    """UserError where a checkpoint is of another environment or of another number of worlds."""
    saved_id, saved_envs = state["env_id"], state["num_envs"]
    if (saved_id, saved_envs) != (env_id, num_envs):
        raise UserError(f"the checkpoint has {saved_envs} environments of {saved_id}, not {num_envs} of {env_id}")


def warn_of_cuts(env_id: str, cuts: int, num_envs: int) -> None:
    """Log how many worlds could not be restored exactly (`cuts`); nothing for 0."""
    if cuts:
        count = f"{cuts} of {num_envs}"
        logger.warning("%s cannot be restored exactly: %s environments start a new episode", env_id, count)
