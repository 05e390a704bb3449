"""Configs of older runs, brought to the keys of today one version at a time; what cannot be is refused with the list.

A migration takes the plain data of version n and gives that of n + 1, or raises UserError. Each one has a test with a
config as it was written then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stride.config.schema import CHANGES, SCHEMA_VERSION
from stride.utils.user_error import UserError

Plain = dict[str, Any]
Migrations = Mapping[int, Callable[[Plain], Plain]]

MIGRATIONS: Migrations = {}  # from version n


def migrate(
    values: Mapping[str, object],
    migrations: Migrations = MIGRATIONS,
    newest: int = SCHEMA_VERSION,
    changes: Mapping[int, str] = CHANGES,
) -> Plain:
    """The same config with the keys of version `newest`; what it was given is left as it is."""
    plain, version = dict(values), values.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int) or version > newest:
        return plain  # for checks.check_version to refuse
    while version < newest:
        if version not in migrations:
            since = "; ".join(f"{number}: {change}" for number, change in changes.items() if number > version)
            raise UserError(f"schema_version is {version}, this program reads {newest}; changes since: {since}")
        plain = {**migrations[version](dict(plain)), "schema_version": version + 1}
        version += 1
    return plain
