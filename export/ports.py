"""The inputs and outputs of an exported policy: the environment's observation and action, and the policy's memory.

`ObservationEncoder` and `ActionDecoder` compute the same as a Player does with envs_gym/spaces.py, but as torch modules
that can be traced.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK, is_image

OBS, IS_FIRST, ACTION = "obs", "is_first", "action"
Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]  # arrays by port name -> arrays by port name
DTYPES = {torch.float32: "float32", torch.int64: "int64", torch.uint8: "uint8", torch.bool: "bool"}


class ObservationLeaf(NamedTuple):
    """One tensor of a (possibly nested) observation.

    Example: name "arm.angle", path ("arm", "angle"), the environment's space Box(2,); port "obs.arm.angle".
    """

    name: str
    path: tuple[Any, ...]
    space: Space[Any]

    @property
    def port(self) -> str:
        """The name of this input in the exported file."""
        return f"{OBS}.{self.name}" if self.path else OBS

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.space.shape or ())

    @property
    def dtype(self) -> torch.dtype:
        if isinstance(self.space, spaces.Discrete | spaces.MultiDiscrete):
            return torch.int64
        if self.name == MASK:
            return torch.bool
        return torch.uint8 if is_image(self.space) else torch.float32

    def read(self, obs: Any) -> np.ndarray:
        """Return this leaf's part of one observation of the environment, [1, *shape]."""
        for key in self.path:
            obs = obs[key]
        return np.asarray(obs).astype(DTYPES[self.dtype]).reshape(1, *self.shape)


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> Iterator[ObservationLeaf]:
    """Yield every leaf of an observation space, in the policy's order and with its names."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        subspaces = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child_space in subspaces:
            yield from leaves(child_space, (*path, key))
    else:
        yield ObservationLeaf(".".join(map(str, path)), path, space)


def start(space: Space[Any]) -> np.ndarray:
    """Return the smallest integers of the environment's space, [*shape]; zeros for other spaces than integers."""
    first_value = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return np.broadcast_to(np.asarray(first_value, np.int64), space.shape or ()).copy()


class ObservationEncoder(nn.Module):
    """Converts observations of the environment, a tensor [N, ...] or a dict of them by leaf, to the policy's."""

    def __init__(self, space: Space[Any]) -> None:
        super().__init__()
        self.leaves = tuple(leaves(space))
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
                self.register_buffer(f"start{index}", torch.from_numpy(start(leaf.space)))

    def forward(self, obs: Obs) -> Obs:
        if not isinstance(obs, dict):
            return self._encode(0, obs)
        return {leaf.name: self._encode(index, obs[leaf.name]) for index, leaf in enumerate(self.leaves)}

    def _encode(self, index: int, x: Tensor) -> Tensor:
        space = self.leaves[index].space
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            x = x - self.get_buffer(f"start{index}")
            return x if isinstance(space, spaces.Discrete) else x.flatten(1)
        return x if space.shape else x[:, None]  # the policy sees a single number as a vector of length 1


class ActionDecoder(nn.Module):
    """Converts the policy's actions [N, ...] to the environment's, in the environment's units and dtype."""

    start: Tensor
    centre: Tensor
    reach: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, space: Space[Any]) -> None:
        super().__init__()
        self.shape, self.numbers = tuple(space.shape or ()), isinstance(space, spaces.Box)
        self.dtype = torch.from_numpy(np.zeros(1, space.dtype)).dtype
        self.integral = not self.dtype.is_floating_point
        if isinstance(space, spaces.Box):
            bounded = space.bounded_below & space.bounded_above
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            finite_low, finite_high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
            # float64, and halves before sums, as in `box_scale`: so both round to the same numbers
            for name, parameter in (
                ("centre", finite_low / 2 + finite_high / 2),
                ("reach", finite_high / 2 - finite_low / 2),
            ):
                self.register_buffer(name, torch.from_numpy(parameter))
            self.register_buffer("low", torch.from_numpy(low))
            self.register_buffer("high", torch.from_numpy(high))
        else:
            self.register_buffer("start", torch.from_numpy(start(space)))

    def forward(self, action: Tensor) -> Tensor:
        action = action.reshape(-1, *self.shape)
        if not self.numbers:
            return (action + self.start).to(self.dtype)
        scaled_action = (self.centre + self.reach * action.double()).maximum(self.low).minimum(self.high)
        return (scaled_action.round() if self.integral else scaled_action).to(self.dtype)


class Port(NamedTuple):
    """One input or output of an exported policy: a tensor [N, *shape]."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Face(NamedTuple):
    """All inputs and outputs of an exported policy, in order."""

    leaves: tuple[ObservationLeaf, ...]
    state: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The leaves of the observation; for a policy with a memory also its state and `is_first`."""
        observation_ports = [Port(leaf.port, DTYPES[leaf.dtype], leaf.shape) for leaf in self.leaves]
        return (*observation_ports, *self.state, *([Port(IS_FIRST, "bool", ())] if self.state else []))

    def inputs_for(self, obs: Any, state: Mapping[str, np.ndarray], is_first: bool) -> dict[str, np.ndarray]:
        """Return the inputs for one world, by port name."""
        observations = {leaf.port: leaf.read(obs) for leaf in self.leaves}
        return {**observations, **state, IS_FIRST: np.array([is_first])} if self.state else observations

    def empty(self) -> dict[str, np.ndarray]:
        """Return the state of one world before its first episode."""
        return {port.name: np.zeros((1, *port.shape), np.float32) for port in self.state}

    def next_state(self, answer: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the outputs of a step as the state inputs of the next step."""
        return {port.name: answer[following(port.name)] for port in self.state}


def following(name: str) -> str:
    """Return the name of the output that is the next value of a state input."""
    return f"next_{name}"
