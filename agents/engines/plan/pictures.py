"""Small pictures to a fused engine: which of them, and the convolutions that read them."""

import math

import torch
from torch import nn

from stride.agents.engines.plan.layout import LayoutBuilder, layer_norms, linears, padded
from stride.agents.networks.cnn import Image
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.q_network import QNetwork
from stride.config.schema import Config

LARGEST = 1 << 14  # floats that a convolution makes of a picture: 4 MB of a tile of 64 samples


def picture_of(encoder: FlatEncoder) -> Image | None:
    """What reads the observation, where that is one picture."""
    (reader, *others) = encoder.leaf
    return reader if isinstance(reader, Image) and not others else None


def convolutions(image: Image) -> list[nn.Conv2d]:
    """Its layers with weights, but for the one that joins pixels."""
    return [layer for layer in image.convolutions if isinstance(layer, nn.Conv2d)]


def joining(image: Image) -> nn.Linear:
    """The layer that joins pixels to features."""
    layer = image.join[1]
    assert isinstance(layer, nn.Linear)
    return layer


def numbers(image: Image) -> int:
    """Floats of a picture."""
    return math.prod(image.planes)


def floats_read(encoder: FlatEncoder) -> int:
    """Floats that nets read of an observation: of a picture its own, as convolutions are part of the nets."""
    image = picture_of(encoder)
    return encoder.size if image is None else numbers(image)


def add_convolutions(build: LayoutBuilder, image: Image) -> None:
    """Those of this image, before the net that is added next."""
    _, height, across = image.planes
    build.add_convolutions(convolutions(image), height, across, layer_norms(image.convolutions))


def add_net(build: LayoutBuilder, network: QNetwork, heads: list[nn.Linear]) -> None:
    """A network of action values: what reads pictures, where they are; hidden layers; its heads."""
    layers, norms = linears(network.torso), layer_norms(network.torso)
    image = picture_of(network.encoder)
    if image is not None:
        add_convolutions(build, image)
        layers, norms = [joining(image), *layers], [*layer_norms(image.join), *norms]
    build.add(layers, heads, norms)


def why_not_seen(config: Config, image: Image, obs: torch.Tensor, has_critic: bool = True) -> str | None:
    """Why kernels cannot read such pictures, or not with these layers behind them; None where they can."""
    if image.cnn.kind != "small":
        return f"it does not support cnn: {image.cnn.kind}"
    if (largest := most_made(image)) > LARGEST:
        _, height, across = image.planes
        return (
            f"a convolution makes {largest:,} numbers of a picture of {height}x{across}, and its kernels are for up to "
            f"{LARGEST:,}"
        )
    if obs.dtype not in (torch.uint8, torch.float32):
        return f"it cannot read {obs.dtype} pictures"
    if config.hidden_dims and has_critic and not config.share_trunk:
        return "it does not support hidden_dims behind a cnn without share_trunk"
    if config.hidden_dims and config.activation != "relu":
        return f"it does not support activation: {config.activation} behind a cnn, whose own layers are relu"
    return None


def most_made(image: Image) -> int:
    """The most numbers that one of the convolutions makes of a picture."""
    _, height, across = image.planes
    most = 0
    for conv in convolutions(image):
        border = conv.kernel_size[0] - 1
        height, across = height - border, across - border
        most = max(most, height * across * padded(conv.out_channels))
    return most
