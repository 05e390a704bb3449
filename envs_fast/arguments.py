"""Checks of an environment's keyword arguments: each function returns the value or raises UserError, one clear line.

`name` is the argument's name, for the message.
"""

import math
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from stride.utils.user_error import UserError


def flag(name: str, value: object) -> bool:
    """Check for true or false; 0 and 1 are refused."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def probability(name: str, value: object) -> float:
    """Check for a number in [0, 1]."""
    if not is_number(value) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name} must be a probability between 0 and 1, got {value!r}")
    return float(value)


def count(name: str, value: object, minimum: int, maximum: int = 2**31 - 1) -> int:
    """Check for a whole number from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not minimum <= value <= maximum:
        raise UserError(f"{name} must be a whole number from {minimum} to {maximum}, got {value!r}")
    return int(value)


def numbers(name: str, value: object, length: int) -> tuple[float, ...]:
    """Check for a sequence or an array of exactly `length` finite numbers."""
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) != length:
        raise UserError(f"{name} must be {length} numbers, got {value!r}")
    for element in listed:
        if not is_number(element) or not math.isfinite(element):
            raise UserError(f"{name} must be {length} finite numbers, got {element!r} among them")
    return tuple(float(element) for element in listed)


def is_number(value: object) -> TypeGuard[float]:
    """Say whether it is a real number; true and false are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def number(name: str, value: object) -> float:
    """Check for a finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, got {value!r}")
    return float(value)
