"""How a world model reads observations and tells them again: vectors on the scale of symlog, images in [0, 1]."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.normed import Channels, dense
from stride.agents.networks.two_hot import symexp, symlog
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK, is_image
from stride.utils.user_error import UserError

LEAST_SIDE = 5  # pixels
MOST_WIDER = 4  # times the channels of the first convolution that a later one has at most


class Seen(NamedTuple):
    """An observation as numbers of like size: what goes in, and what is to be told."""

    vector: Tensor
    """[..., K] everything that is no image, on the scale of symlog; K = 0 where there are only images"""
    images: tuple[Tensor, ...]
    """[..., C, H, W] in [0, 1]; those that are told as logits of that"""


def distance(told: Seen, seen: Seen) -> Tensor:
    """Of an instant [...]: the sum of squares of what differs in a vector, and the nats by which images differ.

    A dark pixel told with certainty where a bright one is has no slope as a square; in nats it has the steepest.
    """
    apart = (told.vector - seen.vector).square().sum(-1)
    for logits, true in zip(told.images, seen.images, strict=True):
        least = torch.special.entr(true) + torch.special.entr(1 - true)
        nats = F.binary_cross_entropy_with_logits(logits, true, reduction="none") - least
        apart = apart + nats.sum((-3, -2, -1))
    return apart


class ImageSense(nn.Module):
    """Convolutions that halve an image until a side has fewer than 8 pixels, and their way back."""

    def __init__(self, space: gym.Space, features: int, depth: int, name: str) -> None:
        super().__init__()
        shape = tuple(space.shape or ())
        if len(shape) not in (2, 3) or min(shape[-2:]) < LEAST_SIDE:
            raise UserError(f"a world model reads images of at least 5 x 5 pixels, but {name} has {list(shape)}")
        self.flat = len(shape) == 2  # one plane, not said so
        channels, *side = (1, *shape) if self.flat else shape
        sides = [*halved(side[0], side[1])]
        widths = [channels, *(depth * min(2**level, MOST_WIDER) for level in range(len(sides) - 1))]
        read: list[nn.Module] = []
        paint: list[nn.Module] = []
        for small, large in pairwise(widths):
            read += [nn.Conv2d(small, large, 4, 2, 1), Channels(large)]
        for level in range(len(sides) - 1, 0, -1):
            (h, w), (high, wide) = sides[level], sides[level - 1]
            odd = (high - 2 * h, wide - 2 * w)  # a side of an odd length has lost a pixel
            paint += [Channels(widths[level])]
            paint += [nn.ConvTranspose2d(widths[level], widths[level - 1], 4, 2, 1, output_padding=odd)]
        if len(sides) == 1:
            widths += [depth]
            read = [nn.Conv2d(channels, depth, 3, 1, 1), Channels(depth)]
            paint = [Channels(depth), nn.Conv2d(depth, channels, 3, 1, 1)]
        self.small = (widths[-1], *sides[-1])
        self.size = widths[-1] * sides[-1][0] * sides[-1][1]
        self.read, self.paint = nn.Sequential(*read, nn.Flatten()), nn.Sequential(*paint)
        self.spread = nn.Linear(features, self.size)

    def look(self, x: Tensor) -> Tensor:
        """uint8 [..., C, H, W] or [..., H, W], or the same as floats, -> [..., C, H, W] in [0, 1]"""
        return (x.unsqueeze(-3) if self.flat else x) / 255

    def image(self, told: Tensor) -> Tensor:
        """The bytes nearest to what `look` would have made this of."""
        x = (told.sigmoid() * 255).round().to(torch.uint8)
        return x.squeeze(-3) if self.flat else x

    def forward(self, x: Tensor) -> Tensor:
        """[..., C, H, W] in [0, 1] -> [..., size]"""
        tokens: Tensor = self.read(x.flatten(0, -4) - 0.5)
        return tokens.unflatten(0, x.shape[:-3])

    def show(self, features: Tensor) -> Tensor:
        """[..., features] -> logits [..., C, H, W]"""
        painted: Tensor = self.paint(self.spread(features.flatten(0, -2)).unflatten(1, self.small))
        return painted.unflatten(0, features.shape[:-1])


def halved(height: int, width: int) -> Iterator[tuple[int, int]]:
    """An image's sides, and what is left of them each time they are halved, while both have 8 pixels."""
    yield height, width
    while min(height, width) >= 8:
        height, width = height // 2, width // 2
        yield height, width


class Senses(nn.Module):
    """Tokens of an observation, and the observation as features of a state tell it."""

    def __init__(self, space: gym.Space, features: int, width: int, layers: int, depth: int) -> None:
        super().__init__()
        leaves = dict(space.items()) if isinstance(space, gym.spaces.Dict) else {"": space}
        if MASK in leaves:
            raise UserError("a world model cannot tell which actions will make sense: action_mask is for others")
        self.leaves = leaves
        self.pictures = [name for name, leaf in leaves.items() if is_image(leaf)]
        plain = {name: leaf for name, leaf in leaves.items() if name not in self.pictures}
        self.flat = FlatEncoder(gym.spaces.Dict(plain) if "" not in leaves else space, False) if plain else None
        named = [(leaves[name], features, depth, name or "the observation") for name in self.pictures]
        self.image: Sequence[ImageSense] = nn.ModuleList([ImageSense(*each) for each in named])  # type: ignore[assignment]
        self.vector = dense(self.flat.size, width, layers) if self.flat else None
        self.tell_vector = (
            nn.Sequential(dense(features, width, layers), nn.Linear(width, self.flat.size)) if self.flat else None
        )
        self.size = (width if self.flat else 0) + sum(image.size for image in self.image)

    def look(self, obs: Obs) -> Seen:
        """As it is read and told; gradients flow to an observation of floats."""
        pictures = [obs[name] if isinstance(obs, dict) else obs for name in self.pictures]
        images = tuple(sense.look(x) for sense, x in zip(self.image, pictures, strict=True))
        return Seen(symlog(self.flat(obs)) if self.flat else images[0].new_zeros(*images[0].shape[:-3], 0), images)

    def forward(self, seen: Seen) -> Tensor:
        """-> tokens [..., size]"""
        tokens = [self.vector(seen.vector)] if self.vector else []
        tokens += [sense(x) for sense, x in zip(self.image, seen.images, strict=True)]
        return tokens[0] if len(tokens) == 1 else torch.cat(tokens, -1)

    @property
    def tellers(self) -> list[nn.Module]:
        """The net that tells the vector from features, where there is one."""
        return [self.tell_vector] if self.tell_vector else []

    def tell(self, features: Tensor) -> Seen:
        """What is seen at states of these features [..., features]."""
        return self.told(features, *(net(features) for net in self.tellers))

    def told(self, features: Tensor, *vector: Tensor) -> Seen:
        """The same, given what the tellers answer."""
        plain = vector[0] if vector else features.new_zeros(*features.shape[:-1], 0)
        return Seen(plain, tuple(sense.show(features) for sense in self.image))

    def observation(self, seen: Seen) -> Obs:
        """What `look` would have made this of, as near as that can be told: of options the likeliest."""
        found = {name: sense.image(x) for name, sense, x in zip(self.pictures, self.image, seen.images, strict=True)}
        plain = (self.flat.keys or [""]) if self.flat else []
        parts = seen.vector.split([gym.spaces.flatdim(self.leaves[name]) for name in plain], -1)
        found |= {name: leaf_of(self.leaves[name], part) for name, part in zip(plain, parts, strict=True)}
        return found[""] if "" in self.leaves else found


def leaf_of(space: gym.Space, told: Tensor) -> Tensor:
    """One leaf of an observation that is no image, from its part [..., width] of a told vector."""
    if isinstance(space, gym.spaces.Discrete):
        return told.argmax(-1)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return torch.stack([part.argmax(-1) for part in told.split(space.nvec.tolist(), -1)], -1)
    return symexp(told).unflatten(-1, space.shape or (1,))
