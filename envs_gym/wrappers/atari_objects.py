"""Wrappers for Pong and Breakout that observe the positions of ball and paddles, read from the console's memory.

The memory has 128 bytes; GAMES says which of them are positions (only these two games are known). Positions are pixels
of the screen, 160 wide and 210 high, and are observed in [-1, 1].
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.atari import game_of
from stride.envs_gym.wrappers.base import ResetAnswer, require
from stride.envs_gym.wrappers.shaping import PotentialShaper

WIDTH, HEIGHT = 160, 210  # pixels of the screen
MAX_BALL_SPEED = 16.0  # pixels in a step of four frames; this speed, or a higher one, is observed as 1
BRICK_ROWS, BYTES_PER_ROW = 6, 6  # Breakout's rows of bricks, and the bytes of memory for each
FULL_ROW_BITS, EMPTY_ROW_BITS = 40, 4  # bits that are set for a row with all bricks, and with none (the walls)


class Coordinate(NamedTuple):
    """Where the memory has one coordinate (x or y) of an object's centre."""

    byte: int  # index in the console's memory
    offset: int  # pixels to add to that byte's value
    extent: int  # pixels of the screen in this direction


class GameObjects(NamedTuple):
    """Where the memory has a game's ball and paddles. If the byte of the ball's y is 0, no ball is on the screen."""

    ball_x: Coordinate
    ball_y: Coordinate
    paddles: Sequence[Coordinate]  # the player's paddle is the first


GAMES = {
    "pong": GameObjects(  # paddles move up and down, so only their y is known
        Coordinate(49, -47, WIDTH),
        Coordinate(54, -13, HEIGHT),
        (Coordinate(51, -6, HEIGHT), Coordinate(50, -7, HEIGHT)),
    ),
    "breakout": GameObjects(Coordinate(99, -47, WIDTH), Coordinate(101, 10, HEIGHT), (Coordinate(72, -39, WIDTH),)),
}


class ConsoleMemory:
    """Reads the present positions in one world's game. `only`: the one game that the wrapper supports, "" for all."""

    def __init__(self, env: Env, wrapper: str, only: str = "") -> None:
        self.game: Any = game_of(env, wrapper)
        name = self.game._game
        games = (only,) if only else tuple(GAMES)
        require(name in games, f"{wrapper} supports {' and '.join(games)}, not {name}")
        self.objects = GAMES[name]

    def pixels(self, coordinate: Coordinate) -> float:
        """Return a coordinate in pixels of the screen."""
        return float(self.game.ale.getRAM()[coordinate.byte]) + coordinate.offset

    def ball(self) -> tuple[float, float] | None:
        """Return the ball's (x, y) in pixels, y downwards; None while there is no ball."""
        if not self.game.ale.getRAM()[self.objects.ball_y.byte]:
            return None
        return self.pixels(self.objects.ball_x), self.pixels(self.objects.ball_y)

    def paddles(self) -> list[float]:
        """Return each paddle's coordinate in pixels, the player's first."""
        return list(map(self.pixels, self.objects.paddles))

    def bricks(self) -> list[float]:
        """Return the fraction of Breakout's bricks left in each row, the lowest row first.

        Each brick is two bits of the memory.
        """
        memory = self.game.ale.getRAM()[: BRICK_ROWS * BYTES_PER_ROW].reshape(BYTES_PER_ROW, BRICK_ROWS)
        bit_counts = np.unpackbits(memory, axis=0).sum(0)
        return [(int(count) - EMPTY_ROW_BITS) / (FULL_ROW_BITS - EMPTY_ROW_BITS) for count in bit_counts]


class AtariObjects(ObservationWrapper):
    """Positions of ball and paddles: ball x, ball y, whether there is a ball, then each paddle. Pong and Breakout."""

    only = ""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._memory = ConsoleMemory(env, type(self).__name__, self.only)
        self._memory.game._obs_type = "ram"  # the game then renders no screen, which saves time
        self._previous_ball: tuple[float, float] | None = None  # (x, y) in pixels, one step ago
        self.observation_space = Box(-1, 1, (len(self.features()),), np.float32)

    def reset(self, **kwargs: Any) -> ResetAnswer:
        self._previous_ball = None
        return super().reset(**kwargs)

    def observation(self, observation: object) -> np.ndarray:
        features = np.array(self.features(), np.float32).clip(-1, 1)
        self._previous_ball = self._memory.ball()
        return features

    def features(self) -> list[float]:
        """Return the numbers of the present observation, before they are clipped to [-1, 1]."""
        ball = self._memory.ball()
        features = [0.0, 0.0, 0.0]
        if ball is not None:
            features = [_scaled(ball[0], WIDTH), _scaled(ball[1], HEIGHT), 1.0]
        for paddle in self._memory.objects.paddles:
            features.append(_scaled(self._memory.pixels(paddle), paddle.extent))
        return features

    def ball_features(self, axis: int, extent: int) -> list[float]:
        """Return the ball's velocity in x and y (0 for a new ball), and its distance from the paddle along an axis.

        `axis`: 0 = x, 1 = y; `extent`: pixels of the screen along it.
        """
        ball = self._memory.ball()
        previous = self._previous_ball
        if ball is None:
            return [0.0, 0.0, 0.0]
        velocity = [0.0, 0.0]
        if previous is not None:
            velocity = [(ball[0] - previous[0]) / MAX_BALL_SPEED, (ball[1] - previous[1]) / MAX_BALL_SPEED]
        return [*velocity, (ball[axis] - self._memory.paddles()[0]) / (extent / 2)]


class PongFeatures(AtariObjects):
    """The objects of Pong, the ball's velocity, and how far below the player's paddle it is."""

    only = "pong"

    def features(self) -> list[float]:
        return super().features() + self.ball_features(1, HEIGHT)


class BreakoutFeatures(AtariObjects):
    """The objects of Breakout, the ball's velocity, how far right of the paddle it is, and the bricks left by rows."""

    only = "breakout"

    def features(self) -> list[float]:
        return super().features() + self.ball_features(0, WIDTH) + self._memory.bricks()


def _scaled(pixels: float, extent: int) -> float:
    """Scale a coordinate from [0, extent] pixels to [-1, 1]."""
    return 2 * pixels / extent - 1


class PongShaper(PotentialShaper):
    """Phi from 1 (the paddle is as high as the ball) down to 0 (far from it, or there is no ball)."""

    REACH = 160.0  # pixels between the walls

    def __init__(self, env: Env, gamma: float, scale: float = 0.1) -> None:
        super().__init__(env, gamma, scale)
        self._memory = ConsoleMemory(env, "PongShaper", "pong")

    def potential(self) -> float:
        ball = self._memory.ball()
        return 0.0 if ball is None else max(1.0 - abs(ball[1] - self._memory.paddles()[0]) / self.REACH, 0.0)
