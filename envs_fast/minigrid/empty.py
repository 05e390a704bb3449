"""MiniGrid-Empty: walk to the goal in the corner of a room; -Random starts anywhere. Walls do not block the view."""

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
    """Put the goal into one corner, the agent into the opposite one or at a random place."""
    layout.empty(state, parameters, 0)
    layout.wall_in(state, parameters, layout.everywhere(parameters))
    layout.put(state, parameters, parameters.width - 2, parameters.height - 2, rules.FINISH)
    if parameters.anywhere:
        layout.place_agent(state, parameters, episode, layout.everywhere(parameters))
    else:
        layout.stand(state, 1, 1, 0)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
TASKS = {
    f"MiniGrid-Empty-{start}{size}x{size}-v0": Parameters(
        size, size, most_steps=4 * size**2, anywhere=int(bool(start)), sees_all=1
    )
    for start, sizes in (("", (5, 6, 8, 16)), ("Random-", (5, 6)))
    for size in sizes
}
WORLDS = tasks.worlds_of(KERNELS, TASKS)
