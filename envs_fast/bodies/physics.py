"""Plays a step of MuJoCo for one world: copies its state into a free MjData, makes the step, copies the state back.

A world's row of the state has three parts: its observation; one number, the origin, from which the next reward is
measured; and MuJoCo's own state (mjSTATE_INTEGRATION, with the warm start). A future step depends on nothing else, so
any MjData can play any world. There are as many MjData as processors; a thread borrows one for a step.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from stride.envs_fast.bodies.library import (
    FORCES,
    FORWARD,
    GET,
    RESET,
    SET,
    STEP,
    call,
    call_state,
    claim,
    memory,
    release,
)
from stride.envs_fast.bodies.numpy_sums import EXACT, clip
from stride.envs_fast.views import window
from stride.envs_fast.world import Episode, between, draw
from stride.utils.kernel_cache import njit

ARRAYS = (  # of an MjData, float64; the first column of a row of addresses is the MjData itself
    "qpos", "qvel", "ctrl", "xpos", "xipos", "site_xpos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator",
    "qfrc_constraint",
)  # fmt: skip
QPOS, QVEL, CTRL, XPOS, XIPOS, SITES, CINERT, CVEL, CFRC, ACTUATOR, CONSTRAINT = range(len(ARRAYS))
SEEN, NUMBERS, WHICH, FRAMES, WITH_FORCES = range(5)  # of `sizes`: numbers seen, of a state; see `Physics`
CENTRE, HALF, LOW, HIGH = range(4)  # of `scale`
NORMALS = 64  # the first of the words of which an episode's normal numbers are made


class Physics(NamedTuple):
    """The tables of a MuJoCo world: addresses, and constants of its model."""

    functions: np.ndarray  # int64 [6] addresses, in the order of library.FUNCTIONS
    model: np.ndarray  # int64 [1] the address of the MjModel
    rows: np.ndarray  # int64 [MjDatas, 1 + ARRAYS] addresses
    lent: np.ndarray  # int64 [MjDatas] 1 while a thread uses it
    counts: np.ndarray  # int64 [ARRAYS] how many numbers each array has
    sizes: np.ndarray  # int64 [5]: SEEN.. WHICH: the parts of a state; FRAMES: steps of MuJoCo in one of ours
    scale: np.ndarray  # float64 [4, actions]: centre and half the width of the bounds, and the bounds
    first: np.ndarray  # float64 [positions + velocities] of the model, to which a reset adds chance
    masses: np.ndarray  # float64 [bodies + 1], and their sum


class Body(NamedTuple):
    """A borrowed MjData, and those of its arrays that tasks read."""

    row: int
    data: int  # its address
    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray
    xpos: np.ndarray  # [3 * bodies]
    xipos: np.ndarray  # [3 * bodies]
    site_xpos: np.ndarray
    cinert: np.ndarray  # [10 * bodies]
    cvel: np.ndarray  # [6 * bodies]
    cfrc_ext: np.ndarray  # [6 * bodies]
    qfrc_actuator: np.ndarray
    qfrc_constraint: np.ndarray


@njit(**EXACT)
def array_of(physics: Physics, row: int, which: int) -> np.ndarray:
    """Return array number `which` (QPOS, QVEL, ...) of a row's MjData."""
    return memory(physics.rows[row, 1 + which], physics.counts[which])


@njit(**EXACT)
def borrow(physics: Physics) -> Body:
    """Wait for an MjData that no other thread uses and return it, in any state; `put_back` returns it."""
    row = 0
    while not claim(physics.lent, row):
        row = (row + 1) % physics.lent.size
    return Body(
        row,
        physics.rows[row, 0],
        array_of(physics, row, QPOS),
        array_of(physics, row, QVEL),
        array_of(physics, row, CTRL),
        array_of(physics, row, XPOS),
        array_of(physics, row, XIPOS),
        array_of(physics, row, SITES),
        array_of(physics, row, CINERT),
        array_of(physics, row, CVEL),
        array_of(physics, row, CFRC),
        array_of(physics, row, ACTUATOR),
        array_of(physics, row, CONSTRAINT),
    )


@njit(**EXACT)
def state_of(state: np.ndarray, physics: Physics) -> np.ndarray:
    """Return MuJoCo's part of a world's row."""
    return window(state, physics.sizes[SEEN] + 1, physics.sizes[NUMBERS])


@njit(**EXACT)
def act(state: np.ndarray, action: np.ndarray, in_units: int, physics: Physics) -> Body:
    """Play a step of a world and return the body after it, with the action in `ctrl`. The caller must call `put_back`.

    in_units: the action is in the task's units and is not clipped; else -1 and 1 are its bounds.
    """
    body, model = borrow(physics), physics.model[0]
    call_state(physics.functions[SET], model, body.data, state_of(state, physics), physics.sizes[WHICH])
    for k in range(action.size):
        scaled = np.float64(action[k])
        if not in_units:
            scaled = physics.scale[CENTRE, k] + physics.scale[HALF, k] * scaled
            scaled = clip(scaled, physics.scale[LOW, k], physics.scale[HIGH, k])
        body.ctrl[k] = np.float32(scaled)
    for _ in range(physics.sizes[FRAMES]):
        call(physics.functions[STEP], model, body.data)
    if physics.sizes[WITH_FORCES]:
        call(physics.functions[FORCES], model, body.data)
    return body


@njit(**EXACT)
def clear(physics: Physics) -> Body:
    """Borrow a body and set it to its model's first state. The caller adds noise, then calls `settle`."""
    body = borrow(physics)
    call(physics.functions[RESET], physics.model[0], body.data)
    for k in range(body.qpos.size):
        body.qpos[k] = physics.first[k]
    for k in range(body.qvel.size):
        body.qvel[k] = physics.first[body.qpos.size + k]
    return body


@njit(**EXACT)
def settle(body: Body, physics: Physics) -> None:
    """Compute everything that depends on positions and velocities. The caller must call `put_back`."""
    call(physics.functions[FORWARD], physics.model[0], body.data)


@njit(**EXACT)
def origin(state: np.ndarray, physics: Physics) -> float:
    """Return the number from which the next reward is measured, such as the last x."""
    return state[physics.sizes[SEEN]]


@njit(**EXACT)
def put_back(body: Body, state: np.ndarray, origin: float, physics: Physics) -> None:
    """Store origin and state of a body in its world's row, and free its MjData for other threads."""
    state[physics.sizes[SEEN]] = origin
    numbers = state_of(state, physics)
    call_state(physics.functions[GET], physics.model[0], body.data, numbers, physics.sizes[WHICH])
    release(physics.lent, body.row)


@njit(**EXACT)
def word(number: int, episode: Episode) -> np.uint32:
    """Return random word `number` (32 bits) for the reset of an episode."""
    a, b, c, d = draw(number // 4, episode)
    lane = number % 4
    return (a if lane == 0 else b) if lane < 2 else (c if lane == 2 else d)


@njit(**EXACT)
def uniform(number: int, low: float, high: float, episode: Episode) -> float:
    """Return uniform `number` for the reset of an episode, in [low, high)."""
    return between(word(number, episode), low, high)


@njit(**EXACT)
def normal(number: int, episode: Episode) -> float:
    """Return standard normal `number` for the reset of an episode (Box and Muller)."""
    radius = (np.float64(word(NORMALS + 2 * number, episode)) + 1.0) * 2.0**-32  # (0, 1]
    angle = np.float64(word(NORMALS + 2 * number + 1, episode)) * 2.0**-32
    return math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)


@njit(**EXACT)
def shake(body: Body, noise: float, episode: Episode) -> None:
    """Add uniforms in +-noise to positions and velocities."""
    for k in range(body.qpos.size):
        body.qpos[k] += uniform(k, -noise, noise, episode)
    for k in range(body.qvel.size):
        body.qvel[k] += uniform(body.qpos.size + k, -noise, noise, episode)


@njit(**EXACT)
def shake_normally(body: Body, noise: float, episode: Episode) -> None:
    """Add uniforms in +-noise to positions, and normals with standard deviation `noise` to velocities."""
    for k in range(body.qpos.size):
        body.qpos[k] += uniform(k, -noise, noise, episode)
    for k in range(body.qvel.size):
        body.qvel[k] += noise * normal(k, episode)


@njit(**EXACT)
def see(state: np.ndarray, start: int, numbers: np.ndarray, first: int, limit: float) -> int:
    """Write numbers[first:], clipped to +-limit, to the observation from `start` on; return the index behind them."""
    for k in range(first, numbers.size):
        state[start + k - first] = clip(numbers[k], -limit, limit)
    return start + numbers.size - first


@njit(inline="always")
def observe(state: np.ndarray, seen: np.ndarray, parameters: Any) -> None:
    """Copy the observation, which is the beginning of a row."""
    for k in range(seen.size):
        seen[k] = state[k]
