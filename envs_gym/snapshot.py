"""How the worlds of a Gymnasium environment survive in a checkpoint: by replaying the current episode's actions.

Pickling an environment asserts (Box2D) or is silently wrong (MuJoCo, ALE). Putting the physics back alone (mj_setState)
is exact for HalfCheetah and Hopper, not for Ant and Humanoid, which pay by what the last step left beside its state.
Replaying from the generator's state at the last reset is exact wherever randomness comes from `np_random` and a reset
forgets the past; ALE draws from a generator inside its emulator, whose state at that reset is put back, too. Wrappers
that do remember across episodes are given back what they knew before that reset.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from stride.envs_gym import mujoco
from stride.envs_gym.answers import StepFunction
from stride.envs_gym.spaces import Batch
from stride.envs_gym.wrappers.base import Remembering

Strategy = Literal["exact", "seam"]

SEAM = ("BipedalWalker-", "BipedalWalkerHardcore-")  # whose reset depends on the history of the Box2D world
ARCADE = "ale_py."  # where worlds with more inside than `np_random` come from


def strategy(env: gymnasium.Env) -> Strategy:
    """`exact`: replay, verified when loading; `seam`: the current episodes are cut when loading."""
    spec = env.spec
    known = spec is not None and not spec.nondeterministic and not spec.id.startswith(SEAM)
    return "exact" if known and rng_state(env.unwrapped) else "seam"


def rng_state(env: gymnasium.Env) -> dict[str, Any]:
    """An unwrapped environment's generator as plain data, and what else decides its future unseen; {} if unknown.

    `emulator` is ALE's whole state, `physics` a hash of MuJoCo's, which a reset clears: to be compared, not put back.
    """
    generator = env.np_random
    if not isinstance(generator, np.random.Generator) or not isinstance(generator.bit_generator, np.random.PCG64):
        return {}
    state = dict(generator.bit_generator.state)
    inside: Any = env  # ALE's and MuJoCo's own attributes
    source = "" if env.spec is None else str(env.spec.entry_point)
    if source.startswith(ARCADE):
        state["emulator"] = inside.ale.cloneState(include_rng=True).serialize().hex()
    elif source.startswith(mujoco.WORLDS) or isinstance(env, tuple(mujoco.HOLDERS)):
        now = inside.data
        parts = (np.float64(now.time), now.qpos, now.qvel, now.act, now.ctrl, now.qacc_warmstart)
        state["physics"] = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
    return state


def set_rng_state(env: gymnasium.Env, state: Mapping[str, object]) -> None:
    """The way back, before a reset."""
    inside: Any = env
    inside.np_random.bit_generator.state = state
    if "emulator" in state:
        ale = inside.ale
        kind = type(ale.cloneState())
        ale.restoreState(kind(bytes.fromhex(str(state["emulator"]))))


class Replayed(NamedTuple):
    """Where a replayed episode arrived."""

    obs: Any
    paid: float  # the sum of its rewards as the policy got them
    ended: bool  # an episode that ended on the way is not the one that was saved


def memories(wrappers: Sequence[Remembering]) -> list[dict[str, Any]]:
    """What the wrappers of a world remember across episodes; taken before a reset, and given back to `replay`."""
    return [wrapper.state_dict() for wrapper in wrappers]


class Beginning(NamedTuple):
    """From what an episode began: the world's seed, and its generator and its wrappers' memories before the reset."""

    seed: int
    rng: dict[str, Any]  # empty in a world's first episode, which the seed itself began
    memories: Sequence[dict[str, Any]]


def replay(
    env: gymnasium.Env,
    step: StepFunction,
    remembering: Sequence[Remembering],
    beginning: Beginning,
    actions: np.ndarray,
    convert: Callable[[np.ndarray], Batch],
) -> Replayed:
    """Live the saved episode again, by the world's own `step`.

    Seeding comes first in any case, for what an environment derives from its seed once.
    """
    obs, _ = env.reset(seed=beginning.seed)
    if beginning.rng:  # else it is the world's first episode, which the seed itself began
        set_rng_state(env.unwrapped, beginning.rng)
        for wrapper, memory in zip(remembering, beginning.memories, strict=True):
            wrapper.load_state_dict(memory)
        obs, _ = env.reset()
    paid, ended = 0.0, False
    for action in convert(actions):
        obs, reward, terminated, truncated, _ = step(action)
        paid += float(reward)
        ended = bool(terminated or truncated)
        if ended:
            break
    return Replayed(obs, paid, ended)
