"""A config as one would write it: what of it differs from its algorithm's defaults, schedules as `lin_0.001`."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from config.loader import from_plain, to_plain
from config.schedule import Schedule
from config.schema import ALGORITHMS, Config
from config.written import IDENTITY, written


def differing(facts: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(key, value, default) of what is not the default, which is "" where there is none."""
    config = _config(facts)
    plain, rows = to_plain(config), []
    for item in _keys(config):
        usual = _default(item)
        if usual is MISSING or getattr(config, item.name) != usual:
            rows.append((item.name, written(plain[item.name]), "" if usual is MISSING else written(_plain(usual))))
    return rows


def differences(facts: Mapping[str, object]) -> dict[str, str]:
    """By key, what is not the default."""
    return {key: value for key, value, _ in differing(facts)}


def everything(facts: Mapping[str, object]) -> dict[str, str]:
    """All keys that somebody may tune."""
    config = _config(facts)
    plain = to_plain(config)
    return {item.name: written(plain[item.name]) for item in _keys(config)}


def _config(facts: Mapping[str, object]) -> Config:
    return from_plain(facts.get("config") or {}, "config.json")


def _keys(config: Config) -> list["Field[Any]"]:
    return [item for item in fields(ALGORITHMS[config.algo_id]) if item.name not in IDENTITY]


def _default(item: "Field[Any]") -> Any:
    return item.default_factory() if callable(item.default_factory) else item.default


def _plain(value: object) -> object:
    return vars(value) if isinstance(value, Schedule) else value
