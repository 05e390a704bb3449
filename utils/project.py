"""The project of one's own in which a command is typed: the nearest pyproject.toml above with a table [tool.stride].

    [tool.stride]
    imports = ["walker"]   modules that register environments, policies, wrappers; imported before these are looked up
    configs = "configs"    YAML files, before the shipped ones
    runs = "runs"          where runs lie; STRIDE_RUNS wins

It is looked for from where one stands, never from where a run or anything else that others made lies.
"""

import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from utils.places import PACKAGE, PROJECT
from utils.user_error import UserError, nearest
from utils.user_input import read_user_file

FILE, TABLE = "pyproject.toml", re.compile(rb"^\s*\[\s*tool\s*\.\s*stride\s*[\].]", re.M)
MOST_BYTES, MOST_REMEMBERED = 1 << 20, 1 << 26
REMEMBERED = ".folders.jsonl"
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DEFAULTS: dict[str, object] = {"imports": [], "configs": "configs", "runs": "runs"}


class Project(NamedTuple):
    """What a pyproject.toml says of it."""

    folder: Path
    imports: tuple[str, ...]
    configs: Path
    runs: Path


def project() -> Project | None:
    """The one around the present folder, None outside of all."""
    here = standing_in()
    return None if here is None else project_around(here)


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


def own_runs() -> Path:
    """Where runs lie that STRIDE_RUNS does not place: in the project, else beside the checkout; of a wheel, here."""
    found = project()
    return found.runs if found else Path("runs") if PACKAGE else PROJECT / "runs"


def use_own_modules(*folders: Path) -> tuple[str, ...]:
    """Make what lies in the project, in `folders` and where one stands importable; the project's `imports`.

    Behind the standard library and a checkout's own packages, before whatever is installed.
    """
    found, here = project(), standing_in()
    wanted = [found.folder if found else None, *folders, here]
    for name in [*dict.fromkeys(str(folder.absolute()) for folder in wanted if folder)][::-1]:
        if name not in sys.path:
            sys.path.insert(_place(), name)
    return found.imports if found else ()


def own_imports() -> list[str]:
    """Those of the project's `imports` that have been imported, for processes that are to do so, too."""
    found = project()
    return [name for name in found.imports if name in sys.modules] if found else []


def remember_folder(runs: Path, run_id: str, folder: Path) -> None:
    """That a run's YAML file, and so perhaps its environment, lies in `folder`.

    Beside the runs, not in the run's own folder: that may come from others, who must not say what is imported here.
    """
    line = json.dumps([run_id, str(folder)]) + "\n"
    with open(runs / REMEMBERED, "a", encoding="utf-8") as file:  # so short a line is appended whole, or not at all
        file.write(line)


def folder_of(runs: Path, run_id: str) -> Path | None:
    """What `remember_folder` was told of the run, None where that was nothing."""
    if not (runs / REMEMBERED).is_file():
        return None
    for line in reversed(read_user_file(runs / REMEMBERED, MOST_REMEMBERED).decode(errors="replace").splitlines()):
        with suppress(ValueError):  # a line that somebody wrote into
            match json.loads(line):
                case [str(name), str(folder)] if name == run_id:
                    return Path(folder)
    return None


def _place() -> int:
    installed = {*site.getsitepackages(), *_paths("purelib", "platlib"), site.getusersitepackages()}
    return next((place for place, entry in enumerate(sys.path) if entry in installed), len(sys.path))


def _paths(*names: str) -> Iterator[str]:
    yield from (path for name in names if (path := sysconfig.get_path(name)))
