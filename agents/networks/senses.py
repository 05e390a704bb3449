"""Encoder and decoder of world models: observations to tokens, and states back to observations.

Everything that is not an image is one vector on the symlog scale; images are in [0, 1].
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import gymnasium as gym
import torch
from gymnasium.spaces import Dict, Discrete, MultiDiscrete, flatdim
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.experience.nouns import by_name
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.normed import Channels, dense
from stride.agents.networks.two_hot import symexp, symlog
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import MASK, is_image
from stride.utils.user_error import UserError

MIN_SIDE = 5  # pixels of an image
MAX_WIDENING = 4  # later convolutions have at most this many times the channels of the first


class SensedObs(NamedTuple):
    """An observation as numbers of similar scale: the input of a world model, and the target of its decoder."""

    vector: Tensor
    """[..., K] everything that is not an image, symlog(x) or one-hot; K = 0 if there are only images"""
    images: tuple[Tensor, ...]
    """each [..., C, H, W] in [0, 1]; in a decoded observation the logits of that"""


def distance(decoded: SensedObs, sensed: SensedObs) -> Tensor:
    """Return the error [...] of decoded observations: squared error of the vector, plus KL divergence of each image.

    KL is the cross-entropy minus its minimum, the target's entropy, in nats, summed over pixels. A squared error of
    sigmoid(logit) has no gradient if a pixel is decoded as black with certainty but is white; there KL's is largest.
    """
    error_sum = (decoded.vector - sensed.vector).square().sum(-1)
    for logits, target_image in zip(decoded.images, sensed.images, strict=True):
        minimum = torch.special.entr(target_image) + torch.special.entr(1 - target_image)
        image_nats = F.binary_cross_entropy_with_logits(logits, target_image, reduction="none") - minimum
        error_sum = error_sum + image_nats.sum((-3, -2, -1))
    return error_sum


class ImageSense(nn.Module):
    """Convolutions that halve an image until a side has fewer than 8 pixels, and others that enlarge it again."""

    def __init__(self, space: gym.Space, features: int, depth: int, name: str) -> None:
        super().__init__()
        image_shape = tuple(space.shape or ())
        if len(image_shape) not in (2, 3) or min(image_shape[-2:]) < MIN_SIDE:
            raise UserError(f"a world model reads images of at least 5 x 5 pixels, but {name} has {list(image_shape)}")
        self.flat = len(image_shape) == 2  # images [H, W], without a dimension for the channel
        channels, height, width = (1, *image_shape) if self.flat else image_shape
        image_sides = [*halved(height, width)]
        widths = [channels, *(depth * min(2**level, MAX_WIDENING) for level in range(len(image_sides) - 1))]
        read_layers: list[nn.Module] = []
        paint_layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            read_layers += [nn.Conv2d(inputs, outputs, 4, 2, 1), Channels(outputs)]
        for level in range(len(image_sides) - 1, 0, -1):
            (h, w), (larger_height, larger_width) = image_sides[level], image_sides[level - 1]
            odd_sides = (larger_height - 2 * h, larger_width - 2 * w)  # 1 if halving an odd side lost a pixel
            paint_layers += [Channels(widths[level])]
            paint_layers += [nn.ConvTranspose2d(widths[level], widths[level - 1], 4, 2, 1, output_padding=odd_sides)]
        if len(image_sides) == 1:
            widths += [depth]
            read_layers = [nn.Conv2d(channels, depth, 3, 1, 1), Channels(depth)]
            paint_layers = [Channels(depth), nn.Conv2d(depth, channels, 3, 1, 1)]
        self.small = (widths[-1], *image_sides[-1])
        self.size = prod(self.small)
        self.read = nn.Sequential(*read_layers, nn.Flatten())
        self.paint = nn.Sequential(*paint_layers)
        self.spread = nn.Linear(features, self.size)

    def look(self, x: Tensor) -> Tensor:
        """uint8 [..., C, H, W] or [..., H, W], or floats of these shapes, -> [..., C, H, W] in [0, 1]"""
        return (x.unsqueeze(-3) if self.flat else x) / 255

    def image(self, logits: Tensor) -> Tensor:
        """Return the bytes whose `look` is nearest to sigmoid(logits), in the shape of stored images."""
        x = (logits.sigmoid() * 255).round().to(torch.uint8)
        return x.squeeze(-3) if self.flat else x

    def forward(self, x: Tensor) -> Tensor:
        """Encode images [..., C, H, W] in [0, 1] as [..., size]."""
        flat_tokens: Tensor = self.read(x.flatten(0, -4) - 0.5)
        return flat_tokens.unflatten(0, x.shape[:-3])

    def show(self, features: Tensor) -> Tensor:
        """Decode [..., features] to logits [..., C, H, W]."""
        painted: Tensor = self.paint(self.spread(features.flatten(0, -2)).unflatten(1, self.small))
        return painted.unflatten(0, features.shape[:-1])


def halved(height: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield an image's (height, width), then these halved while both are at least 8: (20, 16), (10, 8), (5, 4)."""
    yield height, width
    while min(height, width) >= 8:
        height, width = height // 2, width // 2
        yield height, width


class Senses(nn.Module):
    """Encodes an observation as tokens, and decodes observations from the features of a state."""

    def __init__(self, space: gym.Space, features: int, width: int, layers: int, depth: int) -> None:
        super().__init__()
        self.leaves: dict[str, gym.Space] = dict(space.items()) if isinstance(space, Dict) else {"": space}
        if MASK in self.leaves:
            raise UserError("a world model cannot predict action masks; leave out action_mask")
        self.pictures = [name for name, child in self.leaves.items() if is_image(child)]
        vector_spaces = {name: child for name, child in self.leaves.items() if name not in self.pictures}
        self.flat: FlatEncoder | None = None  # joins everything that is not an image
        self.vector: nn.Sequential | None = None
        self.tell_vector: nn.Sequential | None = None
        if vector_spaces:
            self.flat = FlatEncoder(Dict(vector_spaces) if isinstance(space, Dict) else space, False)
        self.image: Sequence[ImageSense] = nn.ModuleList(  # type: ignore[assignment]
            [ImageSense(self.leaves[name], features, depth, name or "the observation") for name in self.pictures]
        )
        if self.flat:
            self.vector = dense(self.flat.size, width, layers)
            self.tell_vector = nn.Sequential(dense(features, width, layers), nn.Linear(width, self.flat.size))
        self.size = (width if self.flat else 0) + sum(image.size for image in self.image)

    def look(self, obs: Obs) -> SensedObs:
        """Return an observation [...] as numbers for the encoder; gradients flow back to observations of floats."""
        tensors = by_name(obs)
        images = tuple(sense.look(tensors[name]) for sense, name in zip(self.image, self.pictures, strict=True))
        vector = symlog(self.flat(obs)) if self.flat else images[0].new_zeros(*images[0].shape[:-3], 0)
        return SensedObs(vector, images)

    def forward(self, sensed: SensedObs) -> Tensor:
        """Encode as tokens [..., size]."""
        token_parts = [self.vector(sensed.vector)] if self.vector else []
        token_parts += [image_sense(x) for image_sense, x in zip(self.image, sensed.images, strict=True)]
        return token_parts[0] if len(token_parts) == 1 else torch.cat(token_parts, -1)

    def decode(self, features: Tensor) -> SensedObs:
        """Decode the observation at states with features [..., features]."""
        decoded_vector = self.tell_vector(features) if self.tell_vector else features.new_zeros(*features.shape[:-1], 0)
        return self.decoded(features, decoded_vector)

    def decoded(self, features: Tensor, vector: Tensor) -> SensedObs:
        """Decode the images at states with these features; the vector of everything else is already decoded."""
        return SensedObs(vector, tuple(sense.show(features) for sense in self.image))

    def observation(self, sensed: SensedObs) -> Obs:
        """Return the observation that is nearest to a decoded one; of discrete options the likeliest."""
        images = zip(self.pictures, self.image, sensed.images, strict=True)
        decoded_obs = {part_name: image_sense.image(logits) for part_name, image_sense, logits in images}
        vector_names = self.flat.keys if self.flat else []
        vectors = sensed.vector.split([flatdim(self.leaves[part_name]) for part_name in vector_names], -1)
        for part_name, vector in zip(vector_names, vectors, strict=True):
            decoded_obs[part_name] = _from_vector(self.leaves[part_name], vector)
        return decoded_obs[""] if "" in self.leaves else decoded_obs


def _from_vector(space: gym.Space, vector: Tensor) -> Tensor:
    """Return one part of an observation, not an image, from its part [..., width] of a decoded vector."""
    if isinstance(space, Discrete):
        return vector.argmax(-1)
    if isinstance(space, MultiDiscrete):
        return torch.stack([choice.argmax(-1) for choice in vector.split(space.nvec.tolist(), -1)], -1)
    return symexp(vector).unflatten(-1, space.shape or (1,))
