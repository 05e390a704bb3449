"""Turns what a file or an override says into a field's exact type, or says in one line what the field takes.

Knows types only: whether a number is in range is for checks.py."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from stride.config.extras import ENVPOOL
from stride.config.plateau import Plateau
from stride.config.schedule import Schedule, schedule_in
from stride.config.spec import Quantity, Spec
from stride.utils.user_error import DEEPEST, MOST_DIGITS, UserError, nearest, shortened

NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?")
T = TypeVar("T")
_resolved: Callable[[type], dict[str, Any]] = cache(get_type_hints)  # slow, and asked for every key of every variant


class _No:
    """The answer of a type that cannot take the value."""


NO = _No()


def hints(cls: type) -> dict[str, Any]:
    """Field -> type."""
    types = _resolved(cls)
    return {item.name: types[item.name] for item in fields(cls)}


def schedulable(cls: type) -> tuple[str, ...]:
    """The fields a schedule may drive."""
    return _driven(cls)


@cache
def _driven(cls: type) -> tuple[str, ...]:
    return tuple(name for name, hint in hints(cls).items() if Schedule in members(hint))


def convert(name: str, hint: object, value: object) -> Any:
    """`value` as the type `hint`; UserError names the field and what it takes."""
    if name == "normalize_obs" and value is True:
        return "rolling"
    options = members(hint)
    if {int, float} <= set(options):
        options = (_rows_or_fraction(value),)
    for member in options:
        result = _take(name, member, value)
        if result is not NO:
            return result
    if (name, value) == ("env_backend", "envpool"):
        raise UserError(ENVPOOL)
    raise UserError(f"{name} takes {takes(hint)}, not {_shown(value)}{_advice(hint, value)}")


def build(prefix: str, cls: type[T], values: Mapping[object, object]) -> T:
    """A dataclass such as Spec from its mapping; unknown keys are refused."""
    known = hints(cls)
    for key in values:
        if key not in known:
            raise UserError(f"{prefix} has no {key!r}{nearest(str(key), known)} ({', '.join(known)})")
    if "name" in known and "name" not in values:
        raise UserError(f"{prefix} needs a name")
    return cls(**{str(key): convert(f"{prefix}.{key}", known[str(key)], value) for key, value in values.items()})


def takes(hint: object) -> str:
    """What a field takes, in words."""
    return " or ".join(_word(member) for member in sorted(members(hint), key=lambda member: member is NoneType))


def members(hint: object) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def _word(member: object) -> str:
    if get_origin(member) is Literal:
        return ", ".join(str(word).lower() for word in get_args(member))
    if get_origin(member) is tuple:
        return "[low, high]" if get_args(member) == (float, float) else f"a list ({takes(get_args(member)[0])} each)"
    if get_origin(member) is dict:
        return {str: "a mapping of texts", float: "a mapping of numbers"}.get(get_args(member)[1], "a mapping")
    words: dict[object, str] = {
        bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null",
        Schedule: "a schedule", Spec: "a mapping", Quantity: "{name, low, high}", Plateau: "a mapping",
    }  # fmt: skip
    return words[member]


def _take(name: str, member: object, value: object) -> Any:
    origin, args = get_origin(member), get_args(member)
    if origin is Literal:
        given = (value, _unquoted(value))
        return next((word for word in args for one in given if word == one and type(word) is type(one)), NO)
    if origin is tuple:
        return _tuple(name, args, value)
    if origin is dict:
        return _mapping(name, args[1], value) if isinstance(value, Mapping) else NO
    if member is Schedule:
        return NO if (schedule := schedule_in(name, value)) is None else schedule
    if member in (Spec, Quantity, Plateau):
        return build(name, member, value) if isinstance(value, Mapping) else NO
    if member in (int, float):
        return _number(member, value)
    return value if type(value) is member else NO


def _unquoted(value: object) -> object:
    if isinstance(value, str) and len(value) <= 2 * MOST_DIGITS and NUMBER.fullmatch(value):
        digits = value.replace("_", "")
        return float(digits) if re.search(r"[.eE]", digits) else int(digits)
    return value


def _number(member: type, value: object) -> Any:
    value = _unquoted(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NO
    if member is int:
        return int(value) if value == int(value) else NO
    return float(value)


def _rows_or_fraction(value: object) -> type:
    """Where both are taken the spelling decides: 1 and 256 are rows, 1.0 and 0.25 are fractions, 1e3 is rows."""
    value = _unquoted(value)
    whole = isinstance(value, int) or (isinstance(value, float) and value > 1 and value.is_integer())
    return int if whole else float


def _tuple(name: str, args: tuple[object, ...], value: object) -> Any:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if args == (float, float):
        return tuple(convert(name, float, item) for item in items) if len(items) == 2 else NO
    one = args[0] is int or get_origin(args[0]) is Literal  # may come without a list
    if not isinstance(value, list | tuple) and not one:
        return NO
    if args[0] is int and any(_number(int, item) is NO for item in items):
        return NO
    return tuple(convert(f"{name}[{index}]", args[0], item) for index, item in enumerate(items))


def _mapping(name: str, value_type: object, value: Mapping[object, object]) -> dict[str, Any]:
    if value_type in (str, float):
        return {text(name, key): convert(f"{name}.{key}", value_type, item) for key, item in value.items()}
    return {text(name, key): plain_data(f"{name}.{key}", item) for key, item in value.items()}


def text(name: str, key: object) -> str:
    if not isinstance(key, str):
        raise UserError(f"{name} has the key {key!r}, which is not text")
    return key


def plain_data(name: str, value: object, depth: int = 0) -> Any:
    """Data that survives config.json: numbers, texts, booleans, null, lists and mappings of these."""
    if depth > DEEPEST:
        raise UserError(f"{name[:60]} is nested too deep")
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [plain_data(f"{name}[{index}]", item, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {text(name, key): plain_data(f"{name}.{key}", item, depth + 1) for key, item in value.items()}
    raise UserError(f"{name} takes numbers, text, true, false, null, lists and mappings of these, not {_shown(value)}")


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return shortened(repr(value), 60)


def _advice(hint: object, value: object) -> str:
    options = members(hint)
    words = [str(word).lower() for member in options if get_origin(member) is Literal for word in get_args(member)]
    if bool in options and isinstance(value, str) and value.lower() in ("yes", "no", "on", "off", "y", "n"):
        return f" (only true and false are; {value} is text)"
    if str in options and not isinstance(value, str):
        return " (put it in quotes)" if isinstance(value, int | float) and not isinstance(value, bool) else ""
    return nearest(value, words) if words and isinstance(value, str) else ""
