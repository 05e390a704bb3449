"""Shared parts of MinAtar's five games: actions and arguments, planes of 10 x 10 cells, and how they are drawn.

The rules are those of the package minatar 1.0.15 (Young and Tian 2019), step for step, with Stride's random numbers.
One difference: before the first action of an episode the previous action (sticky actions) is "nothing"; in the package
it is the last one of the episode before.

An observation is an image, uint8 [planes, 10, 10] of 0 and 255. Policies divide by 255, which gives the package's 0 and
1.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.arguments import flag, probability
from stride.envs_fast.world import NO_LIMIT, Kernels, Setting, World, between
from stride.utils.kernel_cache import njit

SIDE, EDGE = 10, 9  # cells of the picture's side, and the index of the last one
CELLS = SIDE * SIDE
LIT = 255  # value of a cell in which something is
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)  # a game's actions
ALL_ACTIONS = 6
BEFORE = 0  # index in every game's state: the previous action
PIXELS = 20  # side of a cell in a drawing
START, TURNS = 0.5, -1.5  # of the colour helix: where in the circle of colours it begins, how often it goes around


class Parameters(NamedTuple):
    """The numbers that the keyword arguments decide."""

    sticky_action_prob: float
    difficulty_ramping: int  # 0 or 1
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """Which of the game's six actions each action of the environment is."""

    actions: np.ndarray  # int32 [actions of the environment]


@njit(inline="always")
def carried_out(state: np.ndarray, action: int, word: np.uint32, parameters: Parameters, tables: Tables) -> int:
    """Return the game's action in this step: the chosen one, or with `sticky_action_prob` the previous one again."""
    if between(word, 0.0, 1.0) >= parameters.sticky_action_prob:
        state[BEFORE] = tables.actions[action]
    return state[BEFORE]


@njit(inline="always")
def below(word: np.uint32, choices: int) -> int:
    """Return a whole number from 0 to choices - 1 from 32 random bits; the bias is below choices / 2**32."""
    return int((np.uint64(word) * np.uint64(choices)) >> np.uint64(32))


@njit(inline="always")
def count(bits: int) -> int:
    """Return how many bits are set."""
    number = 0
    while bits:
        bits &= bits - 1
        number += 1
    return number


@njit(inline="always")
def darken(seen: np.ndarray) -> None:
    """Set all cells of an observation to 0."""
    for k in range(seen.size):
        seen[k] = 0


@njit(inline="always")
def light(seen: np.ndarray, plane: int, y: int, x: int) -> None:
    """Set the cell of a plane to LIT."""
    seen[CELLS * plane + SIDE * y + x] = LIT


@njit(inline="always")
def light_row(seen: np.ndarray, plane: int, y: int, bits: int) -> None:
    """Write row y of a plane: LIT in each column x whose bit is set, else 0."""
    for x in range(SIDE):
        seen[CELLS * plane + SIDE * y + x] = LIT * (bits >> x & 1)


def worlds_of(
    name: str, kernels: Mapping[str, Kernels], rows: int, planes: int, actions: tuple[int, ...]
) -> tuple[World, World]:
    """Return a game's two worlds: MinAtar/NAME-v0 with all six actions, -v1 with `actions`, which have an effect."""
    first, second = (
        World(
            env_id=f"MinAtar/{name}-v{version}",
            setting=_setting_of(planes, np.array(taken, np.int32)),
            kernels=kernels,
            state_size=rows,
            state_dtype=np.int32,
            by_world=True,
            picture=picture,
            compile_seconds=10,
        )
        for version, taken in enumerate((tuple(range(ALL_ACTIONS)), actions))
    )
    return first, second


def _setting_of(planes: int, actions: np.ndarray) -> Callable[..., Setting]:
    def setting(sticky_action_prob: float = 0.1, difficulty_ramping: bool = True) -> Setting:
        """`sticky_action_prob`: of the previous action again. `difficulty_ramping`: the longer, the harder."""
        sticky = probability("sticky_action_prob", sticky_action_prob)
        return Setting(
            observation_space=Box(0, LIT, (planes, SIDE, SIDE), np.uint8),
            action_space=Discrete(len(actions)),
            parameters=Parameters(sticky, int(flag("difficulty_ramping", difficulty_ramping))),
            tables=Tables(actions),
        )

    return setting


def picture(obs: np.ndarray) -> np.ndarray:
    """Draw an observation in MinAtar's colours, uint8 [200, 200, 3]; the last plane that is lit decides the colour."""
    colours = np.concatenate((np.zeros((1, 3)), cubehelix(len(obs))))
    numbers = np.arange(1, len(obs) + 1)[:, None, None]
    highest = (numbers * (obs > 0)).max(axis=0)
    cells = np.rint(255 * colours[highest]).astype(np.uint8)
    return cells.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)


def cubehelix(count: int) -> np.ndarray:
    """Return colours [count, 3] in [0, 1], evenly lighter on a helix around the greys (Green 2011)."""
    light = np.floor(256 * np.arange(1, count + 1) / (count + 1)) / 255  # in 256 levels, as Matplotlib has them
    angle = 2 * math.pi * (START / 3 + TURNS * light)
    distance = light * (1 - light) / 2
    around = np.outer(np.cos(angle), (-0.14861, -0.29227, 1.97294)) + np.outer(np.sin(angle), (1.78277, -0.90649, 0.0))
    return np.clip(light[:, None] + distance[:, None] * around, 0.0, 1.0)
