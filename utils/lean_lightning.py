"""Imports Lightning without what training does not need: torch's compiler, and most of torchmetrics.

Import this module before Lightning. It makes a start 6 of 19 seconds faster.

**torch._dynamo** is torch's compiler; it imports all of sympy. While Lightning is imported it reads two names of it,
and an optimizer one: OptimizedModule, to ask whether a module was compiled, and `disable`, to exclude a function from
compiling. As long as torch._dynamo is not loaded nothing is compiled. So a stand-in is enough: an OptimizedModule
without instances, and a `disable` that returns the function unchanged. If a program imports torch._dynamo later, for
example with torch.compile, it gets the real module, and both stand-ins ask that one from then on.

**torchmetrics** imports SciPy, torchvision and transformers if they are installed, but Lightning uses only two of its
classes. So the package is put into sys.modules unexecuted, with these two classes; it is executed when another of its
names is used.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import FunctionType, ModuleType
from typing import Any

import torch

DYNAMO = "torch._dynamo"
DISABLED_ATTRIBUTE = "__dynamo_disable"  # torch._compile stores there the disabled version of a function
LIGHTNING = "lightning.pytorch"
METRICS = "torchmetrics"
LIGHTNING_USES = {"Metric": "torchmetrics.metric", "MetricCollection": "torchmetrics.collections"}


def disable(function: Callable[..., Any] | None = None, *arguments: Any, **options: Any) -> Callable[..., Any]:
    """Stand in for torch._dynamo.disable: call the function directly until torch._dynamo is loaded, then disabled."""
    if function is None:
        return functools.partial(disable, *arguments, **options)

    @functools.cache
    def disabled() -> Callable[..., Any]:
        return sys.modules[DYNAMO].disable(function, *arguments, **options)

    @functools.wraps(function)
    def late(*values: Any, **keywords: Any) -> Any:
        return (disabled() if DYNAMO in sys.modules else function)(*values, **keywords)

    return late


class _Compiled(type):
    """Metaclass that answers isinstance(thing, OptimizedModule)."""

    def __instancecheck__(cls, thing: object) -> bool:
        return DYNAMO in sys.modules and isinstance(thing, sys.modules[DYNAMO].OptimizedModule)


class OptimizedModule(metaclass=_Compiled):
    """Stand in for torch._dynamo.OptimizedModule in isinstance(); it has no instances before that is loaded."""


class _StandIn(ModuleType):
    """Stand in for torch._dynamo while Lightning is imported; any other name imports the real module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _drop_stand_in()
        return getattr(importlib.import_module(self.__name__), name)


def _drop_stand_in() -> None:
    if isinstance(sys.modules.get(DYNAMO), _StandIn):
        del sys.modules[DYNAMO]


class _LatePackage(ModuleType):
    """The package torchmetrics, not executed yet; it is executed when a name is used that Lightning does not use."""

    def __getattr__(self, name: str) -> Any:
        if name in LIGHTNING_USES:
            importlib.import_module("torchmetrics.utilities")  # first, because it and Metric import each other
            return getattr(importlib.import_module(LIGHTNING_USES[name]), name)
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        vars(self)["__spec__"].loader.exec_module(self)
        return getattr(self, name)


def _delay_torchmetrics() -> None:
    spec = None if METRICS in sys.modules else importlib.util.find_spec(METRICS)
    if spec:
        package = sys.modules[METRICS] = _LatePackage(METRICS)
        vars(package).update(
            __spec__=spec,
            __file__=spec.origin,
            __path__=spec.submodule_search_locations,
            __version__=importlib.metadata.version(METRICS),
            _logger=logging.getLogger(METRICS),
        )


def _optimizer_functions() -> list[FunctionType]:
    """Return the methods of torch.optim.Optimizer whose first call would load torch._dynamo, to disable them there."""
    members = vars(torch.optim.Optimizer).values()
    wrappers = [member for member in members if isinstance(member, FunctionType)]
    return [vars(wrapper)["__wrapped__"] for wrapper in wrappers if wrapper.__globals__["__name__"] == "torch._compile"]


class _GiveWay(MetaPathFinder):
    """An import hook: when torch._dynamo is imported, it removes what _import_lightning stored in the optimizer."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == DYNAMO:
            sys.meta_path.remove(self)
            for function in _optimizer_functions():
                vars(function).pop(DISABLED_ATTRIBUTE, None)


def _import_lightning() -> None:
    """Import Lightning with the stand-ins, or, if it needs more names of them, again with the real modules."""
    dynamo = sys.modules[DYNAMO] = _StandIn(DYNAMO)
    vars(dynamo).update(disable=disable, OptimizedModule=OptimizedModule)
    _delay_torchmetrics()
    try:
        importlib.import_module(LIGHTNING)
    except ImportError:  # this Lightning needs more than these names
        _drop_stand_in()
        for name in [name for name in sys.modules if name.partition(".")[0] in ("lightning", METRICS)]:
            del sys.modules[name]
        importlib.import_module(LIGHTNING)
    enough = sys.modules.get(DYNAMO) is dynamo  # no other name was used
    _drop_stand_in()
    if enough:
        for function in _optimizer_functions():
            vars(function).setdefault(DISABLED_ATTRIBUTE, function)
        sys.meta_path.insert(0, _GiveWay())


if DYNAMO not in sys.modules and LIGHTNING not in sys.modules:
    _import_lightning()
