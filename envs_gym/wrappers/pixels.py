"""Worlds seen as pictures: CartPole drawn from its state with NumPy, dm_control by MuJoCo; no window is needed.

`obs: pixels` in a config puts PixelObservation around the world; RENDERERS says which worlds can be drawn.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.base import check_observation, env_name, require
from stride.envs_gym.wrappers.images import SQUARE, ChannelFirst, checked_size

Draw = Callable[[Any], np.ndarray]
CART, POLE = 150.0, 255.0  # brightness on a black ground
CART_SIZE = (0.8, 0.16)  # in units of the track; the cart's top is the pole's foot
POLE_RADIUS = 0.06
MARGIN = 0.2  # on each side of the longest track
TALL = 1.5  # units from the cart's underside to the upper edge; height and width are scaled apart


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
    """The whole track from the side. Edges are soft: a movement of a fraction of a pixel is seen."""
    reach = world.x_threshold + MARGIN
    across, up = 2 * reach / width, TALL / height  # units per pixel
    x = ((np.arange(width) + 0.5) * across - reach).astype(np.float32)
    y = (TALL - (np.arange(height) + 0.5) * up).astype(np.float32)[:, None]
    half, top = CART_SIZE[0] / 2, CART_SIZE[1]
    long, soft = np.float32(2 * world.length), np.float32(max(across, up))
    band = np.clip((top - y) / np.float32(up) + np.float32(0.5), 0, 1) * np.float32(CART)
    above = y - np.float32(top)  # from the pole's foot

    def draw(world: CartPoleEnv) -> np.ndarray:
        position, _, angle, _ = np.asarray(world.state, np.float32)
        beside = x - position
        cart = band * np.clip((half - np.abs(beside)) / np.float32(across) + np.float32(0.5), 0, 1)
        sine, cosine = np.sin(angle), np.cos(angle)
        along = np.clip(beside * sine + above * cosine, 0, long)
        distance = np.hypot(beside - along * sine, above - along * cosine)
        pole = np.clip((np.float32(POLE_RADIUS) - distance) / soft + np.float32(0.5), 0, 1) * np.float32(POLE)
        return np.maximum(cart, pole).astype(np.uint8)[None]

    return draw


# class -> (channels, function of a world, height and width that makes its `Draw`); envs_gym/dmc.py adds its own
RENDERERS: dict[type[Env], tuple[int, Callable[[Any, int, int], Draw]]] = {CartPoleEnv: (1, cartpole)}
