"""Imports a user's own code by name: `module:Name`, or the entry point of an installed package.

Algorithms, policies, wrappers and callbacks of users are found only here. A config from elsewhere (a download) could
name harmful code; so nothing that it names is imported, unless the user trusts that module by name (--trust).
This module itself does not import torch.
"""

import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from stride.runstore.run_dir import RunDir
from stride.utils import own_modules
from stride.utils.interrupted import by_signal
from stride.utils.user_error import UserError, describe_error, nearest

MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"  # mypkg.sub
DOTTED = re.compile(rf"({MODULE}):([A-Za-z_]\w*)")  # mypkg.sub:Agent
MODULE_AND_ID = re.compile(rf"{MODULE}:[A-Za-z_][\w./-]*")  # mypkg:Maze-v0
GROUP_PREFIX = "stride."  # our groups of entry points: stride.algorithms, .policies, .wrappers, .configs


class TooEarlyError(Exception):
    """Raised where an answer needs an import (torch, the environment) that must not happen yet.

    The caller imports what is needed and asks again."""


class Trust(NamedTuple):
    """The modules that a config may name and that are then imported."""

    everybody: bool = False  # all modules
    modules: frozenset[str] = frozenset()  # names of modules and packages

    def allows(self, module: str) -> bool:
        """Return whether the module, or a package that contains it, is trusted."""
        return self.everybody or any(f"{module}.".startswith(f"{package}.") for package in self.modules)


NOBODY, EVERYBODY = Trust(), Trust(everybody=True)
_postponed: list[bool] = []  # not empty inside `postponed`; a list, because such blocks may be nested


@contextmanager
def postponed() -> Iterator[None]:
    """While this context is open, raise TooEarlyError instead of importing a user's module."""
    _postponed.append(True)
    try:
        yield
    finally:
        _postponed.pop()


def trusting(modules: Iterable[str]) -> Trust:
    """Return trust in these modules only; UserError if one, as typed after --trust, is no module name."""
    module_names = frozenset(modules)
    for module in module_names:
        if not re.fullmatch(MODULE, module):
            raise UserError(f"--trust takes module names, for example mypkg, not {module[:60]!r}")
    return Trust(modules=module_names)


def trust_in(run: RunDir, modules: Iterable[str]) -> Trust:
    """Return the trust for a run: in everything if it was made here, only in these modules if it is from elsewhere."""
    return trusting(modules) if run.foreign else EVERYBODY


def is_dotted(name: str) -> bool:
    """Return whether a name contains a module, correct or not."""
    return ":" in name


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages in `stride.<group>`, by name; nothing is imported."""
    return {entry_point.name: entry_point for entry_point in entry_points(group=f"{GROUP_PREFIX}{group}")}


def find(key: str, group: str, name: str) -> Any:
    """Return the object that a name of user code stands for; None if the name is no entry point of the group.

    UserError, one line that begins with `key`, if the module or its attribute is missing, or fails to load.
    """
    if is_dotted(name):
        return attribute(key, name)
    entry_point = registered(group).get(name)
    return attribute(key, entry_point.value) if entry_point else None


def attribute(key: str, name: str) -> Any:
    """Import the module of `module:Name` and return its attribute; UserError, which begins with `key`, if it fails."""
    parsed = DOTTED.fullmatch(name)
    if not parsed:
        raise UserError(f"{key}: {name!r} is not module:Name, for example mypkg:Mine")
    if _postponed:
        raise TooEarlyError(name)
    module_name, attribute_name = parsed.groups()
    attributes = vars(import_named(module_name, key))
    if attribute_name not in attributes:
        public = [name for name in attributes if not name.startswith("_")]
        raise UserError(f"{key}: {module_name} has no {attribute_name!r}{nearest(attribute_name, public)}")
    return attributes[attribute_name]


def check_module(name: str, key: str) -> None:
    """Raise UserError, which begins with `key`, if the module of `module:Name` does not exist; nothing is imported."""
    module = name.rpartition(":")[0]
    if module and not own_modules.can_import(module.partition(".")[0]):
        raise _no_module(module, key)


def _no_module(module: str, key: str) -> UserError:
    return UserError(f"{key}: there is no Python module {module!r}{_near(module)}")


def import_named(module: str, key: str) -> ModuleType:
    """Import a module and return it; an exception of its own code becomes one line with the file and line number."""
    try:
        return own_modules.import_named(module)
    except BaseException as error:
        if isinstance(error, UserError) or by_signal(error):
            raise
        # the module itself, or a package around it, is missing; not a module that it imports
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise _no_module(module, key) from error
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
        if str(error).startswith("write stride."):  # an import by an old name of ours; the line is one frame above
            frames.pop()
        # the first two frames are ours; only a frame of the user's code helps
        location = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 2 else ""
        raise UserError(f"{key}: {module} cannot be imported: {describe_error(error)}{location}") from error


def _near(module: str) -> str:
    """Return `; did you mean ...?` with a module similar to the first missing part of a dotted name, else ""."""
    package, name = None, ""
    for component in module.split("."):
        name = f"{name}.{component}" if name else component
        spec = importlib.util.find_spec(name)
        if spec is None:
            search_paths = package.submodule_search_locations if package else None
            names = {module_info.name for module_info in pkgutil.iter_modules(search_paths)}
            return nearest(component, names if search_paths else names - sys.stdlib_module_names)
        package = spec
    return ""


def package_folders() -> list[Path]:
    """Return the folders with YAML files of the packages in the entry points `stride.configs`; nothing is imported."""
    folders: list[Path] = []
    for point in registered("configs").values():
        try:
            spec = importlib.util.find_spec(point.value)
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.submodule_search_locations is None:
            raise UserError(f"entry point stride.configs: {point.name}: there is no package {point.value!r}")
        folders += map(Path, spec.submodule_search_locations)
    return folders


# keys of a config that may name code -> a function that returns the names in the key's value
NAMES_IN_KEY: dict[str, Callable[[object], Iterable[object]]] = {
    "env_id": lambda value: [value],
    "algo_id": lambda value: [value],
    "policy": lambda value: [value],
    "env_wrappers": lambda value: [*_ids(value), *_module_texts(_items(value))],
    "env_kwargs": lambda value: _module_texts(value),
    "callbacks": lambda value: [*_ids(value), *_items(value)],
}
# keys whose value may be the name of an entry point -> its group
GROUP_OF_KEY = {"algo_id": "algorithms", "policy": "policies", "env_wrappers": "wrappers"}


def named_modules(plain: Mapping[str, Any]) -> dict[str, str]:
    """Return module -> the key that names it, for all modules in a config's plain data; nothing is imported.

    The data may come from anybody, so values of any type are accepted."""
    modules: dict[str, str] = {}
    for key, names in NAMES_IN_KEY.items():
        for name in names(plain.get(key)):
            if not isinstance(name, str):
                continue
            if key in GROUP_OF_KEY and not is_dotted(name) and name in registered(GROUP_OF_KEY[key]):
                name = registered(GROUP_OF_KEY[key])[name].value
            if is_dotted(name):
                modules.setdefault(name.rpartition(":")[0], key)
    return modules


def check_names(plain: object, trust: Trust, where: str) -> None:
    """Raise UserError for the first module in a config that is not trusted; nothing is imported."""
    if trust.everybody or not isinstance(plain, Mapping):
        return
    for module, key in named_modules(plain).items():
        if not trust.allows(module):
            top_package = module.split(".")[0]
            raise UserError(
                f"{where}: {key} names the module {module[:60]!r}; modules named by a run from elsewhere are not "
                f"imported. To run this machine's module of that name, add --trust {top_package[:60]}"
            )


def _module_texts(value: object) -> Iterator[object]:
    """Yield every text inside a value that an environment could read as `module:name`."""
    if isinstance(value, str) and MODULE_AND_ID.fullmatch(value):
        yield value
    for item in value.values() if isinstance(value, Mapping) else _items(value):
        yield from _module_texts(item)


def _ids(value: object) -> list[object]:
    return [item.get("id") for item in _items(value) if isinstance(item, Mapping)]


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
