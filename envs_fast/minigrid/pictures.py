"""Draws MiniGrid's compiled tasks: the whole grid as in the package, with the agent's view highlighted.

Lengths in the functions are fractions of a tile's side, measured from its upper left corner.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np

from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.rules import COLOUR, HUE, KIND, STATE, Parameters
from stride.envs_fast.world import Episode, Moment, Scene

TILE, FINER = 32, 3  # pixels of a tile's side; each is the mean of 3 x 3 finer ones
COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100))  # as the codes go
BLACK, GRID, ORANGE = (0, 0, 0), (100, 100, 100), (255, 128, 0)
VEIL = 0.3  # how much white is mixed into the cells that the agent sees
KNOB = 0.08  # radius of a door's knob
WAYS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # (x, y) of a step in the agent's direction: right, down, left, up
NOBODY = -1  # `facing` of a tile without the agent


class Canvas:
    """One tile, with functions to draw on it in a finer grid of pixels."""

    def __init__(self) -> None:
        self.pixels = np.zeros((TILE * FINER, TILE * FINER, 3))
        centres = (np.arange(TILE * FINER) + 0.5) / (TILE * FINER)
        self.x, self.y = np.meshgrid(centres, centres)

    def box(self, left: float, right: float, top: float, bottom: float, colour: tuple[int, ...]) -> None:
        inside = (self.x >= left) & (self.x <= right) & (self.y >= top) & (self.y <= bottom)
        self.pixels[inside] = colour

    def disc(self, x: float, y: float, radius: float, colour: tuple[int, ...]) -> None:
        self.pixels[(self.x - x) ** 2 + (self.y - y) ** 2 <= radius**2] = colour

    def stroke(self, start: tuple[float, float], end: tuple[float, float], radius: float) -> None:
        """Draw a black line with round ends."""
        (x, y), (way_x, way_y) = start, (end[0] - start[0], end[1] - start[1])
        along = ((self.x - x) * way_x + (self.y - y) * way_y) / (way_x**2 + way_y**2)
        along = np.clip(along, 0.0, 1.0)
        self.pixels[(self.x - x - along * way_x) ** 2 + (self.y - y - along * way_y) ** 2 <= radius**2] = BLACK

    def arrow(self, facing: int) -> None:
        """Draw the agent, a red triangle that points in its direction."""
        (way_x, way_y), x, y = WAYS[facing], self.x - 0.5, self.y - 0.5
        height = (x * way_x + y * way_y + 0.38) / 0.75  # 0 at its base, 1 at its tip
        self.pixels[(height >= 0) & (np.abs(x * way_y - y * way_x) <= 0.31 * (1 - height))] = COLOURS[rules.RED]


def _door(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    if state == rules.OPEN:
        canvas.box(0.88, 1.0, 0.0, 1.0, colour)
        canvas.box(0.92, 0.96, 0.04, 0.96, BLACK)
        return
    canvas.box(0.0, 1.0, 0.0, 1.0, colour)
    if state == rules.LOCKED:
        canvas.box(0.06, 0.94, 0.06, 0.94, tuple(int(0.45 * part) for part in colour))
        canvas.box(0.52, 0.75, 0.50, 0.56, colour)
        return
    canvas.box(0.04, 0.96, 0.04, 0.96, BLACK)
    canvas.box(0.08, 0.92, 0.08, 0.92, colour)
    canvas.box(0.12, 0.88, 0.12, 0.88, BLACK)
    canvas.disc(0.75, 0.50, KNOB, colour)


def _key(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    canvas.box(0.50, 0.63, 0.31, 0.88, colour)
    canvas.box(0.38, 0.50, 0.59, 0.66, colour)
    canvas.box(0.38, 0.50, 0.81, 0.88, colour)
    canvas.disc(0.56, 0.28, 0.190, colour)
    canvas.disc(0.56, 0.28, 0.064, BLACK)


def _ball(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    canvas.disc(0.5, 0.5, 0.31, colour)


def _box(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    canvas.box(0.12, 0.88, 0.12, 0.88, colour)
    canvas.box(0.18, 0.82, 0.18, 0.82, BLACK)
    canvas.box(0.16, 0.84, 0.47, 0.53, colour)


def _lava(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    canvas.box(0.0, 1.0, 0.0, 1.0, ORANGE)
    for low in (0.3, 0.5, 0.7):
        corners = [(0.1, low), (0.3, low + 0.1), (0.5, low), (0.7, low + 0.1), (0.9, low)]
        for start, end in pairwise(corners):
            canvas.stroke(start, end, 0.03)


def _full(canvas: Canvas, colour: tuple[int, ...], state: int) -> None:
    canvas.box(0.0, 1.0, 0.0, 1.0, colour)


DRAW: dict[int, Callable[[Canvas, tuple[int, ...], int], None]] = {
    rules.WALL: _full,
    rules.DOOR: _door,
    rules.KEY: _key,
    rules.BALL: _ball,
    rules.BOX: _box,
    rules.GOAL: _full,
    rules.LAVA: _lava,
}


@cache
def tile(cell: int, facing: int = NOBODY, seen: bool = False) -> np.ndarray:
    """Draw a cell of the grid, uint8 [TILE, TILE, 3]; `facing`: the direction of the agent if it is in the cell."""
    canvas = Canvas()
    canvas.box(0.0, 0.031, 0.0, 1.0, GRID)
    canvas.box(0.0, 1.0, 0.0, 0.031, GRID)
    if cell & KIND in DRAW:
        DRAW[cell & KIND](canvas, COLOURS[cell // COLOUR & HUE], cell // STATE)
    if facing != NOBODY:
        canvas.arrow(facing)
    pixels = canvas.pixels
    if seen:
        pixels = np.floor(pixels + VEIL * (255 - pixels))
    drawn: np.ndarray = pixels.reshape(TILE, FINER, TILE, FINER, 3).mean(axis=(1, 3)).astype(np.uint8)
    return drawn


def draw(column: np.ndarray, obs: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Draw a state and its observation, uint8 [32 * height, 32 * width, 3]; a carried thing is not shown."""
    size = parameters.height, parameters.width
    cells = column[rules.CELLS : rules.CELLS + parameters.width * parameters.height].reshape(size)
    x, y, facing = column[[rules.X, rules.Y, rules.FACING]].tolist()
    way_x, way_y = WAYS[facing]
    seen = set()
    for i, j in np.argwhere(obs[rules.UNSEEN] == 0).tolist():
        ahead, right = rules.SIDE - 1 - j, i - rules.MIDDLE
        seen.add((x + ahead * way_x - right * way_y, y + ahead * way_y + right * way_x))
    rows = [
        [tile(int(cell), facing if (i, j) == (x, y) else NOBODY, (i, j) in seen) for i, cell in enumerate(row)]
        for j, row in enumerate(cells)
    ]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows])


def play(column: np.ndarray, action: int, parameters: Parameters) -> None:
    """Play one step of the state, in place, the same for all tasks: they differ only in rewards and ends."""
    rules.act(column, action, Moment(0, 0.0, Episode(0, 0, 0, 0)), parameters)


SCENE = Scene(draw, play)
