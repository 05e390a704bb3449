"""Whole batches, as vector environments hand them over, as the policy sees them: views of the same memory where it can.

spaces.py says the same of one world's NumPy values. No number is looked at here, so nothing waits for a device.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.envs_gym.spaces import MASK, actions, is_image, observation_space
from stride.utils.user_error import UserError

Read = Callable[[Any], Tensor]  # what the worlds answered -> a leaf of the observation, [N, ...]


def seen_space(space: Space[Any]) -> Space[Any]:
    """The policy's view of an observation space: as one world's, images channels first."""
    return observation_space(_turned(space))


def observations(space: Space[Any]) -> Callable[[Any], Obs]:
    """A function from the worlds' observations, tensors [N, ...] of `space`, to the policy's."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _leaf("", space)
    found, seen = _readers(space, (), ""), seen_space(space)
    assert isinstance(seen, spaces.Dict)  # as whatever has parts
    readers = {name: found[name] for name in seen.spaces}  # in its order
    return lambda value: {name: read(value) for name, read in readers.items()}


def _readers(space: Space[Any], path: tuple[Any, ...], name: str) -> dict[str, Read]:
    """Every leaf's reader by the name under which the policy sees it."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        leaf = _leaf(name, space)

        def read(value: Any) -> Tensor:
            for key in path:
                value = value[key]
            return leaf(value)

        return {name: read}
    children = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
    found: dict[str, Read] = {}
    for key, child in children:
        found |= _readers(child, (*path, key), f"{name}.{key}" if name else str(key))
    return found


def _leaf(name: str, space: Space[Any]) -> Read:
    if isinstance(space, spaces.Discrete):
        return lambda value: (value.long() - int(space.start)).reshape(len(value))
    if isinstance(space, spaces.MultiDiscrete):
        if space.start.any():
            raise UserError(f"observation space {space} begins elsewhere than at 0, which no batch of worlds may")
        return lambda value: value.long().flatten(1)
    if name == MASK:
        return lambda value: value.bool()
    if is_image(space):
        order = _order(space.shape or ())
        return lambda value: (value if value.dim() > 3 else value[:, None]).permute(order)
    shape = space.shape or (1,)
    return lambda value: value.float().reshape(len(value), *shape)


def _order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the dimensions of a batch of images of this shape, so that channels, which are the fewer ones, come first."""
    return (0, 3, 1, 2) if len(shape) == 3 and shape[2] < shape[0] else (0, 1, 2, 3)


def _turned(space: Space[Any]) -> Space[Any]:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _turned(part) for name, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_turned(part) for part in space])
    if not is_image(space):
        return space
    shape = space.shape or ()
    if len(shape) == 2:
        return spaces.Box(0, 255, (1, *shape), np.uint8)
    if len(shape) != 3:
        raise UserError(f"observation space {space} is no image: two or three dimensions are")
    batch = (0, *shape)
    return spaces.Box(0, 255, tuple(batch[axis] for axis in _order(shape)[1:]), np.uint8)


class Acting:
    """How a batch acts in `space`: the policy's actions, their shape and type, and what the worlds are given."""

    def __init__(self, space: Space[Any], num_envs: int, device: torch.device) -> None:
        known = actions(space)
        self.space, self.shape, self.dtype = known.space, (num_envs, *known.example.shape), known.example.dtype
        self._world_shape = (num_envs, *(space.shape or ()))
        self._start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        if isinstance(space, spaces.MultiDiscrete) and space.start.any():
            raise UserError(f"action space {space} begins elsewhere than at 0, which no batch of worlds may")
        self._scale: Tensor | None = None  # [4, numbers]: centre, half the width, bounds
        self._whole = np.issubdtype(space.dtype, np.integer)
        if isinstance(space, spaces.Box):
            bounded = space.bounded_below & space.bounded_above
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            bottom, top = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
            # halves first: huge bounds must not overflow
            rows = [side.reshape(-1) for side in (bottom / 2 + top / 2, top / 2 - bottom / 2, low, high)]
            with np.errstate(over="ignore"):
                self._scale = torch.from_numpy(np.stack(rows).astype(np.float32)).to(device)

    def check(self, action: Tensor, env_id: str) -> None:
        """Refuse what has another shape or type."""
        if action.shape != self.shape or action.dtype != self.dtype:
            expected = f"{self.dtype}{list(self.shape)}"
            raise ValueError(f"{env_id} takes actions {expected}, got {action.dtype}{list(action.shape)}")

    def given(self, action: Tensor) -> Tensor:
        """What the worlds take, in memory of its own: [N] from the first choice on, or numbers within the bounds."""
        if self._scale is None:
            return (action + self._start).reshape(self._world_shape)
        centre, half, low, high = self._scale
        scaled = torch.minimum(torch.maximum(centre + half * action, low), high)
        return (scaled.round().long() if self._whole else scaled).reshape(self._world_shape)


class Counts:
    """Returns and lengths of the running episodes, on the worlds' device."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self.returns = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def step(self, obs: Obs, reward: Tensor, terminated: Tensor, truncated: Tensor, final_obs: Obs) -> Step:
        """The Step of what the worlds answered; an episode that ended is counted, and its world begins at zero."""
        self.returns += reward
        self.lengths += 1
        cut = truncated & ~terminated  # both at once: the task ended, there is no future to value
        step = Step(obs, reward.float(), terminated, cut, final_obs, self.returns.float(), self.lengths.float())
        ended = terminated | cut
        self.returns.masked_fill_(ended, 0.0)  # not times 0: a return that is no number would stay one
        self.lengths.masked_fill_(ended, 0)
        return step

    def cut(self, obs: Obs, last: Obs) -> Step:
        """The Step behind a seam: all episodes truncated where they stood, at `last`, by a step that does nothing."""
        flag = torch.ones_like(self.lengths, dtype=torch.bool)
        none = torch.zeros_like(self.returns, dtype=torch.float32)
        step = Step(obs, none, ~flag, flag, last, self.returns.float(), self.lengths.float())
        self.zero_()
        return step

    def zero_(self) -> None:
        """All worlds begin."""
        self.returns.zero_()
        self.lengths.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        return {"returns": self.returns.to("cpu", copy=True), "lengths": self.lengths.to("cpu", copy=True)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.returns.copy_(state["returns"])
        self.lengths.copy_(state["lengths"])
