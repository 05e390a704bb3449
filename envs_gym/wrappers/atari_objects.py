"""Where things are in Pong and Breakout, read from the 128 bytes of the console, as a few numbers.

Positions are those of the screen, 160 wide and 210 high, observed in [-1, 1]. Where other games store theirs is not
known here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Env, ObservationWrapper
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.atari import game_of
from stride.envs_gym.wrappers.base import ResetAnswer, require
from stride.envs_gym.wrappers.shaping import PotentialShaper

WIDTH, HEIGHT = 160, 210
FASTEST = 16.0  # pixels that a ball moves in a step of four frames, or more: observed as 1
ROWS, PER_ROW = 6, 6  # of Breakout's bricks, and bytes of each row
WIDE, WALL = 40, 4  # bits of a row where no brick is gone, and where all are


class Coordinate(NamedTuple):
    """Where one coordinate of the middle of a thing is stored."""

    byte: int  # of the console's memory
    offset: int  # pixels from that byte's value
    extent: int  # pixels of the screen in this direction


class GameObjects(NamedTuple):
    """A game's ball and paddles; a ball whose y is 0 in memory is not on the screen."""

    ball_x: Coordinate
    ball_y: Coordinate
    paddles: Sequence[Coordinate]  # the player's first


GAMES = {
    "pong": GameObjects(  # paddles move up and down
        Coordinate(49, -47, WIDTH),
        Coordinate(54, -13, HEIGHT),
        (Coordinate(51, -6, HEIGHT), Coordinate(50, -7, HEIGHT)),
    ),
    "breakout": GameObjects(Coordinate(99, -47, WIDTH), Coordinate(101, 10, HEIGHT), (Coordinate(72, -39, WIDTH),)),
}


class ConsoleMemory:
    """Reads the positions in one world's game, as they are now."""

    def __init__(self, env: Env, wrapper: str, only: str = "") -> None:
        self.game: Any = game_of(env, wrapper)
        name = self.game._game
        games = (only,) if only else tuple(GAMES)
        require(name in games, f"{wrapper} supports {' and '.join(games)}, not {name}")
        self.objects = GAMES[name]

    def pixels(self, coordinate: Coordinate) -> float:
        return float(self.game.ale.getRAM()[coordinate.byte]) + coordinate.offset

    def ball(self) -> tuple[float, float] | None:
        """Across and down, in pixels; None where there is none."""
        if not self.game.ale.getRAM()[self.objects.ball_y.byte]:
            return None
        return self.pixels(self.objects.ball_x), self.pixels(self.objects.ball_y)

    def paddles(self) -> list[float]:
        """In pixels, the player's first."""
        return list(map(self.pixels, self.objects.paddles))

    def bricks(self) -> list[float]:
        """The fraction of Breakout's bricks left in each row, the lowest first: each brick is two bits."""
        bit_counts = np.unpackbits(self.game.ale.getRAM()[: ROWS * PER_ROW].reshape(PER_ROW, ROWS), axis=0).sum(0)
        return [(int(count) - WALL) / (WIDE - WALL) for count in bit_counts]


class AtariObjects(ObservationWrapper):
    """Positions of ball and paddles: ball x, ball y, whether there is a ball, then each paddle. Pong and Breakout."""

    only = ""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._memory = ConsoleMemory(env, type(self).__name__, self.only)
        self._memory.game._obs_type = "ram"  # nobody sees the screen, so none is made
        self._previous_ball: tuple[float, float] | None = None  # where it was a step ago
        self.observation_space = Box(-1, 1, (len(self.features()),), np.float32)

    def reset(self, **kwargs: Any) -> ResetAnswer:
        self._previous_ball = None
        return super().reset(**kwargs)

    def observation(self, observation: object) -> np.ndarray:
        features = np.array(self.features(), np.float32).clip(-1, 1)
        self._previous_ball = self._memory.ball()
        return features

    def features(self) -> list[float]:
        """The numbers of this instant, before they are clipped."""
        ball = self._memory.ball()
        features = [0.0, 0.0, 0.0]
        if ball is not None:
            features = [_scaled(ball[0], WIDTH), _scaled(ball[1], HEIGHT), 1.0]
        for paddle in self._memory.objects.paddles:
            features.append(_scaled(self._memory.pixels(paddle), paddle.extent))
        return features

    def ball_features(self, axis: int, extent: int) -> list[float]:
        """The ball's velocity across and down, 0 where it is new; how far it is from the paddle along an axis."""
        ball = self._memory.ball()
        previous = self._previous_ball
        if ball is None:
            return [0.0, 0.0, 0.0]
        velocity = [0.0, 0.0]
        if previous is not None:
            velocity = [(ball[0] - previous[0]) / FASTEST, (ball[1] - previous[1]) / FASTEST]
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
