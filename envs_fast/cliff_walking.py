"""CliffWalking-v1 and CliffWalkingSlippery-v1: walk to the goal along a cliff; a fall costs 100 and leads to the start.

Rules of Gymnasium 1.4 (Sutton and Barto, Example 6.6). There is no time limit; set max_episode_steps for trainings.
"""

from dataclasses import replace

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import flag
from stride.envs_fast.tabular import KERNELS, Outcome, Parameters, Tables, gym_state, tabulate
from stride.envs_fast.world import Setting, World

ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47
CLIFF = range(37, 47)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left as (rows, columns); neighbours are perpendicular
SLIPS = (1 / 3, 1 / 3, 1 / 3)
STEP_REWARD, FALL_REWARD = -1.0, -100.0


def tables(slippery: bool) -> Tables:
    """Return the transitions; if slippery, a step goes straight, to the left or to the right, equally often."""

    def moved(state: int, action: int) -> Outcome:
        row = min(max(state // COLUMNS + MOVES[action][0], 0), ROWS - 1)
        column = min(max(state % COLUMNS + MOVES[action][1], 0), COLUMNS - 1)
        position = row * COLUMNS + column
        return (
            Outcome(START, FALL_REWARD, False)
            if position in CLIFF
            else Outcome(position, STEP_REWARD, position == GOAL)
        )

    def rules(state: int, action: int) -> list[Outcome]:
        slips = ((action - 1) % 4, action, (action + 1) % 4) if slippery else (action,)
        return [moved(state, slip) for slip in slips]

    return tabulate(ROWS * COLUMNS, 4, rules, SLIPS if slippery else (1.0,), {START: 1.0})


def setting(is_slippery: bool = False) -> Setting:
    """`is_slippery`: a step goes to either side as often as where it was meant to go."""
    return Setting(
        observation_space=Discrete(ROWS * COLUMNS),
        action_space=Discrete(4),
        parameters=Parameters(ROWS * COLUMNS, 4),
        tables=tables(flag("is_slippery", is_slippery)),
        odds=np.tile(SLIPS if is_slippery else (1.0,), (4, 1)),
    )


WORLD = World(
    env_id="CliffWalking-v1",
    setting=setting,
    kernels=KERNELS,
    state_size=1,
    state_dtype=np.int32,
    gym_state=gym_state,
)
WORLD_SLIPPERY = replace(WORLD, env_id="CliffWalkingSlippery-v1", default_kwargs={"is_slippery": True})
