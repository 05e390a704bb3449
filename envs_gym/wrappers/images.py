"""Images on their way to a network: channels first, grey, smaller; uint8 all the way, NumPy alone.

Each class does its work on every image of the observation, whether that is one image or a Dict with some.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.spaces import is_image
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, check_observation, layers, require

Picture = Callable[[np.ndarray], np.ndarray]
LUMA = (77, 150, 29)  # red, green and blue of BT.601 in 256ths: the sum fits 16 bits
SQUARE = (84, 84)


class ChannelFirst(gymnasium.Wrapper):
    """Marks a wrapper above which images are [channels, height, width]."""


class Change(NamedTuple):
    """What becomes of an image and of its shape."""

    shape: tuple[int, ...]
    picture: Picture


class ImageObservation(ChannelFirst):
    """Applies `change` to every image of the observation."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        parts = images(space)
        kind = type(self).__name__
        require(bool(parts), f"{kind} needs an image (uint8, at least two dimensions) to observe, not {space}")
        changes = {name: self.change(part.shape) for name, part in parts.items()}
        self._pictures = {name: change.picture for name, change in changes.items()}
        image_spaces = {name: spaces.Box(0, 255, change.shape, np.uint8) for name, change in changes.items()}
        self.observation_space = (
            spaces.Dict({**space.spaces, **image_spaces}) if isinstance(space, spaces.Dict) else image_spaces[""]
        )

    def change(self, shape: tuple[int, ...]) -> Change:
        """What to do with an image of this shape."""
        raise NotImplementedError

    def reset(self, **kwargs: Any) -> ResetAnswer:
        obs, info = self.env.reset(**kwargs)
        return self._changed(obs), info

    def step(self, action: object) -> StepAnswer:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._changed(obs), reward, terminated, truncated, info

    def _changed(self, obs: np.ndarray | dict[str, np.ndarray]) -> np.ndarray | dict[str, np.ndarray]:
        if not isinstance(obs, dict):
            return self._pictures[""](obs)
        return {**obs, **{name: picture(obs[name]) for name, picture in self._pictures.items()}}


class Transpose(ImageObservation):
    """[height, width] and [height, width, channels] as [channels, height, width]; a view, nothing is copied."""

    def change(self, shape: tuple[int, ...]) -> Change:
        if len(shape) == 2:
            return Change((1, *shape), lambda image: image[None])
        if len(shape) == 3 and shape[2] < shape[0]:  # channels are the fewer ones
            return Change((shape[2], shape[0], shape[1]), lambda image: image.transpose(2, 0, 1))
        return Change(shape, lambda image: image)


class GrayscaleObservation(ImageObservation):
    """Red, green and blue as one channel of brightness (BT.601)."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(channel_first(env))

    def change(self, shape: tuple[int, ...]) -> Change:
        if len(shape) == 3 and shape[0] == 1:
            return Change(shape, lambda image: image)
        require(len(shape) == 3 and shape[0] == 3, f"GrayscaleObservation needs red, green and blue, not {list(shape)}")
        return Change((1, *shape[1:]), gray)


class ResizeObservation(ImageObservation):
    """Height and width by averaging areas: each new pixel is the mean of the patch it covers, by share."""

    def __init__(self, env: gymnasium.Env, size: int | Sequence[int] = SQUARE) -> None:
        self.size = checked_size("ResizeObservation", size)
        super().__init__(channel_first(env))

    def change(self, shape: tuple[int, ...]) -> Change:
        require(len(shape) == 3, f"ResizeObservation needs images of three dimensions, not {list(shape)}")
        channels, height, width = shape
        check_observation("ResizeObservation", (channels, *self.size), np.dtype(np.float32))
        rows, columns = area_weights(height, self.size[0]), area_weights(width, self.size[1]).T.copy()

        def shrink(image: np.ndarray) -> np.ndarray:
            return (rows @ image.astype(np.float32) @ columns + np.float32(0.5)).astype(np.uint8)

        return Change((channels, *self.size), shrink)


def images(space: gymnasium.Space[object]) -> dict[str, spaces.Box]:
    """The images of an observation by name, "" where it is nothing but an image."""
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    return {name: part for name, part in parts.items() if isinstance(part, spaces.Box) and is_image(part)}


def channel_first(env: gymnasium.Env) -> gymnasium.Env:
    """The same with all images channels first; no wrapper where there is no image or nothing to turn."""
    if any(isinstance(layer, ChannelFirst) for layer in layers(env)) or not images(env.observation_space):
        return env
    return Transpose(env)


def checked_size(name: str, size: int | Sequence[int]) -> tuple[int, int]:
    """One number for a square, or height and width."""
    sides: list[Any] = list(size) if isinstance(size, list | tuple) else [size]
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side >= 1 for side in sides)
    require(whole and len(sides) in (1, 2), f"{name}: size takes a number of pixels or [height, width], not {size}")
    return (int(sides[0]), int(sides[-1]))


def gray(image: np.ndarray) -> np.ndarray:
    """[3, H, W] -> [1, H, W] uint8, rounded."""
    red, green, blue = (image[i].astype(np.uint16) * np.uint16(share) for i, share in enumerate(LUMA))
    return ((red + green + blue + np.uint16(128)) >> np.uint16(8)).astype(np.uint8)[None]


def area_weights(old: int, new: int) -> np.ndarray:
    """[new, old] float32: which share of each old cell makes a new one, when both lines are equally long."""
    edges = np.linspace(0, old, new + 1)
    cells = np.arange(old)
    overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    return (overlap.clip(0) * new / old).astype(np.float32)
