"""Modules of the user's own: in which folders they are looked for, and how one that is named is imported.

A folder is looked into behind the standard library and whatever is installed, and only if nobody else may write to it.
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
from stride.utils.places import PROJECT
from stride.utils.private_folder import of_another, others_may_write
from stride.utils.project import named_folder, project, project_around, standing_in
from stride.utils.user_error import UserError

log = logging.getLogger("stride")


class Own(NamedTuple):
    """What this process may import of the user's own."""

    folders: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()  # of the projects among them
    chosen: tuple[str, ...] = ()  # modules that have been imported from there although installed ones have their names


_own = Own()
_added: set[str] = set()  # entries of sys.path that came from here
_chosen: dict[str, None] = {}
_told: set[str] = set()  # lines that this process has printed


def use_folders(*more: Path) -> Own:
    """Make importable what lies in the project, in `more` and their projects, and in the present folder."""
    around = [project(), *(project_around(folder) for folder in more if os.path.isdir(folder))]
    projects = [each for each in around if each and not why_not(each.folder)]
    wanted = [named_folder(), *(each.folder for each in projects), *more, standing_in()]
    folders = dict.fromkeys(str(folder.absolute()) for folder in wanted if folder and not why_not(folder))
    take(Own((*folders,), tuple(dict.fromkeys(name for each in projects for name in each.imports))))
    return _own


def take(own: Own) -> None:
    """The same in a process of another that has done it, whose `known()` this is."""
    global _own
    _own = own._replace(chosen=())
    mine = [name for name in own.folders if name in _added or name not in sys.path]
    sys.path[:] = [*(entry for entry in sys.path if entry not in mine), *mine]
    _added.update(mine)
    for name in own.chosen:
        import_named(name)


def known() -> Own:
    """For processes that are to know them, too: only those `imports` that have been imported here."""
    imported = tuple(name for name in _own.imports if name in sys.modules)
    return _own._replace(imports=imported, chosen=tuple(name for name in _chosen if name in sys.modules))


def imports_left() -> list[str]:
    """Those of the projects that nobody has imported yet."""
    return [name for name in _own.imports if name not in sys.modules]


def why_not(folder: Path) -> str:
    """Why nothing is imported from a folder, "" where that may be."""
    try:
        real = folder.resolve(strict=True)
        found = os.stat(real)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle
        return "it is not there"
    if real == PROJECT:
        return ""  # the program itself
    if run := next((each for each in (real, *real.parents) if _is_run(each)), None):
        return f"it lies in the folder of the run {run.name}"
    # whose it is has been said by whoever names it: in a container files belong to a user of the machine around it
    if folder != named_folder() and (stranger := of_another(found, os.stat(PROJECT).st_uid)):
        return f"{stranger}; if you trust what lies there, name it: --project {folder}"
    return others_may_write(found)


def _is_run(folder: Path) -> bool:
    """Whether it is a run's own folder, whoever made it; a project may have a config.json or checkpoints/, too."""
    with suppress(OSError, UserError):
        if os.path.lexists(folder / "config.json"):
            return bool(STAMP.match(folder.name)) or "algo_id" in mapping(read_facts(folder).get("config"))
        return bool(STAMP.match(folder.name)) and os.path.lexists(folder / "checkpoints")
    return False


def import_named(name: str) -> ModuleType:
    """A module that the user named: the one of the folders in use, else the installed one."""
    top = name.partition(".")[0]
    mine = PathFinder.find_spec(top, [*_own.folders])
    other = _spec_of(top)
    if mine and mine.loader and mine.has_location and other and not _same(mine, other):
        if top in sys.modules:
            raise UserError(f"{name}: {mine.origin} has the name of {other.origin}, which is loaded: rename yours")
        log.warning("%s is imported from %s; %s has the same name", top, mine.origin, other.origin)
        module = sys.modules[top] = importlib.util.module_from_spec(mine)
        try:
            mine.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(top, None)
            raise
        _chosen[top] = None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (PROJECT / error.name / "__init__.py").is_file():  # how our modules were called once
            error.msg = f"{error.msg}; write stride.{error.name}"
        raise


def is_there(name: str) -> bool:
    """Whether there is a module or package of this top-level name to import."""
    return _spec_of(name) is not None or name in sys.modules


def holding(names: Iterable[str]) -> list[Path]:
    """The folders in use that modules of these names have been imported from."""
    specs = [
        spec for top in {name.partition(".")[0] for name in names} if top in sys.modules and (spec := _spec_of(top))
    ]
    found = {os.path.dirname(each) for spec in specs for each in _places(spec)}
    return [Path(folder) for folder in _own.folders if os.path.realpath(folder) in found]


def tell_unused(*more: Path) -> None:
    """A line on stderr for each folder whose modules, or some of them, are not imported, and why."""
    here, around = standing_in(), project()
    for folder in dict.fromkeys(filter(None, (named_folder(), around and around.folder, *more, here))):
        line = _unused(folder.absolute(), why_not(folder))
        if line and line not in _told:
            _told.add(line)
            print(line, file=sys.stderr, flush=True)


@cache
def _unused(folder: Path, why: str) -> str:
    """The line, "" where all of it is imported when it is asked for."""
    names = modules_in([str(folder)])
    if why:
        return f"nothing is imported from {folder}: {why}" if names else ""
    hidden = ", ".join(name for name in names if is_installed(name) and (spec := _spec_of(name)) and not _is_ours(spec))
    return (
        f"{folder}: not imported: {hidden}; installed modules of that name come first, rename yours" if hidden else ""
    )


def is_installed(name: str) -> bool:
    """Whether a top-level name is that of a module of Python, of this program, or of an installed package."""
    spec = _spec_of(name)
    if spec is None or spec.origin is None:  # None: a mere folder
        return False
    mine = {*map(os.path.realpath, (*_own.folders, *_added))}
    return _is_ours(spec) or not {*map(os.path.dirname, _places(spec))} & mine


def _is_ours(spec: ModuleSpec) -> bool:
    """Whether it is of this program: a package of the checkout, `stride` of a wheel."""
    return any(PROJECT in (Path(each), Path(each).parent) for each in _places(spec))


def modules_in(folders: list[str] | None) -> list[str]:
    """Names of modules and packages in the folders, None: wherever Python looks."""
    return [each.name for each in pkgutil.iter_modules(folders) if each.name.isidentifier() and each.name != "__main__"]


def _spec_of(top: str) -> ModuleSpec | None:
    """Of the loaded module of this name, else of the one that would be."""
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # a module without one, such as __main__
        return None


def _same(one: ModuleSpec, other: ModuleSpec) -> bool:
    return _places(one) == _places(other)


def _places(spec: ModuleSpec) -> list[str]:
    """The file or folder of a module, by which its folder is known; a built-in one is nowhere."""
    if spec.submodule_search_locations is not None:
        return [os.path.realpath(each) for each in spec.submodule_search_locations]
    return [os.path.realpath(spec.origin)] if spec.origin and spec.has_location else []
