"""The first layer of every network: it turns observations into one float vector, by normalising, one-hot and a CNN.

The memory stores raw observations. Statistics are buffers of the policy, so that they are in checkpoints and exports.
"""

from itertools import accumulate

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, flatdim
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.experience.nouns import by_name
from stride.agents.experience.shards import SINGLE, SingleShard
from stride.agents.networks.cnn import CNN, Image
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK, is_image
from stride.utils.user_error import UserError, nearest


class RunningNorm(nn.Module):
    """Normalise: (x - mean) / std by the statistics of all rows given to `learn` so far, clipped to +-`bound`."""

    epsilon, bound = 1e-8, 10.0
    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) * (self.var + self.epsilon).rsqrt()).clamp(-self.bound, self.bound)

    @torch.no_grad()
    def learn(self, x: Tensor, shard: SingleShard = SINGLE) -> None:
        """Merge the mean and variance of rows x [..., size], of all shards, into the statistics."""
        x = x.reshape(-1, x.shape[-1]).double()
        if shard.count == 1:
            self._merge(x.mean(0), x.var(0, unbiased=False), len(x))
            return
        x = x - self.mean  # squares of small numbers lose less by rounding
        mean, square = shard.mean(torch.stack([x.mean(0), x.square().mean(0)]))
        self._merge(self.mean + mean, (square - mean.square()).clamp(min=0), len(x) * shard.count)

    @torch.no_grad()
    def merge(self, other: "RunningNorm") -> None:
        """Merge the statistics of another instance, such as another process's, as if its rows were learnt here."""
        if other.count:
            self._merge(other.mean.double(), other.var.double(), other.count)

    def _merge(self, mean: Tensor, var: Tensor, n: int | Tensor) -> None:
        """Merge mean and variance [size] of n rows."""
        # M2 = M2_a + M2_b + delta^2 n_a n_b / (n_a + n_b), Chan, Golub and LeVeque 1979; M2 is var times count
        total_count = self.count + n
        mean_shift = mean - self.mean
        m2 = self.var * self.count + var * n + mean_shift.square() * self.count * n / total_count
        is_finite = m2.isfinite().all()  # non-finite rows change nothing; the host does not wait
        self.mean += torch.where(is_finite, mean_shift * n / total_count, 0)
        self.var.copy_(torch.where(is_finite, m2 / total_count, self.var))
        self.count.copy_(torch.where(is_finite, total_count, self.count))


class StaticNorm(nn.Module):
    """Normalise by the bounds that the space declares: they become [-1, 1]. UserError if a number has none."""

    centre: Tensor
    scale: Tensor

    def __init__(self, space: Box, name: str) -> None:
        super().__init__()
        low_bounds, high_bounds = (np.asarray(x, np.float64).reshape(-1) for x in (space.low, space.high))
        # Gymnasium writes "no bound" as the largest float32 in some environments
        bound_range = high_bounds - low_bounds
        unbounded = np.flatnonzero(~(np.isfinite(bound_range) & (bound_range < 1e30) & (bound_range > 0)))
        if len(unbounded):
            raise UserError(
                f"normalize_obs: static needs bounds, but {name} has none at index {unbounded[0]}; use rolling"
            )
        self.register_buffer("centre", torch.tensor((high_bounds + low_bounds) / 2, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(2 / bound_range, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.centre) * self.scale


class OneHot(nn.Module):
    """Indices [...] -> one-hot [..., size], as rows of an identity matrix; F.one_hot would make the host wait."""

    table: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.eye(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.table)


class MultiOneHot(nn.Module):
    """Several indices [..., k] -> their one-hot vectors, joined, [..., sum of sizes]."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.onehots = nn.ModuleList([OneHot(n) for n in sizes])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([onehot(x[..., i]) for i, onehot in enumerate(self.onehots)], -1)


class Float(nn.Module):
    """Numbers as they are, as floats."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


class FlatEncoder(nn.Module):
    """Join all parts of an observation, except the action mask, into one vector [..., size].

    Boxes are flattened and normalised as `normalize` says (False, True or "rolling", "static"). Discrete parts become
    one-hot. Each image is read by a `cnn` of its own, in [0, 1] whatever `normalize` is; without a cnn it is flattened.
    """

    def __init__(self, space: gym.Space, normalize: bool | str, cnn: CNN | None = None) -> None:
        super().__init__()
        spaces: dict[str, gym.Space] = dict(space.items()) if isinstance(space, Dict) else {"": space}
        spaces.pop(MASK, None)
        if not spaces:
            raise UserError(f"the observation has nothing except {MASK}")
        self.keys = list(spaces)  # "" for an observation that is no dict
        readers = [_reader(child, normalize, name or "the observation", cnn) for name, child in spaces.items()]
        self.leaf = nn.ModuleList(readers)
        self.dims: list[int] = []  # trailing dimensions that are flattened; a CNN reads its image as it is
        self.sizes: list[int] = []  # length of each part's vector
        for child, child_reader in zip(spaces.values(), readers, strict=True):
            reads_image = isinstance(child_reader, Image)
            self.dims.append(len(child.shape) if isinstance(child, Box) and not reads_image else 1)
            self.sizes.append(cnn.features if cnn and reads_image else flatdim(child))
        self.size = sum(self.sizes)

    def columns(self, names: tuple[str, ...]) -> list[int]:
        """Return the indices that the parts of these names have in the joined vector."""
        ends = accumulate(self.sizes)
        parts = zip(self.keys, self.sizes, ends, strict=True)
        return [column for key, size, end in parts if key in names for column in range(end - size, end)]

    def _vectors(self, obs: Obs) -> list[Tensor]:
        tensors = by_name(obs)
        dims = zip(self.keys, self.dims, strict=True)
        return [tensors[part_name].flatten(-d) if d else tensors[part_name][..., None] for part_name, d in dims]

    def forward(self, obs: Obs) -> Tensor:
        """obs [..., *shape] -> [..., size]"""
        vectors = [reader(x) for reader, x in zip(self.leaf, self._vectors(obs), strict=True)]
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors, -1)

    def laid_out(self, obs: Obs) -> Obs:
        """Copy an observation, with images in the memory order that the CNN reads, so that no pass reorders them."""
        if isinstance(obs, dict):
            readers = dict(zip(self.keys, self.leaf, strict=True))
            return {part_name: _laid_out(x, readers.get(part_name)) for part_name, x in obs.items()}
        return _laid_out(obs, self.leaf[0])

    def learn(self, obs: Obs, shard: SingleShard = SINGLE) -> None:
        """Update running statistics, if there are any, by observations [..., *shape] of all shards."""
        for reader, x in zip(self.leaf, self._vectors(obs), strict=True):
            if isinstance(reader, RunningNorm):
                reader.learn(x, shard)


def _reader(space: gym.Space, normalize: bool | str, name: str, cnn: CNN | None) -> nn.Module:
    """Make the module that reads one part of an observation; UserError, with `name`, for an unknown space."""
    if isinstance(space, Discrete):
        return OneHot(int(space.n))
    if isinstance(space, MultiDiscrete):
        return MultiOneHot(space.nvec.tolist())
    if not isinstance(space, Box):
        raise UserError(f"a policy cannot read {name}: {space}")
    if cnn is not None and reads(cnn, space):
        return Image(space, cnn, name)
    if normalize == "static":
        return StaticNorm(space, name)
    return RunningNorm(flatdim(space)) if normalize in (True, "rolling") else Float()


def choice_sizes(space: gym.Space) -> list[int]:
    """Return the number of options of each choice of a discrete space; TypeError for another kind of space."""
    if isinstance(space, Discrete):
        return [int(space.n)]
    if isinstance(space, MultiDiscrete):
        return space.nvec.tolist()
    raise TypeError(f"{space} is not discrete")


def _laid_out(x: Tensor, reader: nn.Module | None) -> Tensor:
    return (reader.laid_out(x) if isinstance(reader, Image) else x).clone()


def reads(cnn: CNN, space: gym.Space) -> bool:
    """Return whether this CNN reads a part as an image: images of bytes; `small` also numbers in 3 dimensions."""
    is_grid = isinstance(space, Box) and len(space.shape) == 3
    return is_image(space) or (cnn.kind == "small" and is_grid)


def images(space: gym.Space) -> list[tuple[int, ...]]:
    """Return the shapes of an observation's images of bytes."""
    children = space.values() if isinstance(space, Dict) else [space]
    return [tuple(child_space.shape or ()) for child_space in children if is_image(child_space)]


def parts_of(space: gym.Space, names: tuple[str, ...] | None, network: str) -> gym.Space:
    """Return the space with only these parts (None: all); UserError if one does not exist. `network` names the key."""
    if names is None:
        return space
    if not isinstance(space, Dict):
        raise UserError(f"{network}.obs chooses parts of an observation, but this environment's has only one")
    parts = [name for name in space.spaces if name != MASK]
    for name in names:
        if name not in parts:
            raise UserError(
                f"{network}.obs: the observation has no part {name!r}{nearest(name, parts)}; it has {parts}"
            )
    if not names:
        raise UserError(f"{network}.obs names no part of the observation; it has {parts}")
    return Dict({name: space[name] for name in names})
