"""Schedules written key by key: `policy_lr_schedule: linear` with `_start_value`, `_end_value`, `_start` and `_end`.

Says which keys a later file block or override replaces, and folds what is left into the field's own value."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from stride.config.schedule import KINDS, SCHEDULE_PARTS, Schedule, checked_kind, is_schedule, peak_part, schedule_in
from stride.utils.user_error import UserError

KEY = re.compile(r"(\w+?)_schedule(?:_(" + "|".join(SCHEDULE_PARTS) + "))?")


class Raw(NamedTuple):
    """Values as written, and for each key where it was written."""

    values: dict[str, Any]
    where: dict[str, str]


def schedule_key(key: str) -> tuple[str, str] | None:
    """`policy_lr_schedule_end` -> ("policy_lr", "end"), `policy_lr_schedule` -> ("policy_lr", "kind"), else None."""
    match = KEY.fullmatch(key)
    return (match[1], match[2] or "kind") if match else None


def key_of(name: str, part: str) -> str:
    return f"{name}_schedule" if part == "kind" else f"{name}_schedule_{part}"


def superseded(key: str, later: Mapping[str, object], earlier: Mapping[str, object]) -> list[str]:
    """Keys of `earlier` that setting `key` in `later` makes void, so that no half of an old schedule stays at work."""
    parsed = schedule_key(key)
    name, part = parsed if parsed else (key, "")
    every = [key_of(name, each) for each in ("kind", *SCHEDULE_PARTS)]
    if part == "kind" and later[key] is None:
        return every
    peak = peak_part(_kind(name, {**earlier, **later}))
    if part:
        return [name] if part == peak and not is_schedule(earlier.get(name)) else []
    return every if later[key] is None or is_schedule(later[key]) else [key_of(name, peak)]


def fold(raw: Raw, defaults: Mapping[str, object]) -> Raw:
    """The same without schedule keys: each scheduled field holds a mapping that Schedule.parse takes."""
    values = {key: value for key, value in raw.values.items() if not schedule_key(key)}
    where = dict(raw.where)
    parts: dict[str, dict[str, Any]] = {}
    for key in raw.values:
        if parsed := schedule_key(key):
            name, part = parsed
            parts.setdefault(name, {})[part] = raw.values[key]
            where[name] = raw.where[key]
    for name, given in parts.items():
        try:
            folded = _folded(name, given, values.get(name), defaults[name])
        except UserError as error:
            raise UserError(f"{where[name]}: {error}") from error
        if folded is not None:
            values[name] = folded
    return Raw(values, where)


def _folded(name: str, given: dict[str, object], value: object, default: object) -> object:
    if "kind" in given and given["kind"] is None:
        if len(given) > 1:
            raise UserError(f"{name}_schedule is null, so its other keys would do nothing")
        return _plain_value(value)
    before = schedule_in(name, value)
    if before is None and "kind" not in given:
        raise UserError(f"{key_of(name, next(iter(given)))} needs {name}_schedule ({', '.join(KINDS)})")
    kind = checked_kind(given.get("kind", before.kind if before else None))
    peak = peak_part(kind)
    if before is not None and before.kind == kind:
        return {**asdict(before), **given}
    plain = _plain_value(before if before else value)
    if plain is not None and given.get(peak, plain) != plain:
        raise UserError(f"{name} {plain} and {key_of(name, peak)} {given[peak]} contradict each other; give only one")
    start = plain if plain is not None else given.get(peak, default)
    if start is None:
        raise UserError(f"{name}_schedule needs {key_of(name, peak)}")
    return {peak: start, **given, "kind": kind}


def _kind(name: str, values: Mapping[str, object]) -> str:
    named = values.get(name)
    kind = values.get(f"{name}_schedule") or (named.partition("_")[0] if isinstance(named, str) else "")
    return str(kind)


def _plain_value(value: object) -> object:
    """What is left of a field when its schedule is taken away."""
    schedule = value if isinstance(value, Schedule) else schedule_in("schedule", value)
    if schedule is None:
        return value
    return schedule.end_value if schedule.kind == "warmup" else schedule.start_value
