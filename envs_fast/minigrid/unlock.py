"""MiniGrid-Unlock: pick up the key and open the door, which ends the episode."""

import numpy as np

from stride.envs_fast.kernels import grid_kernels_of
from stride.envs_fast.minigrid import layout, rooms, rules, tasks
from stride.envs_fast.minigrid.rules import COLOURS, DOOR, KEY, LOCKED, STATE, THE_DOOR, TOGGLE, Parameters
from stride.envs_fast.world import NUMBA, Episode, Moment, Tables
from stride.utils.kernel_cache import njit

ROOM = 6  # cells of a room's side, with walls


@njit(inline="always")
def step(state: np.ndarray, action: int, moment: Moment, parameters: Parameters, tables: Tables) -> tuple[float, bool]:
    """Play one step; the task is solved if the door is open after a toggle."""
    gain, over = rules.act(state, action, moment, parameters)
    if action == TOGGLE and not rules.is_shut(state[state[THE_DOOR]]):
        gain, over = rules.success(moment, parameters), True
    return gain, over


@njit(inline="always")
def reset(state: np.ndarray, episode: Episode, parameters: Parameters, tables: Tables) -> None:
    """Build two rooms with a locked door between them; its key and the agent are in the left one."""
    rooms.build(state, parameters)
    colour = layout.pick(state, episode, 0, COLOURS)
    state[THE_DOOR] = rooms.door_row(episode, parameters, rooms.TO_THE_RIGHT)
    state[state[THE_DOOR]] = layout.painted(DOOR, colour) + STATE * LOCKED
    layout.stand(state, layout.NOWHERE, layout.NOWHERE, 0)
    layout.place(state, parameters, episode, rooms.area(parameters, 0, 0), layout.painted(KEY, colour))
    rooms.place_agent(state, parameters, episode, 0, 0)


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Parameters) -> None:
    """Write what the agent sees."""
    rules.show(state, seen, parameters)


KERNELS = {NUMBA: grid_kernels_of(step, reset, observe, rules.PLANES * rules.VIEW)}
TASKS = {"MiniGrid-Unlock-v0": Parameters(2 * ROOM - 1, ROOM, 8 * ROOM**2, room=ROOM, rooms=2)}
WORLDS = tasks.worlds_of(KERNELS, TASKS)
