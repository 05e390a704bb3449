"""Draws observations of bsuite's compiled worlds as RGB pictures, uint8 [height, width, 3].

`board` and `memory` are used as `World.picture` by bsuite_catch.py and bsuite_memory_chain.py.
"""

import numpy as np

BLACK, GREY, WHITE = (16, 16, 24), (70, 70, 80), (240, 240, 240)
GREEN, RED, ORANGE, BLUE = (60, 180, 90), (210, 60, 60), (250, 160, 50), (70, 130, 230)


def enlarged(cells: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a picture in which each of the cells [rows, columns, 3] has height x width pixels."""
    return np.repeat(np.repeat(cells, height, axis=0), width, axis=1)


def filled(rows: int, columns: int, colour: tuple[int, int, int]) -> np.ndarray:
    """Return cells of one colour, uint8 [rows, columns, 3]."""
    return np.full((rows, columns, 3), colour, np.uint8)


def board(obs: np.ndarray) -> np.ndarray:
    """Draw Catch: the ball orange, the paddle in the bottom row blue; a caught ball is hidden by the paddle."""
    rows, columns = obs.shape
    cells = filled(rows, columns, BLACK)
    cells[obs > 0] = ORANGE
    cells[-1, obs[-1] > 0] = BLUE
    return enlarged(cells, 40, 40)


def memory(obs: np.ndarray) -> np.ndarray:
    """Draw MemoryChain: the bit green (1) or red (-1), grey while it is hidden; below it a bar of the time left."""
    time, _, bit = obs.reshape(-1).tolist()
    picture = filled(160, 400, BLACK)
    picture[20:100, 160:240] = GREEN if bit > 0 else RED if bit < 0 else GREY
    picture[120:140, : round(400 * time)] = WHITE
    return picture
