"""MiniGrid-LavaGap: walk to the goal through the gap in a strip of lava; lava ends the episode with reward 0."""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rules, tasks
from stride.envs_fast.minigrid.rules import Parameters
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step by the rules that all tasks share."""
    return rules.act(state, action, moment, parameters)


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Put agent and goal into opposite corners, between them a column of lava with a gap at a random place."""
    size = parameters.width
    layout.empty(state, parameters, 0)
    layout.wall_in(state, parameters, layout.everywhere(parameters))
    layout.stand(state, 1, 1, 0)
    layout.put(state, parameters, size - 2, size - 2, rules.FINISH)
    x = layout.pick(state, episode, 2, size - 2)
    y = layout.pick(state, episode, 1, size - 1)
    layout.stack(state, parameters, x, 1, size - 2, rules.FIRE)
    layout.put(state, parameters, x, y, rules.EMPTY)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
TASKS = {f"MiniGrid-LavaGapS{size}-v0": Parameters(size, size, 4 * size**2) for size in (5, 6, 7)}
WORLDS = tasks.worlds_of(KERNELS, TASKS)
