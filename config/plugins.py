"""Code of the user's own by name: `module:Name`, or the entry point of an installed package. No torch of ours.

The one place that turns such a name into a class, and that says whose names are followed: a config that came from
elsewhere names nothing that is imported, unless its module is trusted by name.
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
from stride.utils.one_line import describe_error
from stride.utils.user_error import UserError, nearest

MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
DOTTED = re.compile(rf"({MODULE}):([A-Za-z_]\w*)")
PLACE = re.compile(rf"{MODULE}:[A-Za-z_][\w./-]*")
GROUP = "stride."  # of entry points: stride.algorithms, stride.policies, stride.wrappers, stride.configs


class TooEarlyError(Exception):
    """What is asked for cannot be said before torch, or the environment, is loaded."""


class Trust(NamedTuple):
    """Whose names of code are followed."""

    everybody: bool = False
    modules: frozenset[str] = frozenset()

    def allows(self, module: str) -> bool:
        """Whether the module, or a package it lies in, is trusted."""
        parts = module.split(".")
        return self.everybody or any(".".join(parts[: n + 1]) in self.modules for n in range(len(parts)))


NOBODY, EVERYBODY = Trust(), Trust(everybody=True)
_postponed: list[bool] = []  # not empty: nothing is imported yet


@contextmanager
def postponed() -> Iterator[None]:
    """Within, a name that would have to be imported is TooEarlyError instead."""
    _postponed.append(True)
    try:
        yield
    finally:
        _postponed.pop()


def trusting(modules: Iterable[str]) -> Trust:
    """Trust in these modules alone, as somebody typed them."""
    named = frozenset(modules)
    for module in named:
        if not re.fullmatch(MODULE, module):
            raise UserError(f"--trust takes names of modules, such as mypkg, not {module[:60]!r}")
    return Trust(modules=named)


def trust_in(run: RunDir, modules: Iterable[str]) -> Trust:
    """In a run of one's own; one that lies elsewhere came from others."""
    return trusting(modules) if run.foreign else EVERYBODY


def is_dotted(name: str) -> bool:
    """Whether it names a module, rightly or not."""
    return ":" in name


@cache
def registered(group: str) -> dict[str, EntryPoint]:
    """What installed packages register in the group `stride.GROUP`, by name; nothing is imported."""
    return {each.name: each for each in entry_points(group=f"{GROUP}{group}")}


def find(key: str, group: str, name: str) -> Any:
    """What a name that no table of ours has stands for, None where there is no such name.

    UserError, one line that begins with `key`, where the module or its attribute is missing, or does not load.
    """
    if not is_dotted(name):
        return attribute(key, registered(group)[name].value) if name in registered(group) else None
    return attribute(key, name)


def attribute(key: str, name: str) -> Any:
    """`module:Name`, imported."""
    match = DOTTED.fullmatch(name)
    if not match:
        raise UserError(f"{key}: {name!r} is not module:Name, for example mypkg:Mine")
    if _postponed:
        raise TooEarlyError(name)
    module = import_named(match[1], key)
    if match[2] not in vars(module):
        public = [each for each in vars(module) if not each.startswith("_")]
        raise UserError(f"{key}: {match[1]} has no {match[2]!r}{nearest(match[2], public)}")
    return vars(module)[match[2]]


def import_named(module: str, key: str) -> ModuleType:
    """The module; whatever its own code raises becomes one line with the place."""
    try:
        return own_modules.import_named(module)
    except BaseException as error:
        if isinstance(error, UserError) or by_signal(error):
            raise
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"{key}: there is no Python module {module!r} to import{_near(module)}") from error
        frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<")]
        if str(error).startswith("write stride."):  # by an old name of ours, in the line before
            frames.pop()
        place = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 2 else ""  # two of them are ours
        raise UserError(f"{key}: {module} cannot be imported: {describe_error(error)}{place}") from error


def _near(module: str) -> str:
    """Modules beside the first part of the name that is missing."""
    found, parts = None, module.split(".")
    for n in range(len(parts)):
        name = ".".join(parts[: n + 1])
        spec = importlib.util.find_spec(name)
        if spec is None:
            paths = found.submodule_search_locations if found else None
            names = {each.name for each in pkgutil.iter_modules(paths)}
            return nearest(parts[n], names if paths else names - sys.stdlib_module_names)
        found = spec
    return ""


def package_folders() -> list[Path]:
    """Where the packages that `stride.configs` names hold YAML files; a package is found, not imported."""
    found: list[Path] = []
    for point in registered("configs").values():
        try:
            spec = importlib.util.find_spec(point.value)
        except ModuleNotFoundError:
            spec = None
        if spec is None or spec.submodule_search_locations is None:
            raise UserError(f"entry point stride.configs: {point.name}: there is no package {point.value!r}")
        found += map(Path, spec.submodule_search_locations)
    return found


NAMED: dict[str, Callable[[object], list[object]]] = {  # the keys of a config that may name code, and how
    "env_id": lambda value: [value],
    "algo_id": lambda value: [value],
    "policy": lambda value: [value],
    "env_wrappers": lambda value: [
        name for item in _items(value) if isinstance(item, Mapping) for name in (item.get("id"), *_place_names(item))
    ],
    "env_kwargs": lambda value: [*_place_names(value)],
    "callbacks": lambda value: [item.get("id") if isinstance(item, Mapping) else item for item in _items(value)],
}
GROUPS = {"algo_id": "algorithms", "policy": "policies", "env_wrappers": "wrappers"}


def named_modules(plain: Mapping[str, Any]) -> dict[str, str]:
    """Module -> the key that names it, of a config's plain data, whoever wrote it; nothing is imported."""
    found: dict[str, str] = {}
    for key, names in NAMED.items():
        for name in names(plain.get(key)):
            if not isinstance(name, str):
                continue
            point = registered(GROUPS[key]).get(name) if key in GROUPS and not is_dotted(name) else None
            value = point.value if point else name
            if is_dotted(value):
                found.setdefault(value.rpartition(":")[0], key)
    return found


def check_names(plain: object, trust: Trust, where: str) -> None:
    """UserError for the first module that a config names and that is not trusted; nothing is imported."""
    if trust.everybody or not isinstance(plain, Mapping):
        return
    for module, key in named_modules(plain).items():
        if not trust.allows(module):
            top = module.split(".")[0]
            raise UserError(
                f"{where}: {key} names a module, {module[:60]!r}, and what a run from elsewhere names is never "
                f"imported; to run that code of this machine all the same: --trust {top[:60]}"
            )


def _place_names(value: object) -> Iterator[object]:
    """Every text inside that an environment might take for a module and a name in it."""
    if isinstance(value, str) and PLACE.fullmatch(value):
        yield value
    for item in value.values() if isinstance(value, Mapping) else _items(value):
        yield from _place_names(item)


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
