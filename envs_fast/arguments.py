"""Checks of an environment's keyword arguments: each returns the value or raises one clear line."""

import math
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from stride.utils.user_error import UserError


def flag(name: str, value: object) -> bool:
    """True or false and nothing that merely looks like it."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} must be true or false, got {value!r}")
    return bool(value)


def probability(name: str, value: object) -> float:
    """A number in [0, 1]."""
    if not is_number(value) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name} must be a probability between 0 and 1, got {value!r}")
    return float(value)


def count(name: str, value: object, minimum: int, maximum: int = 2**31 - 1) -> int:
    """A whole number from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not minimum <= value <= maximum:
        raise UserError(f"{name} must be a whole number from {minimum} to {maximum}, got {value!r}")
    return int(value)


def numbers(name: str, value: object, length: int) -> tuple[float, ...]:
    """A sequence of exactly so many finite numbers."""
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) != length:
        raise UserError(f"{name} must be {length} numbers, got {value!r}")
    for element in listed:
        if not is_number(element) or not math.isfinite(element):
            raise UserError(f"{name} must be {length} finite numbers, got {element!r} among them")
    return tuple(float(element) for element in listed)


def is_number(value: object) -> TypeGuard[float]:
    """A real number; true and false are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def number(name: str, value: object) -> float:
    """A finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, got {value!r}")
    return float(value)
