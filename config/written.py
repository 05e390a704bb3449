"""A config in the words one would type: short schedules, what differs from the defaults, the overrides that make it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from stride.config.loader import from_plain, load_shipped, to_plain
from stride.config.schedule import SCHEDULE_PARTS, SHORT, Schedule, peak_part
from stride.config.schema import ALGORITHMS, Config
from stride.utils.user_error import UserError

IDENTITY = {"env_id", "variant", "algo_id", "project_id", "description", "schema_version", "spec"}  # nobody tuned these
WORDS = {"project_id", "description", "schema_version"}  # change nothing of a run
BARE = re.compile(r"[A-Za-z_][\w./-]*")  # text that Hydra's grammar reads as text without quotes
RESERVED = {"true", "false", "null", "inf", "nan"}


def written(value: object) -> str:
    """A value of to_plain's data as it is typed after `key=`; a schedule in its short form where it has one."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return short(value) or f"{{{','.join(f'{key}:{written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(written, value))}]"
    text = str(value)
    if not isinstance(value, str) or (BARE.fullmatch(text) and text.lower() not in RESERVED):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def short(value: Mapping[str, Any]) -> str:
    """`lin_0.001` where that says all of a schedule, else ""."""
    if value.keys() != {"kind", *SCHEDULE_PARTS}:
        return ""
    peak = value[peak_part(value["kind"])]
    name = next(short for short, kind in SHORT.items() if kind == value["kind"])
    return f"{name}_{peak}" if Schedule(**value) == Schedule.named(value["kind"], peak) else ""


def defaults(algo_id: str) -> dict[str, Any]:
    """Of each key that somebody may tune and that has a default, as to_plain's data."""
    usual = {}
    for item in fields(ALGORITHMS[algo_id]):
        value = item.default_factory() if callable(item.default_factory) else item.default
        if value is not MISSING and item.name not in IDENTITY:
            value = asdict(value) if isinstance(value, Schedule) else value
            usual[item.name] = list(value) if isinstance(value, tuple) else value
    return usual


def differing(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What to_plain's data says that the defaults of its algorithm do not."""
    usual = defaults(plain["algo_id"])
    keys = {item.name for item in fields(ALGORITHMS[plain["algo_id"]])} - IDENTITY
    return {key: plain[key] for key in plain if key in keys and (key not in usual or plain[key] != usual[key])}


def config_of(facts: Mapping[str, object]) -> dict[str, Any]:
    """A run's config as to_plain's data, with all keys of today; UserError where it is of another version."""
    return to_plain(from_plain(facts.get("config") or {}, "config.json"))


def differing_rows(facts: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(key, value, default) as they are typed, of what is not the default of a run's algorithm; "" for none."""
    plain = config_of(facts)
    usual = defaults(plain["algo_id"])
    return [
        (key, written(value), written(usual[key]) if key in usual else "") for key, value in differing(plain).items()
    ]


def command_of(config: Config) -> str:
    """train.py's words that make this config of a shipped variant; "" where none do."""
    try:
        words = list(_changes("", to_plain(load_shipped(config.env_id, config.variant)), to_plain(config)))
        again = load_shipped(config.env_id, config.variant, words)
    except UserError:
        return ""
    if _without_words(again) != _without_words(config):
        return ""
    words = [word for word in words if not word.startswith("seed=")]
    return shlex.join([f"{config.env_id}:{config.variant}", "--seed", str(config.seed), *words])


def _changes(place: str, usual: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[str]:
    """An override per entry that differs; mappings entry by entry, a schedule as a whole."""
    for key, value in plain.items():
        before = usual.get(key)
        if value == before or (not place and key in WORDS | {"env_id", "variant", "algo_id"}):
            continue
        if value and isinstance(value, Mapping) and isinstance(before, Mapping) and "kind" not in value:
            yield from _changes(f"{place}{key}.", before, value)
        else:
            yield f"{place}{key}={written(value)}"


def _without_words(config: Config) -> dict[str, Any]:
    return {key: value for key, value in to_plain(config).items() if key not in WORDS}
