"""Describes what an environment demands of an algorithm (a Task), by its spaces; `ENV:auto` chooses settings by it."""

import math
from functools import partial

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from stride.config.general import Task
from stride.config.schema import Config
from stride.envs_gym.costs import measured_costs
from stride.envs_gym.make import make_envs
from stride.envs_gym.spaces import MASK, is_image, leaf_spaces
from stride.envs_gym.wrappers.registry import is_atari


def task_of(config: Config) -> Task:
    """Return the Task of the config's environment; this makes one world and closes it."""
    envs = make_envs(config, 1)
    envs.close()
    task = described(envs.observation_space, envs.action_space)
    return task._replace(atari=is_atari(config.env_id), measure=partial(measured_costs, config))


def described(observation: Space, action: Space) -> Task:
    """Return the Task for these spaces, as a policy sees them."""
    subspaces = [subspace for name, subspace in leaf_spaces(observation) if name != MASK]
    kind, description = _action(action)
    states = _states(subspaces)
    if states is not None:
        observed = f"one of {states:,} states"
    else:
        observed = "an image" if any(map(is_image, subspaces)) else "numbers"
    return Task(kind, f"its action is {description}, it observes {observed}", states, _smallest_image(subspaces))


def _action(space: Space) -> tuple[str, str]:
    """Return (kind, description) of an action space, such as ("bounded", "2 numbers with bounds")."""
    if isinstance(space, Discrete):
        return "choice", f"one of {space.n}"
    if isinstance(space, MultiDiscrete):
        return "choices", f"{len(space.nvec)} choices at once"
    numbers = math.prod(space.shape or ())
    bounded = isinstance(space, Box) and bool(np.isfinite([space.low, space.high]).all())
    count = f"{numbers} number{'s' * (numbers > 1)}"
    return ("bounded", f"{count} with bounds") if bounded else ("unbounded", f"{count} without bounds")


def _states(subspaces: list[Space]) -> int | None:
    """Return the number of possible observations if all parts are integers; None for other observations."""
    counts = []
    for subspace in subspaces:
        if isinstance(subspace, Discrete):
            counts.append(int(subspace.n))
        elif isinstance(subspace, MultiDiscrete):
            counts += [int(n) for n in subspace.nvec]
        else:
            return None
    return math.prod(counts)


def _smallest_image(subspaces: list[Space]) -> int | None:
    """Return the smallest side of all images in pixels (channels are first, or missing); None without images."""
    sides = [min(subspace.shape[-2:]) for subspace in subspaces if is_image(subspace) and subspace.shape is not None]
    return min(sides, default=None)
