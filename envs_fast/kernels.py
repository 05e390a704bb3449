"""From a world's `step`, `reset` and `observe` to its kernels: `kernels_of` or `grid_kernels_of`, which every world's
file calls once.

The functions at the end are written once and get each world's names as their globals. A closure over them would do the
same, but Numba finds no closure over compiled functions again on disk; these it does, as if they stood in the world's
own file, whose name they bear.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from stride.envs_fast.grids import begin_grids, pick_number, pick_vector, play_grids
from stride.envs_fast.tiles import MOVE, Tile, begin, move_each, play
from stride.envs_fast.world import KERNEL, Kernels, Parameters, Simulation, Stream, Tables, Told
from stride.utils.kernel_cache import njit

step: Any = None  # here and below: a world's own take this place
reset: Any = None
observe: Any = None
move: Any = None
ROWS = WIDTH = 0


class Piece(Protocol):
    """A world's function, compiled by Numba, which makes it part of the kernels."""

    py_func: Callable


def kernels_of(step: Piece, reset: Piece, observe: Piece, rows: int, width: int, move: Piece | None = None) -> Kernels:
    """Kernels of a world whose state is `rows` numbers, of which `width` are seen.

    `move` plays one step of a tile where that is more than `move_each`: a world may draw ahead, in a loop of its own.
    """
    own = {"step": step, "reset": reset, "observe": observe, "move": move, "ROWS": rows, "WIDTH": width}
    names = {**globals(), **own}
    names["move"] = move or _compiled(_move, MOVE, names)
    return Kernels(_compiled(_advance, KERNEL, names), _compiled(_restart, KERNEL, names))


def grid_kernels_of(step: Piece, reset: Piece, observe: Piece, width: int) -> Kernels:
    """Kernels of a world whose functions work on arrays (grids.py); `width` numbers are seen of it."""
    names = {**globals(), "step": step, "reset": reset, "observe": observe, "WIDTH": width}
    return Kernels(_compiled(_advance_grids, KERNEL, names), _compiled(_restart_grids, KERNEL, names))


def body_kernels_of(step: Piece, reset: Piece, observe: Piece) -> Kernels:
    """Kernels of a world whose functions work on arrays, whose action is an array, too, and whose arguments decide how
    much is seen of it. Every operation is rounded as it is written.
    """
    names = {**globals(), "step": step, "reset": reset, "observe": observe}
    exact = {**KERNEL, "fastmath": False}
    return Kernels(_compiled(_advance_bodies, exact, names), _compiled(_restart_bodies, exact, names))


def _compiled(template: Callable[..., None], options: dict[str, Any], names: dict[str, Any]) -> Any:
    """A template with these globals, as if it stood in the file of the world whose functions are among them."""
    step = names["step"]
    code, module = step.py_func.__code__, step.py_func.__module__
    function: Callable[..., None] = FunctionType(template.__code__.replace(co_filename=code.co_filename), names)
    parts: tuple[Any, ...] = (step, names["reset"], names["observe"], template)
    function.__qualname__ = ".".join(part.__name__ for part in parts)  # its name on disk, beside others of the file
    function.__module__ = module
    return njit(**options)(function)


def _move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """One step of a tile of worlds."""
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def _advance(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, told: Told) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    play(move, reset, observe, ROWS, WIDTH, simulation, lo, hi, actions, told)


def _restart(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the masked worlds' episodes (world.py)."""
    begin(reset, observe, ROWS, WIDTH, simulation, lo, hi, mask, obs)


def _advance_grids(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, told: Told) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    play_grids(step, reset, observe, pick_number, WIDTH, simulation, lo, hi, actions, told)


def _restart_grids(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the masked worlds' episodes (world.py)."""
    begin_grids(reset, observe, WIDTH, simulation, lo, hi, mask, obs)


def _advance_bodies(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, told: Told) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    width = told.obs.size // told.reward.size
    play_grids(step, reset, observe, pick_vector, width, simulation, lo, hi, actions, told)


def _restart_bodies(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the masked worlds' episodes (world.py)."""
    begin_grids(reset, observe, obs.size // mask.size, simulation, lo, hi, mask, obs)
