"""What MinAtar's five games share: their actions and arguments, planes of 10 x 10 cells, and how they are drawn.

Rules step for step those of the package minatar 1.0.15 (Young and Tian 2019), random numbers our own. One difference:
the action before the first of an episode is "nothing", not the last one of the episode before.

An observation is an image, uint8 [planes, 10, 10] of 0 and 255: bytes with planes first are what policies read, and
their division by 255 gives the package's 0 and 1.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete

from stride.envs_fast.arguments import flag, probability
from stride.envs_fast.world import NO_LIMIT, Kernels, Setting, World, between
from stride.utils.kernel_cache import njit

SIDE, EDGE = 10, 9  # cells of a side, and the last of them
CELLS = SIDE * SIDE
LIT = 255
NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)  # a game's actions
ALL_ACTIONS = 6
BEFORE = 0  # row of every game's state: the action before
PIXELS = 20  # of a drawn cell's side
START, TURNS = 0.5, -1.5  # of the helix: where in the circle of colours it begins, how often it goes around


class Parameters(NamedTuple):
    """The numbers that the arguments decide."""

    sticky_action_prob: float
    difficulty_ramping: int  # 0 or 1
    time_limit: int = NO_LIMIT


class Tables(NamedTuple):
    """What the actions of an environment are in the game."""

    actions: np.ndarray  # int32 [actions]


@njit(inline="always")
def carried_out(state: np.ndarray, action: int, word: np.uint32, parameters: Parameters, tables: Tables) -> int:
    """The game's action in this step: the one chosen, or by chance the one before again."""
    if between(word, 0.0, 1.0) >= parameters.sticky_action_prob:
        state[BEFORE] = tables.actions[action]
    return state[BEFORE]


@njit(inline="always")
def below(word: np.uint32, choices: int) -> int:
    """A whole number from 0 to choices - 1 from 32 random bits; the bias is below choices / 2**32."""
    return int((np.uint64(word) * np.uint64(choices)) >> np.uint64(32))


@njit(inline="always")
def count(bits: int) -> int:
    """How many bits are set."""
    number = 0
    while bits:
        bits &= bits - 1
        number += 1
    return number


@njit(inline="always")
def darken(seen: np.ndarray) -> None:
    """Begin an observation: nothing is anywhere."""
    for k in range(seen.size):
        seen[k] = 0


@njit(inline="always")
def light(seen: np.ndarray, plane: int, y: int, x: int) -> None:
    """Something is there."""
    seen[CELLS * plane + SIDE * y + x] = LIT


@njit(inline="always")
def light_row(seen: np.ndarray, plane: int, y: int, bits: int) -> None:
    """Something is in each column x of which bit x is set."""
    for x in range(SIDE):
        seen[CELLS * plane + SIDE * y + x] = LIT * (bits >> x & 1)


def worlds_of(
    name: str, kernels: Mapping[str, Kernels], rows: int, planes: int, actions: tuple[int, ...]
) -> tuple[World, World]:
    """A game as MinAtar/NAME-v0 with all six actions, and as -v1 with those that do something in it."""
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
        """`sticky_action_prob`: of the action before again. `difficulty_ramping`: the longer, the harder."""
        sticky = probability("sticky_action_prob", sticky_action_prob)
        return Setting(
            observation_space=Box(0, LIT, (planes, SIDE, SIDE), np.uint8),
            action_space=Discrete(len(actions)),
            parameters=Parameters(sticky, int(flag("difficulty_ramping", difficulty_ramping))),
            tables=Tables(actions),
        )

    return setting


def picture(obs: np.ndarray) -> np.ndarray:
    """An observation in MinAtar's colours, of planes lit in one cell the last: uint8 [200, 200, 3]."""
    colours = np.concatenate((np.zeros((1, 3)), cubehelix(len(obs))))
    numbers = np.arange(1, len(obs) + 1)[:, None, None]
    highest = (numbers * (obs > 0)).max(axis=0)
    cells = np.rint(255 * colours[highest]).astype(np.uint8)
    return cells.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)


def cubehelix(count: int) -> np.ndarray:
    """Colours [count, 3] in [0, 1] that grow evenly lighter on a helix around the greys (Green 2011)."""
    light = np.floor(256 * np.arange(1, count + 1) / (count + 1)) / 255  # in 256 levels, as Matplotlib has them
    angle = 2 * math.pi * (START / 3 + TURNS * light)
    distance = light * (1 - light) / 2
    around = np.outer(np.cos(angle), (-0.14861, -0.29227, 1.97294)) + np.outer(np.sin(angle), (1.78277, -0.90649, 0.0))
    return np.clip(light[:, None] + distance[:, None] * around, 0.0, 1.0)
