"""Convolutional networks that turn images into features; bytes become floats in [0, 1] here, on the device."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.layers import LayerNorm
from stride.envs_gym.spaces import is_image
from stride.utils.user_error import UserError

PIECE_IMAGES = 256  # images in one pass on a CPU, 4 times as many on a GPU: more overflow the caches, then the memory
MIN_NATURE_SIDE = 36  # pixels; of a smaller image the three convolutions without padding leave nothing
CNNKind = Literal["nature", "residual", "small"]  # `small`, whose sizes are options, and the rows of KINDS


class CNN(NamedTuple):
    """Which network reads the images of an observation, and how many features it makes of each image."""

    kind: str = "nature"
    features: int = 512
    channels: tuple[int, ...] = (16,)
    """of `small` only: number of filters of each convolution"""
    kernel: int = 3
    """of `small` only: side of every filter in pixels"""
    layer_norm: bool = False
    """of `small` only: layer norms over the channels of each pixel and over the features, before their relu"""


def small(channels: int, cnn: CNN) -> nn.Sequential:
    """Convolutions of stride 1 without padding; the default, 16 filters of 3 x 3, is MinAtar's (Young, Tian 2019)."""
    modules: list[nn.Module] = []
    for width in cnn.channels:
        norms = [PixelNorm(width)] if cnn.layer_norm else []
        modules += [nn.Conv2d(channels, width, cnn.kernel), *norms, nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(*modules)


def nature(channels: int) -> nn.Sequential:
    """The three convolutions of DQN (Mnih et al. 2015)."""
    sizes = (channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3)
    return nn.Sequential(*(layer for size in sizes for layer in (nn.Conv2d(*size), nn.ReLU(inplace=True))))


def residual(channels: int) -> nn.Sequential:
    """The network of IMPALA (Espeholt et al. 2018): three stages, each halves the image and has two residual blocks."""
    modules: list[nn.Module] = []
    for width in (16, 32, 32):
        modules += [nn.Conv2d(channels, width, 3, padding=1), nn.MaxPool2d(3, 2, padding=1), Block(width), Block(width)]
        channels = width
    return nn.Sequential(*modules, nn.ReLU(inplace=True))


class PixelNorm(LayerNorm):
    """A layer norm over the channels of each pixel [B, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1).contiguous()).movedim(-1, 1)


class Block(nn.Module):
    """A residual block: x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x)), inplace=True))


KINDS: dict[str, Callable[[int], nn.Sequential]] = {"nature": nature, "residual": residual}


class Image(nn.Module):
    """Turn images into features: [..., *shape] -> [..., features].

    Images of bytes are [C, H, W], as environments give them, or [H, W]. `small` also reads grids of numbers, unscaled:
    [H, W, C], or [C, H, W] if the first size is smaller than the last.

    On a CPU the other kinds read images whose channels are side by side for each pixel (channels last), as this is
    faster: 39 ms instead of 107 for the first weights' gradient, of 4 channels (256 images of 84 x 84, one thread).
    The nature network reads 1 or 3 channels plane by plane, as oneDNN has special kernels for these.
    """

    def __init__(self, space: gym.spaces.Box, cnn: CNN, name: str) -> None:
        super().__init__()
        self.cnn, self.shape = cnn, tuple(space.shape)
        if len(self.shape) not in (2, 3):
            raise UserError(f"{name} {list(self.shape)} is not an image [channels, height, width] or [height, width]")
        self.stored = self.shape if len(self.shape) == 3 else (1, *self.shape)
        self.is_bytes = is_image(space)
        self.by_cell = not self.is_bytes and self.stored[0] >= self.stored[-1]
        """whether the channels are the last dimension of stored images"""
        self.planes = (self.stored[-1], *self.stored[:2]) if self.by_cell else self.stored
        channels, height, width = self.planes
        self.highest = 255.0
        """the number that becomes 1.0"""
        if cnn.kind == "small":
            self.highest = max(float(space.high.max()), 1.0) if self.is_bytes else 1.0
        check_size(cnn, name, height, width)
        self.by_pixel = cnn.kind == "residual" or (cnn.kind == "nature" and channels not in (1, 3))
        self.convolutions = small(channels, cnn) if cnn.kind == "small" else KINDS[cnn.kind](channels)
        with torch.no_grad():
            flat_size = self.convolutions(torch.zeros(1, channels, height, width)).numel()
        norms = [LayerNorm(cnn.features)] if cnn.layer_norm else []
        self.join = nn.Sequential(nn.Flatten(), nn.Linear(flat_size, cnn.features), *norms, nn.ReLU(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        batch_shape = x.shape[: x.dim() - len(self.shape)]
        batches = self.channels_first(x).split(PIECE_IMAGES if x.device.type == "cpu" else 4 * PIECE_IMAGES)
        # copy=True, because floats may need a gradient; then divide in place, which is faster than new memory
        images = (self.laid_out(batch).to(torch.float32, copy=True).div_(self.highest) for batch in batches)
        features = [self.join(self.convolutions(batch)) for batch in images]
        return (features[0] if len(features) == 1 else torch.cat(features)).view(*batch_shape, -1)

    def channels_first(self, x: Tensor) -> Tensor:
        """View images [..., *shape] as [B, C, H, W] without a copy."""
        x = x.reshape(-1, *self.stored)
        return x.movedim(-1, 1) if self.by_cell else x

    def laid_out(self, x: Tensor) -> Tensor:
        """Return images [B, C, H, W] in the memory order of the convolutions; a copy only if the order differs."""
        if x.dim() != 4 or x.device.type != "cpu" or not self.by_pixel:
            return x
        return x.contiguous(memory_format=torch.channels_last)


def check_size(cnn: CNN, name: str, height: int, width: int) -> None:
    """UserError if the convolutions would leave nothing of an image of this size."""
    if cnn.kind == "nature" and min(height, width) < MIN_NATURE_SIDE:
        raise UserError(
            f"cnn: nature needs {MIN_NATURE_SIDE}x{MIN_NATURE_SIDE} pixels, but {name} has {height}x{width}; use "
            "policy_kwargs.cnn=residual"
        )
    count = len(cnn.channels)
    minimum = count * (cnn.kernel - 1) + 1
    if cnn.kind == "small" and min(height, width) < minimum:
        raise UserError(
            f"cnn: small with {count} convolutions of {cnn.kernel}x{cnn.kernel} needs {minimum}x{minimum} pixels, but "
            f"{name} has {height}x{width}; use a smaller policy_kwargs.kernel or fewer policy_kwargs.channels"
        )
