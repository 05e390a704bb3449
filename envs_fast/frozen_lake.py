"""FrozenLake-v1 and FrozenLake8x8-v1: cross the ice to the goal without falling into a hole; rules of Gymnasium 1.4.

Each map with a start is accepted, even if its goal cannot be reached. Random maps must be given as `desc`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import flag, numbers, probability
from stride.envs_fast.tabular import KERNELS, Outcome, Parameters, Tables, gym_state, tabulate
from stride.envs_fast.world import Setting, World
from stride.utils.user_error import UserError, nearest

MAPS = {
    "4x4": ("SFFF", "FHFH", "FFFH", "HFFG"),
    "8x8": ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"),
}
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up as (rows, columns); neighbours are perpendicular


def tables(lake: Sequence[str], slippery: bool, success_rate: float, schedule: Sequence[float]) -> Tables:
    """Return the transitions as in Gymnasium; `schedule`: rewards of goal, hole and other tiles."""
    rows = len(lake)
    columns = len(lake[0])
    reward = dict(zip("GHFS", (*schedule, schedule[2]), strict=True))

    def moved(row: int, column: int, action: int) -> Outcome:
        row = min(max(row + MOVES[action][0], 0), rows - 1)
        column = min(max(column + MOVES[action][1], 0), columns - 1)
        tile = lake[row][column]
        return Outcome(row * columns + column, reward[tile], tile in "GH")

    def rules(state: int, action: int) -> list[Outcome]:
        row, column = divmod(state, columns)
        if lake[row][column] in "GH":
            return [Outcome(state, 0.0, True)]
        slips = ((action - 1) % 4, action, (action + 1) % 4) if slippery else (action,)
        return [moved(row, column, slip) for slip in slips]

    starts = {state: 1.0 for state, tile in enumerate("".join(lake)) if tile == "S"}
    return tabulate(rows * columns, 4, rules, slips_of(slippery, success_rate), starts)


def slips_of(slippery: bool, success_rate: float) -> tuple[float, ...]:
    """Return the probabilities of going to one side, straight, and to the other side; one number on safe ice."""
    slip = (1.0 - success_rate) / 2.0
    return (slip, success_rate, slip) if slippery else (1.0,)


def _lake(desc: Sequence[Any] | None, map_name: str | None) -> list[str]:
    """Return the rows of the map; UserError for a wrong one."""
    if desc is None:
        if map_name is None:
            raise UserError("give map_name or desc: Gymnasium's random map would differ in every process")
        if map_name not in MAPS:
            raise UserError(f"map_name {map_name!r} is not one of {', '.join(MAPS)}{nearest(str(map_name), MAPS)}")
        return list(MAPS[map_name])
    if isinstance(desc, str) or not isinstance(desc, Sequence | np.ndarray):
        raise UserError(f"desc must be rows of tiles, for example ['SF', 'HG'], got {desc!r}")
    lake = ["".join(tile.decode() if isinstance(tile, bytes) else str(tile) for tile in row) for row in desc]
    if not lake or not lake[0] or any(len(row) != len(lake[0]) for row in lake):
        raise UserError(f"desc must be rows of equal length, got lengths {[len(row) for row in lake]}")
    if unknown := sorted(set("".join(lake)) - set("SFHG")):
        raise UserError(f"desc has a tile {unknown[0]!r}; tiles are S start, F frozen, H hole, G goal")
    if not any("S" in row for row in lake):
        raise UserError("desc has no start tile S")
    return lake


def setting(
    desc: Sequence[Any] | None = None, map_name: str | None = "4x4", is_slippery: bool = True,
    success_rate: float = 1.0 / 3.0, reward_schedule: Sequence[float] = (1, 0, 0),
) -> Setting:  # fmt: skip
    """`desc`: rows of a map of one's own instead of `map_name`. `success_rate`: of going where meant, if slippery."""
    lake = _lake(desc, map_name)
    slippery = flag("is_slippery", is_slippery)
    success = probability("success_rate", success_rate)
    states = len(lake) * len(lake[0])
    return Setting(
        observation_space=Discrete(states),
        action_space=Discrete(4),
        parameters=Parameters(states, 4),
        tables=tables(lake, slippery, success, numbers("reward_schedule", reward_schedule, 3)),
        odds=np.tile(slips_of(slippery, success), (4, 1)),
    )


WORLD = World(
    env_id="FrozenLake-v1",
    setting=setting,
    kernels=KERNELS,
    state_size=1,
    state_dtype=np.int32,
    gym_state=gym_state,
    time_limit=100,
    reward_threshold=0.70,
)
WORLD_8X8 = replace(
    WORLD, env_id="FrozenLake8x8-v1", default_kwargs={"map_name": "8x8"}, time_limit=200, reward_threshold=0.85
)
