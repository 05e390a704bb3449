"""Small pictures for fused engines: which ones kernels can read, and the layout of their convolutions."""

import math

import torch
from torch import nn

from stride.agents.engines.plan.layout import LayoutBuilder, layer_norms, linears, padded
from stride.agents.networks.cnn import Image
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.q_network import QNetwork
from stride.config.schema import Config

MAX_FLOATS = 1 << 14  # outputs of a convolution for one picture: 4 MB for a tile of 64 samples


def picture_of(encoder: FlatEncoder) -> Image | None:
    """Return the encoder of the picture if the observation is one picture, else None."""
    (reader, *others) = encoder.leaf
    return reader if isinstance(reader, Image) and not others else None


def convolutions(image: Image) -> list[nn.Conv2d]:
    """Return the convolutions of an encoder."""
    return [layer for layer in image.convolutions if isinstance(layer, nn.Conv2d)]


def linear_behind(image: Image) -> nn.Linear:
    """Return the linear layer behind the convolutions, from pixels to features."""
    layer = image.join[1]
    assert isinstance(layer, nn.Linear)
    return layer


def picture_floats(image: Image) -> int:
    """Return the number of floats of a picture, channels * height * width."""
    return math.prod(image.planes)


def floats_read(encoder: FlatEncoder) -> int:
    """Return how many floats the nets read of an observation: all of a picture, as convolutions are part of them."""
    image = picture_of(encoder)
    return encoder.size if image is None else picture_floats(image)


def add_convolutions(build: LayoutBuilder, image: Image) -> None:
    """Add the encoder's convolutions before the net that is added next."""
    _, height, across = image.planes
    build.add_convolutions(convolutions(image), height, across, layer_norms(image.convolutions))


def add_net(build: LayoutBuilder, network: QNetwork, heads: list[nn.Linear]) -> None:
    """Add a network of action values: convolutions if it reads pictures, then hidden layers and heads."""
    layers, norms = linears(network.torso), layer_norms(network.torso)
    image = picture_of(network.encoder)
    if image is not None:
        add_convolutions(build, image)
        layers, norms = [linear_behind(image), *layers], [*layer_norms(image.join), *norms]
    build.add(layers, heads, norms)


def why_not_seen(config: Config, image: Image, obs: torch.Tensor, has_critic: bool = True) -> str | None:
    """Return why kernels cannot read such pictures, or not with the layers behind them; None if they can."""
    if image.cnn.kind != "small":
        return f"it does not support cnn: {image.cnn.kind}"
    if (largest := most_outputs(image)) > MAX_FLOATS:
        _, height, across = image.planes
        return (
            f"a convolution makes {largest:,} numbers of a picture of {height}x{across}, and its kernels are for up to "
            f"{MAX_FLOATS:,}"
        )
    if obs.dtype not in (torch.uint8, torch.float32):
        return f"it cannot read {obs.dtype} pictures"
    if config.hidden_dims and has_critic and not config.share_trunk:
        return "it does not support hidden_dims behind a cnn without share_trunk"
    if config.hidden_dims and config.activation != "relu":
        return f"it does not support activation: {config.activation} behind a cnn, whose own layers are relu"
    return None


def most_outputs(image: Image) -> int:
    """Return the most floats that one of the convolutions computes of a picture."""
    _, height, across = image.planes
    most = 0
    for conv in convolutions(image):
        border = conv.kernel_size[0] - 1
        height, across = height - border, across - border
        most = max(most, height * across * padded(conv.out_channels))
    return most
