"""How bsuite's worlds are drawn: what is seen of one, as uint8 [height, width, 3]."""

import numpy as np

BLACK, GREY, WHITE = (16, 16, 24), (70, 70, 80), (240, 240, 240)
GREEN, RED, ORANGE, BLUE = (60, 180, 90), (210, 60, 60), (250, 160, 50), (70, 130, 230)


def enlarged(cells: np.ndarray, height: int, width: int) -> np.ndarray:
    """Cells [rows, columns, 3], each as a rectangle of so many pixels."""
    return np.repeat(np.repeat(cells, height, axis=0), width, axis=1)


def filled(rows: int, columns: int, colour: tuple[int, int, int]) -> np.ndarray:
    """Cells of one colour."""
    return np.full((rows, columns, 3), colour, np.uint8)


def board(obs: np.ndarray) -> np.ndarray:
    """Catch: the ball orange, the paddle at the bottom blue; caught, the paddle is all that is seen."""
    rows, columns = obs.shape
    cells = filled(rows, columns, BLACK)
    cells[obs > 0] = ORANGE
    cells[-1, obs[-1] > 0] = BLUE
    return enlarged(cells, 40, 40)


def memory(obs: np.ndarray) -> np.ndarray:
    """MemoryChain: the bit green or red, grey while it is hidden; below it the time that is left."""
    time, _, bit = obs.reshape(-1).tolist()
    picture = filled(160, 400, BLACK)
    picture[20:100, 160:240] = GREEN if bit > 0 else RED if bit < 0 else GREY
    picture[120:140, : round(400 * time)] = WHITE
    return picture
