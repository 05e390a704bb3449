"""From observations as the worlds give them to flat float features: normalising, one-hot, images, joining.

Raw observations are stored; statistics are buffers of the policy, so checkpoints, evaluation and export carry them.
"""

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.cnn import CNN, Image
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK, is_image
from stride.utils.user_error import UserError


class RunningNorm(nn.Module):
    """(x - mean) / std of all observations learnt from so far (Chan's parallel update), clipped to +-10."""

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
    def learn(self, x: Tensor) -> None:
        """x [..., size]: merge the moments of these rows."""
        x = x.reshape(-1, x.shape[-1]).double()
        # M2 = M2_a + M2_b + delta^2 n_a n_b / (n_a + n_b), Chan, Golub and LeVeque 1979; M2 is var times count
        n, total, delta = len(x), self.count + len(x), x.mean(0) - self.mean
        m2 = self.var * self.count + x.var(0, unbiased=False) * n + delta.square() * self.count * n / total
        sound = m2.isfinite().all()  # non-finite rows are not learnt from, and the host does not wait to know
        self.mean += torch.where(sound, delta * n / total, 0)
        self.var.copy_(torch.where(sound, m2 / total, self.var))
        self.count.copy_(torch.where(sound, total, self.count))


class StaticNorm(nn.Module):
    """Maps the declared bounds to [-1, 1]."""

    centre: Tensor
    scale: Tensor

    def __init__(self, space: gym.spaces.Box, name: str) -> None:
        super().__init__()
        low, high = (np.asarray(x, np.float64).reshape(-1) for x in (space.low, space.high))
        # Gymnasium writes "no bound" as the largest float32 in some environments
        unbounded = np.flatnonzero(~(np.isfinite(high - low) & (high - low < 1e30) & (high > low)))
        if len(unbounded):
            raise UserError(
                f"normalize_obs: static needs bounds, but {name} has none at index {unbounded[0]}; use rolling"
            )
        self.register_buffer("centre", torch.tensor((high + low) / 2, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(2 / (high - low), dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.centre) * self.scale


class OneHot(nn.Module):
    """Index -> row of an identity matrix (F.one_hot reads the data on the host)."""

    table: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.eye(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x, self.table)


class MultiOneHot(nn.Module):
    """Several indices -> their one-hot vectors, joined."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.onehots = nn.ModuleList([OneHot(n) for n in sizes])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([onehot(x[..., i]) for i, onehot in enumerate(self.onehots)], -1)


class Float(nn.Module):
    """Numbers as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float()


class FlatEncoder(nn.Module):
    """Joins every leaf of the observation into one vector, the action mask left out.

    Boxes are flat and normalised on wish, discrete leaves one-hot; images are read by a `cnn` of their own, in [0, 1]
    whatever `normalize` says, or flat where there is none.
    """

    def __init__(self, space: gym.Space, normalize: bool | str, cnn: CNN | None = None) -> None:
        super().__init__()
        named = {key: leaf for key, leaf in space.items() if key != MASK} if isinstance(space, gym.spaces.Dict) else {}
        self.keys = list(named) if isinstance(space, gym.spaces.Dict) else None
        if self.keys == []:
            raise UserError(f"the observation holds nothing beside {MASK}")
        names, spaces = (self.keys, list(named.values())) if self.keys else (["the observation"], [space])
        self.leaf = nn.ModuleList([_leaf(s, normalize, name, cnn) for s, name in zip(spaces, names, strict=True)])
        # trailing dimensions that become one; an image's own network looks at all of them
        self.dims = [
            len(s.shape) if isinstance(s, gym.spaces.Box) and not isinstance(module, Image) else 1
            for s, module in zip(spaces, self.leaf, strict=True)
        ]
        self.size = sum(_width(s, cnn) for s in spaces)

    def _vectors(self, obs: Obs) -> list[Tensor]:
        parts = [obs[key] for key in self.keys or ()] if isinstance(obs, dict) else [obs]
        return [x if d == 1 else x.flatten(-d) if d else x[..., None] for x, d in zip(parts, self.dims, strict=True)]

    def forward(self, obs: Obs) -> Tensor:
        """obs leaves [..., *shape] -> [..., size]"""
        pieces = [module(x) for module, x in zip(self.leaf, self._vectors(obs), strict=True)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)

    def laid_out(self, obs: Obs) -> Obs:
        """A copy whose images lie in the order they are read in, so that nobody turns them at every look."""
        if isinstance(obs, dict):
            readers = dict(zip(self.keys or (), self.leaf, strict=True))
            return {key: _laid_out(x, readers.get(key)) for key, x in obs.items()}
        return _laid_out(obs, self.leaf[0])

    def learn(self, obs: Obs) -> None:
        """Update running statistics, where there are any."""
        for module, x in zip(self.leaf, self._vectors(obs), strict=True):
            if isinstance(module, RunningNorm):
                module.learn(x)


def _leaf(space: gym.Space, normalize: bool | str, name: str, cnn: CNN | None) -> nn.Module:
    if isinstance(space, gym.spaces.Discrete):
        return OneHot(int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete):
        return MultiOneHot([int(n) for n in space.nvec])
    if not isinstance(space, gym.spaces.Box):
        raise UserError(f"a policy cannot read {name}: {space}")
    if cnn is not None and is_image(space):
        return Image(space, cnn, name)
    if normalize == "static":
        return StaticNorm(space, name)
    return RunningNorm(_width(space, None)) if normalize in (True, "rolling") else Float()


def _laid_out(x: Tensor, reader: nn.Module | None) -> Tensor:
    return (reader.laid_out(x) if isinstance(reader, Image) else x).clone()


def _width(space: gym.Space, cnn: CNN | None) -> int:
    """Features a leaf becomes."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return cnn.features if cnn is not None and is_image(space) else math.prod(space.shape or ())


def images(space: gym.Space) -> list[tuple[int, ...]]:
    """The shapes of an observation's images."""
    leaves = space.values() if isinstance(space, gym.spaces.Dict) else [space]
    return [tuple(leaf.shape or ()) for leaf in leaves if is_image(leaf)]
