"""What is where in Pong and Breakout, read from the 128 bytes of the console, as a few numbers.

Places are those of the screen, 160 wide and 210 high, told in [-1, 1]. Other games keep theirs in bytes that nobody
here has looked up.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.wrappers.atari import game_of
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, require
from stride.envs_gym.wrappers.shaping import PotentialShaper

WIDTH, HEIGHT = 160, 210
FASTEST = 16.0  # pixels that a ball moves in a step of four frames, or more: told as 1
ROWS, PER_ROW = 6, 6  # of Breakout's bricks, and bytes of each row
WIDE, WALL = 40, 4  # bits of a row where no brick is gone, and where all are


class Place(NamedTuple):
    """Where the middle of a thing is: a byte of the memory, and pixels from what it says."""

    byte: int
    offset: int
    extent: int  # of the screen in this direction


class Things(NamedTuple):
    """A game's ball and paddles; a ball whose y is 0 in memory is not on the screen."""

    ball_x: Place
    ball_y: Place
    paddles: Mapping[str, Place]  # one's own first


GAMES = {
    "pong": Things(
        Place(49, -47, WIDTH),
        Place(54, -13, HEIGHT),
        {"own y": Place(51, -6, HEIGHT), "other y": Place(50, -7, HEIGHT)},
    ),
    "breakout": Things(Place(99, -47, WIDTH), Place(101, 10, HEIGHT), {"own x": Place(72, -39, WIDTH)}),
}


class Memory:
    """The places in one world's game, as they are now."""

    def __init__(self, env: gymnasium.Env, wrapper: str, only: str = "") -> None:
        self.game: Any = game_of(env, wrapper)
        name = self.game._game
        games = (only,) if only else (*GAMES,)
        require(name in games, f"{wrapper} knows where things are in {' and '.join(games)}, not in {name}")
        self.things = GAMES[name]

    def at(self, place: Place) -> float:
        """In pixels."""
        return float(self.game.ale.getRAM()[place.byte]) + place.offset

    def ball(self) -> tuple[float, float] | None:
        """Across and down, in pixels; None where there is none."""
        if not self.game.ale.getRAM()[self.things.ball_y.byte]:
            return None
        return self.at(self.things.ball_x), self.at(self.things.ball_y)

    def paddles(self) -> list[float]:
        """In pixels, one's own first."""
        return [self.at(place) for place in self.things.paddles.values()]

    def bricks(self) -> list[float]:
        """Which share of Breakout's bricks is left, by rows, the lowest first: each brick is two bits."""
        bits = np.unpackbits(self.game.ale.getRAM()[: ROWS * PER_ROW].reshape(PER_ROW, ROWS), axis=0).sum(0)
        return [(int(row) - WALL) / (WIDE - WALL) for row in bits]


class AtariObjects(gymnasium.Wrapper):
    """Where ball and paddles are: ball x, ball y, whether there is a ball, then each paddle. Pong and Breakout."""

    only = ""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._memory = Memory(env, type(self).__name__, self.only)
        self._memory.game._obs_type = "ram"  # nobody sees the screen, so none is made
        self._before: tuple[float, float] | None = None
        self.observation_space = spaces.Box(-1, 1, (len(self.look()),), np.float32)

    def reset(self, **kwargs: Any) -> ResetAnswer:
        _, info = self.env.reset(**kwargs)
        self._before = None
        return self._told(), info

    def step(self, action: object) -> StepAnswer:
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._told(), reward, terminated, truncated, info

    def _told(self) -> np.ndarray:
        observation = np.array(self.look(), np.float32).clip(-1, 1)
        self._before = self._memory.ball()
        return observation

    def look(self) -> list[float]:
        """The numbers of this instant; `_before` is where the ball was a step ago."""
        things, ball = self._memory.things, self._memory.ball()
        paddles = zip(self._memory.paddles(), things.paddles.values(), strict=True)
        numbers = [0.0, 0.0, 0.0] if ball is None else [_scaled(ball[0], WIDTH), _scaled(ball[1], HEIGHT), 1.0]
        return [*numbers, *(_scaled(pixels, place.extent) for pixels, place in paddles)]

    def velocity(self) -> list[float]:
        """Of the ball, across and down; 0 where there was none a step ago."""
        now, before = self._memory.ball(), self._before
        if now is None or before is None:
            return [0.0, 0.0]
        return [(now[0] - before[0]) / FASTEST, (now[1] - before[1]) / FASTEST]


class PongFeatures(AtariObjects):
    """The objects of Pong, the ball's velocity, and how far below one's own paddle it is."""

    only = "pong"

    def look(self) -> list[float]:
        ball, own = self._memory.ball(), self._memory.paddles()[0]
        below = 0.0 if ball is None else (ball[1] - own) / (HEIGHT / 2)
        return [*super().look(), *self.velocity(), below]


class BreakoutFeatures(AtariObjects):
    """The objects of Breakout, the ball's velocity, how far right of the paddle it is, and the bricks left by rows."""

    only = "breakout"

    def look(self) -> list[float]:
        ball, own = self._memory.ball(), self._memory.paddles()[0]
        right = 0.0 if ball is None else (ball[0] - own) / (WIDTH / 2)
        return [*super().look(), *self.velocity(), right, *self._memory.bricks()]


def _scaled(pixels: float, extent: int) -> float:
    return 2 * pixels / extent - 1


class PongShaper(PotentialShaper):
    """Phi from 1 (one's paddle is as high as the ball) down to 0 (far from it, or there is no ball)."""

    REACH = 160.0  # pixels between the walls

    def __init__(self, env: gymnasium.Env, gamma: float, scale: float = 0.1) -> None:
        super().__init__(env, gamma, scale)
        self._memory = Memory(env, "PongShaper", "pong")

    def potential(self) -> float:
        ball = self._memory.ball()
        return 0.0 if ball is None else max(1.0 - abs(ball[1] - self._memory.paddles()[0]) / self.REACH, 0.0)
