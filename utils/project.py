"""The project of one's own in which a command is typed: the nearest pyproject.toml above with a table [tool.stride].

    [tool.stride]
    imports = ["walker"]   modules that register environments, policies, wrappers; imported before these are looked up
    configs = "configs"    YAML files, before the shipped ones
    runs = "runs"          where runs lie; STRIDE_RUNS wins

It is looked for from where one stands, or from the folder that --project or STRIDE_PROJECT names; never from where a
run or anything else that others made lies.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stride.utils.places import IS_WHEEL, ROOT
from stride.utils.user_error import UserError, nearest
from stride.utils.user_input import read_user_file

FILE, TABLE = "pyproject.toml", re.compile(rb"^\s*\[\s*tool\s*\.\s*stride\s*[\].]", re.M)
MOST_BYTES = 1 << 20
VARIABLE = "STRIDE_PROJECT"  # what --project sets, so that every process that is started from here knows it
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DEFAULTS: dict[str, object] = {"imports": [], "configs": "configs", "runs": "runs"}


class Project(NamedTuple):
    """What a pyproject.toml says of it."""

    folder: Path
    imports: tuple[str, ...]
    configs: Path
    runs: Path


def project() -> Project | None:
    """The one around the folder that is named, else around the present one; None outside of all."""
    start = named_folder() or standing_in()
    return None if start is None else project_around(start)


def named_folder() -> Path | None:
    """What --project or STRIDE_PROJECT names."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if not os.path.isdir(name):
        raise UserError(f"--project or {VARIABLE} names {name}, which is no folder")
    return Path(name).absolute()


def standing_in() -> Path | None:
    """The present folder, None where it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


@cache
def project_around(folder: Path) -> Project | None:
    """The one around `folder`. A file of another user than whose the folder is names nothing to import here."""
    owners = {0, os.geteuid(), folder.stat().st_uid}
    for each in (folder, *folder.parents):
        file = each / FILE
        if file.is_file() and file.stat().st_uid in owners:
            data = read_user_file(file, MOST_BYTES)
            if TABLE.search(data) and (found := read_project(file, data)):
                return found
    return None


def read_project(file: Path, data: bytes) -> Project | None:
    """The checked table, None where there is none after all; UserError, one line, for what it cannot say."""
    import tomllib  # outside of all projects nothing is to be read

    try:
        table = tomllib.loads(data.decode()).get("tool", {}).get("stride")
    except ValueError as error:  # no TOML, no UTF-8
        raise UserError(f"{file}: {error}") from error
    if table is None:
        return None
    for key in table:
        if key not in DEFAULTS:
            raise UserError(f"{file}: [tool.stride] has no key {key!r}{nearest(key, DEFAULTS)}")
    values = DEFAULTS | table
    imports = values["imports"]
    if not isinstance(imports, list) or not all(isinstance(name, str) and MODULE.fullmatch(name) for name in imports):
        raise UserError(f'{file}: [tool.stride] imports is a list of modules, such as ["walker"], not {imports!r}')
    for key in ("configs", "runs"):
        if not isinstance(values[key], str) or not values[key]:
            raise UserError(f"{file}: [tool.stride] {key} is a folder, not {values[key]!r}")
    folder = file.parent
    return Project(folder, tuple(imports), folder / str(values["configs"]), folder / str(values["runs"]))


def name_project(folder: str | Path) -> None:
    """From now on `folder` is the project, here and in every process that is started from here."""
    try:
        os.environ[VARIABLE] = os.path.abspath(folder)
    except ValueError as error:
        raise UserError(f"--project {str(folder)!r}: {error}") from error
    named_folder()


@contextmanager
def in_project(folder: str | Path) -> Iterator[None]:
    """The same for a while; "" changes nothing."""
    before = os.environ.get(VARIABLE)
    try:
        if folder:
            name_project(folder)
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def own_runs() -> Path:
    """Where runs lie that STRIDE_RUNS does not place: in the project, else beside the checkout; of a wheel, here.

    Where one stands decides: --project names modules and settings, and does not move the runs.
    """
    here = standing_in()
    found = project_around(here) if here else None
    return found.runs if found else Path("runs") if IS_WHEEL else ROOT / "runs"
