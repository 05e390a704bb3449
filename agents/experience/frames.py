"""Single frames instead of stacks: a memory keeps the newest frame of an observation and joins stacks when it is asked.

A stack is what envs_gym's FrameStack shows: the newest frames along the first axis, an episode's first one repeated.
"""

from torch import Tensor

from stride.agents.experience.nouns import Tree, tree_map
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK


def newest_frame(obs: Obs, frames: int) -> Tree:
    """The last of `frames` frames in every leaf [N, frames * c, ...]: [N, c, ...]; a mask is not stacked."""
    if frames == 1:
        return obs
    if isinstance(obs, dict):
        return {name: leaf if name == MASK else newest_frame(leaf, frames) for name, leaf in obs.items()}
    size = obs.shape[1] // frames
    return obs[:, -size:]


def stack_frames(obs: Obs, lead: int) -> Tree:
    """Leaves [frames, *lead, c, ...], oldest first, as stacks [*lead, frames * c, ...]; of a mask the newest."""
    if isinstance(obs, dict):
        return {name: leaf[-1] if name == MASK else _join(leaf, lead) for name, leaf in obs.items()}
    return tree_map(lambda x: _join(x, lead), obs)


def _join(x: Tensor, lead: int) -> Tensor:
    return x.movedim(0, lead).flatten(lead, lead + 1)
