"""Logits of a guess become log-probabilities mixed with uniform chances, there and back, 16 rows side by side.

N rows are a multiple of 16, F = S * C as in model_cell.py.
"""

from agents.engines.fused_cpu.kernels.calls import PIECE, longs
from agents.engines.fused_cpu.kernels.model_cell import MODEL, Model, clear, draw, to_lanes, to_rows
from agents.engines.fused_cpu.kernels.model_scan import slope_of_draw
from agents.engines.fused_cpu.kernels.vectors import BYTES
from agents.engines.plan.layout import LANES
from agents.engines.plan.numbers import Count, auto
from utils.kernel_cache import njit


class Mix(Count):
    """The table of a guess, int64: counts and addresses."""

    MODEL = auto()  # the table of the model's sizes
    ROWS = auto()  # N
    THREADS = auto()
    LOGITS = auto()  # [N, F]
    LOG_PROBS = auto()  # [N, F]
    SOFT = auto()  # [N / 16, F, 16] chances before they were mixed
    SLOPE_LOG_PROBS = auto()  # [N, F]
    SLOPE_LOGITS = auto()  # [N, F]
    SCRATCH = auto()  # of each thread: vectors [3 F]
    SCRATCH_SIZE = auto()  # bytes of a thread


MIX = len(Mix)


@njit(**PIECE)
def forward(table: int, thread: int) -> None:
    """This thread's rows; what `draw` chooses, from the smallest numbers, nobody looks at."""
    t = longs(table, MIX)
    m = longs(t[Mix.MODEL], MODEL)
    count = m[Model.CHOICES] * m[Model.CLASSES]
    logits = t[Mix.SCRATCH] + thread * t[Mix.SCRATCH_SIZE]
    hot, u = logits + count * BYTES, logits + 2 * count * BYTES
    clear(u, count)
    for group in range(thread, t[Mix.ROWS] // LANES, t[Mix.THREADS]):
        first = 4 * LANES * group * count
        to_lanes(t[Mix.LOGITS] + first, count, logits, count)
        draw(t[Mix.MODEL], logits, u, t[Mix.SOFT] + group * count * BYTES, hot)
        to_rows(logits, t[Mix.LOG_PROBS] + first, count, count)


@njit(**PIECE)
def backward(table: int, thread: int) -> None:
    """This thread's rows."""
    t = longs(table, MIX)
    m = longs(t[Mix.MODEL], MODEL)
    count = m[Model.CHOICES] * m[Model.CLASSES]
    given = t[Mix.SCRATCH] + thread * t[Mix.SCRATCH_SIZE]
    out, none = given + count * BYTES, given + 2 * count * BYTES
    clear(none, count)
    for group in range(thread, t[Mix.ROWS] // LANES, t[Mix.THREADS]):
        first = 4 * LANES * group * count
        to_lanes(t[Mix.SLOPE_LOG_PROBS] + first, count, given, count)
        slope_of_draw(t[Mix.MODEL], t[Mix.SOFT] + group * count * BYTES, given, none, out)
        to_rows(out, t[Mix.SLOPE_LOGITS] + first, count, count)
