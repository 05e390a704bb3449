"""Imports Lightning without what it does not need to train: torch's compiler, and most of torchmetrics.

This module is imported before Lightning.

torch._dynamo, torch's compiler with all of sympy, is loaded only by programs that compile. Lightning names two things
of it while it is imported, and an optimizer one when it is made: OptimizedModule, to know what was compiled, and
`disable`, to leave a function out of it. Until torch._dynamo is there nothing is compiled; so until then the first has
no instances, and a function with the second is itself. Whoever imports torch._dynamo, torch.compile above all, gets
torch's own, and from then on it is asked.

Lightning uses two classes of torchmetrics, whose package loads much more when it is imported: SciPy, torchvision and
transformers, each where it is installed. Six of 19 seconds of a start were spent there. The package is here from the
start, with these classes; the rest of it is loaded when another name of it is used.
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

NAME = "torch._dynamo"
PRESET = "__dynamo_disable"  # where torch._compile looks for what it made of a function when that was called first
LIGHTNING = "lightning.pytorch"
METRICS = "torchmetrics"
USED = {"Metric": "torchmetrics.metric", "MetricCollection": "torchmetrics.collections"}  # by Lightning


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
    """In place of torch._dynamo while Lightning is imported; another name of it imports the real module."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _drop_stand_in()
        return getattr(importlib.import_module(self.__name__), name)


def _drop_stand_in() -> None:
    if isinstance(sys.modules.get(NAME), _StandIn):
        del sys.modules[NAME]


class _LatePackage(ModuleType):
    """torchmetrics, not executed yet: that is done when a name is used that Lightning does not use."""

    def __getattr__(self, name: str) -> Any:
        if name in USED:
            importlib.import_module("torchmetrics.utilities")  # which Metric and itself import in a circle, this first
            return getattr(importlib.import_module(USED[name]), name)
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
    dynamo = sys.modules[NAME] = _StandIn(NAME)
    vars(dynamo).update(disable=disable, OptimizedModule=OptimizedModule)
    _delay_torchmetrics()
    try:
        importlib.import_module(LIGHTNING)
    except ImportError:  # one that needs more than these names: import it again, with the whole modules
        _drop_stand_in()
        for name in [name for name in sys.modules if name.partition(".")[0] in ("lightning", METRICS)]:
            del sys.modules[name]
        importlib.import_module(LIGHTNING)
    enough = sys.modules.get(NAME) is dynamo  # no other name was used
    _drop_stand_in()
    if enough:
        for function in _optimizer_functions():
            vars(function).setdefault(PRESET, function)
        sys.meta_path.insert(0, _GiveWay())


if NAME not in sys.modules and LIGHTNING not in sys.modules:
    _import_lightning()
