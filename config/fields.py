"""Which keys an algorithm's config has, and how a value from YAML or the command line becomes the type of its key.

For example `convert("gamma", float, "1e-3")` returns 0.001, and "abc" is refused with what gamma takes. The types are
the annotations of the dataclasses in config/algorithms/. loader.py and raw.py use this module; checks.py decides later
whether a number is in range. An error names the key and what it takes, or the nearest key.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from stride.config.exploration import Exploration
from stride.config.extras import ENVPOOL
from stride.config.foreign import key_advice
from stride.config.network import Network
from stride.config.plateau import Plateau
from stride.config.plugins import find, registered
from stride.config.schedule import (
    SCHEDULE_PARTS,
    FollowKL,
    Schedule,
    is_schedule,
    parse_schedule_key,
    schedule_in,
    schedule_key,
)
from stride.config.schema import ALGORITHMS, Config, register_algorithm
from stride.config.spec import Quantity, Spec
from stride.utils.user_error import DEEPEST, MOST_DIGITS, UserError, nearest, shortened

SET_BY_LOADER = {"variant": "the variant is given as ENV:VARIANT"}  # fields that nobody may write -> what to do instead
NUMBER = re.compile(r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.\d[\d_]*)([eE][-+]?\d+)?")  # 1e5, 100_000, .5
NO_MATCH = object()  # what a conversion returns if the value does not fit the type; None can be a value
T = TypeVar("T")


def algorithms() -> list[str]:
    """Return the names of all algorithms: the shipped ones, then those of installed packages."""
    return [*dict.fromkeys((*ALGORITHMS, *registered("algorithms")))]


def check_algorithm(algo_id: object, where: str) -> str:
    """Return `algo_id` if it is an algorithm; UserError, which begins with `where`, if it is not.

    A user's own algorithm (`module:Agent`) is imported, so that its keys are known afterwards."""
    if not isinstance(algo_id, str) or not (algo_id in ALGORITHMS or learn_algorithm(algo_id, where)):
        choices = algorithms()
        raise UserError(f"{where}: no algorithm {algo_id!r} ({', '.join(choices)}){nearest(str(algo_id), choices)}")
    return algo_id


def learn_algorithm(algo_id: str, where: str) -> bool:
    """Import a user's algorithm (`module:Agent` or an entry point) and register its keys; False if there is none.

    UserError if it is not an Agent, or if its config has a field without default or of a type that YAML cannot give."""
    agent_class = find(where, "algorithms", algo_id)
    if agent_class is None:
        return False
    config_class = get_annotations(agent_class).get("config") if isinstance(agent_class, type) else None
    if not isinstance(config_class, type) or not issubclass(config_class, Config):
        raise UserError(
            f"{where}: {algo_id} is not an agent: it must be a subclass of stride.agents.base.Agent that "
            "declares `config: ItsConfig`, a dataclass derived from Config"
        )
    if agent_class.__module__.startswith("stride.agents."):  # engines are chosen by the name
        shipped_name = next(name for name, shipped in ALGORITHMS.items() if shipped is config_class)
        raise UserError(f"algo_id: {algo_id} is shipped as {shipped_name}; write {shipped_name}")
    class_text = f"{where}: {algo_id}: {config_class.__name__}"
    if "__dataclass_fields__" not in vars(config_class):
        raise UserError(f"{class_text} needs @dataclass(frozen=True)")
    for item in fields(config_class):
        if item.default is MISSING and item.default_factory is MISSING:
            raise UserError(f"{class_text}.{item.name} needs a default")
        field_type = hints(config_class)[item.name]
        try:
            takes(field_type)
        except KeyError as error:
            raise UserError(f"{class_text}.{item.name} has a type that YAML cannot give: {field_type}") from error
    register_algorithm(algo_id, config_class)
    return True


def is_field(key: str) -> bool:
    """Return whether any algorithm has the key; at the top of a YAML file it is then a key, not a variant."""
    return any(key in known_keys(algo_id) for algo_id in ALGORITHMS)


def known_keys(algo_id: str) -> list[str]:
    """Return all fields of an algorithm, then the schedule keys (policy_lr_schedule, ...) of those that take one."""
    config_class = ALGORITHMS[algo_id]
    scheduled = [schedule_key(field, part) for field in schedulable(config_class) for part in ("kind", *SCHEDULE_PARTS)]
    return [*hints(config_class), *scheduled]


def every_key() -> list[str]:
    """Return the keys of all algorithms, with repetitions."""
    return [key for algo_id in ALGORITHMS for key in known_keys(algo_id)]


def check_key(key: object, algo_id: str, where: str) -> None:
    """Raise UserError unless a config of this algorithm may set the key.

    The message gives the closest help: whose key it is, its name in other frameworks, or a similar key."""
    if not isinstance(key, str):
        raise UserError(f"{where}: the key {key!r} is not text")
    if key in SET_BY_LOADER:
        raise UserError(f"{where}: {SET_BY_LOADER[key]}")
    valid_keys = known_keys(algo_id)
    if key in valid_keys:
        return
    field_name, part = parse_schedule_key(key) or (key, "")
    if part and field_name in hints(ALGORITHMS[algo_id]):
        raise UserError(f"{where}: {cannot_schedule(field_name, algo_id)}")
    owners = [owner_id for owner_id, config_class in ALGORITHMS.items() if field_name in hints(config_class)]
    if owners:
        own_keys = ", ".join(keys_of_this_alone(algo_id))
        raise UserError(f"{where}: {field_name} belongs to {' and '.join(owners)}; {algo_id} has {own_keys}")
    advice = key_advice(key) or nearest(key, valid_keys)
    raise UserError(f"{where}: unknown key {key!r}{advice or nearest(key, every_key())}")


def cannot_schedule(field_name: str, algo_id: str) -> str:
    """Return the message for a schedule on a field that takes none."""
    reason = _why_fixed(hints(ALGORITHMS[algo_id])[field_name])
    return f"{field_name} cannot follow a schedule: {reason}; {', '.join(schedulable(ALGORITHMS[algo_id]))} can"


def _why_fixed(hint: object) -> str:
    """Return the reason why a field of this type takes no schedule."""
    options = members(hint)
    if int in options:
        return "whole numbers are read once, at the start"
    return "it is fixed for the whole run" if float in options else "it is not a number"


def keys_of_this_alone(algo_id: str) -> list[str]:
    """Return the fields that no other algorithm has."""
    others = {field for other, config_class in ALGORITHMS.items() if other != algo_id for field in hints(config_class)}
    return [field for field in hints(ALGORITHMS[algo_id]) if field not in others]


def _hints(cls: type) -> dict[str, Any]:
    types = get_type_hints(cls)
    return {item.name: types[item.name] for item in fields(cls)}


def _schedulable(cls: type) -> tuple[str, ...]:
    return tuple(field_name for field_name, hint in hints(cls).items() if Schedule in members(hint))


# Both take a config class and are cached, because they are called for every key of every variant. They are annotated
# here because mypy does not accept a dataclass's type as hashable if @cache is written above the functions.
hints: Callable[[type], dict[str, Any]] = cache(_hints)  # field -> type: {"gamma": float, ...}
schedulable: Callable[[type], tuple[str, ...]] = cache(_schedulable)  # the fields that may follow a schedule


def members(hint: object) -> tuple[Any, ...]:
    """Return the types of a union, `(int, NoneType)` for `int | None`; for any other type a tuple of it alone."""
    return get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)


def convert(field_name: str, hint: object, value: object) -> Any:
    """Return `value` as the type `hint`, the first type of a union that fits; UserError says what the field takes."""
    if field_name == "normalize_obs" and value is True:
        return "rolling"
    options = members(hint)
    if {int, float} <= set(options):
        options = (_rows_or_fraction(value),)
    if value == "none" and NoneType in options and not _takes_text(options, value):
        return None
    for member in options:
        result = _convert_to(member, field_name, value)
        if result is not NO_MATCH:
            return result
    if (field_name, value) == ("env_backend", "envpool"):
        raise UserError(ENVPOOL)
    if FollowKL.read(field_name, value):
        raise UserError(f"{field_name}: only policy_lr of ppo can follow the KL divergence ({value})")
    if is_schedule(value) and {int, float} & {*members(hint)} and not isinstance(value, Mapping):
        raise UserError(f"{field_name} takes {takes(hint)}; it cannot follow a schedule: {_why_fixed(hint)}")
    raise UserError(f"{field_name} takes {takes(hint)}, not {_shown(value)}{_advice(hint, value)}")


def _takes_text(options: Sequence[Any], text: str) -> bool:
    """Return whether one of the types takes this text: `str` takes any, a Literal takes its own choices."""
    return any(option is str or (get_origin(option) is Literal and text in get_args(option)) for option in options)


def build(prefix: str, cls: type[T], values: Mapping[object, object]) -> T:
    """Make a dataclass such as Spec from a mapping; UserError for unknown keys. `prefix`: its name in messages."""
    types = hints(cls)
    converted = {}
    for key, value in values.items():
        if key not in types:
            raise UserError(f"{prefix} has no {key!r}{nearest(str(key), types)} ({', '.join(types)})")
        converted[str(key)] = convert(f"{prefix}.{key}", types[str(key)], value)
    if "name" in types and "name" not in values:
        raise UserError(f"{prefix} needs a name")
    return cls(**converted)


def takes(hint: object) -> str:
    """Return what a field of this type takes, in English: "a whole number or null".

    KeyError for a type that no YAML file can give."""
    options = sorted(members(hint), key=lambda member: member is NoneType)
    return " or ".join(_described(member) for member in options)


def _described(member: object) -> str:
    origin, arguments = get_origin(member), get_args(member)
    if origin is Literal:
        return ", ".join(str(choice).lower() for choice in arguments)
    if origin is tuple:
        return "[low, high]" if arguments == (float, float) else f"a list ({takes(arguments[0])} each)"
    if origin is dict:
        return {str: "a mapping of texts", float: "a mapping of numbers"}.get(arguments[1], "a mapping")
    type_names: dict[object, str] = {
        bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "null",
        Schedule: "a schedule", Spec: "a mapping", Quantity: "{name, low, high}", Plateau: "a mapping",
        FollowKL: "kl_0.008",
        Exploration: "a mapping", Network: "a mapping",
    }  # fmt: skip
    return type_names[member]


def _convert_to(member: Any, field_name: str, value: object) -> Any:
    """Return the value as this one type of a field, or NO_MATCH if it does not fit."""
    origin, arguments = get_origin(member), get_args(member)
    if origin is Literal:
        for option in arguments:
            for candidate in (value, _unquoted(value)):
                if option == candidate and type(option) is type(candidate):
                    return option
        return NO_MATCH
    if origin is tuple:
        return _tuple(field_name, arguments, value)
    if member in (int, float):
        return _number(member, value)
    if member is Schedule:
        schedule = schedule_in(field_name, value)
        return NO_MATCH if schedule is None else schedule
    if member is FollowKL:
        return FollowKL.read(field_name, value) or NO_MATCH
    if origin is dict or member in (Spec, Quantity, Plateau, Exploration, Network):
        if not isinstance(value, Mapping):
            return NO_MATCH
        return _mapping(field_name, arguments[1], value) if origin is dict else build(field_name, member, value)
    return value if type(value) is member else NO_MATCH


def _unquoted(value: object) -> object:
    """Return the number that a text spells ("1e5" -> 100000.0, "7" -> 7), anything else unchanged."""
    if isinstance(value, str) and len(value) <= 2 * MOST_DIGITS and NUMBER.fullmatch(value):
        digits = value.replace("_", "")
        return float(digits) if re.search(r"[.eE]", digits) else int(digits)
    return value


def _number(member: type, value: object) -> Any:
    """Return the value as int or float (`member`), or NO_MATCH; 1e5 is accepted as int, true and infinity are not."""
    value = _unquoted(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return NO_MATCH
    if member is int:
        return int(value) if value == int(value) else NO_MATCH
    return float(value)


def _rows_or_fraction(value: object) -> type:
    """Return int or float, for a field that takes a number of rows (int) or a fraction (float), as batch_size does.

    The spelling decides: 1 and 256 are rows, 1.0 and 0.25 are fractions, 1e3 is rows."""
    value = _unquoted(value)
    is_rows = isinstance(value, int) or (isinstance(value, float) and value > 1 and value.is_integer())
    return int if is_rows else float


def _tuple(field_name: str, arguments: tuple[object, ...], value: object) -> Any:
    """Return a tuple whose items have the type `arguments[0]`, or NO_MATCH.

    (float, float) is a pair of bounds. A whole number or a choice may stand for a list of one."""
    item_type = arguments[0]
    is_list = isinstance(value, list | tuple)
    items = list(value) if isinstance(value, list | tuple) else [value]
    if arguments == (float, float):
        return tuple(convert(field_name, float, item) for item in items) if len(items) == 2 else NO_MATCH
    if not is_list and item_type is not int and get_origin(item_type) is not Literal:
        return NO_MATCH
    if item_type is int and any(_number(int, item) is NO_MATCH for item in items):
        return NO_MATCH
    return tuple(convert(f"{field_name}[{index}]", item_type, item) for index, item in enumerate(items))


def _mapping(field_name: str, value_type: object, value: Mapping[object, object]) -> dict[str, Any]:
    if value_type not in (str, float):
        result = plain_data(field_name, value, -1)
        assert isinstance(result, dict)
        return result
    return {_text(field_name, key): convert(f"{field_name}.{key}", value_type, item) for key, item in value.items()}


def _text(field_name: str, key: object) -> str:
    if not isinstance(key, str):
        raise UserError(f"{field_name} has the key {key!r}, which is not text")
    return key


def plain_data(name: str, value: object, depth: int = 0) -> Any:
    """Return a copy of data that JSON can store: numbers, texts, booleans, null, lists and mappings of these.

    UserError for anything else, and where it is nested deeper than DEEPEST. `depth`: levels around the value."""
    if depth > DEEPEST:
        raise UserError(f"{name[:60]} is nested too deep")
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [plain_data(f"{name}[{index}]", item, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_text(name, key): plain_data(f"{name}.{key}", item, depth + 1) for key, item in value.items()}
    raise UserError(f"{name} takes numbers, text, true, false, null, lists and mappings of these, not {_shown(value)}")


def _shown(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else shortened(repr(value), 60)


def _advice(hint: object, value: object) -> str:
    """Return a hint for the end of a message: a similar choice, or quotes around a number; "" if there is none."""
    options = members(hint)
    if isinstance(value, str):
        if bool in options and value.lower() in ("yes", "no", "on", "off", "y", "n"):
            return f" (write true or false; {value} is text)"
        words = [str(word).lower() for member in options if get_origin(member) is Literal for word in get_args(member)]
        return nearest(value, words) if words and str not in options else ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return " (put it in quotes)" if str in options and is_number else ""
