"""Imports the user's own modules (environments, policies, wrappers): in which folders to search, and which to refuse.

A folder is searched after the standard library and installed packages, and only if no other user may write to it. A
module that the user names (`module:Name`, `imports`) is loaded from there even if an installed one has the same name.
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
    """The user's folders and modules that this process may import from; plain data, to pass to other processes."""

    folders: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # modules that pyproject.toml of these folders lists: [tool.stride] imports
    preferred: tuple[str, ...] = ()  # modules imported from the folders although installed ones have the same name


_in_use = UserModules()
_added: set[str] = set()  # entries of sys.path that this module has added
_preferred: list[str] = []  # see UserModules.preferred
_warnings: set[str] = set()  # warnings that this process has printed


def use_folders(*more: Path) -> UserModules:
    """Make modules importable from the project, from the folders `more`, their projects, and the present folder."""
    around = [current_project(), *(project_around(folder) for folder in more if os.path.isdir(folder))]
    projects = [project for project in around if project and not import_refusal(project.folder)]
    candidates = [named_folder(), *(project.folder for project in projects), *more, current_folder()]
    folders = [str(folder.absolute()) for folder in candidates if folder and not import_refusal(folder)]
    imports = [name for project in projects for name in project.imports]
    restore(UserModules(tuple(dict.fromkeys(folders)), tuple(dict.fromkeys(imports))))
    return _in_use


def snapshot() -> UserModules:
    """Return what another process needs to import the same; of `imports` only those that this process has imported."""
    imported = [name for name in _in_use.imports if name in sys.modules]
    return UserModules(_in_use.folders, tuple(imported), tuple(name for name in _preferred if name in sys.modules))


def restore(modules: UserModules) -> None:
    """Use the folders and modules of a `snapshot()`, in another process."""
    global _in_use
    _in_use = modules._replace(preferred=())
    folders = [name for name in modules.folders if name in _added or name not in sys.path]
    sys.path[:] = [*(entry for entry in sys.path if entry not in folders), *folders]
    _added.update(folders)
    for name in modules.preferred:
        import_named(name)


def imports_left() -> list[str]:
    """Return the modules of the projects' `imports` that are not imported yet."""
    return [name for name in _in_use.imports if name not in sys.modules]


def import_refusal(folder: Path) -> str:
    """Say why nothing is imported from a folder; "" if it is allowed."""
    try:
        real = folder.resolve(strict=True)
        status = os.stat(real)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "it does not exist"
    if real == PROJECT:
        return ""  # Stride's own folder
    for parent in (real, *real.parents):
        if _is_run(parent):
            return f"it is in the folder of the run {parent.name}"
    # a folder given by --project is trusted, whoever owns it: in a container files belong to a user of the host
    if folder != named_folder() and (stranger := of_another(status, os.stat(PROJECT).st_uid)):
        return f"{stranger}; if you trust the files there, add --project {folder}"
    return others_may_write(status)


def _is_run(folder: Path) -> bool:
    """Say whether it is the folder of a run. config.json or checkpoints/ alone is not enough: projects have them."""
    with suppress(OSError, UserError):
        stamped = bool(STAMP.match(folder.name))
        if os.path.lexists(folder / "config.json"):
            return stamped or "algo_id" in mapping(read_facts(folder).get("config"))
        return stamped and os.path.lexists(folder / "checkpoints")
    return False


def import_named(name: str) -> ModuleType:
    """Import a module that the user named: from the folders in use, else the installed one.

    UserError if another module of that name is loaded already.
    """
    top = name.partition(".")[0]
    local = PathFinder.find_spec(top, [*_in_use.folders])
    other = _spec_of(top)  # the one that Python would import
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
        if error.name and (PROJECT / error.name / "__init__.py").is_file():  # a module of Stride without `stride.`
            error.msg = f"{error.msg}; write stride.{error.name}"
        raise


def can_import(name: str) -> bool:
    """Say whether a module or package of this top-level name exists."""
    return _spec_of(name) is not None or name in sys.modules


def folders_of(names: Iterable[str]) -> list[Path]:
    """Return those folders in use from which modules of these names have been imported."""
    origins: set[str] = set()
    for name in names:
        top = name.partition(".")[0]
        if top in sys.modules and (spec := _spec_of(top)):
            origins.update(os.path.dirname(location) for location in _locations(spec))
    return [Path(folder) for folder in _in_use.folders if os.path.realpath(folder) in origins]


def warn_unused(*more: Path) -> None:
    """Print a line on stderr for each folder with modules that are not importable, and why."""
    project = current_project()
    for folder in dict.fromkeys((named_folder(), project and project.folder, *more, current_folder())):
        line = _unused(folder.absolute(), import_refusal(folder)) if folder else ""
        if line and line not in _warnings:
            _warnings.add(line)
            print(line, file=sys.stderr)


@cache
def _unused(folder: Path, refusal: str) -> str:
    """Return the line of `warn_unused` for a folder; "" if all its modules are importable."""
    names = modules_in([str(folder)])
    if refusal:
        return f"nothing is imported from {folder}: {refusal}" if names else ""
    hidden = [name for name in names if is_installed(name) and (spec := _spec_of(name)) and not _is_of_program(spec)]
    if not hidden:
        return ""
    return f"{folder}: not imported: {', '.join(hidden)}; installed modules have the same name, rename yours"


def is_installed(name: str) -> bool:
    """Say whether a top-level name belongs to Python, to Stride, or to an installed package."""
    spec = _spec_of(name)
    if spec is None or spec.origin is None:  # None: only a folder
        return False
    user_folders = {os.path.realpath(folder) for folder in (*_in_use.folders, *_added)}
    return _is_of_program(spec) or not any(os.path.dirname(location) in user_folders for location in _locations(spec))


def _is_of_program(spec: ModuleSpec) -> bool:
    """Say whether it is a package of Stride: a folder of the checkout, or `stride` of a wheel."""
    return any(PROJECT in (Path(location), Path(location).parent) for location in _locations(spec))


def modules_in(folders: list[str] | None) -> list[str]:
    """Return the names of modules and packages in the folders; None: in all of sys.path."""
    names = [module.name for module in pkgutil.iter_modules(folders)]
    return [name for name in names if name.isidentifier() and name != "__main__"]


def _spec_of(top: str) -> ModuleSpec | None:
    """Return the spec of the loaded module of this name, else of the one that Python would load, else None."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # a loaded module without a spec, such as __main__
        return None


def _locations(spec: ModuleSpec) -> list[str]:
    """Return the real paths of a module's file or package folders; [] for a built-in module."""
    if spec.submodule_search_locations is not None:
        return [os.path.realpath(location) for location in spec.submodule_search_locations]
    return [os.path.realpath(spec.origin)] if spec.origin and spec.has_location else []
