"""The demands of a world on an algorithm, read off its spaces, for code that chooses settings by them."""

import math

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from stride.config.general import Task
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.envs_gym.spaces import MASK, is_image, leaf_spaces
from stride.envs_gym.wrappers.registry import is_atari


def task_of(config: Config) -> Task:
    """Makes one world of the config to ask it, and closes it again."""
    envs = make_envs(config, 1)
    envs.close()
    return described(envs.observation_space, envs.action_space)._replace(atari=is_atari(config.env_id))


def described(observation: Space, action: Space) -> Task:
    """The demands of a world with these spaces, as a policy sees them."""
    leaves = [leaf for name, leaf in leaf_spaces(observation) if name != MASK]
    kind, description = _action(action)
    states = _states(leaves)
    if states is not None:
        observed = f"one of {states:,} states"
    else:
        observed = "an image" if any(map(is_image, leaves)) else "numbers"
    return Task(kind, f"its action is {description}, it observes {observed}", states, _smallest_image(leaves))


def _action(space: Space) -> tuple[str, str]:
    if isinstance(space, Discrete):
        return "choice", f"one of {space.n}"
    if isinstance(space, MultiDiscrete):
        return "choices", f"{len(space.nvec)} choices at once"
    numbers = math.prod(space.shape or ())
    bounded = isinstance(space, Box) and bool(np.isfinite([space.low, space.high]).all())
    count = f"{numbers} number{'s' * (numbers > 1)}"
    return ("bounded", f"{count} with bounds") if bounded else ("unbounded", f"{count} without bounds")


def _states(leaves: list[Space]) -> int | None:
    """How many observations there are, where each is a number of a list."""
    counts = []
    for leaf in leaves:
        if isinstance(leaf, Discrete):
            counts.append(int(leaf.n))
        elif isinstance(leaf, MultiDiscrete):
            counts += [int(n) for n in leaf.nvec]
        else:
            return None
    return math.prod(counts)


def _smallest_image(leaves: list[Space]) -> int | None:
    """Pixels of the smallest side; images are channels first, or have no channels."""
    sides = [min(leaf.shape[-2:]) for leaf in leaves if is_image(leaf) and leaf.shape is not None]
    return min(sides, default=None)
