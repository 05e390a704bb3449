"""What a world asks of an algorithm, read off its spaces, for whoever chooses settings by it."""

import math
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from stride.config.general import Task
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.envs_gym.spaces import MASK, is_image
from stride.envs_gym.wrappers.registry import is_atari


def task_of(config: Config) -> Task:
    """Makes one world of the config to ask it, and closes it again."""
    envs = make_envs(config, 1)
    envs.close()
    return described(envs.observation_space, envs.action_space)._replace(atari=is_atari(config.env_id))


def described(observation: Space[Any], action: Space[Any]) -> Task:
    """The same of the spaces that a policy sees."""
    parts = dict(observation.items()) if isinstance(observation, spaces.Dict) else {"": observation}
    leaves = [leaf for name, leaf in parts.items() if name != MASK]
    kind, said = _action(action)
    return Task(kind, f"its action is {said}, it observes {_seen(leaves)}", _states(leaves), _smallest_image(leaves))


def _action(space: Space[Any]) -> tuple[str, str]:
    if isinstance(space, spaces.Discrete):
        return "choice", f"one of {space.n}"
    if isinstance(space, spaces.MultiDiscrete):
        return "choices", f"{len(space.nvec)} choices at once"
    numbers = math.prod(space.shape or ())
    bounded = isinstance(space, spaces.Box) and bool(np.isfinite([space.low, space.high]).all())
    many = f"{numbers} number{'s' * (numbers > 1)}"
    return ("bounded", f"{many} with bounds") if bounded else ("unbounded", f"{many} without bounds")


def _states(leaves: list[Space[Any]]) -> int | None:
    """How many observations there are, where each is a number of a list."""
    counts: list[int] = []
    for leaf in leaves:
        if isinstance(leaf, spaces.Discrete):
            counts.append(int(leaf.n))
        elif isinstance(leaf, spaces.MultiDiscrete):
            counts += [int(n) for n in leaf.nvec]
        else:
            return None
    return math.prod(counts)


def _smallest_image(leaves: list[Space[Any]]) -> int | None:
    """Pixels of the smallest side; images are channels first, or have no channels."""
    sides = [min(leaf.shape[-2:]) for leaf in leaves if is_image(leaf) and leaf.shape is not None]
    return min(sides, default=None)


def _seen(leaves: list[Space[Any]]) -> str:
    if (states := _states(leaves)) is not None:
        return f"one of {states:,} states"
    return "an image" if any(map(is_image, leaves)) else "numbers"
