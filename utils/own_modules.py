"""Modules of the user's own: in which folders they are looked for, and how one that is named is imported.

A folder is searched after the standard library and whatever is installed, and only if nobody else may write to it.
What the user names (`module:Name`, `imports`) is loaded from there, even where an installed module has the same name.
"""

import importlib
import importlib.util
import logging
import os
import pkgutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from stride.runstore.run_facts import mapping, read_facts
from stride.runstore.run_names import STAMP
from stride.utils.places import (
    PROJECT,
    current_folder,
    current_project,
    named_folder,
    of_another,
    others_may_write,
    project_around,
)
from stride.utils.user_error import UserError

log = logging.getLogger("stride")


class UserModules(NamedTuple):
    """What this process may import of the user's own."""

    folders: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # of the projects among them
    preferred: tuple[str, ...] = ()  # modules imported from there although installed ones have the same name


_in_use = UserModules()
_added: set[str] = set()  # entries of sys.path that came from this file
_preferred: list[str] = []
_warnings: set[str] = set()  # lines that this process has printed


def use_folders(*more: Path) -> UserModules:
    """Make modules importable from the project, from `more` and their projects, and from the present folder."""
    around = [current_project(), *(project_around(folder) for folder in more if os.path.isdir(folder))]
    projects = [project for project in around if project and not import_refusal(project.folder)]
    candidates = [named_folder(), *(project.folder for project in projects), *more, current_folder()]
    folders = [str(folder.absolute()) for folder in candidates if folder and not import_refusal(folder)]
    imports = [name for project in projects for name in project.imports]
    restore(UserModules(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(imports))))
    return _in_use


def snapshot() -> UserModules:
    """For processes that shall import the same: only those `imports` that have been imported in this one."""
    imported = [name for name in _in_use.imports if name in sys.modules]
    return UserModules(_in_use.folders, tuple(imported), tuple(name for name in _preferred if name in sys.modules))


def restore(modules: UserModules) -> None:
    """Use the folders of a `snapshot()`, as in the process that made it."""
    global _in_use
    _in_use = modules._replace(preferred=())
    folders = [name for name in modules.folders if name in _added or name not in sys.path]
    sys.path[:] = [*(entry for entry in sys.path if entry not in folders), *folders]
    _added.update(folders)
    for name in modules.preferred:
        import_named(name)


def imports_left() -> list[str]:
    """Those modules of the projects' `imports` that nobody has imported yet."""
    return [name for name in _in_use.imports if name not in sys.modules]


def import_refusal(folder: Path) -> str:
    """Why nothing is imported from a folder, "" where it may be."""
    try:
        real = folder.resolve(strict=True)
        status = os.stat(real)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "it does not exist"
    if real == PROJECT:
        return ""  # the program itself
    for parent in (real, *real.parents):
        if _is_run(parent):
            return f"it is in the folder of the run {parent.name}"
    # a folder that is named is trusted, whoever owns it: in a container files belong to a user of the machine around it
    if folder != named_folder() and (stranger := of_another(status, os.stat(PROJECT).st_uid)):
        return f"{stranger}; if you trust the files there, add --project {folder}"
    return others_may_write(status)


def _is_run(folder: Path) -> bool:
    """Whether it is a run's own folder, whoever made it; a project may have a config.json or checkpoints/, too."""
    with suppress(OSError, UserError):
        stamped = bool(STAMP.match(folder.name))
        if os.path.lexists(folder / "config.json"):
            return stamped or "algo_id" in mapping(read_facts(folder).get("config"))
        return stamped and os.path.lexists(folder / "checkpoints")
    return False


def import_named(name: str) -> ModuleType:
    """A module that the user named: the one of the folders in use, else the installed one."""
    top = name.partition(".")[0]
    local = PathFinder.find_spec(top, [*_in_use.folders])
    other = _spec_of(top)
    if local and local.loader and local.has_location and other and _locations(local) != _locations(other):
        if top in sys.modules:
            raise UserError(f"{name}: {local.origin} has the name of {other.origin}, which is loaded; rename yours")
        log.warning("%s is imported from %s; %s has the same name", top, local.origin, other.origin)
        module = sys.modules[top] = importlib.util.module_from_spec(local)
        try:
            local.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(top, None)
            raise
        _preferred.append(top)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (PROJECT / error.name / "__init__.py").is_file():  # how our modules were called once
            error.msg = f"{error.msg}; write stride.{error.name}"
        raise


def can_import(name: str) -> bool:
    """Whether there is a module or package of this top-level name to import."""
    return _spec_of(name) is not None or name in sys.modules


def folders_of(names: Iterable[str]) -> list[Path]:
    """The folders in use that modules of these names have been imported from."""
    origins: set[str] = set()
    for name in names:
        top = name.partition(".")[0]
        if top in sys.modules and (spec := _spec_of(top)):
            origins.update(os.path.dirname(location) for location in _locations(spec))
    return [Path(folder) for folder in _in_use.folders if os.path.realpath(folder) in origins]


def warn_unused(*more: Path) -> None:
    """A line on stderr for each folder whose modules, or some of them, are not imported, and why."""
    project = current_project()
    for folder in dict.fromkeys((named_folder(), project and project.folder, *more, current_folder())):
        line = _unused(folder.absolute(), import_refusal(folder)) if folder else ""
        if line and line not in _warnings:
            _warnings.add(line)
            print(line, file=sys.stderr)


@cache
def _unused(folder: Path, refusal: str) -> str:
    """The line, "" where all modules of the folder are imported when they are asked for."""
    names = modules_in([str(folder)])
    if refusal:
        return f"nothing is imported from {folder}: {refusal}" if names else ""
    hidden = [name for name in names if is_installed(name) and (spec := _spec_of(name)) and not _is_of_program(spec)]
    if not hidden:
        return ""
    return f"{folder}: not imported: {', '.join(hidden)}; installed modules have the same name, rename yours"


def is_installed(name: str) -> bool:
    """Whether a top-level name is that of a module of Python, of this program, or of an installed package."""
    spec = _spec_of(name)
    if spec is None or spec.origin is None:  # None: only a folder
        return False
    user_folders = {os.path.realpath(folder) for folder in (*_in_use.folders, *_added)}
    return _is_of_program(spec) or not any(os.path.dirname(location) in user_folders for location in _locations(spec))


def _is_of_program(spec: ModuleSpec) -> bool:
    """Whether it is a package of the checkout, or `stride` of a wheel."""
    return any(PROJECT in (Path(location), Path(location).parent) for location in _locations(spec))


def modules_in(folders: list[str] | None) -> list[str]:
    """Names of modules and packages in the folders, None: wherever Python searches."""
    names = [module.name for module in pkgutil.iter_modules(folders)]
    return [name for name in names if name.isidentifier() and name != "__main__"]


def _spec_of(top: str) -> ModuleSpec | None:
    """The spec of the loaded module of this name, else of the one that would be loaded."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # a module without one, such as __main__
        return None


def _locations(spec: ModuleSpec) -> list[str]:
    """The file or folder of a module, real paths; none of a built-in one."""
    if spec.submodule_search_locations is not None:
        return [os.path.realpath(location) for location in spec.submodule_search_locations]
    return [os.path.realpath(spec.origin)] if spec.origin and spec.has_location else []
