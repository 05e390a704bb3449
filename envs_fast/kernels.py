"""Makes the two kernels of a compiled environment from its `step`, `reset` and `observe` (world.py).

The file of each environment calls `kernels_of`, `grid_kernels_of` or `body_kernels_of` once. The functions at the end
are templates: `_compiled` copies one and gives the copy the environment's functions as its globals. A closure would do
the same, but Numba does not find closures over compiled functions in its cache on disk. It finds these copies, because
they have the file name of the environment.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

import numpy as np

from stride.envs_fast.grids import begin_grids, pick_number, pick_vector, play_grids
from stride.envs_fast.tiles import MOVE, Tile, begin, move_each, play
from stride.envs_fast.world import KERNEL, Kernels, Parameters, Simulation, StepResults, Stream, Tables
from stride.utils.kernel_cache import njit

# Globals of the templates below; each copy of a template gets the functions and sizes of one environment instead.
step: Any = None
reset: Any = None
observe: Any = None
move: Any = None
ROWS = WIDTH = 0


class WorldFunction(Protocol):
    """One of a world's functions, decorated with njit, such as its `step`."""

    py_func: Callable


def kernels_of(
    step: WorldFunction,
    reset: WorldFunction,
    observe: WorldFunction,
    rows: int,
    width: int,
    move: WorldFunction | None = None,
) -> Kernels:
    """Compile the kernels of a world with `rows` numbers in a state and `width` numbers in an observation.

    `move` plays one step of a tile. None: `move_each` does it. A world gives its own if it draws the random numbers of
    a step first, in a separate loop (bandit.py).
    """
    own = {"step": step, "reset": reset, "observe": observe, "move": move, "ROWS": rows, "WIDTH": width}
    names = {**globals(), **own}
    names["move"] = move or _compiled(_move, MOVE, names)
    return Kernels(_compiled(_advance, KERNEL, names), _compiled(_restart, KERNEL, names))


def grid_kernels_of(step: WorldFunction, reset: WorldFunction, observe: WorldFunction, width: int) -> Kernels:
    """Compile the kernels of a world whose functions work on arrays (grids.py); an observation has `width` numbers."""
    names = {**globals(), "step": step, "reset": reset, "observe": observe, "WIDTH": width}
    return Kernels(_compiled(_advance_grids, KERNEL, names), _compiled(_restart_grids, KERNEL, names))


def body_kernels_of(step: WorldFunction, reset: WorldFunction, observe: WorldFunction) -> Kernels:
    """Compile the kernels of a MuJoCo world, whose functions work on arrays.

    Its action is an array, and its arguments decide how many numbers an observation has. No fastmath: each operation is
    rounded as it is written.
    """
    names = {**globals(), "step": step, "reset": reset, "observe": observe}
    exact = {**KERNEL, "fastmath": False}
    return Kernels(_compiled(_advance_bodies, exact, names), _compiled(_restart_bodies, exact, names))


def _compiled(template: Callable[..., None], options: dict[str, Any], names: dict[str, Any]) -> Any:
    """Compile a copy of a template with `names` as its globals, as if it were in the file of the world's `step`."""
    step = names["step"]
    code, module = step.py_func.__code__, step.py_func.__module__
    function: Callable[..., None] = FunctionType(template.__code__.replace(co_filename=code.co_filename), names)
    parts: tuple[Any, ...] = (step, names["reset"], names["observe"], template)
    function.__qualname__ = ".".join(part.__name__ for part in parts)  # its name in the cache, unique in this file
    function.__module__ = module
    return njit(**options)(function)


def _move(tile: Tile, stream: Stream, parameters: Parameters, tables: Tables) -> None:
    """Play one step of a tile of worlds."""
    move_each(step, observe, WIDTH, tile, stream, parameters, tables)


def _advance(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, results: StepResults) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    play(move, reset, observe, ROWS, WIDTH, simulation, lo, hi, actions, results)


def _restart(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the next episodes of the masked worlds (world.py)."""
    begin(reset, observe, ROWS, WIDTH, simulation, lo, hi, mask, obs)


def _advance_grids(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, results: StepResults) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    play_grids(step, reset, observe, pick_number, WIDTH, simulation, lo, hi, actions, results)


def _restart_grids(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the next episodes of the masked worlds (world.py)."""
    begin_grids(reset, observe, WIDTH, simulation, lo, hi, mask, obs)


def _advance_bodies(simulation: Simulation, lo: int, hi: int, actions: np.ndarray, results: StepResults) -> None:
    """Play steps of the worlds [lo, hi) (world.py)."""
    width = results.obs.size // results.reward.size
    play_grids(step, reset, observe, pick_vector, width, simulation, lo, hi, actions, results)


def _restart_bodies(simulation: Simulation, lo: int, hi: int, mask: np.ndarray, obs: np.ndarray) -> None:
    """Begin the next episodes of the masked worlds (world.py)."""
    begin_grids(reset, observe, obs.size // mask.size, simulation, lo, hi, mask, obs)
