"""Whole batches, as vector environments return them, as the policy sees them: views of the same memory where possible.

spaces.py does this for one world's NumPy values. No number is looked at here, so nothing waits for a device.
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

Read = Callable[[Any], Tensor]  # an answer of the worlds -> one part of the observation, [N, ...]


def policy_space(space: Space) -> Space:
    """The policy's view of an observation space: as one world's, images channels first."""
    return observation_space(_channels_first(space))


def observations(space: Space) -> Callable[[Any], Obs]:
    """A function from the worlds' observations, tensors [N, ...] of `space`, to the policy's."""
    readers = _readers(space, (), "")
    policy_view = policy_space(space)
    if not isinstance(policy_view, Dict):
        return readers[""]
    return lambda value: {name: readers[name](value) for name in policy_view.spaces}


def _readers(space: Space, path: Sequence[Any], name: str) -> dict[str, Read]:
    """The reader of every part by the name under which the policy sees it; `path`: the keys that lead to it."""
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
    """The order of dimensions that puts channels, the smallest one, first in a batch of images of this shape."""
    return (0, 3, 1, 2) if len(shape) == 3 and shape[2] < shape[0] else (0, 1, 2, 3)


def _channels_first(space: Space) -> Space:
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
    """How a batch acts in `space`: the policy's actions, their shape and type, and the actions for the worlds."""

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
        """Refuse an action of another shape or type."""
        check_action(env_id, action, self.shape, self.dtype)

    def convert(self, action: Tensor) -> Tensor:
        """Actions for the worlds, in new memory: [N] from the first choice on, or numbers within the bounds."""
        if self._scale is None:
            return (action + self._start).reshape(self._world_shape)
        centre, half, lower, upper = self._scale
        scaled = torch.minimum(torch.maximum(centre + half * action, lower), upper)
        return (scaled.round().long() if self._integral else scaled).reshape(self._world_shape)


class EpisodeCounts:
    """Returns and lengths of the running episodes, on the worlds' device."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def step(self, obs: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor, final_obs: Obs) -> Step:
        """The Step for the worlds' answers; an episode that ended is counted, and its world begins at zero."""
        self.returns += reward
        self.lengths += 1
        cut = truncated & ~terminated  # both at once: the task ended, there is no future to value
        step = Step(obs, reward.float(), terminated, cut, final_obs, self.returns.float(), self.lengths.float())
        finished = terminated | cut
        self.returns.masked_fill_(finished, 0.0)  # not times 0: a non-finite return would stay one
        self.lengths.masked_fill_(finished, 0)
        return step

    def cut(self, obs: Obs, last: Obs) -> Step:
        """The Step behind a seam: all episodes truncated where they were, at `last`, by a step that does nothing."""
        truncated = torch.ones_like(self.lengths, dtype=torch.bool)
        rewards = torch.zeros_like(self.returns, dtype=torch.float32)
        step = Step(obs, rewards, ~truncated, truncated, last, self.returns.float(), self.lengths.float())
        self.zero_()
        return step

    def zero_(self) -> None:
        """Begin an episode in all worlds."""
        self.returns.zero_()
        self.lengths.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return {"returns": self.returns.to("cpu", copy=True), "lengths": self.lengths.to("cpu", copy=True)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.returns.copy_(state["returns"])
        self.lengths.copy_(state["lengths"])
