"""Convolutional networks from images to features: bytes arrive as they are stored and become [0, 1] on the device."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stride.agents.networks.layers import LayerNorm
from stride.envs_gym.spaces import is_image
from stride.utils.user_error import UserError

PIECE = 256  # images read at once, on a GPU four times as many: more fill the caches, and after them the memory
NATURE_SIDE = 36  # pixels; the output of three convolutions without padding would be empty for less
CNNKind = Literal["nature", "residual", "small"]  # `small`, whose sizes are options, and the rows of KINDS


class CNN(NamedTuple):
    """The network that reads the images of an observation, and how many features it makes of each."""

    kind: str = "nature"
    features: int = 512
    channels: tuple[int, ...] = (16,)
    """of `small`: the filters of each convolution"""
    kernel: int = 3
    """of `small`: pixels of a side of every filter"""
    layer_norm: bool = False
    """of `small`: over the channels of each pixel, and over the features, before their relu"""


def small(channels: int, cnn: CNN) -> nn.Sequential:
    """Convolutions of stride 1 without padding; one of 16 filters of 3 x 3 is MinAtar's (Young and Tian 2019)."""
    modules: list[nn.Module] = []
    for width in cnn.channels:
        norms = [PixelNorm(width)] if cnn.layer_norm else []
        modules += [nn.Conv2d(channels, width, cnn.kernel), *norms, nn.ReLU(inplace=True)]
        channels = width
    return nn.Sequential(*modules)


def nature(channels: int) -> nn.Sequential:
    """Mnih et al. 2015: three convolutions."""
    sizes = (channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3)
    return nn.Sequential(*(layer for size in sizes for layer in (nn.Conv2d(*size), nn.ReLU(inplace=True))))


def residual(channels: int) -> nn.Sequential:
    """Espeholt et al. 2018 (IMPALA): three stages that halve the image, two residual blocks each."""
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
    """x + two convolutions of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(F.relu(x)), inplace=True))


KINDS: dict[str, Callable[[int], nn.Sequential]] = {"nature": nature, "residual": residual}


class Image(nn.Module):
    """An image of each world to features: [..., *shape] -> [..., features].

    Bytes are [C, H, W], as worlds give every image, or [H, W]. `small` also reads numbers, which are taken as they are:
    [H, W, C], or [C, H, W] where the first is smaller than the last.

    A processor reads the other kinds with the channels of each pixel side by side, the layers that follow likewise: of
    four channels the gradient of the first layer's weights took 107 ms plane by plane, so it takes 39 (256 images of 84
    x 84, one thread). Of one or three, which oneDNN has kernels of its own for, the nature network stays with planes.
    """

    def __init__(self, space: gym.spaces.Box, cnn: CNN, name: str) -> None:
        super().__init__()
        self.cnn, self.shape = cnn, tuple(space.shape)
        if len(self.shape) not in (2, 3):
            raise UserError(f"{name} {list(self.shape)} is not an image [channels, height, width] or [height, width]")
        self.stored = self.shape if len(self.shape) == 3 else (1, *self.shape)
        self.is_bytes = is_image(space)
        self.by_cell = not self.is_bytes and self.stored[0] >= self.stored[-1]
        """channels are the last dimension of what is stored"""
        self.planes = (self.stored[-1], *self.stored[:2]) if self.by_cell else self.stored
        channels, height, width = self.planes
        self.highest = 255.0
        """what becomes 1"""
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
        batches = self.channels_first(x).split(PIECE if x.device.type == "cpu" else 4 * PIECE)
        # copies even of floats, whose gradient may be needed; divided in place: to fill new memory takes longer
        images = (self.laid_out(batch).to(torch.float32, copy=True).div_(self.highest) for batch in batches)
        features = [self.join(self.convolutions(batch)) for batch in images]
        return (features[0] if len(features) == 1 else torch.cat(features)).view(*batch_shape, -1)

    def channels_first(self, x: Tensor) -> Tensor:
        """Images [..., *shape] as [B, C, H, W]; nothing is copied."""
        x = x.reshape(-1, *self.stored)
        return x.movedim(-1, 1) if self.by_cell else x

    def laid_out(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] in the order of memory they are read in: itself where it is stored so, else a copy."""
        if x.dim() != 4 or x.device.type != "cpu" or not self.by_pixel:
            return x
        return x.contiguous(memory_format=torch.channels_last)


def check_size(cnn: CNN, name: str, height: int, width: int) -> None:
    """UserError where nothing of an image would be left."""
    if cnn.kind == "nature" and min(height, width) < NATURE_SIDE:
        raise UserError(
            f"cnn: nature needs {NATURE_SIDE}x{NATURE_SIDE} pixels, but {name} has {height}x{width}; use "
            "policy_kwargs.cnn=residual"
        )
    count = len(cnn.channels)
    least = count * (cnn.kernel - 1) + 1
    if cnn.kind == "small" and min(height, width) < least:
        raise UserError(
            f"cnn: small with {count} convolutions of {cnn.kernel}x{cnn.kernel} needs {least}x{least} pixels, but "
            f"{name} has {height}x{width}; use a smaller policy_kwargs.kernel or fewer policy_kwargs.channels"
        )
