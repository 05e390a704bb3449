"""Wrappers that prepare images for a network: channels first, grey, or smaller. They stay uint8; only NumPy is used.

A wrapper converts every image of the observation, whether it is one image or a Dict with images.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper, Space, Wrapper
from gymnasium.spaces import Box, Dict

from stride.envs_gym.spaces import is_image
from stride.envs_gym.wrappers.base import check_observation, layers, require

ImageFunction = Callable[[np.ndarray], np.ndarray]
Shape = tuple[int, ...]
LUMA = (77, 150, 29)  # weights of red, green and blue (BT.601) in 256ths; weighted sums fit into 16 bits
SQUARE = (84, 84)  # the default height and width in pixels


class ChannelFirst(Wrapper):
    """Base class of wrappers whose images are [channels, height, width]."""


class ImageObservation(ChannelFirst, ObservationWrapper):
    """Base class of wrappers that convert every image of the observation; a subclass defines `conversion`."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        space = env.observation_space
        wrapper_name = type(self).__name__
        self._converters: dict[str, ImageFunction] = {}
        image_spaces: dict[str, Any] = dict(space.spaces) if isinstance(space, Dict) else {}
        for name, image_space in images(space).items():
            shape, self._converters[name] = self.conversion(image_space.shape)
            image_spaces[name] = Box(0, 255, shape, np.uint8)
        problem = f"{wrapper_name} needs an image (uint8, at least two dimensions) to observe, not {space}"
        require(bool(self._converters), problem)
        self.observation_space = Dict(image_spaces) if isinstance(space, Dict) else image_spaces[""]

    def conversion(self, shape: Shape) -> tuple[Shape, ImageFunction]:
        """Return, for images of this shape, the converted shape and the function that converts one image."""
        raise NotImplementedError

    def observation(self, observation: Any) -> Any:
        if not isinstance(observation, dict):
            return self._converters[""](observation)
        return {**observation, **{name: convert(observation[name]) for name, convert in self._converters.items()}}


class Transpose(ImageObservation):
    """[height, width] and [height, width, channels] as [channels, height, width]; a view, nothing is copied."""

    def conversion(self, shape: Shape) -> tuple[Shape, ImageFunction]:
        if len(shape) == 2:
            return (1, *shape), lambda image: image[None]
        if len(shape) == 3 and shape[2] < shape[0]:  # channels are the fewer ones
            return (shape[2], *shape[:2]), lambda image: image.transpose(2, 0, 1)
        return shape, lambda image: image


class GrayscaleObservation(ImageObservation):
    """Converts red, green and blue to one grey channel (BT.601)."""

    def __init__(self, env: Env) -> None:
        super().__init__(channel_first(env))

    def conversion(self, shape: Shape) -> tuple[Shape, ImageFunction]:
        channels = shape[0] if len(shape) == 3 else 0
        require(channels in (1, 3), f"GrayscaleObservation needs red, green and blue, not {list(shape)}")
        return (1, *shape[1:]), gray if channels == 3 else lambda image: image


class ResizeObservation(ImageObservation):
    """Resizes images by averaging areas: each new pixel is the mean of the pixels it covers, weighted by area."""

    def __init__(self, env: Env, size: int | Sequence[int] = SQUARE) -> None:
        self.size = checked_size("ResizeObservation", size)
        super().__init__(channel_first(env))

    def conversion(self, shape: Shape) -> tuple[Shape, ImageFunction]:
        require(len(shape) == 3, f"ResizeObservation needs images of three dimensions, not {list(shape)}")
        channels, height, width = shape
        check_observation("ResizeObservation", (channels, *self.size), np.dtype(np.float32))
        rows = area_weights(height, self.size[0])
        columns = area_weights(width, self.size[1]).T.copy()

        def shrink(image: np.ndarray) -> np.ndarray:
            return (rows @ image.astype(np.float32) @ columns + np.float32(0.5)).astype(np.uint8)

        return (channels, *self.size), shrink


def images(space: Space) -> dict[str, Box]:
    """Return the spaces of an observation's images by name; the name is "" where the observation is one image."""
    components = space.spaces if isinstance(space, Dict) else {"": space}
    return {name: box for name, box in components.items() if isinstance(box, Box) and is_image(box)}


def channel_first(env: Env) -> Env:
    """Return the environment with all images channels first: wrapped, unless it is so already or has no image."""
    if any(isinstance(layer, ChannelFirst) for layer in layers(env)) or not images(env.observation_space):
        return env
    return Transpose(env)


def checked_size(name: str, size: int | Sequence[int]) -> tuple[int, int]:
    """Return (height, width) for one number (a square) or a pair; UserError for other values."""
    sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size]
    positive = all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in sides)
    require(positive and len(sides) in (1, 2), f"{name}: size takes a number of pixels or [height, width], not {size}")
    return sides[0], sides[-1]


def gray(image: np.ndarray) -> np.ndarray:
    """Convert an image [3, H, W] to grey [1, H, W], uint8, rounded."""
    red, green, blue = (image[i].astype(np.uint16) * np.uint16(weight) for i, weight in enumerate(LUMA))
    return ((red + green + blue + np.uint16(128)) >> np.uint16(8)).astype(np.uint8)[None]


def area_weights(old: int, new: int) -> np.ndarray:
    """Return weights [new, old], float32, that average `old` pixels of a line to `new` pixels; each row adds up to 1.

    A weight is the length of the overlap of an old and a new pixel, in units of new pixels.
    """
    edges = np.linspace(0, old, new + 1)
    cells = np.arange(old)
    overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    return (overlap.clip(0) * new / old).astype(np.float32)
