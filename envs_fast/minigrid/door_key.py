"""MiniGrid-DoorKey: pick up the key, unlock the door in the wall and walk to the goal behind it."""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rules, tasks
from stride.envs_fast.minigrid.rules import DOOR, KEY, LOCKED, STATE, YELLOW, Parameters
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step by the rules that all tasks share."""
    return rules.act(state, action, moment, parameters)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Build a wall at a random column, agent and key at its left, the goal in the corner at its right."""
    layout.empty(state, parameters, 0)
    layout.wall_in(state, parameters, layout.everywhere(parameters))
    layout.put(state, parameters, parameters.width - 2, parameters.height - 2, rules.FINISH)
    wall = layout.pick(state, episode, 2, parameters.width - 2)
    layout.stack(state, parameters, wall, 0, parameters.height, rules.STONE)
    left = layout.Area(0, 0, wall, parameters.height)
    layout.place_agent(state, parameters, episode, left)
    door = layout.pick(state, episode, 1, parameters.height - 2)  # never in the lowest row, as in the package
    layout.put(state, parameters, wall, door, layout.painted(DOOR, YELLOW) + STATE * LOCKED)
    layout.place(state, parameters, episode, left, layout.painted(KEY, YELLOW))


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
TASKS = {f"MiniGrid-DoorKey-{size}x{size}-v0": Parameters(size, size, 10 * size**2) for size in (5, 6, 8, 16)}
WORLDS = tasks.worlds_of(KERNELS, TASKS)
