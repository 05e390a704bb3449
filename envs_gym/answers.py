"""Checks the types of an environment's answers: rewards must be numbers, flags must be true or false.

Flags are checked in a world's first steps and where an episode ends. Rewards are checked at each step, which costs
nothing: the code that stores them (`array("d")`, `math.ldexp`) accepts only numbers.
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from stride.utils.user_error import one_line

StepAnswer = tuple[object, SupportsFloat, bool, bool, dict[str, object]]  # obs, reward, terminated, truncated, info
StepFunction = Callable[[object], StepAnswer]
Info = dict[str, Any]
State = dict[str, Any]  # the state of worlds in a checkpoint
CHECKED_STEPS = 16  # the first steps of a world, in which its flags are checked


def shown(value: object) -> str:
    """Return a value and its type as text for a message."""
    return one_line(f"{value!r} ({type(value).__name__})", 80)


def real(reward: SupportsFloat | SupportsIndex) -> float:
    """Return a reward as a float; TypeError for anything but a number."""
    try:
        return math.ldexp(reward, 0)  # float() would also accept a text such as "1.5"
    except TypeError as error:
        raise not_a_number(reward) from error


def not_a_number(reward: object) -> TypeError:
    return TypeError(f"its reward is {shown(reward)}, not a number")


def first_observation(result: object) -> object:
    """Return the observation of a reset's (observation, info); TypeError for any other answer."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"its reset returns {shown(result)}, not (observation, info)")
    return result[0]


def check_flags(terminated: object, truncated: object) -> None:
    """TypeError unless both flags are booleans, or the integers 1 or 0."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        boolean = isinstance(flag, bool | np.bool_) or (isinstance(flag, np.ndarray) and flag.dtype == np.bool_)
        if not boolean and not (isinstance(flag, int | np.integer) and flag in (0, 1)):
            raise TypeError(f"{name} is {shown(flag)}, not true or false")


def with_checked_flags(step: StepFunction, functions: list[StepFunction], world: int) -> StepFunction:
    """Return `step` with checked flags. After CHECKED_STEPS steps it replaces itself in functions[world] by `step`."""
    remaining = CHECKED_STEPS

    def checked_step(action: object) -> StepAnswer:
        nonlocal remaining
        result = step(action)
        _, _, terminated, truncated, _ = result
        check_flags(terminated, truncated)
        remaining -= 1
        if not remaining:
            functions[world] = step
        return result

    return checked_step
