"""What kernels are told of pictures, and the memory that convolutions need beside the activations of a tile."""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, Frame
from stride.agents.engines.plan.layout import LANES, FlatLayout, padded
from stride.agents.networks.cnn import Image


def describe(frame: Frame, layout: FlatLayout, image: Image, patches: int) -> int:
    """Fill the frame's fields of pictures; how many floats per sample activations and scratch take together.

    `patches`: the activations alone. A tile has scratch memory for one of its samples: each has its share of it, as the
    activations are counted.
    """
    convs = layout.convs[0]  # every net's are of these sizes
    bordered = patches + share_of_tile(max(map(seen_floats, convs)))
    frame.fill(
        convs=len(convs),
        conv_table=layout.convs,
        patches=patches,
        bordered=bordered,
        highest=int(image.highest) if image.is_bytes else 0,
        planar=not image.by_cell,
    )
    return bordered + share_of_tile(max(map(bordered_floats, convs)))


def seen_floats(conv: np.void) -> int:
    """Floats that the filters of a ConvRow see of a sample, forward and backward; copies overrun them by a vector."""
    rows, columns = conv["height"] - conv["side"] + 1, conv["across"] - conv["side"] + 1
    forward = rows * columns * conv["side"] ** 2 * conv["channels"]
    backward = conv["height"] * conv["across"] * conv["side"] ** 2 * conv["filters"]
    return max(int(forward), int(backward), int(conv["row"])) + LANES


def bordered_floats(conv: np.void) -> int:
    """Floats of a sample's slopes at a convolution with side - 1 pixels of zeros around them."""
    border = conv["side"] - 1
    return int((conv["height"] + border) * (conv["across"] + border) * conv["filters"])


def share_of_tile(floats: int) -> int:
    """Floats for each sample of a tile that are so many together, in full vectors."""
    return padded(-(-floats // TILE))
