"""Types that an environment may answer with. A text is no number, and "False" is not false.

Flags are looked at in a world's first steps and where an episode ends, rewards wherever they are taken: what takes them
refuses everything but numbers at no cost.
"""

import math
from collections.abc import Callable
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np

from stride.utils.user_error import one_line

StepAnswer = tuple[object, SupportsFloat, bool, bool, dict[str, object]]  # obs, reward, terminated, truncated, info
StepFunction = Callable[[object], StepAnswer]
Info = dict[str, Any]
State = dict[str, Any]  # of worlds, in a checkpoint
FIRST = 16  # steps of a world in which its flags are looked at


def shown(value: object) -> str:
    """A value and its type, for a message."""
    return one_line(f"{value!r} ({type(value).__name__})", 80)


def real(reward: SupportsFloat | SupportsIndex) -> float:
    """A reward as a float."""
    try:
        return math.ldexp(reward, 0)  # float() would read a text
    except TypeError as error:
        raise not_a_number(reward) from error


def not_a_number(reward: object) -> TypeError:
    return TypeError(f"its reward is {shown(reward)}, not a number")


def first_observation(result: object) -> object:
    """The observation of a reset's answer."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"its reset returns {shown(result)}, not (observation, info)")
    return result[0]


def check_flags(terminated: object, truncated: object) -> None:
    """TypeError unless both are true or false, or 1 or 0."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        boolean = isinstance(flag, bool | np.bool_) or (isinstance(flag, np.ndarray) and flag.dtype == np.bool_)
        if not boolean and not (isinstance(flag, int | np.integer) and flag in (0, 1)):
            raise TypeError(f"{name} is {shown(flag)}, not true or false")


def with_checked_flags(step: StepFunction, functions: list[StepFunction], world: int) -> StepFunction:
    """`step` with checked flags; after FIRST steps it puts `step` itself into functions[world]."""
    remaining = FIRST

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
