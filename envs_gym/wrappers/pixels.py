"""PixelObservation (`obs: pixels` in a config): a wrapper that observes pictures, drawn without a window.

RENDERERS lists the environments that it can draw: CartPole with NumPy (here), dm_control with MuJoCo (dmc.py).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.base import check_observation, env_name, require
from stride.envs_gym.wrappers.images import SQUARE, ChannelFirst, checked_size

Draw = Callable[[Any], np.ndarray]  # world -> image, uint8 [channels, height, width]
CART_BRIGHTNESS, POLE_BRIGHTNESS = 150.0, 255.0  # on a black background
CART_SIZE = (0.8, 0.16)  # width and height in CartPole's units; the pole stands on the cart's top
POLE_RADIUS = 0.06  # half the pole's thickness, in CartPole's units
MARGIN = 0.2  # units on each side beyond the largest position
PICTURE_HEIGHT = 1.5  # units from the cart's bottom to the upper edge; width and height have different scales


class PixelObservation(ChannelFirst, ObservationWrapper):
    """Replaces the observation by an image [channels, height, width]; velocities need a FrameStack."""

    def __init__(self, env: Env, size: int | Sequence[int] = SQUARE) -> None:
        super().__init__(env)
        height, width = checked_size("PixelObservation", size)
        check_observation("PixelObservation", (height, width), np.dtype(np.float32))
        world = env.unwrapped
        renderers = [renderer for world_class, renderer in RENDERERS.items() if isinstance(world, world_class)]
        require(bool(renderers), f"{env_name(env)} cannot be drawn as pixels; CartPole-v1 can, and dm_control/")
        channels, make_draw = renderers[0]
        self._draw = make_draw(world, height, width)
        self.observation_space = Box(0, 255, (channels, height, width), np.uint8)

    def observation(self, observation: object) -> np.ndarray:
        return self._draw(self.unwrapped)


def cartpole(world: CartPoleEnv, height: int, width: int) -> Draw:
    """Return a function that draws CartPole's whole track from the side, as [1, height, width].

    Edges are soft, so that a movement of a fraction of a pixel changes the image. Everything that does not depend on
    the state is computed once, here.
    """
    reach = world.x_threshold + MARGIN
    across, up = 2 * reach / width, PICTURE_HEIGHT / height  # units per pixel, horizontally and vertically
    x = ((np.arange(width) + 0.5) * across - reach).astype(np.float32)
    y = (PICTURE_HEIGHT - (np.arange(height) + 0.5) * up).astype(np.float32)[:, None]
    half, top = CART_SIZE[0] / 2, CART_SIZE[1]
    long, soft = np.float32(2 * world.length), np.float32(max(across, up))
    band = np.clip((top - y) / np.float32(up) + np.float32(0.5), 0, 1) * np.float32(CART_BRIGHTNESS)
    above = y - np.float32(top)  # of each row of pixels: height above the pole's foot

    def draw(world: CartPoleEnv) -> np.ndarray:
        position, _, angle, _ = np.asarray(world.state, np.float32)
        beside = x - position
        cart = band * np.clip((half - np.abs(beside)) / np.float32(across) + np.float32(0.5), 0, 1)
        sine, cosine = np.sin(angle), np.cos(angle)
        # of each pixel: the nearest point of the pole, as a length from its foot, and the distance to that point
        along = np.clip(beside * sine + above * cosine, 0, long)
        distance = np.hypot(beside - along * sine, above - along * cosine)
        inside = np.clip((np.float32(POLE_RADIUS) - distance) / soft + np.float32(0.5), 0, 1)
        pole = inside * np.float32(POLE_BRIGHTNESS)
        return np.maximum(cart, pole).astype(np.uint8)[None]

    return draw


# class -> (channels, function of (world, height, width) that returns its Draw); envs_gym/dmc.py adds its class
RENDERERS: dict[type[Env], tuple[int, Callable[[Any, int, int], Draw]]] = {CartPoleEnv: (1, cartpole)}
