"""Converts batches of vector environments to the policy's tensors and back, as views of the same memory if possible.

tensor_env.py uses it; spaces.py does the same for NumPy values of one world. Python reads no number of a tensor here,
so nothing waits for a GPU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym.spaces import MASK, actions, box_scale, check_action, children, is_image, join, observation_space
from stride.utils.user_error import UserError

Read = Callable[[Any], Tensor]  # observation of the worlds -> one part of it as the policy sees it, [N, ...]


def policy_space(space: Space) -> Space:
    """Return the policy's view of a world's observation space, as in spaces.py, with channels of images first."""
    return observation_space(_channels_first(space))


def observations(space: Space) -> Callable[[Any], Obs]:
    """Return a function that converts the worlds' observations, tensors [N, ...] of `space`, to the policy's."""
    readers = _readers(space, (), "")
    policy_view = policy_space(space)
    if not isinstance(policy_view, Dict):
        return readers[""]
    return lambda value: {name: readers[name](value) for name in policy_view.spaces}


def _readers(space: Space, path: Sequence[Any], name: str) -> dict[str, Read]:
    """Return the reader of every part, by the policy's name of it; `path`: the keys that lead to this space."""
    readers: dict[str, Read] = {}
    if isinstance(space, Dict | Tuple):
        for key, child in children(space):
            readers |= _readers(child, (*path, key), join(name, key))
        return readers
    convert = _converter(name, space)

    def read(value: Any) -> Tensor:
        for key in path:
            value = value[key]
        return convert(value)

    return {name: read}


def _converter(name: str, space: Space) -> Callable[[Tensor], Tensor]:
    """Return a function that converts one part of the observation, [N, ...] of `space`, to the policy's."""
    if isinstance(space, Discrete):
        return lambda value: (value.long() - int(space.start)).reshape(len(value))
    if isinstance(space, MultiDiscrete):
        if space.start.any():
            raise UserError(f"observation space {space} must start at 0 to be batched")
        return lambda value: value.long().flatten(1)
    if name == MASK:
        return lambda value: value.bool()
    if is_image(space):
        order = _order(space.shape or ())
        return lambda value: (value if value.dim() > 3 else value[:, None]).permute(order)
    shape = space.shape or (1,)
    return lambda value: value.float().reshape(len(value), *shape)


def _order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of a batch's dimensions that puts channels first, for images of this shape.

    Example: (84, 84, 3) -> (0, 3, 1, 2). The last dimension is taken for channels if it is smaller than the first.
    """
    return (0, 3, 1, 2) if len(shape) == 3 and shape[2] < shape[0] else (0, 1, 2, 3)


def _channels_first(space: Space) -> Space:
    """Return the space with channels first in all its images."""
    if isinstance(space, Dict):
        return Dict({name: _channels_first(component) for name, component in space.items()})
    if isinstance(space, Tuple):
        return Tuple([_channels_first(component) for component in space])
    if not is_image(space):
        return space
    shape = space.shape or ()
    if len(shape) == 2:
        return Box(0, 255, (1, *shape), np.uint8)
    if len(shape) != 3:
        raise UserError(f"observation space {space} is not an image: an image has two or three dimensions")
    batch = (0, *shape)
    return Box(0, 255, tuple(batch[axis] for axis in _order(shape)[1:]), np.uint8)


class BatchActions:
    """Converts a batch of the policy's actions to actions of `space` for all worlds, on their device."""

    def __init__(self, space: Space, num_envs: int, device: torch.device) -> None:
        converter = actions(space)
        self.space = converter.space
        self.shape = (num_envs, *converter.example.shape)
        self.dtype = converter.example.dtype
        self._world_shape = (num_envs, *(space.shape or ()))
        self._start = int(space.start) if isinstance(space, Discrete) else 0
        if isinstance(space, MultiDiscrete) and space.start.any():
            raise UserError(f"action space {space} must start at 0 to be batched")
        self._integral = np.issubdtype(space.dtype, np.integer)
        self._scale: Tensor | None = None  # [4, numbers]: centre, half the width, bounds
        if isinstance(space, Box):
            with np.errstate(over="ignore"):
                self._scale = torch.from_numpy(box_scale(space).astype(np.float32)).to(device)

    def check(self, action: Tensor, env_id: str) -> None:
        """ValueError for an action of another shape or type."""
        check_action(env_id, action, self.shape, self.dtype)

    def convert(self, action: Tensor) -> Tensor:
        """Return actions for the worlds, in new memory: choices from `start` on, or numbers within the bounds."""
        if self._scale is None:
            return (action + self._start).reshape(self._world_shape)
        centre, half, lower, upper = self._scale
        scaled = torch.minimum(torch.maximum(centre + half * action, lower), upper)
        return (scaled.round().long() if self._integral else scaled).reshape(self._world_shape)


class EpisodeCounts:
    """Counts returns and lengths of the running episodes, [N] each, on the worlds' device."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def step(self, obs: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor, final_obs: Obs) -> Step:
        """Return the Step for the worlds' answers, then set the counts of ended episodes to zero."""
        self.returns += reward
        self.lengths += 1
        cut = truncated & ~terminated  # if both are set, terminated counts: the task has ended
        step = Step(obs, reward.float(), terminated, cut, final_obs, self.returns.float(), self.lengths.float())
        finished = terminated | cut
        self.returns.masked_fill_(finished, 0.0)  # a multiplication by 0 would keep a non-finite return
        self.lengths.masked_fill_(finished, 0)
        return step

    def cut(self, obs: Obs, last: Obs) -> Step:
        """Return the Step after a checkpoint that could not be restored: it truncates all episodes and moves no world.

        `obs`: first observations of the new episodes; `last`: last observations of the old ones.
        """
        truncated = torch.ones_like(self.lengths, dtype=torch.bool)
        rewards = torch.zeros_like(self.returns, dtype=torch.float32)
        step = Step(obs, rewards, ~truncated, truncated, last, self.returns.float(), self.lengths.float())
        self.zero_()
        return step

    def zero_(self) -> None:
        """Set all counts to zero, for new episodes in all worlds."""
        self.returns.zero_()
        self.lengths.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return {"returns": self.returns.to("cpu", copy=True), "lengths": self.lengths.to("cpu", copy=True)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.returns.copy_(state["returns"])
        self.lengths.copy_(state["lengths"])
