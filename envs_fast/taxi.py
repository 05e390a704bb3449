"""Taxi-v4: fetch the passenger and bring them where they want to go; rules of Gymnasium 1.4 (Dietterich, 2000).

With `fickle_passenger` there is a second copy of all states, numbers 500 to 999. In these the next move with the
passenger aboard changes the destination once.
"""

from itertools import product
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from stride.envs_fast.arguments import flag, probability
from stride.envs_fast.tabular import KERNELS, Outcome, Parameters, Tables, tabulate
from stride.envs_fast.world import Setting, World

MAP = ("|R: | : :G|", "| : | : : |", "| : : : : |", "| | : | : |", "|Y| : |B: |")
PLACES = ((0, 0), (0, 4), (4, 0), (4, 3))  # red, green, yellow, blue
ABOARD = len(PLACES)  # where the passenger is once picked up
SIZE, STATES = 5, 500
SOUTH, NORTH, EAST, WEST, PICK_UP, DROP_OFF = range(6)
MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # as (rows, columns)
SIDES = ((EAST, WEST), (WEST, EAST), (NORTH, SOUTH), (SOUTH, NORTH))  # left and right of each heading
STEP_REWARD = -1.0
WRONG_REWARD = -10.0
DELIVERY_REWARD = 20.0

Square = tuple[int, int]  # row, column


def encode(square: Square, passenger: int, destination: int) -> int:
    """Return the number of a state, 0 to 499."""
    return ((square[0] * SIZE + square[1]) * (len(PLACES) + 1) + passenger) * len(PLACES) + destination


def decode(state: int) -> tuple[Square, int, int]:
    """Return the square, the passenger's place and the destination of a state's number."""
    rest, destination = divmod(state % STATES, len(PLACES))
    rest, passenger = divmod(rest, len(PLACES) + 1)
    return divmod(rest, SIZE), passenger, destination


def drive(square: Square, action: int) -> Square:
    """Return the next square, or the same one if a wall is between them; there are no walls between rows."""
    row, column = square
    if action in (EAST, WEST) and MAP[row][2 * column + (2 if action == EAST else 0)] != ":":
        return square
    return min(max(row + MOVES[action][0], 0), SIZE - 1), column + MOVES[action][1]


def attend(square: Square, passenger: int, destination: int, action: int) -> Outcome:
    """Return the outcome of picking the passenger up or dropping them off."""
    if action == PICK_UP and passenger < ABOARD and square == PLACES[passenger]:
        return Outcome(encode(square, ABOARD, destination), STEP_REWARD, False)
    if action == DROP_OFF and passenger == ABOARD and square in PLACES:
        place = PLACES.index(square)
        reward = DELIVERY_REWARD if place == destination else STEP_REWARD
        return Outcome(encode(square, place, destination), reward, place == destination)
    return Outcome(encode(square, passenger, destination), WRONG_REWARD, False)


def weather_of(rainy: bool, straight: float) -> tuple[float, ...]:
    """Return the probabilities of driving straight on, to the left, to the right; one number without rain."""
    return (straight, (1.0 - straight) / 2.0, (1.0 - straight) / 2.0) if rainy else (1.0,)


def odds(rainy: bool, fickle: bool, straight: float) -> np.ndarray:
    """Return float64 [6, outcomes], Gymnasium's "prob": the probability by the weather, 1 for pick-up and drop-off."""
    driving = np.repeat(weather_of(rainy, straight), ABOARD - 1 if fickle else 1)
    return np.stack([np.ones_like(driving) if action in (PICK_UP, DROP_OFF) else driving for action in range(6)])


def action_masks() -> np.ndarray:
    """Return int8 [states, actions]: 1 for actions that change something."""
    masks = np.zeros((STATES, 6), np.int8)
    for state in range(STATES):
        square, passenger, _ = decode(state)
        masks[state, :4] = [drive(square, action) != square for action in (SOUTH, NORTH, EAST, WEST)]
        masks[state, PICK_UP] = passenger < ABOARD and square == PLACES[passenger]
        masks[state, DROP_OFF] = passenger == ABOARD and square in PLACES
    return masks


def tables(rainy: bool, fickle: bool, straight: float, change: float) -> Tables:
    """Return the tables. `straight`: probability of going straight in rain; `change`: of changing the destination."""
    weather = weather_of(rainy, straight)
    starts = {
        encode((row, column), passenger, destination): 1.0
        for row, column, passenger, destination in product(range(SIZE), range(SIZE), range(ABOARD), range(ABOARD))
        if passenger != destination
    }
    if not fickle:
        return tabulate(STATES, 6, lambda state, action: _outcomes(state, action, rainy), weather, starts)
    fickle_starts = {state: 1.0 - change for state in starts} | {STATES + state: change for state in starts}
    chances = [chance / (ABOARD - 1) for chance in weather for _ in range(ABOARD - 1)]
    return tabulate(2 * STATES, 6, lambda state, action: _fickle_outcomes(state, action, rainy), chances, fickle_starts)


def _outcomes(state: int, action: int, rainy: bool) -> list[Outcome]:
    """Return the possible outcomes with a fixed destination; in rain three: straight on, to the left, to the right."""
    square, passenger, destination = decode(state)
    if action in (PICK_UP, DROP_OFF):
        return [attend(square, passenger, destination, action)] * (3 if rainy else 1)
    ahead = drive(square, action)
    squares = [ahead] if not rainy else [ahead] * 3
    if rainy and ahead != square:
        squares[1:] = [drive(square, side) for side in SIDES[action]]
    return [Outcome(encode(to, passenger, destination), STEP_REWARD, False) for to in squares]


def _fickle_outcomes(state: int, action: int, rainy: bool) -> list[Outcome]:
    """Return each outcome once for every other destination, which is taken only in the second copy of the states."""
    square, passenger, destination = decode(state)
    outcomes = []
    for outcome in _outcomes(state, action, rainy):
        to = decode(outcome.state)[0]
        for other in (place for place in range(ABOARD) if place != destination):
            if state >= STATES and passenger == ABOARD and to != square:
                outcomes.append(outcome._replace(state=encode(to, passenger, other)))
            else:
                outcomes.append(outcome._replace(state=outcome.state + (state // STATES) * STATES))
    return outcomes


def setting(
    is_rainy: bool = False, fickle_passenger: bool = False, rainy_probability: float = 0.8,
    fickle_probability: float = 0.3,
) -> Setting:  # fmt: skip
    """`rainy_probability`: of going where meant, in rain. `fickle_probability`: of changing the destination once."""
    straight = probability("rainy_probability", rainy_probability)
    change = probability("fickle_probability", fickle_probability)
    rainy = flag("is_rainy", is_rainy)
    fickle = flag("fickle_passenger", fickle_passenger)
    return Setting(
        observation_space=Discrete(STATES),
        action_space=Discrete(6),
        parameters=Parameters(STATES, 6),
        tables=tables(rainy, fickle, straight, change),
        odds=odds(rainy, fickle, straight),
        action_masks=action_masks(),
    )


def gym_state(column: np.ndarray) -> dict[str, Any]:
    """Return the attributes that set this state in Gymnasium's environment."""
    return {"s": int(column[0]) % STATES, "fickle_step": int(column[0]) >= STATES, "lastaction": None}


WORLD = World(
    env_id="Taxi-v4",
    setting=setting,
    kernels=KERNELS,
    state_size=1,
    state_dtype=np.int32,
    gym_state=gym_state,
    time_limit=200,
    reward_threshold=8.0,
)
