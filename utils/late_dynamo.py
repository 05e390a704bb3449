"""torch._dynamo, torch's compiler with all of sympy, is loaded only by programs that compile.

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
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import FunctionType, ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
PRESET = "__dynamo_disable"  # where torch._compile looks for what it made of a function when that was called first
LIGHTNING = "lightning.pytorch"
SCIPY = ("scipy", "scipy.signal")


def disable(function: Callable[..., Any] | None = None, *arguments: Any, **options: Any) -> Callable[..., Any]:
    """As torch._dynamo.disable, as soon as that is loaded."""
    if function is None:
        return functools.partial(disable, *arguments, **options)

    @functools.cache
    def disabled() -> Callable[..., Any]:
        return sys.modules[NAME].disable(function, *arguments, **options)

    @functools.wraps(function)
    def late(*values: Any, **keywords: Any) -> Any:
        return (disabled() if NAME in sys.modules else function)(*values, **keywords)

    return late


class _Compiled(type):
    def __instancecheck__(cls, thing: object) -> bool:
        return NAME in sys.modules and isinstance(thing, sys.modules[NAME].OptimizedModule)


class OptimizedModule(metaclass=_Compiled):
    """As torch._dynamo.OptimizedModule where somebody asks whether a thing is one."""


class _StandIn(ModuleType):
    """In place of a module for the time of an import; whoever wants another name of it gets the real modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _drop_stand_ins()
        return getattr(importlib.import_module(self.__name__), name)


def _stand_in(name: str, **attributes: object) -> _StandIn:
    module = sys.modules[name] = _StandIn(name)
    vars(module).update(attributes)
    return module


def _drop_stand_ins() -> None:
    for name in (NAME, *SCIPY):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def _optimizer_functions() -> list[FunctionType]:
    """Those of torch.optim.Optimizer that load torch._dynamo, to be left out of it, when they are first called."""
    members = vars(torch.optim.Optimizer).values()
    wrappers = [member for member in members if isinstance(member, FunctionType)]
    return [vars(wrapper)["__wrapped__"] for wrapper in wrappers if wrapper.__globals__["__name__"] == "torch._compile"]


class _GiveWay(MetaPathFinder):
    """When torch._dynamo is imported, all that was preset for the time before it is removed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == NAME:
            sys.meta_path.remove(self)
            for function in _optimizer_functions():
                vars(function).pop(PRESET, None)


def _import_lightning() -> None:
    dynamo = _stand_in(NAME, disable=disable, OptimizedModule=OptimizedModule)
    spec = None if SCIPY[0] in sys.modules else importlib.util.find_spec(SCIPY[0])
    if spec:
        signal = _stand_in(SCIPY[1], hamming=None)
        _stand_in(SCIPY[0], __spec__=spec, __path__=spec.submodule_search_locations, signal=signal)
    try:
        importlib.import_module(LIGHTNING)
    except ImportError:  # one that wants more than a name of it: import it again without stand-ins
        _drop_stand_ins()
        for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
            del sys.modules[name]
        importlib.import_module(LIGHTNING)
    enough = sys.modules.get(NAME) is dynamo  # nobody wanted more of it
    _drop_stand_ins()
    if enough:
        for function in _optimizer_functions():
            vars(function).setdefault(PRESET, function)
        sys.meta_path.insert(0, _GiveWay())


if NAME not in sys.modules and LIGHTNING not in sys.modules:
    _import_lightning()
