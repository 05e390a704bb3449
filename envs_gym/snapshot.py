"""How the worlds of a Gymnasium environment survive in a checkpoint: by replaying the current episode's actions.

Pickling an environment asserts (Box2D) or is silently wrong (MuJoCo, ALE); replaying from the generator's state at
the last reset is exact wherever randomness comes from `np_random` and a reset forgets the past.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from envs_gym.spaces import Batch

Strategy = Literal["exact", "seam"]

# Known not to be replayable: BipedalWalker's reset depends on the Box2D world's history, ALE keeps its own generator.
SEAM = ("BipedalWalker-", "BipedalWalkerHardcore-", "ALE/")


def strategy(env: gymnasium.Env) -> Strategy:
    """`exact`: replay, verified when loading; `seam`: the current episodes are cut when loading."""
    spec = env.spec
    known = spec is not None and not spec.nondeterministic and not spec.id.startswith(SEAM)
    return "exact" if known and rng_state(env.unwrapped) else "seam"


def rng_state(env: gymnasium.Env) -> dict[str, Any]:
    """The generator of an unwrapped environment as plain integers; empty when it is not NumPy's PCG64."""
    generator = env.np_random
    if not isinstance(generator, np.random.Generator) or not isinstance(generator.bit_generator, np.random.PCG64):
        return {}
    return dict(generator.bit_generator.state)


class Replayed(NamedTuple):
    """Where a replayed episode arrived."""

    obs: Any
    episode_return: float
    ended: bool  # an episode that ended on the way is not the one that was saved


def replay(
    env: gymnasium.Env,
    seed: int,
    rng_at_reset: dict[str, Any],
    actions: np.ndarray,
    convert: Callable[[np.ndarray], Batch],
) -> Replayed:
    """Live the saved episode again; `rng_at_reset` is empty in a world's first episode, which the seed itself began.

    Seeding comes first in any case, for what an environment derives from its seed once.
    """
    obs, _ = env.reset(seed=seed)
    if rng_at_reset:
        env.unwrapped.np_random.bit_generator.state = rng_at_reset
        obs, _ = env.reset()
    total, ended = 0.0, False
    for action in convert(actions):
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ended = bool(terminated or truncated)
        if ended:
            break
    return Replayed(obs, total, ended)
