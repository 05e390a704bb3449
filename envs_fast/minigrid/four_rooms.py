"""MiniGrid-FourRooms: find the goal in one of four rooms, each with a gap to either neighbour."""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rules, tasks
from stride.envs_fast.minigrid.rules import EMPTY, STONE, Parameters
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step by the rules that all tasks share."""
    return rules.act(state, action, moment, parameters)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Build two walls that cross in the middle, each half with a gap, and put agent and goal at random places."""
    middle, side = parameters.width // 2, parameters.width
    layout.empty(state, parameters, 0)
    layout.wall_in(state, parameters, layout.everywhere(parameters))
    layout.stack(state, parameters, middle, 0, side, STONE)
    layout.line(state, parameters, 0, middle, side, STONE)
    for first in (0, middle):
        layout.put(state, parameters, middle, layout.pick(state, episode, first + 1, first + middle), EMPTY)
        layout.put(state, parameters, layout.pick(state, episode, first + 1, first + middle), middle, EMPTY)
    layout.place_agent(state, parameters, episode, layout.everywhere(parameters))
    layout.place(state, parameters, episode, layout.everywhere(parameters), rules.FINISH)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
WORLDS = tasks.worlds_of(KERNELS, {"MiniGrid-FourRooms-v0": Parameters(19, 19, 100)})
