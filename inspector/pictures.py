"""Frames of videos: the stacked images that a policy sees, side by side, and the pixels on which its output depends."""

from collections.abc import Iterator

import numpy as np

GAP = 4  # pixels between two images
SIDE = 160  # small images are enlarged to at least this height, so that a video keeps their edges


def tiles(image: np.ndarray, stacked: int) -> np.ndarray:
    """uint8 [H, W], [C, H, W] or [H, W, C] -> [k, H, W, 1 or 3], as the CNN reads channels: oldest first."""
    if image.ndim == 2:
        image = image[None]
    elif image.shape[-1] < image.shape[0]:
        image = image.transpose(2, 0, 1)
    channels = len(image)
    depth = channels // stacked if channels % stacked == 0 else 1
    depth = depth if depth in (1, 3) else 1
    return image.reshape(channels // depth, depth, *image.shape[1:]).transpose(0, 2, 3, 1)


def seen_frames(images: np.ndarray, stacked: int) -> Iterator[np.ndarray]:
    """A frame per instant."""
    for image in images:
        yield side_by_side(tiles(image, stacked))


def heat_frames(sizes: np.ndarray, stacked: int) -> Iterator[np.ndarray]:
    """Frames of [T, ...] sizes of gradients, glowing on black; the last instant, where nothing was decided, is dark."""
    for size in [*sizes, np.zeros_like(sizes[0])]:
        glow = tiles(size, stacked).max(-1).astype(np.int64) * 2
        colours = (glow.clip(0, 255), (glow - 255).clip(0, 255), np.zeros_like(glow))
        yield side_by_side(np.stack(colours, -1).astype(np.uint8))


def side_by_side(pictures: np.ndarray) -> np.ndarray:
    """[k, H, W, 1 or 3] -> one uint8 [height, width, 3]."""
    count, height, width, _ = pictures.shape
    scale = max(1, -(-SIDE // height))
    large = np.broadcast_to(pictures, (count, height, width, 3)).repeat(scale, 1).repeat(scale, 2)
    gap = np.zeros((height * scale, GAP, 3), np.uint8)
    parts = [part for picture in large for part in (gap, picture)]
    return np.concatenate(parts[1:], 1)
