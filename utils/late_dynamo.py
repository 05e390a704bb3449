"""torch._dynamo, torch's compiler with all of sympy, is loaded by who compiles, not by every training.

Lightning names two things of it while it is imported, and an optimizer one when it is made: OptimizedModule, to know
what was compiled, and `disable`, to leave a function out of it. Until torch._dynamo is there nothing is compiled; so
until then the first has no instances, and a function with the second is itself. Imported before Lightning; whoever
imports torch._dynamo, torch.compile above all, gets torch's own, and from then on it is asked.

Where SciPy is installed (Brax brings it), torchmetrics, which Lightning imports, loads most of it in order to give an
old name back to scipy.signal: a second of every start. There, too, something else stands in for the time of the import.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from types import FunctionType, ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
PRESET = "__dynamo_disable"  # where torch._compile looks for what it made of a function when that was called first
LIGHTNING = "lightning.pytorch"
SCIPY = ("scipy", "scipy.signal")


def disable(function: Callable[..., Any] | None = None, *asked: Any, **options: Any) -> Callable[..., Any]:
    """As torch._dynamo.disable, as soon as that is there."""
    if function is None:
        return functools.partial(disable, *asked, **options)
    kept: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def late(*given: Any, **named: Any) -> Any:
        if NAME not in sys.modules:
            return function(*given, **named)
        if not kept:
            kept.append(sys.modules[NAME].disable(function, *asked, **options))
        return kept[0](*given, **named)

    return late


class _Compiled(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return NAME in sys.modules and isinstance(thing, sys.modules[NAME].OptimizedModule)


class OptimizedModule(metaclass=_Compiled):
    """As torch._dynamo.OptimizedModule where somebody asks whether a thing is one."""


class _StandIn(ModuleType):
    """For the time of an import; who wants more of it than these two gets torch's own after all."""

    disable = staticmethod(disable)
    OptimizedModule = OptimizedModule

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules.pop(NAME, None)
        return getattr(importlib.import_module(NAME), name)


class _Apart(ModuleType):
    """scipy or scipy.signal, that has the old name already; who wants more gets SciPy after all."""

    hamming = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _drop_scipy()
        return getattr(importlib.import_module(self.__name__), name)


def _keep_scipy_apart() -> None:
    if SCIPY[0] in sys.modules or not (spec := importlib.util.find_spec(SCIPY[0])):
        return
    whole, part = (sys.modules.setdefault(name, _Apart(name)) for name in SCIPY)
    vars(whole).update(__spec__=spec, __path__=spec.submodule_search_locations, signal=part)


def _drop_scipy() -> None:
    for name in SCIPY:
        if isinstance(sys.modules.get(name), _Apart):
            del sys.modules[name]


def _functions_left_out() -> Iterator[FunctionType]:
    """Those of torch.optim.Optimizer that load torch._dynamo, to be left out of it, when they are first called."""
    for found in vars(torch.optim.Optimizer).values():
        inner = vars(found).get("__wrapped__") if isinstance(found, FunctionType) else None
        if isinstance(inner, FunctionType) and found.__globals__.get("__name__") == "torch._compile":
            yield inner


class _GiveWay(MetaPathFinder):
    """When torch._dynamo is imported, all that was preset for the time before it is gone."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == NAME:
            sys.meta_path.remove(self)
            for function in _functions_left_out():
                vars(function).pop(PRESET, None)


def _import_lightning() -> None:
    stand_in = sys.modules[NAME] = _StandIn(NAME)
    _keep_scipy_apart()
    try:
        importlib.import_module(LIGHTNING)
    except ImportError:  # one that wants more than a name of it: as if nothing had been tried
        _drop_scipy()
        for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
            del sys.modules[name]
        sys.modules.pop(NAME, None)
        importlib.import_module(LIGHTNING)
    _drop_scipy()
    if sys.modules.get(NAME) is stand_in:
        del sys.modules[NAME]
        for function in _functions_left_out():
            vars(function).setdefault(PRESET, function)
        sys.meta_path.insert(0, _GiveWay())


if NAME not in sys.modules and LIGHTNING not in sys.modules:
    _import_lightning()
