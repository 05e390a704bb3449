"""Fills the frame's fields about pictures, and counts the memory that convolutions need beside activations."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, Frame
from stride.agents.engines.plan.layout import LANES, FlatLayout, padded
from stride.agents.networks.cnn import Image


def describe(frame: Frame, layout: FlatLayout, image: Image, patches: int) -> int:
    """Fill the frame's fields about pictures; return the floats per sample of activations and scratch memory together.

    `patches`: floats per sample of the activations alone; scratch memory begins there. A tile has scratch memory for
    one sample at a time. As memory is counted per sample, each of the TILE samples has 1 / TILE of it.
    """
    convs = layout.convs[0]  # of the first net; all nets have convolutions of the same sizes
    bordered = patches + share_of_tile(max(map(patch_floats, convs)))
    frame.fill(
        convs=len(convs),
        conv_table=layout.convs,
        patches=patches,
        bordered=bordered,
        highest=int(image.highest) if image.is_bytes else 0,
        planar=not image.by_cell,
    )
    return bordered + share_of_tile(max(map(bordered_floats, convs)))


def patch_floats(conv: np.void) -> int:
    """Return the floats of all patches of one sample that the filters of a ConvRow see, forward or backward.

    A patch is what a filter sees at one pixel. One vector more is added, as copies write full vectors.
    """
    rows, columns = conv["height"] - conv["side"] + 1, conv["across"] - conv["side"] + 1
    forward = rows * columns * conv["side"] ** 2 * conv["channels"]
    backward = conv["height"] * conv["across"] * conv["side"] ** 2 * conv["filters"]
    return max(int(forward), int(backward), int(conv["row"])) + LANES


def bordered_floats(conv: np.void) -> int:
    """Return the floats of one sample's slopes at a convolution, with side - 1 pixels of zeros around them."""
    border = conv["side"] - 1
    return int((conv["height"] + border) * (conv["across"] + border) * conv["filters"])


def share_of_tile(floats: int) -> int:
    """Return the floats per sample that make `floats` in a tile, rounded up to full vectors."""
    return padded(-(-floats // TILE))
