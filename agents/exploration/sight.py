"""The first layers of exploration's networks: observations as one normalised vector, and features of this vector.

They share neither weights nor statistics with the policy, so that exploration does not change the policy's network.
"""

import gymnasium as gym
import torch
from gymnasium.spaces import Dict, flatdim
from torch import Tensor, nn

from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import T, tree_map
from stride.agents.networks.cnn import Image
from stride.agents.networks.encoders import FlatEncoder, RunningNorm
from stride.envs_fast.vec_env import Obs

PIECE_ROWS = 256  # observations in one pass, to limit memory: an image has 30 kB, as floats 110


class ClippedNorm(RunningNorm):
    """A running norm that clips to +-5, as published for RND."""

    bound = 5.0


class Sight(nn.Module):
    """Turn observations into vectors [..., size], flat or one-hot, and normalise each number by running statistics."""

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.flat = FlatEncoder(space, normalize=False)
        self.norm = ClippedNorm(self.flat.size)

    def forward(self, obs: Obs) -> Tensor:
        vector: Tensor = self.norm(self.flat(obs))
        return vector

    def learn(self, obs: Obs) -> None:
        """Update the statistics by observations [T, N, ...]."""
        for piece in pieces(obs):
            self.norm.learn(self.flat(piece))


class Features(nn.Module):
    """Turn a vector from `Sight` into `width` features; images in it go through convolutions first."""

    def __init__(self, space: gym.Space, encoder: FlatEncoder, width: int) -> None:
        """`encoder`: the policy's, which shows which parts are images and which kind of CNN reads them."""
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.sizes: list[int] = []  # length of each part of the vector
        readers: list[nn.Module] = []
        joined_size = 0
        for name, policy_reader in zip(encoder.keys, encoder.leaf, strict=True):
            child = space[name] if isinstance(space, Dict) else space
            self.sizes.append(flatdim(child))
            self.shapes.append(child.shape or ())
            reader: nn.Module = nn.Identity()
            joined_size += self.sizes[-1]
            if isinstance(policy_reader, Image) and isinstance(child, gym.spaces.Box):
                reader = Image(child, policy_reader.cnn, name or "the observation")
                reader.highest = 1.0  # a vector is normalised already
                joined_size += policy_reader.cnn.features - self.sizes[-1]
            readers.append(reader)
        self.readers = nn.ModuleList(readers)
        self.join = nn.Sequential(nn.Linear(joined_size, width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for part, shape, reader in zip(x.split(self.sizes, -1), self.shapes, self.readers, strict=True):
            parts.append(reader(part.unflatten(-1, shape)) if isinstance(reader, Image) else part)
        features: Tensor = self.join(torch.cat(parts, -1))
        return features


def pieces(table: T) -> list[T]:
    """Split columns [T, N, ...] into pieces [B, ...] of at most PIECE_ROWS rows, in order."""
    return list(in_order(tree_map(lambda x: x.flatten(0, 1), table), PIECE_ROWS))


def initialize(module: nn.Module, generator: torch.Generator) -> None:
    """Draw orthogonal weights with gain sqrt(2), biases 0, as published for RND."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, 2**0.5, generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
