"""`key=value` from the command line or a sweep, read by Hydra's own grammar after the key has been checked.

Hydra's additions (+, ++, ~, sweeps) are refused: they would add keys nobody reads, or mean several runs."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from itertools import accumulate
from numbers import Integral, Real
from typing import Any, get_origin

from stride.config.field_types import hints, members
from stride.config.keys import check_algorithm, check_key
from stride.config.schedule import Schedule
from stride.config.schedule_keys import Raw
from stride.config.schema import ALGORITHMS
from stride.config.variants import overlay
from stride.utils.user_error import DEEPEST, UserError

PREFIXES = ("++", "+", "~")
MOST, LONGEST = 200, 10_000  # overrides, and characters of one
PLAIN = re.compile(r"(?!(?:null|true|false|inf|nan)$)[A-Za-z_][\w.-]*", re.I)  # names that the grammar reads as text
BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}


def apply_overrides(raw: Raw, overrides: Sequence[str], algo_id: str) -> tuple[Raw, str]:
    """`raw` with the overrides on top, and the algorithm, which they may change."""
    if len(overrides) > MOST:
        raise UserError(f"{len(overrides):,} overrides are too many; write a file and give it by --config")
    texts = [_bare(text) for text in overrides]
    for text in texts:  # first of all, because it decides which keys there are
        if text.startswith("algo_id="):
            algo_id = check_algorithm(value_of(text), text)
    seen: dict[str, str] = {}
    layer = Raw({}, {})
    for text in texts:
        key = text.partition("=")[0]
        _check_key(key, algo_id, text)
        _check_new(key, text, seen)
        name, *path = key.split(".")
        value = value_of(text)
        if path:
            value = _nested(layer.values.get(name, raw.values.get(name)), path, value, text)
        layer.values[name] = value
        layer.where[name] = f"{layer.where[name]} {text}" if name in layer.where else text
    raw = overlay(raw, layer, merge=False)
    for name in raw.values:  # a change of algorithm leaves keys behind that it does not have
        check_key(name, algo_id, raw.where[name])
    return raw, algo_id


def in_words(key: str, value: object) -> str:
    """The override that is read as this value of Python's; UserError for what no config can hold."""
    return f"{key}={_written(key, value)}"


def _written(key: str, value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):  # NumPy's are, too
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str | os.PathLike):
        # the grammar halves backslashes before a quote, and no others
        text = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + "\\'" * bool(found[2]), os.fspath(value))
        return f"'{text}'"
    if isinstance(value, list | tuple):
        return f"[{','.join(_written(key, item) for item in value)}]"
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not PLAIN.fullmatch(name):
                raise UserError(f"{key}: {name!r} is no name that a config can hold")
        return f"{{{','.join(f'{name}:{_written(key, item)}' for name, item in value.items())}}}"
    kinds = "text, numbers, booleans, None, lists and dicts of them are; code is named: 'module:Name'"
    raise UserError(f"{key}: a {type(value).__name__} is no value of a config; {kinds}")


def _bare(text: str) -> str:
    """`--key=value`, as trackers' sweeps write it, is the same override."""
    if len(text.splitlines()) > 1:
        raise UserError(f"{' '.join(text.split())}: an override is one line")
    if len(text) > LONGEST or _depth(text) > DEEPEST or text.partition("=")[0].count(".") > DEEPEST:
        raise UserError(f"{text}: an override has at most {LONGEST:,} characters, nested {DEEPEST} deep")
    bare = text.removeprefix("--").strip()
    for prefix in PREFIXES:
        if bare.startswith(prefix):
            raise UserError(f"{text}: overrides change keys that exist, '{prefix}' is not needed; write key=value")
    if "=" not in bare or bare.startswith("="):
        raise UserError(f"{text!r} is not an override; write key=value, for example gamma=0.98")
    return bare


def _depth(text: str) -> int:
    """How deep its brackets go, whether or not some of them are text."""
    return max(accumulate(BRACKETS.get(each, 0) for each in text), default=0)


def _check_key(key: str, algo_id: str, text: str) -> None:
    name, *path = key.split(".")
    check_key(name.strip(), algo_id, text)
    if name != name.strip():
        raise UserError(f"{text}: no spaces around '='; write {name.strip()}=value")
    cls = ALGORITHMS[algo_id]
    mappings = [field for field, hint in hints(cls).items() if any(map(_has_parts, members(hint)))]
    if path and name not in mappings:
        raise UserError(f"{text}: {name} has no parts; only {', '.join(mappings)} do")
    if not all(path):
        raise UserError(f"{text}: the key ends in a dot or has an empty part")


def _has_parts(kind: Any) -> bool:
    """A schedule's have names of their own."""
    return get_origin(kind) is dict or (is_dataclass(kind) and kind is not Schedule)


def _check_new(key: str, text: str, seen: dict[str, str]) -> None:
    for other, earlier in seen.items():
        if key == other or key.startswith(f"{other}.") or other.startswith(f"{key}."):
            raise UserError(f"{text}: {other} is already given by {earlier}")
    seen[key] = text


def value_of(text: str) -> Any:
    """The value in the types of Hydra's grammar: numbers, booleans, null, lists, mappings, text."""
    from hydra.core.override_parser.overrides_parser import OverridesParser  # 0.1 s, for those who change something
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
        if override.package is not None:
            raise UserError(f"{text}: '@' means nothing here")
        if override.is_sweep_override():
            key = text.partition("=")[0]
            many = "use --seed 1,2,3" if key == "seed" else "lists are written [1,2] and text with a comma in quotes"
            raise UserError(f"{text}: several values for one run; {many}")
        return override.value()
    except HydraException as error:
        raise UserError(f"{text}: cannot be read: {' '.join(str(error).split())}") from error
    except (ValueError, OverflowError) as error:  # of a number with thousands of digits
        raise UserError(f"{text}: cannot be read: {error}") from error


def _nested(earlier: object, path: list[str], value: object, text: str) -> dict[str, Any]:
    """A copy of the mapping with one entry changed."""
    entries = dict(earlier) if isinstance(earlier, Mapping) else {}
    head, *rest = path
    inside = entries.get(head)
    if rest and inside is not None and not isinstance(inside, Mapping):
        raise UserError(f"{text}: {head} is {inside!r}, which has no parts")
    entries[head] = _nested(inside, rest, value, text) if rest else value
    return entries
