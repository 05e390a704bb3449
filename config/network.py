"""The `actor` and `critic` blocks of a config: settings in which the two networks differ.

checks.py has the ranges of their keys; agents/networks/residual.py builds the networks."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Norm = Literal["none", "layer", "batch", "rms"]
Init = Literal["uniform", "orthogonal"]


@dataclass(frozen=True)
class Network:
    """The settings of one network; null = the value of the key of the same name outside the block."""

    obs: tuple[str, ...] | None = None
    """Parts of the observation that it reads, by name, where the observation is a dict; null = all."""
    hidden_dims: tuple[int, ...] | None = None
    """Width of each hidden layer; one number = one layer."""
    activation: Literal["tanh", "relu"] | None = None
    """Nonlinearity after each hidden layer."""
    norm: Norm | None = None
    """Norm of the hidden layers; batch also of the inputs."""
    blocks: int | None = None
    """Inverted residual blocks instead of hidden layers; 0 = none."""
    init: Init | None = None
    """Distribution of the first weights."""
    lr_scale: float | None = None
    """Factor of policy_lr for this network; null = 1."""


class NetworkShape(NamedTuple):
    """The settings of one network after its block was put on top of the keys outside."""

    hidden_dims: tuple[int, ...]
    activation: str
    norm: str = "none"
    blocks: int = 0
    init: str = "uniform"
    lr_scale: float = 1.0
    obs: tuple[str, ...] | None = None

    def with_block(self, block: Network | None) -> "NetworkShape":
        """Return this shape with the values of a block, unless they are null, on top."""
        own = {} if block is None else {key: value for key, value in vars(block).items() if value is not None}
        return self._replace(**own)
