"""Makes frames of videos: the stacked images that a policy sees, and the pixels on which its output depends."""

from collections.abc import Iterator

import numpy as np

GAP = 4  # pixels between two images
MIN_HEIGHT = 160  # small images are enlarged to at least this height, so that a video keeps their edges


def tiles(image: np.ndarray, stacked: int) -> np.ndarray:
    """Split stacked images into single ones: uint8 [H, W], [C, H, W] or [H, W, C] -> [k, H, W, 1 or 3].

    The oldest image comes first, as in the CNN's channels. `stacked`: the config's frame_stack."""
    if image.ndim == 2:
        image = image[None]
    elif image.shape[-1] < image.shape[0]:
        image = image.transpose(2, 0, 1)
    channels = len(image)
    depth = channels // stacked if channels % stacked == 0 else 1
    depth = depth if depth in (1, 3) else 1
    return image.reshape(channels // depth, depth, *image.shape[1:]).transpose(0, 2, 3, 1)


def seen_frames(images: np.ndarray, stacked: int) -> Iterator[np.ndarray]:
    """Yield one frame for each observation of an episode, [T + 1, ...]: its stacked images side by side."""
    for image in images:
        yield side_by_side(tiles(image, stacked))


def heat_frames(sizes: np.ndarray, stacked: int) -> Iterator[np.ndarray]:
    """Yield frames of gradients' sizes [T, ...], larger ones brighter: black, red, yellow.

    The last observation, on which no action depends, gets a black frame."""
    for size in [*sizes, np.zeros_like(sizes[0])]:
        glow = tiles(size, stacked).max(-1).astype(np.int64) * 2
        colours = (glow.clip(0, 255), (glow - 255).clip(0, 255), np.zeros_like(glow))
        yield side_by_side(np.stack(colours, -1).astype(np.uint8))


def side_by_side(pictures: np.ndarray) -> np.ndarray:
    """Join pictures [k, H, W, 1 or 3] into one, uint8 [height, width, 3]; small ones are enlarged."""
    count, height, width, _ = pictures.shape
    scale = max(1, -(-MIN_HEIGHT // height))
    large = np.broadcast_to(pictures, (count, height, width, 3)).repeat(scale, 1).repeat(scale, 2)
    gap = np.zeros((height * scale, GAP, 3), np.uint8)
    parts = [part for picture in large for part in (gap, picture)]
    return np.concatenate(parts[1:], 1)
